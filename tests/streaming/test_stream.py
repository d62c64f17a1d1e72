"""Streams: each row becomes one record or one reject, once, however often the stream ends."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.streaming_cases import (
    TO_ITS_END,
    Numbered,
    digest,
    names_in,
    photo,
    put,
    rejects_of,
)
from support import (
    COMMAND,
    TESTS,
    end_by_ctrl_c,
    photo_frame,
    records,
    run,
    shorten_patience,
    start,
    wait_for,
)
from torture import streams
from torture.steps import Moment

import tfrecorder
from tfrecorder.errors import DatasetError, OptionError, OutputError, SourceError
from tfrecorder.schema import Bytes, Image, Label, Labels, Number, Schema, Split, Text
from tfrecorder.streaming import Unusable

pytest_plugins = ["services.gcs.fixtures"]


class Rows:
    """Some rows, each with its number as position."""

    def __init__(self, *rows: Any, name: str = "rows") -> None:
        self._rows, self.name = rows, name

    def rows(self, position: Any) -> Iterator[tuple[Any, Any]]:
        yield from ((self._rows[at], at + 1) for at in range(position or 0, len(self._rows)))

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)


def image(number: int, label: Any = "a", **more: Any) -> dict[str, Any]:
    return {"image_uri": photo(number).read_bytes(), "label": label, **more}


# ------------------------------------------------------------------------------ what is written


def test_every_row_is_one_record_or_one_reject(tmp_path: Path) -> None:
    result = tfrecorder.stream(Numbered(50), "out", every_rows=20, **TO_ITS_END)
    assert (result.generations, result.newest, result.rows, result.records) == (3, 2, 50, 35)
    assert result.rejects == {"row/bad_json": 5, "check/not_an_image": 5, "row/null_label": 5}
    streams.check_whole("out", 50)
    assert dict(rejects_of("out"))["rows/43"] == "row/bad_json"
    assert str(result).splitlines()[0].startswith("out, from numbered: 35 records in 3 gen")
    assert result.as_dict()["rejects"]["row/bad_json"] == 5


def test_the_same_call_goes_on_and_adds_nothing_twice() -> None:
    tfrecorder.stream(Numbered(20), "out", every_rows=10, **TO_ITS_END)
    again = tfrecorder.stream(Numbered(20), "out", every_rows=10, **TO_ITS_END)
    assert (again.generations, again.newest, again.rows) == (0, 1, 0)
    more = tfrecorder.stream(Numbered(40), "out", every_rows=10, **TO_ITS_END)
    assert (more.generations, more.rows) == (2, 20)
    streams.check_whole("out", 40)


def test_two_messages_with_one_uri_are_two_records() -> None:
    row = {"image_uri": str(photo(0)), "label": "a"}
    tfrecorder.stream(Rows(row, row), "out", every_rows=1, **TO_ITS_END)
    assert names_in("out") == {str(photo(0)): 2}


@pytest.mark.slow
def test_a_stream_adds_to_a_finished_dataset_with_its_options() -> None:
    tfrecorder.convert(photo_frame(10), "out", image_size=(32, 32), progress=False)
    rows = [image(3, "brick"), image(4, "a new class"), image(5, "brick", split="test")]
    tfrecorder.stream(Rows(*rows), "out", **TO_ITS_END)
    info = tfrecorder.info("out")
    assert info.records == 13
    assert info.class_names[-1] == "a new class"
    assert tfrecorder.load("out", "TEST", batch_size=1).element_spec[0].shape == (None, 32, 32, 3)


@pytest.mark.slow
def test_sources_of_two_names_take_turns() -> None:
    for rows in (10, 20, 30):
        for name in ("left", "right"):
            source = Numbered(rows, name, path=name)
            tfrecorder.stream(source, "out", **TO_ITS_END)
    names = names_in("out")
    assert sum(names.values()) == 60
    assert {f"{name}/{number}" for name in ("left", "right") for number in (0, 29)} <= {*names}
    assert tfrecorder.status("out").streams == {"left": 30, "right": 30}


@pytest.mark.slow
def test_an_append_in_between_and_a_compaction_keep_the_position() -> None:
    tfrecorder.stream(Numbered(20), "out", every_rows=10, **TO_ITS_END)
    tfrecorder.append(photo_frame(3).assign(label="a"), "out", duplicates="keep", progress=False)
    tfrecorder.stream(Numbered(30), "out", **TO_ITS_END)
    tfrecorder.compact("out", "compacted", progress=False)
    assert tfrecorder.verify("compacted", progress=False).ok
    assert sorted(rejects_of("compacted")) == sorted(rejects_of("out"))
    result = tfrecorder.stream(Numbered(40), "compacted", **TO_ITS_END)
    assert result.rows == 10
    assert sum(names_in("compacted").values()) == 43


@pytest.mark.slow
def test_what_happens_between_two_batches_keeps_positions_and_rows(tmp_path: Path) -> None:
    out, options = tmp_path / "out", {"source_options": {"settle": 0}, **TO_ITS_END}
    for step in range(4):
        put(f"a/{step}.jpg", step)
        assert tfrecorder.stream("in", out, **options).rows == 1
        moment = Moment(1, "_tfrecorder/plan.json")
        rows, every = Numbered(10 * (step + 1)), {"every_rows": 10, "until_idle": 0}
        assert streams.convert_until(moment, rows, str(out), "stream", **every)
        assert tfrecorder.undo(out).kind == "stream"
        assert tfrecorder.stream(rows, out, **TO_ITS_END).rows == 10
        frame = photo_frame(3).assign(label="a")
        tfrecorder.append(frame, out, duplicates="keep", progress=False)
        tfrecorder.compact(out, num_shards=1, progress=False)
    names = names_in(out)
    assert sum(names.values()) == 4 * (1 + 10 + 3)
    assert {f"{step}.jpg" for step in range(4)} == {n[2:] for n in names if n.startswith("a/")}
    assert tfrecorder.status(out).streams == {"numbered": 40, f"folder:{Path('in').absolute()}": 4}
    assert tfrecorder.verify(out, progress=False).ok


@pytest.mark.slow
def test_a_stream_finishes_what_an_append_left_behind_its_commit(tmp_path: Path) -> None:
    out, table = tmp_path / "out", tmp_path / "table.csv"
    tfrecorder.stream(Numbered(10), out, **TO_ITS_END)
    photo_frame(3).assign(label="a").to_csv(table, index=False)
    moment, more = Moment(1, "dataset_info.json"), {"duplicates": "keep"}
    assert streams.convert_until(moment, str(table), str(out), "append", **more)
    result = tfrecorder.stream(Numbered(20), out, **TO_ITS_END)
    assert (result.rows, result.generations, result.newest) == (10, 1, 2)
    assert sorted(os.listdir(out / "_tfrecorder")) == streams.KEPT
    assert sum(names_in(out).values()) == 23


@pytest.mark.slow
def test_the_60th_batch_opens_and_lists_what_the_20th_did() -> None:
    counts: list[Counter[str]] = []

    def hear(event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("open", "os.listdir", "os.scandir", "os.rename", "os.remove") and counts:
            counts[-1][event] += 1

    class Counted(Rows):
        def rows(self, position: Any) -> Iterator[tuple[Any, Any]]:
            for at in range(position or 0, 61):
                counts.append(Counter())
                yield image(at), at + 1

    sys.addaudithook(hear)
    result = tfrecorder.stream(Counted(), "out", every_rows=1, **TO_ITS_END)
    found = counts[:-1]
    counts.clear()
    assert result.generations == 61
    assert found[59] == found[19]


def test_splits_follow_the_uri_or_a_column() -> None:
    rows = [image(number, key=f"patient {number // 8}") for number in range(80)]
    tfrecorder.stream(Rows(*rows), "out", split_by="key", every_rows=30, **TO_ITS_END)
    frame = tfrecorder.to_frame("out")
    assert frame["split"].nunique() > 1
    splits = frame.groupby(frame.index // 8)["split"].nunique()
    assert (splits == 1).all()


def test_columns_of_a_schema_and_their_faults() -> None:
    schema = tfrecorder.schema.Schema(
        photo=tfrecorder.schema.Image(),
        weight=tfrecorder.schema.Number(),
        kind=tfrecorder.schema.Label(),
    )
    rows = [{"photo": photo(n).read_bytes(), "weight": 1 + n / 2, "kind": "x"} for n in range(4)]
    rows += [{**rows[0], "weight": "heavy"}, {**rows[0], "weight": None}]
    options = {"schema": schema, "every_rows": 3, **TO_ITS_END}
    result = tfrecorder.stream(Rows(*rows), "out", **options)
    assert result.rejects == {"row/wrong_value": 1, "row/missing_value": 1}
    assert sorted(tfrecorder.to_frame("out")["weight"]) == [1.0, 1.5, 2.0, 2.5]
    found = tfrecorder.info("out").statistics["weight"].values()
    ends = min(one["min"] for one in found), max(one["max"] for one in found)
    assert ends == (1.0, 2.5)  # without the values that stand for the rejects


def test_a_batch_of_rejects_alone_is_a_generation() -> None:
    good, bad = image(0), Unusable("src/7", "bad_json: no")
    tfrecorder.stream(Rows(good, bad, bad), "out", every_rows=1, **TO_ITS_END)
    assert rejects_of("out") == [("src/7", "row/bad_json")] * 2
    assert tfrecorder.info("out").records == 1
    assert tfrecorder.verify("out", progress=False).ok


def test_a_dataset_may_begin_with_images_that_cannot_be_used() -> None:
    junk = {"image_uri": b"no image", "label": "a"}
    tfrecorder.stream(Rows(junk), "out", **TO_ITS_END)
    assert tfrecorder.info("out").records == 0
    assert tfrecorder.verify("out", progress=False).ok
    tfrecorder.stream(Rows(junk, image(1, "b", split="train")), "out", **TO_ITS_END)
    assert tfrecorder.info("out").records == 1
    (images, labels), *_ = tfrecorder.batches("out", "TRAIN", image_size=24, batch_size=1)
    assert (images.shape, labels.tolist()) == ((1, 24, 24, 3), [1])


def test_labels_come_in_the_type_that_the_dataset_has() -> None:
    texts = [image(0, "7"), image(1, "cat"), image(2, 7)]
    tfrecorder.stream(Rows(*texts), "texts", every_rows=2, **TO_ITS_END)
    assert sorted(tfrecorder.to_frame("texts")["label"]) == ["7", "7", "cat"]
    numbers = [image(0, 0), image(1, 1), image(2, "1"), image(3, "cat")]
    tfrecorder.stream(Rows(*numbers), "numbers", every_rows=2, **TO_ITS_END)
    assert sorted(tfrecorder.to_frame("numbers")["label"]) == [0, 1, 1]
    assert [reason for _, reason in rejects_of("numbers")] == ["row/mixed_label_types"]


@pytest.mark.parametrize("path", ["../a.jpg", "/etc/a.jpg", "a//b.jpg", "x\n.jpg", "s" * 300])
def test_a_name_that_leads_elsewhere_is_a_reject(path: str, tmp_path: Path) -> None:
    cell = {"bytes": photo(0).read_bytes(), "path": path}
    rows = Rows(image(0), {"image_uri": cell, "label": "a"})
    assert tfrecorder.stream(rows, "out", **TO_ITS_END).rejects == {"row/bad_name": 1}
    assert {one.name for one in tmp_path.iterdir()} == {"out"}


def test_images_of_one_name_in_a_batch_stay_apart() -> None:
    cells = [{"bytes": photo(n).read_bytes(), "path": "a.jpg"} for n in range(3)]
    rows = [{"image_uri": cell, "label": "x"} for cell in cells]
    tfrecorder.stream(Rows(*rows), "out", **TO_ITS_END)
    found = [(one["image/filename"], digest(one["image/encoded"])) for one in records("out")]
    assert sorted(found) == sorted((b"a.jpg", digest(photo(n).read_bytes())) for n in range(3))


# ------------------------------------------------------------------------------ when it is written


@pytest.mark.slow
def test_a_batch_ends_by_its_age() -> None:
    class Slow(Rows):
        def rows(self, position: Any) -> Iterator[tuple[Any, Any]]:
            if (position or 0) == len(self._rows):
                raise SourceError("there are no more")
            yield self._rows[position or 0], (position or 0) + 1

    rows = Slow(*map(image, range(3)))
    with pytest.raises(SourceError, match="no more"):
        tfrecorder.stream(rows, "out", every_seconds=0, progress=False)
    assert len(tfrecorder.generations("out")) == 3


def test_a_batch_ends_by_the_size_of_its_spool() -> None:
    most = max(len(photo(n).read_bytes()) for n in range(6))
    rows = Rows(*map(image, range(6)))
    result = tfrecorder.stream(rows, "out", spool_size=most + 1, **TO_ITS_END)
    assert result.generations >= 3
    assert sorted(os.listdir("out/_tfrecorder")) == streams.KEPT


# --------------------------------------------------------------------------- what ends a stream


@pytest.mark.slow
@pytest.mark.parametrize("spared", [0, 11, 24, 31, 47])
def test_a_stream_that_is_killed_goes_on(tmp_path: Path, spared: int) -> None:
    assert streams.kill_stream(Moment(spared), tmp_path / "out")


@pytest.mark.slow
def test_a_staged_batch_is_completed_without_its_source(tmp_path: Path) -> None:
    """Its images lie in the spool, and its rows in the plan."""
    out = tmp_path / "out"
    arguments = [Numbered(20), str(out), "stream"]
    moment = Moment(1, "_tfrecorder/plan.json")
    assert streams.convert_until(moment, *arguments, every_rows=10, until_idle=0)
    assert (out / "_tfrecorder/plan.json").exists()
    result = tfrecorder.stream(Rows(name="numbered"), out, **TO_ITS_END)
    assert (result.generations, result.rows) == (1, 10)
    assert tfrecorder.stream(Numbered(20), out, **TO_ITS_END).rows == 10
    streams.check_whole(out, 20)


@pytest.mark.slow
def test_a_staged_batch_whose_spool_is_gone_is_read_again(tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = [Numbered(20), str(out), "stream"]
    moment = Moment(1, "_tfrecorder/plan.json")
    assert streams.convert_until(moment, *arguments, every_rows=10, until_idle=0)
    next((out / "_tfrecorder/spool").iterdir()).unlink()
    assert tfrecorder.stream(Numbered(20), out, every_rows=20, **TO_ITS_END).generations == 1
    streams.check_whole(out, 20)


ENDLESS = """
import sys, time
sys.path[:0] = [{tests!r}]
import tfrecorder
from helpers.streaming_cases import Numbered
tfrecorder.stream(Numbered(35), "out", every_rows=10, progress=False)
"""


@pytest.mark.slow
def test_ctrl_c_says_what_is_committed_and_loses_nothing() -> None:
    process = start(ENDLESS.format(tests=str(TESTS)))
    wait_for(Path("out/_tfrecorder/commits/00001.json").exists)
    last = end_by_ctrl_c(process).splitlines()[-1]
    assert last.startswith("KeyboardInterrupt: Stopped: ")
    assert "committed in" in last
    assert "Run the same stream again to continue with the next row." in last
    tfrecorder.stream(Numbered(40), "out", **TO_ITS_END)
    streams.check_whole("out", 40)


@pytest.mark.slow
def test_sigterm_ends_the_command_in_one_line() -> None:
    Path("in").mkdir()
    Path("in/a.jpg").write_bytes(photo(0).read_bytes())
    options = ("--every-seconds", "0", "--source-option", "settle=0")
    process = start(COMMAND, "stream", "in", "out", *options)
    wait_for(Path("out/dataset_info.json").exists)
    process.send_signal(signal.SIGTERM)
    _, words = process.communicate(timeout=60)
    assert process.returncode == 143
    assert re.search(r"Stopped: \d rows? in \d generations? committed in .*/out", words)
    assert "Traceback" not in words


CELLS = [
    *(None, "cat", 5, True, 1.5, float("nan"), b"cat", "", [], ["cat"], ["cat", 5], [[1]]),
    *({"a": 1}, [1.0, 2.0], [None], "\ud800", 10**400, "x" * 10_000, object()),
]

#: The column of each kind that rows have, and what a sound row has in it.
SOUND: dict[str, tuple[Any, Any]] = {
    "label": (Label(), "cat"),
    "a number of a class": (Label(), 0),
    "labels": (Labels(), ["cat", "dog"]),
    "a number": (Number(), 1.5),
    "numbers": (Number(shape=(2,)), [1.0, 2.0]),
    "text": (Text(), "words"),
    "bytes": (Bytes(), b"data"),
    "nothing": (None, None),
}


@pytest.mark.parametrize("kind", SOUND)
@pytest.mark.parametrize("every", [pytest.param(9, marks=pytest.mark.slow), 1000])
def test_whatever_one_row_has_the_rows_beside_it_are_records(kind: str, every: int) -> None:
    Path("in").mkdir()
    for name in ("good", "bad"):
        Path(f"in/{name}.jpg").write_bytes(photo(0).read_bytes())
    column, value = SOUND[kind]
    cells = {} if column is None else {"n": value}
    schema = Schema(
        split=Split(required=False),
        image_uri=Image(),
        **({} if column is None else {"n": column}),
    )
    good = {"image_uri": "in/good.jpg", **cells}
    rows = [good]
    for cell in CELLS:
        for name in ("n", "label", "split", "labels", "xmin", "text", "image_uri"):
            rows += [{"image_uri": "in/bad.jpg", **cells, name: cell}, good]
    rows += [{"image_uri": "in/bad.jpg"}, good]
    tfrecorder.stream(Rows(good), "out", schema=schema, **TO_ITS_END)
    options = {**TO_ITS_END, "every_rows": every}
    result = tfrecorder.stream(Rows(*rows), "out", **options)
    assert result.rows == len(rows) - 1
    named = names_in("out")
    assert sum(named[name] for name in named if name.endswith("good.jpg")) == rows.count(good)
    assert not [why for name, why in rejects_of("out") if name.endswith("good.jpg")]
    assert tfrecorder.verify("out", progress=False).ok


def test_a_source_that_fails_ends_the_stream_and_the_same_call_goes_on() -> None:
    class Broken(Numbered):
        def rows(self, position: Any) -> Iterator[Any]:
            for row, number in super().rows(position):
                if number == 17 and position is None:
                    raise SourceError("the camera is on fire")
                yield row, number

    with pytest.raises(SourceError, match="on fire"):
        tfrecorder.stream(Broken(30), "out", every_rows=10, **TO_ITS_END)
    assert sum(names_in("out").values()) == 10
    tfrecorder.stream(Broken(30), "out", every_rows=10, **TO_ITS_END)
    streams.check_whole("out", 30)


# ------------------------------------------------------------------------------------- two at once


@pytest.mark.slow
def test_two_streams_into_one_dataset_are_refused() -> None:
    process = start(ENDLESS.format(tests=str(TESTS)))
    wait_for(Path("out/_tfrecorder/commits/00002.json").exists)
    with pytest.raises(OutputError, match="another conversion is writing this directory"):
        tfrecorder.stream(Numbered(10), "out", **TO_ITS_END)
    process.kill()
    process.communicate()


@pytest.mark.slow
def test_an_unfinished_append_and_an_unfinished_stream_refuse_each_other(tmp_path: Path) -> None:
    frame = photo_frame(12).assign(label="a")
    frame.to_csv("table.csv", index=False)
    tfrecorder.convert(frame[:4], "out", progress=False)
    out = str(tmp_path / "out")
    moment = Moment(1, "_tfrecorder/plan.json")
    assert streams.convert_until(moment, str(tmp_path / "table.csv"), out, "append")
    with pytest.raises(OutputError, match="unfinished append: complete it with the same append"):
        tfrecorder.stream(Numbered(10), out, **TO_ITS_END)
    tfrecorder.append("table.csv", out, progress=False)
    moment = Moment(1, "_tfrecorder/plan.json")
    assert streams.convert_until(moment, Numbered(20), out, "stream", until_idle=0)
    with pytest.raises(OutputError, match="a batch of a stream from numbered"):
        tfrecorder.append(photo_frame(14).assign(label="a"), out, progress=False)
    found = tfrecorder.status(out)
    assert "stream: the finished dataset stays as it is; this is generation 2" in str(found)
    tfrecorder.stream(Numbered(20), out, **TO_ITS_END)
    assert sum(names_in(out).values()) == 12 + 20


# --------------------------------------------------------------------------------------- a bucket


@pytest.mark.slow
def test_a_stream_into_a_bucket(gcs: Any) -> None:
    out = "gs://bkt/out"
    for rows in (15, 30):
        tfrecorder.stream(Numbered(rows), out, every_rows=10, **TO_ITS_END)
    assert tfrecorder.info(out).records == 21
    assert tfrecorder.verify(out, progress=False).ok
    assert not [name for name in gcs.names("gs://bkt/out/") if "/spool/" in name]
    with pytest.raises(OutputError, match="by another operation since this one began"):
        _meet(out)
    tfrecorder.stream(Numbered(60, "other"), out, **TO_ITS_END)
    assert tfrecorder.info(out).records == 21 + 42 + 1


@pytest.mark.slow
def test_a_claim_that_another_operation_overtook_is_given_up(gcs: Any) -> None:
    """As where its process is killed before it looks whether the commit is still the one it saw."""
    out, frame = "gs://bkt/out", photo_frame(3).assign(label="a")
    tfrecorder.stream(Numbered(10), out, **TO_ITS_END)
    tfrecorder.append(frame, out, duplicates="keep", stage_only=True, progress=False)
    claim = gcs.get(f"{out}/_tfrecorder/plan.json")
    tfrecorder.undo(out)
    gcs.put(f"{out}/_tfrecorder/plan.json", claim)
    assert tfrecorder.stream(Numbered(20), out, **TO_ITS_END).rows == 10
    assert tfrecorder.info(out).records == 14
    assert tfrecorder.verify(out, progress=False).ok


def _meet(out: str) -> None:
    """A stream into a bucket, into which another writes while it collects its rows."""

    class Met(Rows):
        def rows(self, position: Any) -> Iterator[Any]:
            yield from super().rows(position)
            if not position:
                tfrecorder.stream(Rows(image(0), name="second"), out, **TO_ITS_END)

    tfrecorder.stream(Met(image(1), name="first"), out, **TO_ITS_END)


@pytest.mark.slow
def test_a_batch_gives_way_to_what_another_stream_staged_meanwhile(gcs: Any) -> None:
    """Even of the same rows: positions of its own source would not count."""
    out = "gs://bkt/out"

    class Fails(Rows):
        def replaced(self, position: str) -> bool:
            raise ZeroDivisionError  # right before the commit

    class Met(Rows):
        def rows(self, position: Any) -> Iterator[Any]:
            yield from super().rows(position)
            if not position:
                with pytest.raises(ZeroDivisionError):
                    tfrecorder.stream(Fails(image(0), name="second"), out, **TO_ITS_END)

    with pytest.raises(OutputError, match="is being written by another stream or append"):
        tfrecorder.stream(Met(image(0), name="first"), out, **TO_ITS_END)
    for name in ("second", "first", "first"):
        tfrecorder.stream(Rows(image(0), name=name), out, **TO_ITS_END)
    assert tfrecorder.info(out).records == 2
    assert tfrecorder.verify(out, progress=False).ok


@pytest.mark.slow
def test_an_outage_is_waited_for(gcs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than the patience of a conversion."""

    class Disturbed(Numbered):
        def rows(self, position: Any) -> Iterator[Any]:
            if position == 10:
                gcs.inject("status", status=503, object="bkt/out/*")
                threading.Timer(4, gcs.mend).start()
            yield from super().rows(position)

    out = "gs://bkt/out"
    tfrecorder.stream(Numbered(10), out, **TO_ITS_END)
    shorten_patience(monkeypatch, 0.5)
    with pytest.warns(UserWarning, match="The stream waits for it"):
        tfrecorder.stream(Disturbed(20), out, **TO_ITS_END)
    assert tfrecorder.info(out).records == 14
    assert tfrecorder.verify(out, progress=False).ok


