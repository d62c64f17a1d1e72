"""Engines of Beam as processes on loopback, and conversions slow enough to be hit on the way."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
from PIL import Image
from support import PHOTOS, wait_for

import tfrecorder
from helpers.public_types import ConversionResult


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def answers(port: int) -> bool:
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    return False


@contextlib.contextmanager
def running(module: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A module of this Python as a process, ended with its children at the end of the block."""
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PATH": tools},  # worker pools start "python"
    )
    try:
        yield process
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
        process.kill()
        process.wait()


def slow_frame(folder: Path, shards: int) -> pd.DataFrame:
    """Rows of `shards` shards in order, each of which takes a worker some tenths of a second.

    The last image of each shard is a large BMP, which becomes a PNG.
    """
    folder.mkdir(exist_ok=True)
    pixels = np.random.RandomState(0).randint(0, 256, (1200, 1200, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(folder / "large.bmp")
    uris = [*map(str, PHOTOS[:5]), str(folder / "large.bmp")] * shards
    return pd.DataFrame({"split": "TRAIN", "image_uri": uris, "label": "x"})


def convert_and_kill(
    pids: Callable[[], Sequence[int]], writers: int, frame: pd.DataFrame, **options: object
) -> tuple[str, ConversionResult | tfrecorder.TfrecorderError]:
    """Convert to "out", and kill a worker in the middle of a shard.

    Args:
        pids: lists the workers of the moment.
        writers: how many of them must have been seen to write by then.

    Returns:
        The shard that was hit, and what the conversion came to.
    """
    ended: ConversionResult | tfrecorder.TfrecorderError
    with ThreadPoolExecutor(1) as other:
        hit = other.submit(kill_one, pids, writers)
        try:
            ended = tfrecorder.convert(frame, "out", **options)
        except tfrecorder.TfrecorderError as error:
            ended = error
        return hit.result(timeout=1), ended


def kill_one(pids: Callable[[], Sequence[int]], writers: int) -> str:
    """Kill a worker in the middle of a shard, as for `convert_and_kill`; the shard's name."""
    seen: set[int] = set()
    killed: list[str] = []

    def look() -> bool:
        for pid in pids():
            shard = _shard_under_way(pid)
            if shard is not None:
                seen.add(pid)
                if len(seen) >= writers and _killed_in(pid, shard):
                    killed.append(shard)
                    return True
        return False

    wait_for(look)
    return killed[0]


def _shard_under_way(pid: int) -> str | None:
    """The name of the shard that a process is writing."""
    with contextlib.suppress(psutil.Error):
        for file in psutil.Process(pid).open_files():
            if "/_tfrecorder/tmp/" in file.path and ".tfrecord." in file.path:
                return Path(file.path).name.partition(".")[0]
    return None


def _killed_in(pid: int, shard: str) -> bool:
    """Kill a process if it still writes the shard."""
    os.kill(pid, signal.SIGSTOP)  # it holds still while we look
    if _shard_under_way(pid) == shard:
        os.kill(pid, signal.SIGKILL)
        return True
    os.kill(pid, signal.SIGCONT)
    return False
