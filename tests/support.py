"""What several test files share: photographs, reading back without TensorFlow, the command line.

The inner law: it reaches into the package for all of them, for TFRecord framing, cells of a CSV,
the command and its options, the patience with a service that does not answer, and what converts.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import pandas as pd
import pytest
from click.testing import CliRunner, Result

import tfrecorder
from tfrecorder import parse_example, storage
from tfrecorder.cli.main import main
from tfrecorder.format.csv_cells import value_of
from tfrecorder.format.example import encode_parts
from tfrecorder.format.tfrecord import frame, read_records
from tfrecorder.options.report_codes import CODES
from tfrecorder.output.staging import read_all_done, read_plan
from tfrecorder.output.state import DatasetState
from tfrecorder.schema import Image, Label, Schema, Split
from tfrecorder.schema.schema_file import write_schema
from tfrecorder.storage import files, retry
from tfrecorder.storage.retry import patience
from tfrecorder.writing.commit import commit

TESTS = Path(__file__).parent
ROOT = TESTS.parent
SAMPLES = ROOT / "samples"
CSV = SAMPLES / "photos.csv"
PHOTOS = sorted(SAMPLES.glob("photos/*/*.jpg"))

#: A process started with "&" by a script ignores Ctrl-C, and so do its children.
LISTEN_TO_CTRL_C = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"

#: The command in its own process, for `python -c` and the arguments of the command.
COMMAND = LISTEN_TO_CTRL_C + "import runpy; runpy.run_module('tfrecorder', run_name='__main__')"

#: Set by `make torture`, which takes all cases of each sweep; CI would take too long.
WHOLE_SWEEPS = "WHOLE_SWEEPS" in os.environ


def whose_turn(at: int, ways: Sequence[Any], many: int = 1) -> list[Any]:
    """The ways that a case of a sweep is tried in: all in `make torture`, else some in turn.

    Args:
        at: the place of the case.
        many: how many ways.
    """
    if WHOLE_SWEEPS:
        return list(ways)
    return [ways[(at + step * len(ways) // many) % len(ways)] for step in range(many)]


def slow_cases(*cases: Any) -> list[Any]:
    """Cases of a parametrised test that `make test` leaves out; a tuple has several arguments."""
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
        for case in cases
    ]


def photo_frame(rows: int = len(PHOTOS), split: str = "TRAIN") -> pd.DataFrame:
    """A frame of any length: the photographs again and again."""
    uris = [str(PHOTOS[row % len(PHOTOS)]) for row in range(rows)]
    labels = [Path(uri).parent.name for uri in uris]
    return pd.DataFrame({"split": split, "image_uri": uris, "label": labels})


def given_again(directory: Any, *arguments: Any, **options: Any) -> pd.DataFrame:
    """The frame that a dataset was made from: `to_frame` without the numbers that it adds."""
    frame = tfrecorder.to_frame(directory, *arguments, **options)
    assert frame["row"].tolist() == frame.index.tolist()
    return frame.drop(columns="row")


def serialized(shard: str | Path) -> list[bytes]:
    """Every record of a shard, as it is stored."""
    with open(shard, "rb") as file:
        return list(read_records(file))


def encoded(example: Mapping[str, Any]) -> bytes:
    """An Example as its bytes."""
    return b"".join(encode_parts(example))


def framed(data: bytes) -> bytes:
    """A record as a shard's file holds it."""
    return b"".join(frame([data]))


def copied_as_tfds(dataset: str | Path, folder: str) -> None:
    """A copy of a dataset as TFDS writes one: with its file names, and without what is ours."""
    shutil.copytree(dataset, folder, ignore=shutil.ignore_patterns("_tfrecorder"))
    info = json.loads(Path(folder, "dataset_info.json").read_text())
    del info["releaseNotes"]
    for split in info["splits"]:
        del split["filepathTemplate"]
        files = shards(folder, split["name"])
        for number, shard in enumerate(files):
            name = f"dataset-{split['name']}.tfrecord-{number:05d}-of-{len(files):05d}"
            shard.rename(Path(folder, name))
    Path(folder, "dataset_info.json").write_text(json.dumps(info))


def examples(shard: str | Path) -> list[dict[str, Any]]:
    """Every record of a shard, with the list of values of each key."""
    return [dict(parse_example(data)) for data in serialized(shard)]


