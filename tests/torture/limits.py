"""Commands under every limit of address space: each is enough, or named in one line."""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
from pathlib import Path

from support import CSV

import tfrecorder
from torture.counts import Count, demand

#: Megabytes, from what Python and pandas need to what is enough for anything.
LIMITS = (320, 360, 375, 400, 450, 500, 550, 600, 700, 850, 1000, 1200, 1465, 2000, 4000)


def within(megabytes: int, *words: str) -> subprocess.CompletedProcess[str]:
    """A command of ours under a limit, as `ulimit -v` sets it."""
    size = megabytes * 2**20
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tfrecorder", *words],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (size, size)),
        capture_output=True,
        text=True,
        timeout=240,
    )


def squeeze(folder: Path, limits: tuple[int, ...] = LIMITS) -> list[Count]:
    """Every command under every limit.

    Raises:
        BrokenError: one is killed, shows a traceback, or leaves something that is not whole.
    """
    dataset, out = str(folder / "dataset"), str(folder / "out")
    tfrecorder.convert(CSV, dataset, progress=False)
    commands = (
        *(["convert", str(CSV), out], ["validate", str(CSV), "--check-images"]),
        *(["status", dataset], ["info", dataset], ["inspect", dataset], ["verify", dataset]),
        *(["preview", dataset, "--html", str(folder / "page.html")],),
    )
    enough = 0
    for words in commands:
        for limit in limits:
            ended = within(limit, *words)
            case = f"{words[0]} in {limit} MB: {ended.returncode} {ended.stderr[-999:]}"
            demand(ended.returncode in (0, 1), case)
            if ended.returncode:
                last = (ended.stderr.splitlines() or [""])[-1]
                demand(last.startswith("error: ") and "ulimit -v" in last, case)
                demand("Traceback" not in ended.stderr, case)
            enough += ended.returncode == 0
        if words[0] == "convert" and Path(out, "dataset_info.json").exists():
            demand(tfrecorder.verify(out, progress=False).ok, f"{out}: verify finds faults")
    shutil.rmtree(folder)
    tried = len(commands) * len(limits)
    return [Count("limits of address space", tried, tried, 0, f"{enough} were enough")]
