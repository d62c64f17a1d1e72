"""Any file of a dataset with any history is lost: it comes back, or what is lost is noted.

What is noted is asked for by who needs it, and any call after a repair goes right.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
from helpers.damage import all_files, reseal
from helpers.public_types import RepairResult
from support import WHOLE_SWEEPS, public_files, records, whose_turn
from torture import kills
from torture.losses import (
    FIRST,
    HISTORIES,
    QUIET,
    Feed,
    Rows,
    demand_repaired,
    losses_of,
    make,
    newest_of,
    sweep,
)

import tfrecorder
from tfrecorder.errors import DatasetError, OutputError, SourceError

MARKS = "_tfrecorder/removed/*"


@pytest.mark.slow
@pytest.mark.parametrize("history", HISTORIES)
def test_each_file_comes_back_or_is_noted_as_lost(tmp_path: Path, history: str) -> None:
    demand_repaired(sweep(make(history, tmp_path), history, turns=not WHOLE_SWEEPS))


@pytest.mark.parametrize(
    ("history", "pattern"),
    [
        ("updated", "_tfrecorder/before/test-*.idx"),
        ("removed", "_tfrecorder/[cr]*"),
        ("compacted", "_tfrecorder/*/train-*0*"),
        ("append undone", "_tfrecorder/commits/*3.json"),
    ],
)
def test_some_files_come_back_or_are_noted_as_lost(
    tmp_path: Path, history: str, pattern: str
) -> None:
    demand_repaired(sweep(make(history, tmp_path), history, pattern, ("damaged",)))


@pytest.mark.parametrize(
    "history",
    [
        "updated",
        *(
            pytest.param(history, marks=pytest.mark.slow)
            for history in ("removed", "moved", "removed by its table", "update undone", "dropped")
        ),
    ],
)
def test_a_shard_is_written_again_whatever_wrote_it(tmp_path: Path, history: str) -> None:
    cells = sweep(make(history, tmp_path), history, "*.tfrecord", ("gone",))
    cells = [cell for cell in cells if not cell.file.startswith("_")]
    demand_repaired(cells)
    assert len(cells) > 2
    assert not any(cell.changed for cell in cells)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("history", "lost"),
    [
        ("appended twice", "*/*00001*"),
        ("appended after a removal", "removed/*"),
        ("compacted", "tables/train-r2-00000*"),
        ("updated", "before/train*.idx"),
        ("updated", "commits/00002*"),
        ("let in again", "[crt]*/*00001*"),
        ("append undone", "tables/train-00000*"),
    ],
)
def test_a_repair_that_is_killed_is_completed(tmp_path: Path, history: str, lost: str) -> None:
    rows = make(history, tmp_path)
    for path in sorted(rows.out.glob(f"_tfrecorder/{lost}")):
        path.unlink()
    disk = kills.Disk(rows.folder)
    with disk.recorded() as states:
        tfrecorder.repair(rows.out, progress=False)
    after, losses = all_files(rows.out), losses_of(rows.out)
    assert len(states) > 1
    for state in states:
        disk.restore(state)
        tfrecorder.repair(rows.out, progress=False)
        assert {*all_files(rows.out)} == {*after}
        assert losses_of(rows.out) == losses
        assert tfrecorder.verify(rows.out, progress=False).ok


# --------------------------------------------------------------------------------------- places


@pytest.fixture
def rows(tmp_path: Path) -> Rows:
    """Numbered images, and a dataset of the first of them."""
    made = Rows(tmp_path)
    made.draw(FIRST + 8)
    made.convert()
    return made


def lose(rows: Rows, pattern: str) -> RepairResult:
    """Lose files of the dataset, and repair it: its public files are as before."""
    before, found = public_files(rows.out), sorted(rows.out.glob(pattern))
    assert found
    for path in found:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    result = tfrecorder.repair(rows.out, progress=False)
    assert public_files(rows.out) == before
    assert tfrecorder.verify(rows.out, progress=False).ok
    return result


def append_all(rows: Rows, **options: Any) -> Any:
    """Append the table that the dataset was made of."""
    table = rows.table(rows.frame(0, FIRST))
    return tfrecorder.append(table, rows.out, **{**QUIET, **options})


def names_in(rows: Rows) -> list[str]:
    return sorted(record["image/filename"].decode() for record in records(rows.out))


BECAME: dict[str, Callable[[Rows], None]] = {
    "compacted": Rows.compact,
    "updated": Rows.update,
    "moved": Rows.move,
    "removed": lambda rows: rows.remove(4),
    "dropped": lambda rows: rows.compact(4),
    "removed by its table": lambda rows: rows.update(missing="remove"),
    "put back": lambda rows: (rows.update(), rows.undo()),
}


@pytest.mark.parametrize(
    "became",
    ["compacted", *(pytest.param(name, marks=pytest.mark.slow) for name in [*BECAME][1:])],
)
def test_places_that_are_lost_are_asked_for(rows: Rows, became: str) -> None:
    BECAME[became](rows)
    tables = sorted(rows.out.glob("_tfrecorder/tables/train-r*"))
    result = lose(rows, f"_tfrecorder/tables/{tables[0].name}")
    assert any("in which folder the images were" in words for words in result.lost)
    assert losses_of(rows.out)["places"] == [f"_tfrecorder/tables/{tables[0].name}"]
    before = all_files(rows.out)
    table = rows.table(rows.frame(0, FIRST))
    for call in (
        lambda: append_all(rows),
        lambda: tfrecorder.update(table, rows.out, **QUIET),
        lambda: tfrecorder.validate(table, against=rows.out, progress=False),
    ):
        with pytest.raises(DatasetError, match="in which folder the images were"):
            call()
    assert all_files(rows.out) == before


@pytest.mark.parametrize("loss", ["_tfrecorder/tables/train-00000*", "_tfrecorder/commits/*"])
def test_places_that_the_manifest_or_the_tables_know_are_kept(rows: Rows, loss: str) -> None:
    lose(rows, loss)
    assert "places" not in losses_of(rows.out)
    assert append_all(rows).rows_there == FIRST


def test_a_removal_without_marks_says_so(rows: Rows) -> None:
    """Of JPEG files as they came the records know sizes and checksums, of others they do not."""
    rows.compact()
    lose(rows, "_tfrecorder/tables/*")
    pngs, jpegs = ["2.png", "5.png"], ["0.jpg", "4.jpg"]
    trial = tfrecorder.remove(rows.out, {"image_uri": [*pngs, *jpegs]}, dry_run=True)
    result = tfrecorder.remove(rows.out, {"image_uri": [*pngs, *jpegs]}, progress=False)
    words = (
        "2 removed images may come in again: nothing says where they were or what bytes they had"
    )
    assert words in result.notes
    assert words in str(trial)
    assert append_all(rows, duplicates="keep").removed == len(jpegs)
    assert {*pngs} < {*names_in(rows)}
    assert not {*jpegs} & {*names_in(rows)}


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"short_side": 6}, {"strip_metadata": True}], ids=str)
def test_a_jpeg_that_may_be_another_file_has_no_known_bytes(rows: Rows, options: dict) -> None:
    rows.convert(overwrite=True, **options)
    rows.compact()
    lose(rows, "_tfrecorder/tables/*")
    result = tfrecorder.remove(rows.out, {"image_uri": ["0.jpg"]}, progress=False)
    assert any(note.startswith("1 removed image may come in again: ") for note in result.notes)


@pytest.mark.slow
def test_a_jpeg_of_an_append_with_options_of_its_own_has_no_known_bytes(rows: Rows) -> None:
    rows.append(short_side=6)
    rows.compact()
    lose(rows, "_tfrecorder/tables/*")
    result = tfrecorder.remove(rows.out, {"image_uri": ["10.jpg"]}, progress=False)
    assert any(note.startswith("1 removed image may come in again: ") for note in result.notes)


@pytest.mark.slow
def test_sources_whose_folder_is_lost_are_not_compared(rows: Rows) -> None:
    rows.compact()
    lose(rows, "_tfrecorder/tables/train-*")
    report = tfrecorder.verify(rows.out, sources=True, progress=False)
    assert report.ok
    assert report.sources["unknown"] > 2


@pytest.mark.slow
def test_a_shard_whose_folder_is_lost_comes_back_with_its_base(rows: Rows) -> None:
    rows.compact()
    before = public_files(rows.out)
    lose(rows, "_tfrecorder/tables/train-r2-00000*")
    (rows.out / "train-r2-00000.tfrecord").unlink()
    with pytest.raises(SourceError, match="in which folder its images were: give it as `base`"):
        tfrecorder.repair(rows.out, progress=False)
    tfrecorder.repair(rows.out, rows.folder / "images", progress=False)
    assert public_files(rows.out) == before


@pytest.mark.slow
@pytest.mark.parametrize("named", [False, True])
def test_images_that_came_as_bytes_are_known_by_these_or_asked_for(rows: Rows, named: bool) -> None:
    """One without a name has that of its content; a name, even of a path, says nothing."""
    table = rows.frame(FIRST, 4)
    files = [rows.folder / "images" / uri for uri in table["image_uri"]]
    table["image_uri"] = [
        {"bytes": path.read_bytes(), "path": f"/was/{path.name}"} if named else path.read_bytes()
        for path in files
    ]
    tfrecorder.append(table, rows.out, **QUIET)
    lose(rows, "_tfrecorder/tables/train-00002*")
    if named:
        with pytest.raises(DatasetError, match="in which folder the images were"):
            tfrecorder.append(table, rows.out, **QUIET)
    else:
        assert tfrecorder.append(table, rows.out, **QUIET).rows_there == 4
    assert ("places" in losses_of(rows.out)) == named


# ---------------------------------------------------------------------------------------- marks


@pytest.fixture
def unmarked(rows: Rows) -> Rows:
    """A dataset from which two rows were removed, and nobody knows which."""
    rows.remove(0, 2)
    result = lose(rows, MARKS)
    assert any("which rows were removed" in words for words in result.lost)
    assert [*losses_of(rows.out)] == ["marks"]
    return rows


def test_who_would_let_removed_rows_in_asks(unmarked: Rows) -> None:
    rows, before = unmarked, all_files(unmarked.out)
    table = rows.table(rows.frame(0, FIRST))
    feed = Feed(
        [{"split": "TRAIN", "image_uri": str(rows.folder / "images/0.jpg"), "label": "ant"}]
    )
    options = {"until_idle": 0, "progress": False}
    for call in (
        lambda: append_all(rows),
        lambda: append_all(rows, duplicates="keep"),
        lambda: tfrecorder.update(table, rows.out, **QUIET),
        lambda: tfrecorder.validate(table, against=rows.out, progress=False),
        lambda: tfrecorder.stream(feed, rows.out, **options),
    ):
        with pytest.raises(DatasetError, match="nobody knows any more which rows were removed"):
            call()
    assert all_files(rows.out) == before
    assert tfrecorder.update(table, rows.out, readmit=True, **QUIET).changes.added == 2
    assert tfrecorder.stream(feed, rows.out, readmit=True, **options).rows == 1


@pytest.mark.slow
def test_what_marks_are_lost_stays_so_whatever_follows(unmarked: Rows) -> None:
    rows = unmarked
    append_all(rows, readmit=True)
    assert "0.jpg" in names_in(rows)
    for step in (
        rows.compact,
        lambda: rows.remove(4),
        rows.append,
        rows.undo,
        lambda: rows.update(readmit=True),
        rows.undo,
    ):
        if step == rows.append:
            rows.append(readmit=True)
        else:
            step()
        assert "marks" in losses_of(rows.out), step
        assert tfrecorder.verify(rows.out, progress=False).ok
    tfrecorder.compact(rows.out, rows.folder / "copy", progress=False)
    assert "marks" in losses_of(rows.folder / "copy")


@pytest.mark.slow
def test_an_overwrite_says_that_removed_rows_may_come_in_again(unmarked: Rows) -> None:
    rows = unmarked
    options = {**QUIET, "num_shards": 1}
    table = rows.frame(0, 8)
    result = tfrecorder.convert(rows.table(table), rows.out, overwrite=True, **options)
    words = "which rows were removed before is lost: they may come in again"
    assert words in result.notes
    with pytest.raises(DatasetError, match="nobody knows any more"):
        append_all(rows)
    result = tfrecorder.convert(rows.table(table), rows.out, overwrite="all", **options)
    assert words not in result.notes
    assert not losses_of(rows.out)
    assert append_all(rows).records == 2


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["_tfrecorder", "_tfrecorder/*/0*.json"])
def test_all_lost_says_that_removed_rows_are_not_known(rows: Rows, lost: str) -> None:
    rows.remove(0, 2)
    result = lose(rows, lost)
    assert any("which rows were removed" in words for words in result.lost)
    assert "marks" in losses_of(rows.out)


@pytest.mark.slow
def test_where_rows_were_only_added_none_was_removed(rows: Rows) -> None:
    rows.append()
    lose(rows, "_tfrecorder")
    assert "marks" not in losses_of(rows.out)
    assert append_all(rows, duplicates="keep").records > 0


@pytest.mark.slow
def test_what_is_lost_while_an_append_is_under_way_is_noted_when_it_ends(rows: Rows) -> None:
    rows.compact()
    rows.append(stage_only=True)
    lose(rows, "_tfrecorder/tables/train-r2-00000*")
    rows.append(duplicates="keep")
    assert newest_of(rows.out)["kind"] == "append"
    assert "places" in losses_of(rows.out)
    rows.append(first=0, duplicates="keep", stage_only=True)
    rows.undo()
    assert "places" in losses_of(rows.out)


# ------------------------------------------------------------------------- what an update replaced


def test_what_an_update_replaced_is_checked(rows: Rows) -> None:
    rows.update()
    kept = sorted(rows.out.glob("_tfrecorder/before/*"))[0]
    data = kept.read_bytes()
    kept.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    name = f"_tfrecorder/before/{kept.name}"
    assert {fault.file for fault in tfrecorder.verify(rows.out, progress=False).found} == {name}
    before = all_files(rows.out)
    with pytest.raises(DatasetError, match=f"is not taken back: {name}, which it replaced, is not"):
        tfrecorder.undo(rows.out)
    assert all_files(rows.out) == before
    result = tfrecorder.repair(rows.out, progress=False)
    assert any("cannot be taken back" in words for words in result.lost)
    with pytest.raises(DatasetError, match="is not taken back: what it replaced was lost"):
        tfrecorder.undo(rows.out)
    rows.append()
    assert not losses_of(rows.out)
    rows.undo()
    assert tfrecorder.verify(rows.out, progress=False).ok


# --------------------------------------------------------------------------------------- the rest


@pytest.mark.slow
def test_what_was_appended_is_not_replaced_unnamed_after_its_manifest_was_lost(rows: Rows) -> None:
    rows.append()
    rows.compact()
    lose(rows, "_tfrecorder/commits/*")
    with pytest.raises(OutputError, match="nobody knows any more whether rows were appended"):
        rows.convert(overwrite=True)
    rows.convert(overwrite="all")
    assert not losses_of(rows.out)


@pytest.mark.slow
@pytest.mark.parametrize("history", ["removed", "appended after a removal", "append undone"])
def test_no_number_of_a_row_comes_again_after_its_manifest_was_lost(
    tmp_path: Path, history: str
) -> None:
    rows = make(history, tmp_path)
    lose(rows, f"_tfrecorder/commits/{newest_of(rows.out)['commit']:05d}.json")
    manifest = newest_of(rows.out)
    numbers = [int(record["image/source_id"]) for record in records(rows.out)]
    assert manifest["next_row"] > max(numbers)
    assert "when" not in manifest["log"]
    assert rows.append(FIRST + 4).records == 4
    numbers = [int(record["image/source_id"]) for record in records(rows.out)]
    assert len({*numbers}) == len(numbers)
    assert tfrecorder.verify(rows.out, progress=False).ok


LOST = ["tables/t*0.parquet", "commits/*", "[bcirt]*"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("history", "lost"),
    [(history, lost) for at, history in enumerate(HISTORIES) for lost in whose_turn(at, LOST)],
)
def test_any_call_after_a_repair_goes_right(tmp_path: Path, history: str, lost: str) -> None:
    rows = make(history, tmp_path)
    lose(rows, f"_tfrecorder/{lost}")
    names = names_in(rows)
    rows.append(FIRST + 4, duplicates="keep", readmit=True)
    new = {rows.name(number) for number in range(FIRST + 4, FIRST + 8)}
    assert names_in(rows) == sorted([*names, *new])
    rows.undo()
    assert names_in(rows) == names
    gone = names[0]
    tfrecorder.remove(rows.out, {"image_uri": gone}, progress=False)
    rows.compact()
    assert names_in(rows) == [name for name in names if name != gone]
    assert tfrecorder.verify(rows.out, progress=False).ok
    assert tfrecorder.repair(rows.out, progress=False).files == ()


def written_as(rows: Rows, name: str, data: bytes, of: str) -> None:
    """Write a file beside the first shard, and bind it in the manifest as its writer would."""
    import google_crc32c

    (rows.out / name).write_bytes(data)

    def bind(manifest: dict[str, Any]) -> None:
        manifest["done"][0]["beside"][of] = google_crc32c.value(data)
        manifest["done"][0]["beside_bytes"][of] = len(data)

    reseal(rows.out / "_tfrecorder/commits/00000.json", bind)


def test_a_table_in_another_order_is_made_again_with_all_that_it_knew(rows: Rows) -> None:
    name = "_tfrecorder/tables/train-00000.parquet"
    table = pq.read_table(rows.out / name)
    wrong = table.take([1, 0, *range(2, len(table))]).replace_schema_metadata(table.schema.metadata)
    pq.write_table(wrong, rows.folder / "wrong.parquet")
    written_as(rows, name, (rows.folder / "wrong.parquet").read_bytes(), "table")
    assert not tfrecorder.verify(rows.out, progress=False).ok
    result = tfrecorder.repair(rows.out, progress=False)
    assert name in result.files
    assert not result.lost
    assert not losses_of(rows.out)
    again = pq.read_table(rows.out / name)
    assert {*again.column_names} == {*table.column_names}
    assert again.select(table.column_names).to_pylist() == table.to_pylist()
    assert tfrecorder.verify(rows.out, sources=True, progress=False).ok
    assert append_all(rows).rows_there == FIRST


def test_an_index_of_other_records_is_made_again(rows: Rows) -> None:
    name = "_tfrecorder/index/train-00000.tfrecord.idx"
    data = (rows.out / name).read_bytes()
    lines = data.splitlines(keepends=True)
    written_as(rows, name, b"".join([lines[1], lines[0], *lines[2:]]), "index")
    assert not tfrecorder.verify(rows.out, progress=False).ok
    assert name in tfrecorder.repair(rows.out, progress=False).files
    assert (rows.out / name).read_bytes() == data
    assert not losses_of(rows.out)


@pytest.mark.slow
def test_streams_whose_positions_are_lost_are_noted(tmp_path: Path) -> None:
    rows = make("streamed", tmp_path)
    lose(rows, "_tfrecorder")
    assert losses_of(rows.out)["positions"]
    with pytest.raises(DatasetError, match="how far it was read was lost"):
        rows.stream(readmit=True)


@pytest.mark.slow
def test_the_merged_rows_are_only_a_copy(rows: Rows) -> None:
    """They are neither missed nor believed if they are damaged."""
    names = [rows.name(number) for number in range(FIRST, FIRST + 4)]
    frame = pd.concat([rows.frame(FIRST, 4)] * 10, ignore_index=True)
    frame["image_uri"] = [str(rows.folder / "images" / uri) for uri in frame["image_uri"]]
    cells = frame.to_dict("records")
    options = {"every_rows": 1, "until_idle": 0, "progress": False}
    tfrecorder.stream(Feed(cells), rows.out, **options)
    merged = rows.out / "_tfrecorder/rows.parquet"
    assert append_all(rows).rows_there == FIRST
    data = merged.read_bytes()
    for damaged in (b"", data[: len(data) // 2], data[:99] + bytes([data[99] ^ 1]) + data[100:]):
        merged.write_bytes(damaged)
        assert tfrecorder.repair(rows.out, progress=False).files == ()
        assert append_all(rows).rows_there == FIRST
    assert names[0] in {Path(name).name for name in names_in(rows)}
    assert json.loads((rows.out / "dataset_info.json").read_text())


def test_a_table_is_made_again_without_its_only_row(tmp_path: Path) -> None:
    """Its only row was a reject, which was won later, and then corrected."""
    rows = Rows(tmp_path)
    rows.draw(FIRST + 4)
    rows.convert()
    image = tmp_path / "images" / rows.name(11)
    whole = image.read_bytes()
    image.write_bytes(b"no image")
    rows.append()
    image.write_bytes(whole)
    rows.append(retry_rejects=True)
    table = rows.frame(0, FIRST + 4)
    table.loc[11, "label"] = "ant"
    tfrecorder.update(rows.table(table), rows.out, **QUIET)
    public = public_files(rows.out)
    lost = rows.out / "_tfrecorder" / "tables" / "test-r2-00001.parquet"
    lost.unlink()
    (words,) = tfrecorder.repair(rows.out, progress=False).lost
    assert "the values of rejected rows" in words
    assert losses_of(rows.out) == {"rejects": ["_tfrecorder/tables/test-r2-00001.parquet"]}
    assert pq.read_metadata(lost).num_rows == 0
    assert tfrecorder.verify(rows.out, progress=False).ok
    assert public_files(rows.out) == public


@pytest.mark.parametrize("absolute", [False, True])
def test_what_a_repair_noted_is_noted_again_if_its_manifest_is_lost(
    rows: Rows, absolute: bool
) -> None:
    """First all but the public files are lost, then what the repair wrote down of that."""
    table = rows.frame(0, FIRST)
    if absolute:
        table["image_uri"] = [str(rows.folder / "images" / uri) for uri in table["image_uri"]]
        tfrecorder.convert(table, rows.out, overwrite=True, **QUIET)
    gone = table["image_uri"].tolist()[:2]
    tfrecorder.remove(rows.out, {"image_uri": gone}, progress=False)
    shutil.rmtree(rows.out / "_tfrecorder")
    assert "marks" in repaired_losses(rows)
    for _ in range(2):
        for path in rows.out.glob("_tfrecorder/commits/*.json"):
            path.unlink()
        assert "marks" in repaired_losses(rows)
    with pytest.raises(DatasetError, match="which rows were removed"):
        tfrecorder.append(rows.frame(FIRST, 1), rows.out, duplicates="keep", **QUIET)


def repaired_losses(rows: Rows) -> dict[str, list[str]]:
    """What is lost after a repair."""
    tfrecorder.repair(rows.out, progress=False)
    return losses_of(rows.out)


@pytest.mark.parametrize("change", ["update", "compact"])
def test_nothing_is_noted_as_removed_where_nothing_was(rows: Rows, change: str) -> None:
    if change == "update":
        tfrecorder.update(rows.table(rows.frame(0, 1).assign(label="ant")), rows.out, **QUIET)
    else:
        rows.compact()
    for path in rows.out.glob("_tfrecorder/commits/*.json"):
        path.unlink()
    assert "marks" not in repaired_losses(rows)