def shards(output_dir: str | Path, split: str = "") -> list[Path]:
    return sorted(Path(output_dir).glob(f"{split.lower()}*.tfrecord"))


def records(output_dir: str | Path, split: str = "") -> list[dict[str, Any]]:
    """The records of a dataset in the order of its files, as plain Python values."""
    found = []
    for example in (one for shard in shards(output_dir, split) for one in examples(shard)):
        values = {key: next(iter(value)) for key, value in example.items()}
        found.append({k: v if isinstance(v, bytes) else v.item() for k, v in values.items()})
    return found


def filenames(output_dir: str | Path, split: str = "") -> list[str]:
    return [record["image/filename"].decode() for record in records(output_dir, split)]


def public_files(output_dir: str | Path) -> dict[str, bytes]:
    """Every file of a dataset but those in _tfrecorder/, with its bytes."""
    return {path.name: path.read_bytes() for path in Path(output_dir).iterdir() if path.is_file()}


def content_files(dataset: str | Path | Mapping[str, bytes]) -> dict[str, bytes]:
    """Public files of a dataset, without what says which commit they are of.

    What later operations write, or another plan of the same records, has these bytes too.
    """
    files = dict(dataset) if isinstance(dataset, Mapping) else public_files(dataset)
    info = json.loads(files["dataset_info.json"])
    del info["version"], info["releaseNotes"]
    files["dataset_info.json"] = re.sub(r"-r[0-9]+-", "-", json.dumps(info)).encode()
    return {re.sub(r"-r[0-9]+-", "-", name): data for name, data in files.items()}


def labelled(*names: Any) -> Schema:
    """The schema of a table with the usual columns, with these class names."""
    return Schema(split=Split(required=False), image_uri=Image(), label=Label(names=names))


def written(source: Any, output_dir: str | Path = "out", **options: Any) -> None:
    """A conversion whose shards are all written, and which is not committed."""
    tfrecorder.parts.stage(source, output_dir, **options)
    tfrecorder.parts.work(output_dir, progress=False)


def commit_late(output_dir: str) -> None:
    """What is staged and written is committed as a job does it that was launched long ago."""
    plan = read_plan(output_dir)
    assert plan is not None
    done = read_all_done(output_dir, plan.layout.shards, plan.digest).values()
    state = DatasetState.read(output_dir)
    commit(state, plan, [record for record in done if record], 1.0)


def rejects(output_dir: str | Path, name: str = "rejects.csv") -> pd.DataFrame:
    with open(Path(output_dir, name), newline="", encoding="utf-8") as file:
        head, *rows = csv.reader(file)
    rows = [list(map(value_of, row)) for row in rows]
    return pd.DataFrame(rows, columns=head).astype({"row": int})


def set_patience(monkeypatch: pytest.MonkeyPatch, **values: float) -> None:
    """Wait for services in another way in this process: fields of `Patience`."""
    changed = dataclasses.replace(patience(), **values)
    monkeypatch.setattr("tfrecorder.storage.retry._PATIENCE", changed)


def limit_web_files(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Take no larger file from the web."""
    monkeypatch.setattr("tfrecorder.storage.web_store.MAX_FILE_BYTES", size)


def make_public(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """Take this address, and no other, for one that every uri on the web may lead to."""
    monkeypatch.setattr("tfrecorder.storage.web_store._is_public", address.__eq__)


def upload_in_parts(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Send files that are larger to s3:// and az:// in parts."""
    monkeypatch.setattr("tfrecorder.storage.object_store._AT_ONCE", size)


def put(directory: str, name: str, data: bytes) -> None:
    """Write a file as we write each, to whatever storage."""
    storage.publish_bytes(directory, name, data)


def remove(directory: str, name: str) -> None:
    """Remove a file as we remove each."""
    storage.remove(directory, name)


def content_of(uri: str) -> bytes:
    """The bytes of a file in whatever storage."""
    return storage.read_bytes(uri)


def forget_services() -> None:
    """Drop what this process knows of services: clients for another server, and what failed."""
    files._REMOTE.clear()
    retry._SAID.clear()


def shorten_pauses(monkeypatch: pytest.MonkeyPatch, share: float = 0.004) -> None:
    """Ask again soon and often in this process, with all the patience that a user has.

    For what succeeds in the end: on a busy machine three attempts may take seconds.
    """
    pauses = {"first_pause": 0.25 * share, "longest_pause": 5 * share, "quiet": 3 * share}
    set_patience(monkeypatch, **pauses)


def shorten_patience(monkeypatch: pytest.MonkeyPatch, seconds: float = 0.2) -> None:
    """Give up after so many seconds in this process, for what fails in the end."""
    set_patience(monkeypatch, seconds=seconds)
    shorten_pauses(monkeypatch, seconds / 120)


def list_folders_of(monkeypatch: pytest.MonkeyPatch, files: int) -> None:
    """List a folder of a bucket from so few files on, so that a test need not make a thousand."""
    monkeypatch.setattr("tfrecorder.sources.named_files.LISTED", files)


def is_installed(package: str) -> bool:
    """A package or a module of one is there; it is not imported here, but its parents are."""
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False


def skip_without(*packages: str) -> None:
    """Skip a test that needs packages which are not installed."""
    for package in packages:
        if not is_installed(package):
            pytest.skip(f"{package} is not installed")


def error_of(
    kind: type[BaseException], source: Any, output_dir: Any = "out", **options: Any
) -> str:
    """The words with which a conversion fails."""
    try:
        tfrecorder.convert(source, output_dir, **options)
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind.__name__}")


