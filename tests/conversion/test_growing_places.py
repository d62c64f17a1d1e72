"""`append` knows a row by the places of its images, however their uris are spelled."""

from __future__ import annotations

import io
import shutil
import warnings
from pathlib import Path
from urllib.parse import quote

import pandas as pd
import pyarrow.parquet as pq
import pytest
from helpers.growing_cases import QUIET, drawn
from support import PHOTOS, filenames, public_files

import tfrecorder
from tfrecorder.errors import DatasetError
from tfrecorder.schema import Image, Number, Schema, Text

TRAIN = {"splits": {"TRAIN": 1.0}}
NAMES = ["cat/IMG_0.png", "cat/IMG_1.png", "cat/IMG_2.png"]


@pytest.fixture(autouse=True)
def _two_days() -> None:
    """Other photographs under the same names in photos/mon and photos/tue."""
    for day, size in (("mon", (12, 8)), ("tue", (20, 10))):
        paths = drawn(f"drawn-{day}", len(NAMES), size)
        Path("photos", day, "cat").mkdir(parents=True)
        for name, path in zip(NAMES, paths, strict=True):
            shutil.move(path, Path("photos", day, name))


def add(source: object, out: str = "out", **options: object) -> tuple[int, int]:
    """How many records an append adds, and how many rows it skips."""
    found = tfrecorder.append(source, out, **{**QUIET, **options})
    return found.records, found.rows_there


def csv_of(path: str, *uris: str) -> str:
    pd.DataFrame({"image_uri": uris, "label": "cat"}).to_csv(path, index=False)
    return path


def frame_of(*uris: str) -> pd.DataFrame:
    return pd.DataFrame({"image_uri": uris, "label": "cat"})


# ------------------------------------------------------------- the same names in other folders


@pytest.mark.slow
def test_two_folders_with_the_same_names_hold_different_images() -> None:
    tfrecorder.convert("photos/mon", "out", **TRAIN, **QUIET)
    assert add("photos/tue") == (3, 0)
    assert tfrecorder.info("out").image_sides == ((8, 10), (12, 20))
    assert add("photos/mon") == add("photos/tue") == (0, 3)


@pytest.mark.slow
def test_a_conversion_of_the_same_names_in_another_folder_is_not_passed_over() -> None:
    tfrecorder.convert("photos/mon", "out", **TRAIN, **QUIET)
    with pytest.warns(UserWarning, match="nothing of .*photos/tue was written.*append` adds these"):
        assert tfrecorder.convert("photos/tue", "out", **TRAIN, **QUIET).was_finished
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tfrecorder.convert("photos/../photos/mon", "out", **TRAIN, **QUIET).was_finished
    assert add("photos/tue") == (3, 0)


@pytest.mark.slow
def test_two_tables_in_two_folders_hold_different_images() -> None:
    tfrecorder.convert(csv_of("photos/mon/all.csv", *NAMES), "out", **TRAIN, **QUIET)
    assert add(csv_of("photos/tue/all.csv", *NAMES)) == (3, 0)
    assert add("photos/mon/all.csv") == add("photos/tue/all.csv") == (0, 3)


@pytest.mark.slow
def test_two_bases_hold_different_images(monkeypatch: pytest.MonkeyPatch) -> None:
    tfrecorder.convert(frame_of(*NAMES), "out", base="photos/mon", **TRAIN, **QUIET)
    assert add(frame_of(*NAMES), base="photos/tue") == (3, 0)
    assert add(frame_of(*NAMES), base=Path("photos/mon").absolute()) == (0, 3)
    out = str(Path("out").absolute())
    monkeypatch.chdir("photos/tue")
    assert add(frame_of(*NAMES), out) == (0, 3)
    assert add(io.StringIO("image_uri,label\ncat/IMG_0.png,cat\n"), out) == (0, 1)


# ------------------------------------------------------------------ one place, however spelled


def spellings(name: str) -> list[str]:
    """Ways to write a file of photos/mon in a table in the folder "tables"."""
    whole = str(Path("photos/mon", name).absolute())
    return [
        f"../photos/mon/{name}",
        f"./../photos/./mon//{name}",
        f"../tables/../photos/tue/../mon/{name}",
        whole,
        f"/{whole}",
        f"file://{whole}",
        f"FILE://localhost{quote(whole, safe='/').replace('IMG', '%49MG')}",
    ]