# ------------------------------------------------------------------------------------ faults


def test_no_dataset_is_begun_by_rows_of_which_none_can_be_a_record() -> None:
    rows = [image(0, None), Unusable("src/1", "bad_json: no")]
    with pytest.raises(SourceError, match=r"none of the first 2 rows could .* label is missing"):
        tfrecorder.stream(Rows(*rows), "out", **TO_ITS_END)
    with pytest.raises(DatasetError):
        tfrecorder.info("out")
    # They are read again, and go with the first that can be one.
    tfrecorder.stream(Rows(*rows, image(2)), "out", **TO_ITS_END)
    assert sum(names_in("out").values()) == 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"every_rows": 0}, "every_rows=0: give a whole number from 1"),
        ({"every_seconds": -1}, "every_seconds=-1: give seconds"),
        ({"until_idle": "soon"}, "until_idle='soon': give seconds"),
        ({"spool_size": "1 barrel"}, "spool_size='1 barrel'"),
        ({"overwrite": True}, "overwrite=True: a stream adds"),
        ({"runner": "DataflowRunner"}, "the process that reads a stream also writes it"),
        ({"image_sise": 3}, "image_sise"),
        ({"source_options": {"settle": 1}}, "a source object has none"),
    ],
)
def test_options_that_mean_nothing_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        tfrecorder.stream(Numbered(3), "out", **{**TO_ITS_END, **options})
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (3, "source is a int; give a folder"),
        ("nowhere", "there is no such folder"),
        ("s3://bucket/in", "only a local folder can be watched"),
    ],
)
def test_what_is_no_source_is_refused(source: Any, words: str) -> None:
    with pytest.raises(SourceError, match=words):
        tfrecorder.stream(source, "out", **TO_ITS_END)
    assert not Path("out").exists()


