"""A conversion on many machines without Beam: stage, work on parts, commit."""

from __future__ import annotations

import dataclasses
import json
import random
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from helpers.growing_cases import table
from services.gcs.control import Gcs
from support import (
    COMMAND,
    CSV,
    PHOTOS,
    SAMPLES,
    content_files,
    done_shards,
    invoke,
    photo_frame,
    public_files,
    rejects,
    run,
    start,
    wait_for,
)

import tfrecorder
from tfrecorder.errors import DatasetError, OptionError, OutputError, RejectedError

pytest_plugins = ["services.gcs.fixtures"]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def command(*arguments: Any) -> subprocess.CompletedProcess[str]:
    return run("-m", "tfrecorder", *arguments)


def started(*arguments: Any) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "tfrecorder", *map(str, arguments)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def converted(source: Any, **options: Any) -> dict[str, bytes]:
    """The files that `convert` makes of a source."""
    tfrecorder.convert(source, "whole", progress=False, **options)
    return public_files("whole")


def test_parts_in_any_order_make_the_very_dataset_of_a_conversion() -> None:
    staged = tfrecorder.parts.stage(CSV, "out", num_shards=3)
    assert (staged.rows, staged.shards, staged.shards_done) == (len(PHOTOS), 9, 0)
    results = [tfrecorder.parts.work("out", part=(number, 4)) for number in (4, 2, 1, 3)]
    assert [one.shards for one in results] == [2, 2, 3, 2]
    assert sum(one.records for one in results) == len(PHOTOS)
    assert tfrecorder.status("out").shards_done == 9
    result = tfrecorder.parts.commit("out")
    assert result.records == len(PHOTOS)
    assert public_files("out") == converted(CSV, num_shards=3)
    assert tfrecorder.verify("out").ok
    assert sorted(path.name for path in Path("out/_tfrecorder").iterdir()) == sorted(
        path.name for path in Path("whole/_tfrecorder").iterdir()
    )


@pytest.mark.slow
def test_eight_processes_of_which_some_are_killed_and_some_repeat_others() -> None:
    frame = photo_frame(2000)
    tfrecorder.parts.stage(frame, "out", num_shards=20)
    parts = [f"{number}/6" for number in range(1, 7)] + ["1/2", "3/6"]
    processes = [started("work", "out", "--part", part, "--num-threads", 1) for part in parts]
    wait_for(lambda: done_shards("out") >= 3)
    for process in random.Random(0).sample(processes, 4):
        process.send_signal(signal.SIGKILL)
    for process in processes:
        words = process.communicate(timeout=300)[1]
        assert process.returncode in (0, -signal.SIGKILL), words
    for number in range(1, 7):
        tfrecorder.parts.work("out", part=(number, 6))
    assert tfrecorder.parts.commit("out").records == len(frame)
    assert public_files("out") == converted(frame, num_shards=20)
    assert tfrecorder.verify("out").ok


def test_a_commit_names_the_parts_that_are_missing_and_changes_nothing() -> None:
    tfrecorder.parts.stage(CSV, "out", num_shards={"TRAIN": 5})
    with pytest.raises(OutputError, match=r"7 of 7 shards are not done.*train-00000"):
        tfrecorder.parts.commit("out")
    tfrecorder.parts.work("out", part=(2, 3))
    before = sorted(Path("out").rglob("*"))
    with pytest.raises(OutputError, match=r"5 of 7 shards are not done: parts 1/3, 3/3\."):
        tfrecorder.parts.commit("out")
    assert sorted(Path("out").rglob("*")) == before


def test_what_is_repeated_is_passed_over() -> None:
    tfrecorder.parts.stage(CSV, "out", num_shards=3)
    first = tfrecorder.parts.work("out")
    again = tfrecorder.parts.work("out", part=(1, 2))
    assert (first.shards_before, again.shards_before, again.shards) == (0, 5, 5)
    written = tfrecorder.parts.commit("out")
    repeated = tfrecorder.parts.commit("out")
    assert (written.was_finished, repeated.was_finished) == (False, True)
    assert tfrecorder.parts.work("out", part=(2, 2)).shards_before == 4
    assert tfrecorder.parts.stage(CSV, "out", num_shards=3).committed