def test_a_file_is_there_however_it_is_spelled() -> None:
    Path("tables").mkdir()
    tfrecorder.convert("photos/mon", "out", **TRAIN, **QUIET)
    for spelled in spellings(NAMES[0]):
        assert add(csv_of("tables/all.csv", spelled)) == (0, 1), spelled


@pytest.mark.slow
def test_a_file_is_there_however_it_was_spelled() -> None:
    Path("tables").mkdir()
    for number, spelled in enumerate(spellings(NAMES[1])):
        tfrecorder.convert(csv_of("tables/all.csv", spelled), f"out-{number}", **TRAIN, **QUIET)
        assert add("photos/mon", f"out-{number}") == (2, 1), spelled


@pytest.mark.slow
def test_a_folder_above_a_link_is_where_the_system_finds_it() -> None:
    Path("link").symlink_to("photos/mon", target_is_directory=True)
    shutil.copytree("photos/tue", "tue")
    tfrecorder.convert(frame_of("link/../tue/cat/IMG_0.png"), "out", **TRAIN, **QUIET)
    assert add(frame_of("tue/cat/IMG_0.png")) == (1, 0)
    assert add(frame_of("photos/tue/cat/IMG_0.png")) == (0, 1)
    assert add(frame_of("link/../tue/cat/IMG_0.png")) == (0, 1)


@pytest.mark.slow
def test_an_image_that_came_as_bytes_is_known_by_its_content() -> None:
    data = Path("photos/mon", NAMES[0]).read_bytes()
    named = pd.DataFrame({"image_uri": [{"bytes": data, "path": NAMES[0]}], "label": "cat"})
    tfrecorder.convert(named, "out", base="photos/mon", **TRAIN, **QUIET)
    assert add(frame_of(NAMES[0]), base="photos/mon") == (1, 0)
    assert add(named, base="photos/tue") == (0, 1)
    other = Path("photos/tue", NAMES[0]).read_bytes()
    assert add(named.assign(image_uri=[{"bytes": other, "path": NAMES[0]}])) == (1, 0)


def test_what_a_watched_folder_brought_is_known() -> None:
    until = {"source_options": {"settle": 0}, "until_idle": 0, "progress": False}
    tfrecorder.stream("photos/mon", "out", **until)
    assert add("photos/mon") == (0, 3)
    assert add("photos/tue") == (3, 0)


# --------------------------------------------------------------------------- after compactions


@pytest.mark.slow
def test_a_compacted_dataset_knows_the_folders_of_its_images() -> None:
    tfrecorder.convert("photos/mon", "out", **TRAIN, **QUIET)
    add(frame_of(*NAMES), base="photos/tue")
    tfrecorder.compact("out", "new", **QUIET)
    tfrecorder.compact("new", "newest", **QUIET)
    for out in ("new", "newest"):
        shutil.copytree("photos/mon", f"photos/{out}")
        assert add("photos/mon", out) == add("photos/tue", out) == (0, 3)
        assert add(f"photos/{out}", out) == (3, 0)
    tfrecorder.compact("newest", "last", **QUIET)
    assert add("photos/newest", "last") == (0, 3)
    assert sorted(filenames("last")) == sorted(NAMES * 3)
    here = str(Path.cwd()).encode()
    assert not any(here in data for data in public_files("last").values())


@pytest.mark.slow
def test_where_no_folder_was_noted_an_append_and_an_update_say_so() -> None:
    tfrecorder.convert("photos/mon", "out", **TRAIN, **QUIET)
    tfrecorder.compact("out", "new", **QUIET)
    (rows,) = Path("new/_tfrecorder/tables").iterdir()
    pq.write_table(pq.read_table(rows).replace_schema_metadata(), rows)
    with pytest.raises(DatasetError, match="does not say in which folder the images were"):
        add("photos/tue", "new")
    with pytest.raises(DatasetError, match="does not say in which folder the images were"):
        tfrecorder.update("photos/tue", "new", **QUIET)
    assert add("photos/tue", "new", duplicates="keep") == (3, 0)


