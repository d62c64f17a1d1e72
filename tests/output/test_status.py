"""How far a conversion is, from its directory alone."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import time
from pathlib import Path

import pandas as pd
import pytest
from services.gcs.control import Gcs
from support import TESTS, error_of, photo_frame, run, start, wait_for, written

import tfrecorder
from tfrecorder.errors import DatasetError, ImagesUnreachableError, OptionError, RejectedError

pytest_plugins = ["services.gcs.fixtures"]

#: Two shards, of which each takes a second or more.
CONVERT = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(TESTS)!r})
from helpers.clusters import slow_frame
import tfrecorder
frame = slow_frame(Path("images"), 8)
tfrecorder.convert(frame, "out", num_shards=2, shuffle=False, num_threads=1, progress=True)
"""


@pytest.fixture
def unfinished(frame: pd.DataFrame) -> Path:
    """A conversion that has one of four shards and the commit still before it."""
    frame.loc[0, "image_uri"] = "nowhere.jpg"
    written(frame, num_shards=4, shuffle=False)
    Path("out/_tfrecorder/done/train-00002.json").unlink()
    return Path("out")


def test_a_finished_one_is_all_there(dataset: Path) -> None:
    found = tfrecorder.status(dataset)
    assert (found.committed, found.failure) == (True, None)
    assert (found.rows, found.rows_through, found.records) == (52, 52, 52)
    assert (found.shards, found.shards_done) == (6, 6)
    assert found.bytes == sum(path.stat().st_size for path in dataset.glob("*.tfrecord"))
    assert [*found.splits] == ["TRAIN", "VALIDATION", "TEST"]


@pytest.mark.slow
def test_a_finished_one_that_lost_a_shard_says_so(frame: pd.DataFrame) -> None:
    tfrecorder.convert(frame, "out", num_shards=4)
    whole = tfrecorder.status("out")
    assert whole.damage == ()
    assert str(whole).endswith("committed: the dataset is finished, and its shards are there")
    Path("out/train-00001.tfrecord").unlink()
    os.truncate("out/train-00002.tfrecord", 100)
    found = tfrecorder.status("out")
    assert found.committed
    assert found.damage[0] == "train-00001.tfrecord is missing"
    assert found.damage[1].startswith("train-00002.tfrecord has 100 bytes, but ")
    last = str(found).splitlines()[-1]
    assert last.startswith("committed, but no longer whole: train-00001.tfrecord is m")
    assert last.endswith("`tfrecorder repair out` restores it from the source")
    ended = run("-m", "tfrecorder", "status", "out", "--json")
    assert (ended.returncode, json.loads(ended.stdout)["damage"]) == (1, list(found.damage))


def test_an_unfinished_one_counts_what_is_done(unfinished: Path) -> None:
    found = tfrecorder.status(unfinished)
    assert not found.committed
    assert (found.rows, found.rows_through, found.records) == (52, 39, 38)
    assert (found.shards, found.shards_done) == (4, 3)
    assert found.rejects == {"read/not_found": 1}
    assert found.splits["TRAIN"].rejects == 1
    done = [path for path in unfinished.glob("*.tfrecord") if "00002" not in path.name]
    assert found.bytes == sum(path.stat().st_size for path in done)


def test_a_shard_whose_file_is_cut_or_gone_is_not_done(unfinished: Path) -> None:
    (unfinished / "train-00001.tfrecord").unlink()
    with open(unfinished / "train-00003.tfrecord", "ab") as file:
        file.write(b"x")
    assert tfrecorder.status(unfinished).shards_done == 1


def test_it_is_the_same_before_and_after_the_commit(unfinished: Path, frame) -> None:
    tfrecorder.parts.work(unfinished)
    before = tfrecorder.status(unfinished).as_dict()
    tfrecorder.parts.commit(unfinished)
    after = tfrecorder.status(unfinished).as_dict()
    assert (after.pop("committed"), before.pop("committed")) == (True, False)
    assert (after.pop("generations"), before.pop("generations")) == (1, 0)
    assert sum(after.pop("origins").values()) == after["records"]
    assert before.pop("origins") == {}
    assert before == after


