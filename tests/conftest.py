"""Fixtures for all tests."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pytest
from support import CSV, TESTS, WHOLE_SWEEPS, photo_frame

import tfrecorder

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# Operations note when they began; tests compare all files of a killed one with a whole one's.
os.environ.setdefault("SOURCE_DATE_EPOCH", "1800000000")

# Those run in their own process: tests/services/test_trainers.py.
collect_ignore = [] if "TFRECORDER_DATASET" in os.environ else ["services/trainers"]


#: Folders and files whose tests convert as most users do, on Beam, whose start takes four times as
#: long as the rest of a small conversion.  For the others a conversion only makes the dataset that
#: they look at: they convert as where Beam is not installed, to the same bytes.
ON_BEAM = (
    "cli",
    "core",
    "display",
    "docs",
    "runners",
    "services",
    "streaming",
    "torture",
    "writing",
    "test_agreement.py",
    "test_walks.py",
    "test_walls.py",
    "conversion/test_conversion.py",
    "conversion/test_compact_in_place.py",
    "conversion/test_growing_append.py",
    "conversion/test_overwrite.py",
    "conversion/test_overwrite_put_back.py",
    "conversion/test_parts.py",
    "conversion/test_rejects.py",
    "conversion/test_resume.py",
    "conversion/test_undo.py",
    "conversion/test_update.py",
    "options/test_marked_options.py",
    "reading/test_predecessor.py",
    "storage/test_web_images.py",
)


def pytest_collection_finish() -> None:
    """What is imported now stays: Python's collector need not visit it again and again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Choose what converts, also in fixtures of a session; `make torture` takes Beam for all."""
    on_beam = WHOLE_SWEEPS or any(item.path.is_relative_to(TESTS / part) for part in ON_BEAM)
    with pytest.MonkeyPatch.context() as patch:
        if not on_beam:
            patch.setitem(sys.modules, "apache_beam", None)
        return (yield)


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled photographs as a committed dataset; not to be changed."""
    out = tmp_path_factory.mktemp("photos") / "dataset"
    tfrecorder.convert(CSV, out, num_shards={"TRAIN": 3, "VALIDATION": 2, "TEST": 1})
    return out


@pytest.fixture
def frame() -> pd.DataFrame:
    """The bundled photographs as a frame with absolute paths, all in TRAIN."""
    return photo_frame()


@pytest.fixture(autouse=True)
def _in_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test works in an empty folder of its own."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def _unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is synced in this process, in which no test cuts the power: a disk is slow at it."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def plain_user(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable]:
    """A context in which file permissions count, which root passes over; in a folder of its own.

    Nothing may be imported within: the packages may lie where only root can read.
    """

    @contextlib.contextmanager
    def context() -> Iterator[None]:
        os.seteuid(65534)
        try:
            yield
        finally:
            os.seteuid(0)

    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        monkeypatch.chdir(folder)
        yield context if os.getuid() == 0 else contextlib.nullcontext
        for path in Path(folder).rglob("*"):
            path.chmod(0o777)
        monkeypatch.undo()


@pytest.fixture
def ram() -> None:
    """A bucket's stand-in, which TensorFlow reads as ram://, and we by fsspec."""
    import fsspec
    import tensorflow as tf

    class Ram(fsspec.AbstractFileSystem):
        protocol = "ram"

        def info(self, path: str, **_: object) -> dict[str, object]:
            try:
                stat = tf.io.gfile.stat(f"ram://{path}")
            except tf.errors.NotFoundError as error:
                raise FileNotFoundError(path) from error
            return {
                "name": path,
                "size": stat.length,
                "type": "directory" if stat.is_directory else "file",
            }

        def ls(self, path: str, detail: bool = True, **_: object) -> list[dict[str, object]]:
            if self.info(path)["type"] != "directory":
                raise NotADirectoryError(path)
            names = tf.io.gfile.listdir(f"ram://{path}")
            return [self.info(f"{path}/{name.rstrip('/')}") for name in names]

        def cat_file(
            self, path: str, start: int | None = None, end: int | None = None, **_: object
        ) -> bytes:
            with tf.io.gfile.GFile(f"ram://{path}", "rb") as file:
                return bytes(file.read()[start:end])

    fsspec.register_implementation("ram", Ram, clobber=True)