# ---------------------------------------------------------------------------------- whole rows

PAIRS = Schema(left_uri=Image(), right_uri=Image())


def pairs(*names: str) -> pd.DataFrame:
    """Rows of two photographs each, by their numbers, such as "01"."""
    both = [(str(PHOTOS[int(left)]), str(PHOTOS[int(right)])) for left, right in names]
    return pd.DataFrame(both, columns=["left_uri", "right_uri"])


@pytest.mark.slow
def test_all_images_of_a_row_decide_whether_it_is_there() -> None:
    tfrecorder.convert(pairs("01", "23"), "out", schema=PAIRS, **TRAIN, **QUIET)
    assert add(pairs("04", "21", "10", "23")) == (3, 1)
    assert add(pairs("01", "23", "04", "21", "10")) == (0, 5)


def test_a_pair_with_the_same_values_is_passed_over_in_silence() -> None:
    schema = Schema(left_uri=Image(), right_uri=Image(), age=Number())
    rows = pairs("01", "23").assign(age=1)
    tfrecorder.convert(rows, "out", schema=schema, **TRAIN, **QUIET)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert add(rows) == (0, 2)
    with pytest.warns(UserWarning, match=r"1 row is skipped: .* with other values.*: row 1,"):
        assert add(rows.assign(age=[1, 2])) == (0, 2)


def test_an_image_with_another_caption_is_named_not_added() -> None:
    schema = Schema(image_uri=Image(), caption=Text(), tags=Text(shape=(None,)))
    rows = frame_of(*NAMES).assign(caption="a cat", tags=[["x", "y"]] * 3).drop(columns="label")
    tfrecorder.convert(rows, "out", schema=schema, base="photos/mon", **TRAIN, **QUIET)
    assert add(rows, base="photos/mon") == (0, 3)
    for column, value in (("caption", ["a cat", "a dog", "a cat"]), ("tags", [["x", "y"]] * 2)):
        others = rows.assign(**{column: [*value, *([["xy"]] * (3 - len(value)))]})
        with pytest.warns(UserWarning, match=r"1 row is skipped: .*: row [12], 'cat/IMG_\d.png'"):
            assert add(others, base="photos/mon") == (0, 3)
    kept = rows.assign(caption="a dog")
    assert add(kept, base="photos/mon", duplicates="keep") == (3, 0)
    assert add(kept, base="photos/mon") == add(rows, base="photos/mon") == (0, 3)


@pytest.mark.slow
def test_without_images_all_values_of_a_row_decide() -> None:
    schema = Schema(
        age=Number(), name=Text(), at=Number(shape=(2,), dtype="int64"), lit=Number(dtype="bool")
    )
    rows = pd.DataFrame({"age": [1.5, 2.5], "name": ["a", "b"], "at": [[1, 2], [12, 0]]})
    rows = rows.assign(lit=[True, False])
    tfrecorder.convert(rows, "out", schema=schema, **TRAIN, **QUIET)
    assert add(rows) == (0, 2)
    assert str(tfrecorder.append(rows, "out", **QUIET)).startswith("out: nothing to append, 2 rows")
    more = pd.concat([rows, rows.assign(age=9), rows.assign(lit=~rows["lit"])])
    assert add(more.reset_index(drop=True)) == (4, 2)
    assert add(rows, duplicates="keep") == (2, 0)
    other = {"schema": Schema(age=Number())}
    with pytest.raises(tfrecorder.errors.SourceError, match="there is no column 'name'"):
        add(rows[["age"]], **other)


@pytest.mark.slow
def test_the_two_zeros_are_one_value() -> None:
    schema = Schema(age=Number(), at=Number(shape=(None,)))
    rows = pd.DataFrame({"age": [0.0, -0.0], "at": [[0.0, -0.0], [-0.05]]})
    tfrecorder.convert(rows, "out", schema=schema, **TRAIN, **QUIET)
    other = pd.DataFrame({"age": [-0.0, 0], "at": [[-0.0, 0], [-0.05]]})
    assert add(other) == (0, 2)
    assert add(other.assign(at=[[0.0], [0.05]])) == (2, 0)