@pytest.mark.slow
def test_rows_are_seen_to_go_through_while_it_runs() -> None:
    process = start(CONVERT)
    wait_for(Path("out/_tfrecorder/plan.json").exists)
    seen = []
    while process.poll() is None:
        seen.append(tfrecorder.status("out"))
        time.sleep(0.02)
    process.communicate()
    through = {one.rows_through for one in seen}
    assert {0, 48} < through, "also rows of a shard under way"
    assert max(through) <= 96
    assert {one.shards_done for one in seen} >= {0, 1}
    assert tfrecorder.status("out").committed


@pytest.mark.slow
def test_what_stopped_it_is_told_until_it_goes_on(frame: pd.DataFrame) -> None:
    broken = frame.assign(image_uri=frame["image_uri"].where(frame.index != 3, "nowhere.jpg"))
    words = error_of(RejectedError, broken, max_reject_fraction=0)
    found = tfrecorder.status("out")
    assert found.failure == f"RejectedError: {words}"
    assert f"failed: RejectedError: {words}" in str(found)
    tfrecorder.convert(broken, "out")
    assert tfrecorder.status("out").failure is None


def test_what_a_retry_mended_is_no_failure(unfinished: Path) -> None:
    note = {"error": "OutputError", "message": "the disk was full", "launch": "x"}
    path = unfinished / "_tfrecorder/failure.json"
    path.write_text(json.dumps({**note, "shard": "train-00002"}))
    assert tfrecorder.status(unfinished).failure == "OutputError: the disk was full"
    path.write_text(json.dumps({**note, "shard": "train-00001"}))
    assert tfrecorder.status(unfinished).failure is None


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("nowhere", "nowhere: there is no such directory"),
        ("empty", "empty: no conversion was started here"),
        ("file", "file is a file"),
    ],
)
def test_where_no_conversion_was_begun_is_one_clear_error(where: str, says: str) -> None:
    Path("empty").mkdir()
    Path("file").write_text("")
    with pytest.raises(DatasetError, match=f"^{says}"):
        tfrecorder.status(where)


@pytest.mark.parametrize("of", ["info", "load", "status", "undo", "verify", "repair"])
def test_a_conversion_that_wrote_nothing_is_not_under_way(of: str) -> None:
    error_of(ImagesUnreachableError, pd.DataFrame({"image_uri": ["nowhere.jpg"]}))
    with pytest.raises(DatasetError, match=r"out: no conversion .* or it has written nothing"):
        getattr(tfrecorder, of)("out")


@pytest.mark.parametrize("where", ["", None, 3])
def test_what_is_no_path_is_refused(where: object) -> None:
    with pytest.raises(OptionError, match="directory="):
        tfrecorder.status(where)  # type: ignore[arg-type]


def test_it_reads_well(unfinished: Path) -> None:
    lines = str(tfrecorder.status(unfinished)).splitlines()
    assert lines[0] == "out: 39 of 52 rows (75.0%), 3 of 4 shards done"
    assert " ".join(lines[2].split()) == "split rows through shards done records rejects bytes"
    assert lines[3].split()[:-2] == ["TRAIN", "52", "39", "4", "3", "38", "1"]
    assert lines[3].endswith(" KiB")
    assert "rejects: 1 read/not_found" in lines
    assert lines[-1].startswith("not committed")


def test_in_a_notebook_it_is_a_table(unfinished: Path) -> None:
    html = tfrecorder.status(unfinished)._repr_html_().replace(' style="text-align:left"', "")
    assert "<p>out: 39 of 52 rows (75.0%), 3 of 4 shards done</p><table>" in html
    assert "<td>TRAIN</td><td>52</td><td>39</td><td>4</td><td>3</td>" in html


@pytest.mark.slow
def test_the_command_prints_it_for_people_and_for_programs(dataset: Path) -> None:
    ended = run("-m", "tfrecorder", "status", dataset)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == f"{tfrecorder.status(str(dataset))}\n"
    ended = run("-m", "tfrecorder", "status", dataset, "--json")
    assert ended.stdout == json.dumps(tfrecorder.status(str(dataset)).as_dict(), indent=2) + "\n"


@pytest.mark.slow
def test_the_command_ends_with_one_line_where_there_is_nothing() -> None:
    ended = run("-m", "tfrecorder", "status", "nowhere")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert len(ended.stderr.splitlines()) == 1
    assert ended.stderr.startswith("error: nowhere: there is no such directory")