def test_a_position_that_cannot_be_saved_is_an_error() -> None:
    class Odd(Rows):
        def rows(self, position: Any) -> Iterator[Any]:
            yield image(0), object()

    with pytest.raises(SourceError, match="is not a JSON value"):
        tfrecorder.stream(Odd(), "out", **TO_ITS_END)


# -------------------------------------------------------------------------------------- the shell


@pytest.mark.slow
def test_the_command_writes_and_says_what_it_did() -> None:
    put("a/0.jpg", 0)
    ended = run(
        *("-m", "tfrecorder", "stream", "in", "out", "--until-idle", "0"),
        *("--source-option", "settle=0", "--image-size", "24"),
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "1 record in 1 generation" in ended.stdout
    shown = run("-m", "tfrecorder", "status", "out").stdout
    assert f"stream from folder:{Path('in').absolute()}: read up to 1" in shown


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("nowhere", "out"), "error: source 'nowhere': there is no such folder"),
        (("in", "out", "--source-option", "x"), "'x'; write NAME=VALUE."),
        (("in", "out", "--source-option", "y=1"), "a folder has no option 'y'"),
        (("in", "out", "--every-rows", "0"), "--every-rows 0: give a whole number from 1."),
    ],
)
def test_mistakes_in_the_shell_are_one_line(words: tuple[str, ...], line: str) -> None:
    Path("in").mkdir()
    ended = run("-m", "tfrecorder", "stream", *words)
    assert ended.returncode in (1, 2)
    assert line in ended.stderr
    assert "Traceback" not in ended.stderr