def all_files(out: str) -> dict[str, bytes]:
    paths = [path for path in Path(out).rglob("*") if path.is_file()]
    return {str(path.relative_to(out)): path.read_bytes() for path in paths}


def grown(out: str) -> None:
    tfrecorder.convert(table(0, 12), out, num_shards=2, progress=False)
    tfrecorder.append(table(12, 6, label="zebra"), out, num_shards=1, progress=False)


def more(out: str, **options: Any) -> Any:
    rows = table(18, 9).assign(split=["TRAIN", "TRAIN", "TEST"] * 3)
    return tfrecorder.append(rows, out, num_shards=2, progress=False, **options)


def merge(out: str, **options: Any) -> Any:
    return tfrecorder.compact(out, num_shards=2, progress=False, **options)


@pytest.mark.slow
@pytest.mark.parametrize("operation", [more, merge])
def test_an_append_and_a_compaction_in_parts_are_those_of_one_call(operation: Any) -> None:
    grown("out")
    whole = operation("out")
    files = all_files("out")
    shutil.rmtree("out")
    grown("out")
    before = public_files("out")
    staged = operation("out", stage_only=True)
    assert (staged.committed, staged.shards_done, staged.output_dir) == (False, 0, "out")
    for number in (3, 1, 2):
        assert tfrecorder.parts.work("out", part=(number, 3)).shards == len(
            range(number, staged.shards + 1, 3)
        )
        assert public_files("out") == before, "nothing new is seen before the commit"
    assert tfrecorder.info("out").records == 18
    result = tfrecorder.parts.commit("out")
    # What was found while planning, only the call that plans can say.
    planned = {"warnings": {}, "notes": (), "changes": None}
    assert dataclasses.replace(result, seconds=whole.seconds, **planned) == (
        dataclasses.replace(whole, **planned)
    )
    assert all_files("out") == files, "also those of _tfrecorder/"
    assert tfrecorder.verify("out").ok


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["append", "compact"])
def test_the_command_stages_them_too(verb: str) -> None:
    grown("out")
    table(18, 9).to_csv("more.csv", index=False)
    words = ["append", "more.csv"] if verb == "append" else ["compact"]
    shutil.copytree("out", "copy")
    assert invoke(*words, "out", "--num-shards", 2).exit_code == 0
    files = all_files("out")
    shutil.rmtree("out")
    Path("copy").rename("out")
    staged = invoke(*words, "out", "--stage-only", "--num-shards", 2)
    assert staged.exit_code == 0, staged.output
    assert f"the same {'append' if verb == 'append' else 'compaction'}, run again" in staged.output
    for part in ("2/2", "1/2"):
        assert invoke("work", "out", "--part", part, "--quiet").exit_code == 0
    assert invoke("commit", "out").exit_code == 0
    assert all_files("out") == files


def test_a_conversion_ends_what_was_staged_and_begun() -> None:
    tfrecorder.parts.stage(CSV, "out", num_shards=3)
    tfrecorder.parts.work("out", part=(1, 2))
    tfrecorder.convert(CSV, "out", num_shards=3, progress=False)
    assert public_files("out") == converted(CSV, num_shards=3)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [False, True])