@pytest.mark.slow
def test_on_a_bucket_done_records_are_read_many_at_a_time(gcs: Gcs, frame) -> None:
    out, shards = "gs://bkt/sets/out", 26
    tfrecorder.convert(frame, out, num_shards=shards)
    gcs.forget_requests()
    finished = tfrecorder.status(out)
    assert finished.committed
    assert gcs.count() < 10
    out = "gs://bkt/sets/other"
    written(frame, out, num_shards=shards)
    gcs.inject("stall", operation="download", object="*/done/*", seconds=0.1)
    gcs.forget_requests()
    found = tfrecorder.status(out)
    assert (found.committed, found.shards_done, found.records) == (False, shards, 52)
    assert gcs.count("download", "*/done/*") == shards
    assert gcs.count() < shards + 20
    assert gcs.peak() > 4, "many at a time"
    of_commit = {"committed": False, "origins": {}, "generations": 0, "output_dir": out}
    assert found.as_dict() == {**finished.as_dict(), **of_commit}


def test_nothing_is_changed_by_looking(unfinished: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in unfinished.rglob("*")}
    tfrecorder.status(unfinished)
    assert {path: path.stat().st_mtime_ns for path in unfinished.rglob("*")} == before


#: In the place of each value that a file of the dataset has.
HOSTILE = (True, 0, -1, 1.5, 10**400, "9", "x\0", None, [], {}, [[]], {"TRAIN": "x"}, float("nan"))


def places(value: object, above: tuple = ()) -> list[tuple]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    found = []
    for key, inner in items:
        found.append((*above, key))
        found += places(inner, (*above, key)) if isinstance(inner, (dict, list)) else []
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "file",
    [
        "dataset_info.json",
        "_tfrecorder/commits/00000.json",
        "_tfrecorder/plan.json",
        "_tfrecorder/done/train-00000.json",
    ],
)
def test_hostile_values_are_one_clear_error(unfinished: Path, file: str) -> None:
    out = unfinished
    if not (out / file).exists():
        tfrecorder.convert(photo_frame(), "other", num_shards=4, progress=False)
        out = Path("other")
    path = out / file
    document = json.loads(path.read_bytes())
    for place in places(document):
        for value in (*HOSTILE, "gone"):
            changed = json.loads(json.dumps(document))
            inner = functools.reduce(lambda one, key: one[key], place[:-1], changed)
            inner[place[-1]] = value
            if value == "gone":
                del inner[place[-1]]
            path.write_text(json.dumps(changed))
            with contextlib.suppress(tfrecorder.TfrecorderError):
                found = tfrecorder.status(out)
                assert str(found)
                assert json.dumps(found.as_dict())


@pytest.mark.parametrize(
    ("key", "value"), [("splits", True), ("history", 0), ("split_rows", {"TRAIN": "9"})]
)
def test_damaged_metadata_are_named(dataset: Path, key: str, value: object) -> None:
    shutil.copytree(dataset, "out")
    path = Path("out/_tfrecorder/commits/00000.json")
    path.write_text(json.dumps({**json.loads(path.read_bytes()), key: value}))
    with pytest.raises(DatasetError, match=r"commits/00000\.json is damaged: ") as caught:
        tfrecorder.status("out")
    assert "it has changed since it was written" in str(caught.value)
    assert "`tfrecorder repair out` writes it again" in str(caught.value)


def test_after_stage_it_says_what_comes_next(frame: pd.DataFrame) -> None:
    staged = tfrecorder.parts.stage(frame, "out", num_shards=2)
    assert "planned; the same conversion, run again, writes it; on many" in str(staged)
    assert "`tfrecorder work out`, then `tfrecorder commit out`" in str(staged)
    tfrecorder.parts.work("out", part=(1, 2), progress=False)
    assert "under way, or stopped" in str(tfrecorder.status("out"))
    tfrecorder.parts.work("out", part=(2, 2), progress=False)
    assert "`tfrecorder commit out` does so too" in str(tfrecorder.status("out"))
    tfrecorder.parts.commit("out")
    assert "committed: the dataset is finished" in str(tfrecorder.status("out"))
