"""`undo` abandons what was begun and not committed, and leaves nothing of it behind.

What was committed is taken back in `test_undo_committed.py`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tensorflow_datasets as tfds
from helpers.growing_cases import QUIET, table
from services.gcs.control import Gcs
from support import commit_late, error_of, invoke, photo_frame, public_files
from torture.steps import Moment, convert_until

import tfrecorder
from tfrecorder.errors import DatasetError, OutputError

pytest_plugins = ["services.gcs.fixtures"]

OUT = "gs://bkt/sets/out"


def append(out: str) -> None:
    tfrecorder.append(table(12, 8, label="zebra"), out, num_shards=2, stage_only=True, **QUIET)


def overwrite(out: str) -> None:
    rows = table(12, 8, label="aardvark")
    tfrecorder.parts.stage(rows, out, num_shards=2, overwrite="all")


def compact(out: str) -> None:
    tfrecorder.compact(out, num_shards=2, stage_only=True, seed=9, **QUIET)


#: How each operation is begun, its name, and its rows.
BEGUN: dict[str, tuple[Callable[[str], None], str, int]] = {
    "append": (append, "append", 8),
    "overwrite": (overwrite, "conversion", 8),
    "compaction": (compact, "compaction", 12),
}


def old(out: str) -> None:
    """A dataset of two commits."""
    tfrecorder.convert(table(0, 6), out, num_shards=1, **QUIET)
    tfrecorder.append(table(6, 6), out, num_shards=1, **QUIET)


def content(out: str) -> dict[str, Any]:
    """What readers see of a dataset."""
    info = tfds.builder_from_directory(out).info
    splits = {name: (one.shard_lengths, one.num_bytes) for name, one in info.splits.items()}
    frame = tfrecorder.to_frame(out).to_dict("list")
    return {"tfds": splits, "rows": frame, "classes": tfrecorder.info(out).class_counts}


def private_files(out: str) -> set[str]:
    return {str(path.relative_to(out)) for path in Path(out, "_tfrecorder").rglob("*")}


def check_is_old(out: str, before: dict[str, bytes]) -> None:
    """The dataset is as it was, but for the number of its commit; nothing else is there."""
    tfrecorder.convert(table(0, 6), "fresh", num_shards=1, **QUIET)
    tfrecorder.append(table(6, 6), "fresh", num_shards=1, **QUIET)
    now = public_files(out)
    assert now.pop("dataset_info.json") != before.pop("dataset_info.json")
    assert now == before
    assert content(out) == content("fresh")
    assert private_files(out) == private_files("fresh") | {"_tfrecorder/commits/00002.json"}
    assert tfrecorder.status(out).committed
    assert tfrecorder.verify(out, progress=False).ok


@pytest.mark.slow
@pytest.mark.parametrize("operation", BEGUN)
@pytest.mark.parametrize("parts", range(3))
def test_what_was_begun_is_abandoned_wherever_it_stopped(operation: str, parts: int) -> None:
    begin, kind, rows = BEGUN[operation]
    old("out")
    before = public_files("out")
    begin("out")
    for part in range(parts):
        tfrecorder.parts.work("out", part=(part + 1, 2), progress=False)
    pending = {path: path.read_bytes() for path in Path("out").rglob("*") if path.is_file()}
    planned = tfrecorder.undo("out", dry_run=True)
    assert str(planned) == (
        f"out: would abandon an unfinished {kind}, {rows} rows in 2 shards; the dataset stays as it"
        " was"
    )
    assert {path: path.read_bytes() for path in Path("out").rglob("*") if path.is_file()} == pending
    result = tfrecorder.undo("out")
    assert replace(result, dry_run=True) == planned
    assert (result.output_dir, result.kind, result.rows) == ("out", kind, rows)
    assert (result.shards, result.generation) == (2, 1)
    assert str(result) == (
        f"out: abandoned an unfinished {kind}, {rows} rows in 2 shards; the dataset stays as it was"
    )
    check_is_old("out", before)


@pytest.mark.parametrize("parts", range(3))
def test_of_a_first_conversion_nothing_is_left(parts: int) -> None:
    tfrecorder.parts.stage(photo_frame(8), "out", num_shards=2)
    for part in range(parts):
        tfrecorder.parts.work("out", part=(part + 1, 2), progress=False)
    result = tfrecorder.undo("out")
    assert (result.kind, result.shards, result.generation) == ("conversion", 2, None)
    assert str(result) == "out: abandoned an unfinished conversion, 8 rows in 2 shards"
    assert [path.name for path in Path("out").rglob("*") if path.is_file()] == ["lock"]
    assert tfrecorder.convert(photo_frame(4), "out", **QUIET).records == 4


@pytest.mark.parametrize("operation", BEGUN)
def test_what_was_abandoned_can_be_done_again(operation: str) -> None:
    begin, _, _ = BEGUN[operation]
    for out in ("out", "never"):
        old(out)
        begin(out)
        if out == "out":
            tfrecorder.parts.work(out, progress=False)
            tfrecorder.undo(out)
            begin(out)
        tfrecorder.parts.work(out, progress=False)
        tfrecorder.parts.commit(out)
    assert tfrecorder.verify("out", progress=False).ok
    rows = [tfrecorder.to_frame(out).to_dict("list") for out in ("out", "never")]
    assert rows[0] == rows[1]


def refuse_late(out: str) -> None:
    """The commit of a plan that was abandoned, as a job and as a user come to it."""
    with pytest.raises(OutputError, match=r"this one was abandoned\. Nothing was committed"):
        commit_late(out)
    with pytest.raises(DatasetError, match="no conversion is staged here"):
        tfrecorder.parts.commit(out)


@pytest.mark.slow
@pytest.mark.parametrize("operation", BEGUN)
def test_who_wakes_up_late_commits_nothing(operation: str) -> None:
    """As a job that was detached, or a process that slept, with all its files still there."""
    old("out")
    BEGUN[operation][0]("out")
    tfrecorder.parts.work("out", progress=False)
    shutil.copytree("out/_tfrecorder", "slept")
    tfrecorder.undo("out")
    before = content("out")
    shutil.copytree("slept", "out/_tfrecorder", dirs_exist_ok=True)
    refuse_late("out")
    assert content("out") == before
    assert not Path("out/_tfrecorder/plan.json").exists()


def test_where_there_is_nothing_nothing_is_made() -> None:
    with pytest.raises(DatasetError, match="nowhere: there is no such directory"):
        tfrecorder.undo("nowhere")
    assert not Path("nowhere").exists()


@pytest.mark.slow
@pytest.mark.parametrize("again", ["undo", "append"])
def test_an_undo_that_was_killed_is_completed(again: str) -> None:
    """It had committed that the append is abandoned, and not removed anything."""
    old("out")
    append("out")
    tfrecorder.parts.work("out", progress=False)
    shutil.copytree("out/_tfrecorder", "killed")
    tfrecorder.undo("out")
    shutil.copytree("killed", "out/_tfrecorder", dirs_exist_ok=True)
    if again == "undo":
        assert tfrecorder.undo("out").kind == "append"
        assert tfrecorder.info("out").records == 12
    else:
        assert tfrecorder.append(table(12, 8, label="zebra"), "out", **QUIET).records == 8
        assert tfrecorder.info("out").records == 20
    assert not Path("out/_tfrecorder/plan.json").exists()
    assert tfrecorder.verify("out", progress=False).ok


#: Of each operation, the change to names before which it is killed: the manifest stands and the
#: commit does not; or the commit stands, and its leftovers do too.
MANIFEST, COMMIT = "_tfrecorder/commits/00002.json", "dataset_info.json"


def kill(moment: Moment, verb: str, **options: Any) -> None:
    table(12, 8, label="aardvark").to_csv("new.csv", index=False)
    source, out = (str(Path(name).absolute()) for name in ("new.csv", "out"))
    assert convert_until(moment, source, out, verb, num_shards=2, **options)


@pytest.mark.slow
@pytest.mark.parametrize("moment", [Moment(0, MANIFEST), Moment(1, MANIFEST)], ids=str)
@pytest.mark.parametrize("verb", ["append", "convert"])
def test_of_a_commit_that_was_about_to_be(verb: str, moment: Moment) -> None:
    """No file fits both datasets of the overwrite, so that its old commit was set aside."""
    old("out")
    before = public_files("out")
    kill(moment, verb, **({"overwrite": "all"} if verb == "convert" else {}))
    assert Path("out", COMMIT).exists() == (verb == "append")
    assert Path("out", MANIFEST).exists() == bool(moment.spared)
    assert tfrecorder.undo("out").generation == 1
    check_is_old("out", before)


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["append", "convert"])
def test_what_is_committed_is_completed_and_stays(verb: str) -> None:
    old("out")
    kill(
        Moment(2 if verb == "append" else 5, MANIFEST),
        verb,
        **({"overwrite": "all"} if verb == "convert" else {}),
    )
    assert Path("out/_tfrecorder/plan.json").exists()
    rows = content("out")
    for dry_run in (True, False):
        with pytest.raises(DatasetError, match="it was committed; nothing is pending any more"):
            tfrecorder.undo("out", dry_run=dry_run)
    assert content("out") == rows
    assert not Path("out/_tfrecorder/plan.json").exists()
    assert not Path("out/_tfrecorder/done").exists()
    assert tfrecorder.verify("out", progress=False).ok


@pytest.mark.slow
@pytest.mark.parametrize("operation", BEGUN)
def test_in_a_bucket(gcs: Gcs, operation: str) -> None:
    old(OUT)
    before = gcs.files(OUT)
    BEGUN[operation][0](OUT)
    tfrecorder.parts.work(OUT, progress=False)
    late = {name: gcs.get(f"gs://bkt/{name}") for name in gcs.names(OUT)}
    tfrecorder.undo(OUT)
    after = gcs.files(OUT)
    assert {**after, "dataset_info.json": b""} == {**before, "dataset_info.json": b""}
    assert tfrecorder.info(OUT).records == 12
    for name, data in late.items():
        if name not in gcs.names(OUT):
            gcs.put(f"gs://bkt/{name}", data)
    refuse_late(OUT)
    assert gcs.files(OUT) == after
    assert tfrecorder.verify(OUT, progress=False).ok


@pytest.mark.slow
def test_the_command_says_what_it_abandoned() -> None:
    old("out")
    append("out")
    staged = invoke("status", "out")
    assert "append: the finished dataset stays as it is" in staged.output
    result = invoke("undo", "out")
    assert result.exit_code == 0
    assert "out: abandoned an unfinished append, 8 rows in 2 shards" in result.output
    append("out")
    printed = json.loads(invoke("undo", "out", "--json").stdout)
    assert printed == {
        "output_dir": "out",
        "kind": "append",
        "line": "",
        "rows": 8,
        "shards": 2,
        "generation": 2,
        "taken_back": None,
        "classes": [],
        "streams": {},
        "dry_run": False,
    }


@pytest.mark.slow
def test_another_operation_names_it() -> None:
    old("out")
    append("out")
    table(0, 3).to_csv("new.csv", index=False)
    words = error_of(OutputError, "new.csv", "out", **QUIET)
    assert "run the same append again to complete it, or `undo` abandons it" in words
    assert "or `undo` abandons it" in invoke("convert", "new.csv", "out").stderr