def test_who_finishes_after_the_commit_changes_nothing(gcs: Gcs, changes: bool) -> None:
    """Even where its images are others by then."""
    gcs.put("gs://bkt/one.jpg", PHOTOS[0].read_bytes())
    gcs.put("gs://bkt/two.jpg", PHOTOS[1].read_bytes())
    table = "split,image_uri,label\nTRAIN,gs://bkt/one.jpg,a\nTRAIN,gs://bkt/two.jpg,b\n"
    Path("table.csv").write_text(table)
    tfrecorder.parts.stage("table.csv", "out", num_shards=1)
    gcs.inject("stall", seconds=5, operation="download", object="*/two.jpg", times=1)
    late = started("work", "out")
    wait_for(lambda: gcs.count("download", "*/two.jpg", "under way"))
    tfrecorder.parts.work("out")
    tfrecorder.parts.commit("out")
    before = {path: path.read_bytes() for path in Path("out").rglob("*") if path.is_file()}
    if changes:
        gcs.put("gs://bkt/two.jpg", PHOTOS[2].read_bytes())
    words = late.communicate(timeout=60)[1]
    assert late.returncode == 0, words
    after = {path: path.read_bytes() for path in Path("out").rglob("*") if path.is_file()}
    assert after == before
    assert tfrecorder.verify("out").ok


@pytest.mark.slow
def test_the_old_dataset_stands_until_the_commit_of_an_overwrite() -> None:
    old = converted(CSV, num_shards=1)
    tfrecorder.convert(CSV, "out", num_shards=1, progress=False)
    tfrecorder.parts.stage(CSV, "out", num_shards=3, seed=7, overwrite=True)
    tfrecorder.parts.work("out", part=(1, 2))
    assert public_files("out") == old
    with pytest.raises(OutputError, match="are not done: parts 2/2"):
        tfrecorder.parts.commit("out")
    tfrecorder.parts.work("out", part=(2, 2))
    tfrecorder.parts.commit("out")
    tfrecorder.convert(CSV, "new", num_shards=3, seed=7, progress=False)
    assert content_files("out") == content_files("new")
    assert tfrecorder.verify("out").ok


def test_rejects_are_counted_by_part_and_judged_by_the_commit() -> None:
    for at in range(10):
        Path(f"{at}.jpg").write_bytes(PHOTOS[at].read_bytes() if at % 2 else b"no image")
    rows = "".join(f"TRAIN,{at}.jpg,a\n" for at in range(10))
    Path("table.csv").write_text(f"split,image_uri,label\n{rows}")
    tfrecorder.parts.stage("table.csv", "out", num_shards=2)
    found = [tfrecorder.parts.work("out", part=(number, 2)) for number in (1, 2)]
    assert sum(sum(one.rejects.values()) for one in found) == 5
    assert "rejects: " in str(found[0])
    with pytest.raises(RejectedError, match="5 of 10 rows"):
        tfrecorder.parts.commit("out")
    assert tfrecorder.parts.commit("out", max_reject_fraction=0.5).records == 5
    assert len(rejects("out")) == 5


@pytest.mark.slow
def test_on_a_bucket(gcs: Gcs) -> None:
    gcs.put("gs://bkt/photos.csv", CSV.read_bytes())
    gcs.put_folder("gs://bkt/photos", SAMPLES / "photos")
    source, out = "gs://bkt/photos.csv", "gs://bkt/sets/out"
    tfrecorder.parts.stage(source, out, num_shards=3)
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda number: tfrecorder.parts.work(out, part=(number, 3)), (1, 2, 3)))
    tfrecorder.parts.commit(out)
    assert gcs.files(out) == converted(CSV, num_shards=3)
    assert tfrecorder.verify(out).ok


@pytest.mark.parametrize("part", [(0, 2), (3, 2), (1, 0), (1.5, 2), "1/2", 1, (1, 2, 3), None])
def test_a_part_that_is_not_there_is_an_error_that_shows_how_parts_are_counted(part: Any) -> None:
    tfrecorder.parts.stage(CSV, "out")
    with pytest.raises(OptionError, match=r"counted from 1.*`part=\(3, 16\)`"):
        tfrecorder.parts.work("out", part=part)


