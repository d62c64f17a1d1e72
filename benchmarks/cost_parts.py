"""What `cost.py` measures besides our conversions: everybody's first version, and a worker's start.

Each function prepares a case of the harness; `wheels` makes what the cases of installing need.
"""

from __future__ import annotations

import contextlib
import csv
import importlib
import os
import platform
import subprocess
import sys
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any

import bucket
import harness
from harness import Numbers, Timed

#: What the process of a worker imports: Beam's own part, and what the work needs.
BEAM = "apache_beam.runners.worker.sdk_worker_main"
OUR_IMPORTS = (
    BEAM,
    "tfrecorder.writing.pipeline",
    "simplejpeg",
    "PIL.Image",
    "google.cloud.storage",
)
TENSORFLOW_IMPORTS = (BEAM, "tensorflow", "PIL.Image", "apache_beam.io.gcp.gcsio")

#: Part of every Python image, besides what Beam's list names.
_INSTALLERS = ("pip", "setuptools", "wheel")


def with_tensorflow(source: str, images: int, decode: bool) -> Timed:
    """One Beam element an image, with TensorFlow in the worker, from gs:// to gs://.

    Each image comes by the same GET as ours, which takes less than TensorFlow's or Beam's own;
    the files go out by Beam's `WriteToTFRecord`.  Nothing is checked unless `decode`.
    """
    import apache_beam
    import tensorflow  # noqa: F401  imported before the time starts, as the others are
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner

    _fit_for_loopback()

    def convert(url: str, images: int) -> None:
        splits: dict[str, list[tuple[str, int]]] = {}
        for split, path, label in _rows("gs://bkt/data.csv"):
            splits.setdefault(split.lower(), []).append((path, int(label.rpartition("_")[2])))
        with apache_beam.Pipeline(FnApiRunner()) as pipeline:
            for split, rows in splits.items():
                examples = (
                    pipeline
                    | f"{split}: rows" >> apache_beam.Create(rows)
                    | f"{split}: examples" >> apache_beam.Map(fetched_example, decode)
                )
                examples | f"{split}: files" >> apache_beam.io.WriteToTFRecord(
                    f"gs://bkt/beam/{split}", file_name_suffix=".tfrecord"
                )

    return bucket.against_server(convert, source, images)


def _fit_for_loopback() -> None:
    """Beam renames its few files by batches of requests, which the loopback server has not, and
    would look for credentials for 20 s: each request goes alone here, and there are none."""
    from types import SimpleNamespace

    from apache_beam.internal.gcp import auth
    from apache_beam.io.gcp.gcsio import GcsIO
    from google.api_core.exceptions import NotFound

    def each(self: Any, requests: Any, ask: Any) -> list[SimpleNamespace]:
        for request in requests:
            with contextlib.suppress(NotFound):  # what Beam passes over, too
                ask(request)
        return [SimpleNamespace(status_code=200) for _ in requests]

    GcsIO._batch_with_retry = each
    auth._Credentials._credentials_init = True


def fetched_example(row: tuple[str, int], decode: bool) -> bytes:
    """An image of a bucket as a serialized tf.train.Example."""
    import tensorflow as tf
    from peers_writers import example

    from tfrecorder import storage

    path, label = row
    data = storage.read_bytes(path)
    if decode:
        tf.io.decode_jpeg(data, channels=3)
    return example(data, label)


def _rows(path: str) -> list[list[str]]:
    from tfrecorder import storage

    return list(csv.reader(storage.read_bytes(path).decode().splitlines()))[1:]


def imports(modules: list[str]) -> Timed:
    """What a worker's process imports before it does anything."""

    def run() -> Numbers:
        for name in modules:
            importlib.import_module(name)
        return {}

    return run


def install(wheels: list[str], out: str) -> Timed:
    """What a worker's machine installs: the wheels are there already, nothing is downloaded."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    command += ["--disable-pip-version-check", "--no-cache-dir", "--target", out, *wheels]
    # pip installs into a temporary folder and moves it: to be on the same disk.
    environment = {**os.environ, "TMPDIR": str(Path(out).parent)}

    def run() -> Numbers:
        subprocess.run(command, check=True, capture_output=True, env=environment)
        installed = sum(path.stat().st_size for path in Path(out).rglob("*") if path.is_file())
        return {
            "wheels_mb": sum(os.path.getsize(path) for path in wheels) / 1e6,
            "installed_mb": installed / 1e6,
        }

    return run


def our_wheels(folder: Path) -> list[str]:
    """The wheels that a launch on Dataflow stages, made by the same code."""
    from tfrecorder.runners.dataflow.wheels import stage_wheels

    folder.mkdir(parents=True, exist_ok=True)
    return stage_wheels(str(folder), platform.machine())


def tensorflow_wheels(folder: Path) -> list[str]:
    """The wheels of TensorFlow and of what it needs on top of Beam's stock image, downloaded."""
    folder = folder / f"tensorflow-{distribution('tensorflow').version}"
    done = folder / "done"
    if not done.exists():
        wanted = [f"{one.name}=={one.version}" for one in beside_the_image("tensorflow")]
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--only-binary", ":all:", "--dest", str(folder), *wanted]
        subprocess.run(command, check=True)
        done.touch()
    return sorted(str(path) for path in folder.glob("*.whl"))


def beside_the_image(name: str) -> list[Distribution]:
    """A package and all that it requires, but for what Beam's stock worker image holds."""
    from packaging.requirements import Requirement
    from services.dataflow.image import normal, stock_distributions

    there, found, todo = {*stock_distributions(), *_INSTALLERS}, {}, [name]
    while todo:
        one = normal(todo.pop())
        if one not in there and one not in found:
            found[one] = distribution(one)
            wanted = map(Requirement, found[one].requires or ())
            todo += [it.name for it in wanted if not it.marker or it.marker.evaluate({"extra": ""})]
    return list(found.values())


def make_large(data: Path, count: int) -> Path:
    """The CSV of so many photographs of 12 megapixels and 3.6 MB, made on first use."""
    import photos
    import reading_data

    folder = data / f"large-{count}"
    if not (folder / "data.csv").exists():
        photos.bring_photos(data / "photos")
        found = reading_data.find_photos(data / "photos")
        reading_data.make_large(found, folder, count, 3_600_000)
    return folder / "data.csv"


def bytes_each(source: Path) -> float:
    """The mean size of the images of a CSV."""
    from writing import read_rows

    paths = [source.parent.joinpath(path) for _, path, _ in read_rows(str(source))]
    return harness.warm([str(path) for path in paths]) / len(paths)