def run(*arguments: Any, seconds: float = 600, **options: Any) -> subprocess.CompletedProcess[str]:
    """A finished process of this Python, which may take so long."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=seconds,
        **options,
    )


def invoke(*arguments: Any, piped: bytes | None = None) -> Result:
    """The command in this process, with its exit code and what it prints.

    Raises:
        Exception: what the command does not catch, and would show with a traceback.
    """
    words = [str(argument) for argument in arguments]
    return CliRunner().invoke(main, words, input=piped, catch_exceptions=False)


def dry_run(source: Any, output_dir: str = "out", **options: Any) -> dict[str, Any]:
    """What `--dry-run --json` prints, also for a source that the command line cannot take."""
    return tfrecorder.convert(source, output_dir, dry_run=True, progress=False, **options).as_dict()


def severities() -> dict[str, str]:
    """All codes that a validation report may have, each with its severity."""
    return {code: severity for code, (severity, _) in CODES.items()}


def schema_text(schema: Schema) -> str:
    """What `tfrecorder schema` prints for a source with this schema."""
    return write_schema(schema)


def commands() -> dict[str, click.Command]:
    """All commands by name, with their options and helps."""
    return dict(main.commands)


def start(code: str, *arguments: Any, **options: Any) -> subprocess.Popen[str]:
    """A process of this Python that runs a script and can be interrupted."""
    return subprocess.Popen(
        [sys.executable, "-c", LISTEN_TO_CTRL_C + code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **options,
    )


def wait_for(condition: Callable[[], object], seconds: float = 180) -> None:
    """Wait until something is so."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.005)


def done_shards(output_dir: str | Path) -> int:
    return len(list(Path(output_dir).glob("_tfrecorder/done/*.json")))


def stop(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What a process had written when it was killed, alone, without a chance to tidy up."""
    os.kill(process.pid, signal.SIGKILL)
    return process.communicate(timeout=60)


def copied_photos(folder: Path) -> pd.DataFrame:
    """The photographs, copied into a folder, as a table: one in four of them is for the test."""
    shutil.copytree(SAMPLES / "photos", folder / "photos")
    uris = sorted(map(str, (folder / "photos").rglob("*.jpg")))
    splits = ["TRAIN" if number % 4 else "TEST" for number in range(len(uris))]
    labels = [Path(uri).parent.name for uri in uris]
    return pd.DataFrame({"split": splits, "image_uri": uris, "label": labels})


def press_ctrl_c(process: subprocess.Popen[str]) -> None:
    """As a terminal does it: to the process and all its children."""
    os.killpg(process.pid, signal.SIGINT)


def end_by_ctrl_c(process: subprocess.Popen[str], seconds: float = 20) -> str:
    """What a process says on its standard error whose user presses Ctrl-C until it ends.

    Python drops the interrupt that comes while a finalizer runs; then people press again.

    Args:
        seconds: within which it ends that was heard.
    """
    for _ in range(3):
        press_ctrl_c(process)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=seconds)[1]
    raise AssertionError("Ctrl-C was pressed three times, and it goes on")