@pytest.mark.parametrize(
    ("option", "remedy"),
    [
        ({"num_threads": 2}, r"give it to `tfrecorder\.parts\.work`"),
        ({"max_reject_fraction": 0.5}, r"give it to `tfrecorder\.parts\.commit`"),
        ({"runner": "DataflowRunner"}, "starts no workers"),
        ({"num_shard": 3}, "num_shards"),
    ],
)
def test_an_option_that_staging_cannot_use_says_where_it_belongs(
    option: dict[str, Any], remedy: str
) -> None:
    with pytest.raises(OptionError, match=remedy):
        tfrecorder.parts.stage(CSV, "out", **option)
    assert not Path("out").exists()


def test_where_nothing_is_staged() -> None:
    for call in (tfrecorder.parts.work, tfrecorder.parts.commit):
        with pytest.raises(DatasetError, match=r"no conversion is staged here.*`tfrecorder stage"):
            call("nowhere")
    assert not Path("nowhere").exists()


@pytest.mark.slow
def test_another_plan_that_was_staged_meanwhile_stops_a_worker(gcs: Gcs) -> None:
    gcs.put("gs://bkt/one.jpg", PHOTOS[0].read_bytes())
    table = "split,image_uri\n" + "TRAIN,gs://bkt/one.jpg\n" * 20
    Path("table.csv").write_text(table)
    tfrecorder.parts.stage("table.csv", "out", num_shards=10)
    gcs.inject("stall", seconds=0.3, operation="download")
    process = started("work", "out")
    wait_for(lambda: done_shards("out") >= 1)
    tfrecorder.parts.stage("table.csv", "out", num_shards=10, seed=7, overwrite=True)
    words = process.communicate(timeout=60)[1]
    assert process.returncode == 1
    assert "planned again in the meantime" in words


@pytest.mark.slow
def test_in_the_shell() -> None:
    assert command("stage", CSV, "out", "--num-shards", 3).returncode == 0
    for number in range(2):
        ended = command("work", "out", "--part-index", f"{number}/2", "--json")
        found = json.loads(ended.stdout)
        assert (found["part"], found["shards"]) == ([number + 1, 2], 5 - number)
    ended = command("commit", "out")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith(f"{len(PHOTOS)} records in out")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("work", "out", "--part", "17/16"), 2, "of 16 parts, write 1/16 to 16/16"),
        (("work", "out", "--part-index", "16/16"), 2, "of 16 parts, write 0/16 to 15/16"),
        (("work", "out", "--part", "4/3"), 2, "'4/3'; of 3 parts, write 1/3 to 3/3"),
        (("work", "out", "--part", "1/0"), 2, "'1/0'; of 16 parts, write 1/16 to 16/16"),
        (("work", "out", "--part", "1/2", "--part-index", "0/2"), 2, "cannot be combined"),
        (("work", "nowhere"), 1, "begin with `tfrecorder stage SOURCE /"),
        (("commit", "out"), 1, "Write them with `tfrecorder work /"),
        (("stage", CSV, "out", "--runner", "DataflowRunner"), 2, "No such option"),
    ],
)
def test_a_mistake_in_the_shell_is_one_line(
    arguments: tuple[Any, ...], code: int, words: str
) -> None:
    tfrecorder.parts.stage(CSV, "out")
    ended = command(*arguments)
    assert (ended.returncode, len(ended.stderr.splitlines())) == (code, 1)
    assert words in ended.stderr


@pytest.mark.slow
def test_ctrl_c_says_how_to_go_on(gcs: Gcs) -> None:
    gcs.put("gs://bkt/one.jpg", PHOTOS[0].read_bytes())
    Path("table.csv").write_text("split,image_uri\n" + "TRAIN,gs://bkt/one.jpg\n" * 9)
    tfrecorder.parts.stage("table.csv", "out", num_shards=9)
    gcs.inject("stall", seconds=0.5, operation="download")
    process = start(COMMAND, "work", "out", "--part", "1/1")
    wait_for(lambda: done_shards("out") >= 1)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    words = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert time.monotonic() - began < 10
    assert "Run part 1 of 1 again to continue" in words
    gcs.mend()
    tfrecorder.parts.work("out")
    assert tfrecorder.parts.commit("out").records == 9
