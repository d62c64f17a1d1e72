"""`Records.table` and `Records.labels`: what one chooses records by, in their order."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers.foreign_cases import image, write
from helpers.growing_cases import QUIET, table
from helpers.kind_cases import EVERY_KIND, convert, every_kind, values
from helpers.object_cases import in_pixels
from support import copied_as_tfds, copied_photos, shards

import tfrecorder
from tfrecorder.errors import DatasetError, OptionError
from tfrecorder.schema import Image, Label, Number, Schema, Split


def check_rows(where: str | Path, split: str = "TRAIN") -> None:
    """The table says what `to_frame` says, whose values are those of the records."""
    records = tfrecorder.Records(where, split, decode=False)
    found = records.table()
    wanted = tfrecorder.to_frame(where, split).drop(columns="row", errors="ignore")
    assert found.index.equals(pd.RangeIndex(len(records)))
    assert list(found.columns) == list(wanted.columns)
    assert values(found) == values(wanted)


def check_labels(where: str | Path, split: str = "TRAIN") -> None:
    records = tfrecorder.Records(where, split, decode=False)
    labels = records.labels()
    assert labels.dtype == np.int64
    assert labels.tolist() == [label for _, label in records]


def without_tables(where: str | Path) -> None:
    shutil.rmtree(Path(where) / "_tfrecorder" / "tables")


def test_every_kind_of_column_is_as_in_the_frame() -> None:
    convert(every_kind(), "out", schema=EVERY_KIND, num_shards=2)
    check_rows("out")
    from_tables = tfrecorder.Records("out", "TRAIN").table()
    without_tables("out")
    check_rows("out")
    from_records = tfrecorder.Records("out", "TRAIN").table()
    pd.testing.assert_frame_equal(from_tables, from_records)


@pytest.mark.parametrize("split", ["TRAIN", "VALIDATION", "TEST"])
def test_photographs_have_their_rows_and_classes(dataset: Path, split: str) -> None:
    check_rows(dataset, split)
    check_labels(dataset, split)


def test_no_record_is_read_where_the_tables_say_it() -> None:
    tfrecorder.convert(table(0, 9), "out", num_shards=2, **QUIET)
    records = tfrecorder.Records("out", "TRAIN")
    rows, labels = records.table(), records.labels()
    for shard in shards("out"):
        shard.write_bytes(bytes(shard.stat().st_size))
    pd.testing.assert_frame_equal(records.table(), rows)
    assert records.labels().tolist() == labels.tolist()
    without_tables("out")
    for read in (records.table, records.labels):
        with pytest.raises(DatasetError, match="was replaced"):
            read()


def test_rows_that_gave_no_record_are_not_counted() -> None:
    frame = table(0, 30)
    frame["label"] = [f"class {row % 3}" for row in range(30)]
    Path("broken.jpg").write_bytes(b"no image")
    frame.loc[[0, 7, 29], "image_uri"] = "broken.jpg"
    frame.to_csv("rows.csv", index=False)
    tfrecorder.convert("rows.csv", "out", num_shards=2, max_reject_fraction=0.5, **QUIET)
    assert len(tfrecorder.Records("out", "TRAIN")) == 27
    check_rows("out")
    check_labels("out")


@pytest.mark.slow
def test_a_dataset_that_grew_and_was_corrected(tmp_path: Path) -> None:
    frame = copied_photos(tmp_path).assign(split="TRAIN")
    tfrecorder.convert(frame[:20], "out", num_shards=3, **QUIET)
    tfrecorder.append(frame[20:], "out", **QUIET)
    early = tfrecorder.Records("out", "TRAIN", at=0)
    assert len(early.table()) == len(early.labels()) == 20
    tfrecorder.update(frame.assign(label=frame["label"].replace("cat", "brick")), "out", **QUIET)
    check_labels("out")
    tfrecorder.remove("out", {"row": [3, 30]}, **QUIET)
    tfrecorder.compact("out", **QUIET)
    check_rows("out")
    check_labels("out")


def test_files_of_other_tools(tmp_path: Path) -> None:
    rows = [image(number, **{"class/label": 9 - number}) for number in range(5)]
    write(tmp_path / "train-0.tfrecord", rows)
    check_rows(tmp_path)
    check_labels(tmp_path)
    nameless = [{k: v for k, v in row.items() if k != "image/filename"} for row in rows]
    (tmp_path / "nameless").mkdir()
    write(tmp_path / "nameless" / "train-0.tfrecord", nameless)
    records = tfrecorder.Records(tmp_path / "nameless", "TRAIN", decode=False)
    found = records.table()
    assert "image_uri" not in found
    assert found["label"].tolist() == [label for _, label in records]


def test_a_directory_of_tfds(dataset: Path) -> None:
    copied_as_tfds(dataset, "copy")
    check_rows("copy")
    check_labels("copy")


@pytest.mark.parametrize("options", [{}, {"image_size": (32, 32)}], ids=["kept", "resized"])
def test_boxes_are_lists_in_one_row(options: dict[str, object]) -> None:
    convert(in_pixels(), "out", shuffle=False, **options)
    records = tfrecorder.Records("out", "TRAIN", decode=False)
    found, rows = records.table(), tfrecorder.to_frame("out", "TRAIN")
    assert len(found) == len(records) == rows.index.nunique()
    for name in ("x_min", "y_min", "x_max", "y_max"):
        wanted = rows.groupby(rows.index, sort=False)[name].agg(lambda cells: list(cells.dropna()))
        assert found[name].tolist() == wanted.tolist()
    assert [list(labels) for labels in records.labels()] == [
        list(boxes["labels"]) for _, boxes in records
    ]


def test_a_column_with_several_classes() -> None:
    convert(every_kind(), "out", schema=EVERY_KIND, num_shards=2)
    records = tfrecorder.Records("out", "TRAIN", targets=["topics"], decode=False)
    with pytest.raises(
        OptionError, match=r"column=None: give a column .* has 'bi', 'multi', .*'parts'"
    ):
        records.labels()
    with pytest.raises(OptionError, match="column='angle'"):
        records.labels("angle")
    assert records.labels("grade").tolist() == records.table()["grade"].tolist()
    from_tables = records.labels("topics")
    without_tables("out")
    for labels in (from_tables, records.labels("topics")):
        made = np.zeros((len(records), 2), np.float32)
        for row, classes in zip(made, labels, strict=True):
            row[classes] = 1
        assert np.array_equal(made, [target for _, target in records])


def test_without_classes() -> None:
    frame = pd.DataFrame({"split": "TRAIN", "x": range(5)})
    convert(frame, "out", schema=Schema(split=Split(), x=Number()))
    with pytest.raises(OptionError, match="out has none"):
        tfrecorder.Records("out", "TRAIN").labels()


@pytest.mark.slow
def test_a_condition_of_remove_names_the_columns_of_the_frame(tmp_path: Path) -> None:
    frame = copied_photos(tmp_path).rename(columns={"image_uri": "photo"})
    schema = Schema(split=Split(), photo=Image(), label=Label())
    tfrecorder.convert(frame, "out", schema=schema, **QUIET)
    tfrecorder.remove("out", {"photo": frame["photo"][0]}, **QUIET)
    assert set(tfrecorder.to_frame("out").index) == set(frame.index[1:])


def test_records_are_taken_by_the_index_of_their_table(dataset: Path) -> None:
    records = tfrecorder.Records(dataset, "TRAIN", decode=False)
    rows = records.table()
    chosen = rows.index[rows["label"] == "cat"]
    assert len(chosen) > 1
    (number,) = {label for _, label in records[chosen]}
    assert tfrecorder.info(dataset).class_names[number] == "cat"  # type: ignore[index]


def test_the_weighted_sampler_of_torch_hits_every_label(dataset: Path) -> None:
    torch = pytest.importorskip("torch")
    records = tfrecorder.Records(dataset, "TRAIN", image_size=8)
    labels = torch.from_numpy(records.labels())
    weights = torch.tensor([0.0, 1.0, 3.0, 0.0])[labels]  # by class, as record by record
    drawn = torch.utils.data.WeightedRandomSampler(weights, 200, replacement=True)
    loader = torch.utils.data.DataLoader(records, sampler=drawn, batch_size=20)
    hit = torch.cat([found for _, found in loader])
    assert set(hit.tolist()) == {1, 2}
    numbers = list(torch.utils.data.WeightedRandomSampler(weights, 200, replacement=True))
    assert [int(label) for _, label in records[numbers]] == labels[numbers].tolist()
