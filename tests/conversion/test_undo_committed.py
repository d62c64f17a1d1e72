"""`undo` takes back the newest append or batch of a stream: readers find the dataset before it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from helpers.agreement import agree
from helpers.growing_cases import QUIET, drawn, table
from helpers.streaming_cases import TO_ITS_END, Numbered, contents_of, names_in
from services.gcs.control import Gcs
from support import invoke, rejects
from torture import kills

import tfrecorder
from tfrecorder.errors import DatasetError, OptionError, OutputError

pytest_plugins = ["services.gcs.fixtures"]

OUT, PLAN = "gs://bkt/sets/out", "_tfrecorder/plan.json"

#: What differs after an addition was taken back: a commit's number, and the manifests there are.
NUMBERED = ("dataset_info.json", "_tfrecorder/commits/")


def files(out: str) -> dict[str, bytes]:
    """All files of a dataset by name, without those that an undo leaves others."""
    found = {str(p.relative_to(out)): p.read_bytes() for p in Path(out).rglob("*") if p.is_file()}
    return {name: data for name, data in found.items() if not name.startswith(NUMBERED)}


def version(out: str) -> str:
    return str(json.loads(Path(out, "dataset_info.json").read_bytes())["version"])


def old(out: str) -> None:
    tfrecorder.convert(table(0, 6), out, num_shards=1, **QUIET)
    tfrecorder.append(table(6, 6), out, num_shards=1, **QUIET)


def append(out: str) -> None:
    """Of nine rows one is a reject; they bring two classes, a split, and another size of image."""
    rows = table(12, 9, label="zebra")
    rows.loc[[0, 1], "label"] = "yak"
    rows.loc[2, "image_uri"] = "gone.jpg"
    rows.loc[[3, 4], "split"] = "TEST"
    rows.loc[5, "image_uri"] = drawn("large", 1, (300, 200))[0]
    tfrecorder.append(rows, out, num_shards={"TRAIN": 2, "TEST": 1}, **TOLERANT)


TOLERANT: dict[str, Any] = {"max_reject_fraction": 0.5, **QUIET}


@pytest.mark.slow
def test_an_append_is_taken_back_with_all_that_it_brought() -> None:
    old("out")
    before, content = files("out"), agree("out")
    append("out")
    after = files("out")
    planned = tfrecorder.undo("out", dry_run=True)
    assert files("out") == after
    assert str(planned) == (
        "out: would take back generation 2, an append of 9 rows in 3 shards, 2 classes\n\n"
        f"in the history: {tfrecorder.history('out')[0]}\n"
        "classes that go: 2: 'yak', 'zebra'"
    )
    result = tfrecorder.undo("out")
    assert str(result).startswith("out: took back generation 2, an append of 9 rows in 3 shards")
    assert result.as_dict() == {**planned.as_dict(), "dry_run": False}
    assert (result.kind, result.rows, result.shards, result.taken_back) == ("append", 9, 3, 2)
    assert (result.generation, result.classes) == (3, ("yak", "zebra"))
    assert (agree("out"), files("out")) == (content, before)
    assert tfrecorder.verify("out", progress=False).ok
    assert tfrecorder.generations("out") == [3, 1, 0]
    assert version("out") == "2.0.0"
    assert tfrecorder.status("out").committed


@pytest.mark.slow
def test_a_generation_that_was_taken_back_cannot_be_read() -> None:
    old("out")
    append("out")
    tfrecorder.undo("out")
    for read in (tfrecorder.info, tfrecorder.to_frame):
        with pytest.raises(DatasetError, match=r"Generation 2 was taken back by `undo`"):
            read("out", at=2)
    assert tfrecorder.info("out", at=1).records == 12
    assert tfrecorder.info("out", at=0).records == 6


@pytest.mark.slow
def test_what_is_added_again_is_as_before_but_for_the_row_numbers() -> None:
    """A number is given once, also if what had it was taken back."""
    for out in ("out", "never"):
        old(out)
        append(out)
        if out == "out":
            tfrecorder.undo(out)
            append(out)
    again, never = agree("out"), agree("never")
    assert {split: [of[:3] for of in records] for split, records in again.items()} == {
        split: [of[:3] for of in records] for split, records in never.items()
    }
    numbers = {*tfrecorder.to_frame("out").index}
    numbers_of_never = {*tfrecorder.to_frame("never").index}
    assert len(numbers - numbers_of_never) == len(numbers_of_never - numbers) > 0
    assert min(numbers - numbers_of_never) > max(numbers_of_never)
    assert tfrecorder.verify("out", progress=False).ok
    assert tfrecorder.generations("out") == [4, 3, 1, 0]
    assert tfrecorder.info("out", at=3).records == 12


@pytest.mark.slow
def test_each_further_undo_takes_back_the_addition_before() -> None:
    contents = []
    tfrecorder.convert(table(0, 6), "out", num_shards=1, **QUIET)
    for number in range(1, 4):
        contents.append(agree("out"))
        tfrecorder.append(table(6 * number, 6), "out", num_shards=number, **QUIET)
    for number in (3, 2):
        assert tfrecorder.undo("out").taken_back == number
        assert agree("out") == contents.pop()
    tfrecorder.append(table(12, 6), "out", stage_only=True, **QUIET)
    assert tfrecorder.undo("out").taken_back is None  # it is abandoned
    assert tfrecorder.undo("out").taken_back == 1
    assert agree("out") == contents.pop()
    assert (version("out"), tfrecorder.generations("out")) == ("4.0.0", [7, 0])
    assert tfrecorder.verify("out", progress=False).ok
    again = {path: path.read_bytes() for path in Path("out").rglob("*") if path.is_file()}
    for dry_run in (True, False):
        words = r"nothing was added since generation 0 \(conversion\), which is not taken back"
        with pytest.raises(DatasetError, match=words):
            tfrecorder.undo("out", dry_run=dry_run)
    assert {path: path.read_bytes() for path in Path("out").rglob("*") if path.is_file()} == again


#: What begins the numbers of the records anew, its word in messages, and its number.
REWRITES: dict[str, Callable[[], object]] = {
    "conversion": lambda: tfrecorder.convert(table(3, 6), "out", overwrite=True, **QUIET),
    "compaction": lambda: tfrecorder.compact("out", num_shards=1, **QUIET),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", REWRITES)
def test_what_replaced_the_dataset_is_not_taken_back(kind: str) -> None:
    tfrecorder.convert(table(0, 6), "out", num_shards=2, **QUIET)
    REWRITES[kind]()
    content = agree("out")
    words = rf"since generation 1 \({kind}\).*`update` corrects and adds rows"
    with pytest.raises(DatasetError, match=words):
        tfrecorder.undo("out")
    tfrecorder.append(table(12, 3), "out", **QUIET)
    assert tfrecorder.undo("out").taken_back == 2
    assert agree("out") == content
    assert tfrecorder.verify("out", progress=False).ok


@pytest.mark.slow
def test_what_came_before_an_update_that_was_taken_back_stays() -> None:
    rows = table(0, 12)
    tfrecorder.convert(rows[:6], "out", num_shards=1, **QUIET)
    tfrecorder.append(rows[6:], "out", num_shards=1, **QUIET)
    content = agree("out")
    rows.loc[0, "label"] = "yak"
    added = table(12, 2, label="dgo")
    tfrecorder.update(pd.concat([rows, added]), "out", num_shards=1, **QUIET)
    words = "took back generation 2, an update that wrote 8 rows in 2 shards, 2 classes"
    assert str(tfrecorder.undo("out")).startswith(f"out: {words}\n")
    words = "generation 3 took an update back; what was added before that is not taken back"
    with pytest.raises(DatasetError, match=words):
        tfrecorder.undo("out")
    assert agree("out") == content


@pytest.mark.slow
def test_rejects_that_were_won_are_rejects_again() -> None:
    rows = table(0, 6)
    late = Path("late.jpg").absolute()
    rows.loc[[2, 4], "image_uri"] = [str(late), "never.jpg"]
    tfrecorder.convert(rows, "out", num_shards=2, **TOLERANT)
    listed = rejects("out").to_dict("list")
    before, content = files("out"), agree("out")
    late.write_bytes(Path(table(2, 1)["image_uri"][0]).read_bytes())
    won = tfrecorder.append(rows, "out", retry_rejects=True, **TOLERANT)
    assert (won.records, len(rejects("out"))) == (1, 1)
    tfrecorder.undo("out")
    assert rejects("out").to_dict("list") == listed
    assert (agree("out"), files("out")) == (content, before)
    assert tfrecorder.append(rows, "out", retry_rejects=True, **TOLERANT).records == 1
    assert tfrecorder.verify("out", progress=False).ok


def test_a_stream_goes_on_with_the_rows_of_the_batch_that_was_taken_back() -> None:
    for rows in (10, 20, 30):
        tfrecorder.stream(Numbered(rows), "out", **TO_ITS_END)
        if rows == 10:
            before, content = files("out"), agree("out")
    names = names_in("out")
    assert str(tfrecorder.undo("out")).splitlines()[-1] == (
        "stream from numbered: its rows come again; it is read on from 20"
    )
    result = tfrecorder.undo("out")
    assert (result.kind, result.taken_back, result.streams) == ("stream", 1, {"numbered": 10})
    assert str(result).startswith("out: took back generation 1, a batch of a stream of 10 rows in")
    assert (agree("out"), files("out")) == (content, before)
    assert tfrecorder.status("out").streams == {"numbered": 10}
    with pytest.raises(DatasetError, match=r"generation 0 \(stream\), which is not taken back"):
        tfrecorder.undo("out")
    tfrecorder.stream(Numbered(30), "out", **TO_ITS_END)
    assert names_in("out") == names
    assert tfrecorder.verify("out", progress=False).ok


@pytest.mark.slow
def test_a_watched_folder_gives_its_files_again() -> None:
    """A source without an order: what it gave stands in the tables, which are merged before."""
    Path("in").mkdir()
    drawn("in/a", 40, (8, 8))
    tfrecorder.stream("in", "out", every_rows=1, **TO_ITS_END)
    content = contents_of("out")
    tfrecorder.stream("in", "out", **TO_ITS_END)  # merges
    for _ in range(3):
        tfrecorder.undo("out")
    assert len(contents_of("out")) == 37
    result = tfrecorder.stream("in", "out", **TO_ITS_END)
    assert (result.records, contents_of("out")) == (3, content)


@pytest.mark.slow
def test_merged_rows_of_what_was_taken_back_are_not_believed() -> None:
    tfrecorder.convert(table(0, 3), "out", num_shards=1, **QUIET)
    rows = table(3, 40)
    tfrecorder.append(rows, "out", num_shards=40, **QUIET)
    tfrecorder.append(rows, "out", **QUIET)  # merges, and adds nothing
    assert Path("out/_tfrecorder/rows.parquet").exists()
    tfrecorder.undo("out")
    assert tfrecorder.append(rows, "out", num_shards=1, **QUIET).records == 40


@pytest.mark.slow
def test_the_command_takes_back_and_says_so_before() -> None:
    old("out")
    append("out")
    words = "generation 2, an append of 9 rows in 3 shards, 2 classes"
    assert f"out: would take back {words}" in invoke("undo", "out", "--dry-run").output
    assert tfrecorder.info("out").records == 20
    printed = json.loads(invoke("undo", "out", "--json").stdout)
    assert (printed["taken_back"], printed["classes"]) == (2, ["yak", "zebra"])
    assert tfrecorder.info("out").records == 12
    invoke("undo", "out")
    refused = invoke("undo", "out")
    assert refused.exit_code == 1
    assert re.fullmatch(r"error: .*out: nothing was added since generation 0 .*\n", refused.stderr)
    with pytest.raises(OptionError, match="dry_run=1: give True or False"):
        tfrecorder.undo("out", dry_run=1)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("lost", [[1], [3], [4], [0, 1, 3, 4]])
def test_lost_manifests_are_made_again(lost: list[int]) -> None:
    """0, 1; 2 was taken back by 3, and its manifest went; 4 was added then."""
    old("out")
    append("out")
    tfrecorder.undo("out")
    tfrecorder.append(table(24, 6), "out", num_shards=1, **QUIET)
    content = agree("out")
    for number in lost:
        Path("out/_tfrecorder/commits", f"{number:05d}.json").unlink()
    assert not tfrecorder.verify("out", progress=False).ok
    # The newest says all.
    assert tfrecorder.repair("out", progress=False).files == ("_tfrecorder/commits/00004.json",)
    assert tfrecorder.verify("out", progress=False).ok
    assert agree("out") == content
    left = [number for number in (4, 3, 1, 0) if number == 4 or number not in lost]
    assert tfrecorder.generations("out") == left


@pytest.mark.slow
def test_the_next_operation_completes_what_was_killed(tmp_path: Path) -> None:
    disk = kills.Disk(tmp_path)
    attacked = kills.Attacked(kills.OPERATIONS["undo an append"], disk, tmp_path)
    begun = [state for state in attacked.states if PLAN in state]
    for state in begun:
        disk.restore(state)
        assert tfrecorder.undo(disk.out, dry_run=True).taken_back == 1
        assert "an undo is under way" in str(tfrecorder.status(disk.out))
        if tfrecorder.generations(disk.out)[0] == 1:
            with pytest.raises(OutputError, match="holds an unfinished undo"):
                tfrecorder.append(table(0, 3), disk.out, dry_run=True, **QUIET)
        assert kills.lasting(disk.files()) == kills.lasting(state)
        kills.append(disk.out)
        assert tfrecorder.generations(disk.out) == [3, 2, 0]
        assert tfrecorder.verify(disk.out, progress=False).ok
    assert len(begun) > 10


@pytest.mark.slow
def test_a_stream_completes_an_undo_that_was_killed(tmp_path: Path) -> None:
    disk = kills.Disk(tmp_path)
    attacked = kills.Attacked(kills.OPERATIONS["undo a batch"], disk, tmp_path)
    for state in [state for state in attacked.states if PLAN in state][::3]:
        disk.restore(state)
        assert tfrecorder.stream(Numbered(20), disk.out, **TO_ITS_END).rows == 10
        assert tfrecorder.generations(disk.out) == [3, 2, 0]
        assert sum(names_in(disk.out).values()) == 20
        assert tfrecorder.verify(disk.out, progress=False).ok


@pytest.mark.slow
def test_in_a_bucket(gcs: Gcs) -> None:
    old(OUT)
    before = gcs.files(OUT)
    append(OUT)
    assert tfrecorder.undo(OUT).taken_back == 2
    after = gcs.files(OUT)
    assert {**after, "dataset_info.json": b""} == {**before, "dataset_info.json": b""}
    assert tfrecorder.verify(OUT, progress=False).ok
    append(OUT)
    assert tfrecorder.info(OUT).records == 20
    assert tfrecorder.verify(OUT, progress=False).ok
