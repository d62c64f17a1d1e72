"""What is public is the whole truth, after each operation and while others write.

TFDS, plain tf.data, a walk over the indexes and our readers find the same records.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import queue
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from helpers.agreement import Told, agree, of_tfds
from helpers.growing_cases import QUIET, table
from helpers.streaming_cases import TO_ITS_END, Numbered
from services.objects.control import S3
from support import shorten_pauses
from torture import kills

import tfrecorder
from tfrecorder import TfrecorderError
from tfrecorder.errors import OutputError

pytest_plugins = ["services.objects.fixtures"]


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What may pass is asked for again at once."""
    shorten_pauses(monkeypatch)


def count(found: dict[str, list[Told]]) -> int:
    return sum(map(len, found.values()))


def texts(found: dict[str, list[Told]]) -> Counter[str]:
    return Counter(text for records in found.values() for _, _, text, _ in records)


def labelled(first: int, rows: int, label: str) -> Any:
    """Rows of two splits."""
    rows_of = table(first, rows, label=label)
    return rows_of.assign(split=["TRAIN", "TRAIN", "TEST"][:rows] * -(-rows // 3))[:rows]


@pytest.mark.slow
def test_a_split_without_a_record_yet_is_none_for_tfds() -> None:
    rows = table(0, 12)
    rows.loc[8:, "split"] = "TEST"
    rows.loc[8:, "image_uri"] = [f"none{number}.jpg" for number in range(4)]
    tfrecorder.convert(rows, "out", max_reject_fraction=0.5, num_shards=2, **QUIET)
    assert {split: len(found) for split, found in of_tfds("out").items()} == {"train": 8}
    tfrecorder.append(table(20, 5).assign(split="TEST"), "out", **QUIET)
    assert {split: len(found) for split, found in agree("out").items()} == {"train": 8, "test": 5}


def test_a_commit_that_another_tool_wrote_over_ours_is_refused() -> None:
    tfrecorder.convert(table(0, 4), "out", **QUIET)
    info = Path("out/dataset_info.json")
    info.write_text(info.read_text().replace("releaseNotes", "releaseNotices"))
    with pytest.raises(tfrecorder.errors.DatasetError, match=r"names no commit.*repair"):
        tfrecorder.info("out")
    assert tfrecorder.repair("out", progress=False).files == ("dataset_info.json",)
    assert tfrecorder.info("out").records == 4


@pytest.mark.slow
def test_a_pending_overwrite_is_completed_only_by_one_that_says_so() -> None:
    tfrecorder.convert(table(0, 4), "out", **QUIET)
    tfrecorder.parts.stage(table(4, 4), "out", overwrite=True)
    with pytest.raises(OutputError, match="`overwrite=True` is not given"):
        tfrecorder.convert(table(4, 4), "out", **QUIET)
    tfrecorder.convert(table(4, 4), "out", overwrite=True, **QUIET)
    assert tfrecorder.generations("out") == [1]


@pytest.mark.slow
def test_all_readers_agree_after_each_operation() -> None:
    late = Path("late.jpg").absolute()
    rows = table(0, 20)
    rows.loc[::4, "split"] = "TEST"
    rows.loc[15, ["image_uri", "label"]] = str(late), "zebra"
    steps: list[tuple[Callable[[], object], int]] = [
        (lambda: tfrecorder.convert(rows[:12], "out", num_shards=2, **QUIET), 12),
        (lambda: tfrecorder.append(rows, "out", max_reject_fraction=0.5, **QUIET), 19),
        (lambda: tfrecorder.append(rows, "out", retry_rejects=True, **QUIET), 20),
        (lambda: tfrecorder.append(table(20, 3), "out", stage_only=True, **QUIET), 20),
        (lambda: tfrecorder.undo("out"), 20),
        (lambda: tfrecorder.compact("out", num_shards=1, **QUIET), 20),
        (lambda: tfrecorder.stream(Numbered(10), "out", **TO_ITS_END), 27),
        (lambda: tfrecorder.convert(rows[4:15], "out", overwrite="all", **QUIET), 11),
    ]
    for number, (step, records) in enumerate(steps):
        if number == 2:
            late.write_bytes(Path(rows["image_uri"][0]).read_bytes())
        step()
        assert count(agree("out")) == records, number
        if number == 6:
            tfrecorder.compact("out", "elsewhere", **QUIET)
            assert texts(agree("elsewhere")) == texts(agree("out"))


# ------------------------------------------------------------------------ while others write


def read_in_a_loop(out: str, ended: Any, results: Any) -> None:
    """What TFDS finds again and again: how often each label, or why it gives up."""
    import tensorflow as tf

    while not ended.is_set():
        try:
            results.put(sorted(texts(of_tfds(out)).items()))
        except (tf.errors.NotFoundError, FileNotFoundError):
            results.put("missing")
        except AssertionError as error:  # it reads dataset_info.json twice, and compares them
            results.put("replaced" if "restored proto version" in str(error) else str(error))


@pytest.mark.slow
def test_tfds_in_a_loop_never_reads_a_mix(tmp_path: Path) -> None:
    """Thirty overwrites and compactions of two datasets, with the labels the other way round."""
    out, rows = str(tmp_path / "out"), table(0, 12)
    both = [rows.assign(label=[one] + [other] * 11) for one, other in ("ab", "ba")]
    tfrecorder.convert(both[0], out, num_shards=3, **QUIET)
    context = multiprocessing.get_context("spawn")
    ended, results = context.Event(), context.Queue()
    reader = context.Process(target=read_in_a_loop, args=(out, ended, results))
    reader.start()
    seen = Counter([str(results.get(timeout=120))])
    for number in range(1, 31):
        if number % 5:
            tfrecorder.convert(both[number % 2], out, num_shards=3, overwrite=True, **QUIET)
        else:
            tfrecorder.compact(out, num_shards=1 + number % 2, **QUIET)
        if number in (12, 13):  # else each reading may take longer than what it reads stands
            now = f"[('a', {1 + 10 * (number % 2)}), ('b', {11 - 10 * (number % 2)})]"
            while (result := str(results.get(timeout=120))) != now:
                seen[result] += 1
            seen[now] += 1
    ended.set()
    while reader.is_alive() or not results.empty():
        with contextlib.suppress(queue.Empty):
            seen[str(results.get(timeout=0.5))] += 1
    whole = {"[('a', 1), ('b', 11)]", "[('a', 11), ('b', 1)]"}
    assert whole <= seen.keys() <= {*whole, "missing", "replaced"}, seen


# ---------------------------------------------------------------------------------- two writers


def together(*calls: Callable[[], object]) -> list[str]:
    """The errors of calls at once, each of one line."""
    errors = []

    def run(call: Callable[[], object]) -> None:
        try:
            call()
        except TfrecorderError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert all("\n" not in words for words in errors), errors
    return errors


@pytest.mark.slow
@pytest.mark.parametrize("place", ["disk", pytest.param("bucket", marks=pytest.mark.slow)])
def test_of_two_appends_at_once_nothing_is_lost_or_twice(tmp_path: Path, place: str) -> None:
    with kills.bucket() as bucket:
        there = kills.Disk(tmp_path) if place == "disk" else bucket
        tfrecorder.convert(labelled(0, 6, "a"), there.out, **QUIET)
        first, second = (labelled(start, 3, "b") for start in (6, 9))
        calls = [partial(tfrecorder.append, rows, there.out, **QUIET) for rows in (first, second)]
        together(*calls)
        for call in (*calls, *calls):  # who was refused tries again, after the other
            with contextlib.suppress(OutputError):
                call()
        kills.write(tmp_path / "copy", there.files())
        found = agree(tmp_path / "copy", there.out)
    assert texts(found) == {"a": 6, "b": 6}
    assert len({name for records in found.values() for name, *_ in records}) == 12


#: What a detached process does when it is held up, and the upload at which it is.
LATE: list[tuple[Callable[[str], object], str]] = [
    (tfrecorder.parts.commit, "dataset_info.json"),
    (tfrecorder.parts.commit, "_tfrecorder/commits/00001.json"),
    (partial(tfrecorder.parts.work, progress=False), "/train-00001.tfrecord"),
    (partial(tfrecorder.parts.work, progress=False), "tables/train-00001.parquet"),
    (partial(tfrecorder.parts.work, progress=False), "done/train-00001.json"),
]


@pytest.mark.slow
@pytest.mark.parametrize("appends", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize(
    ("late", "upload"),
    [
        pytest.param(*one, id=one[1], marks=[pytest.mark.slow] * (number % 2))
        for number, one in enumerate(LATE)
    ],
)
def test_who_wakes_up_after_undo_changes_nothing(
    late: Callable[[str], object], upload: str, appends: bool
) -> None:
    with kills.bucket() as place:
        tfrecorder.convert(labelled(0, 6, "a"), place.out, **QUIET)
        tfrecorder.append(labelled(6, 3, "b"), place.out, stage_only=True, **QUIET)
        if late is tfrecorder.parts.commit:
            tfrecorder.parts.work(place.out, progress=False)
        place.held = upload

        def go_on() -> None:
            assert place.reached.wait(60)
            tfrecorder.undo(place.out)
            if appends:
                tfrecorder.append(labelled(9, 3, "c"), place.out, **QUIET)
            place.released.set()

        errors = together(partial(late, place.out), go_on)
        assert len(errors) == 1 or late is not tfrecorder.parts.commit
        for name, more in (("then", 0), ("later", 3)):
            wanted = {"a": 6} | ({"c": 3} if appends else {}) | ({"d": more} if more else {})
            if more:
                tfrecorder.append(labelled(12, more, "d"), place.out, **QUIET)
            kills.write(Path(name), place.files())
            found = of_tfds(name) if name == "then" else agree(name, place.out)
            assert texts(found) == wanted, name
        assert tfrecorder.verify(place.out, progress=False).ok


# ---------------------------------------------------------------------------- another store


@pytest.mark.slow
@pytest.mark.parametrize("lost", [pytest.param(False, marks=pytest.mark.slow), True])
def test_an_append_to_s3_whose_commit_is_refused_or_its_answer_lost(s3: S3, lost: bool) -> None:
    out, rows = "s3://bkt/out", labelled(0, 9, "a")
    tfrecorder.convert(rows[:6], out, **QUIET)
    s3.refuse(403, "AccessDenied", method="PUT", path="*dataset_info.json", after=lost)
    with pytest.raises(TfrecorderError):
        tfrecorder.append(rows, out, **QUIET)
    s3.mend()
    assert tfrecorder.info(out).records == (9 if lost else 6)
    tfrecorder.append(rows, out, **QUIET)
    names = [name.removeprefix("out/") for name in s3.names(f"{out}/")]
    assert "_tfrecorder/plan.json" not in names
    kills.write(Path("copy"), {name: s3.get(f"{out}/{name}") for name in names})
    assert count(agree("copy", out)) == 9
