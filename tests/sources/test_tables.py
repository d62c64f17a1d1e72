"""Tables as other tools keep them: Parquet, `metadata.*` in a folder, the files of a Vertex job."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.annotation_cases import picture
from PIL import Image as Pictures
from support import PHOTOS, invoke, photo_frame, public_files

import tfrecorder
from tfrecorder.errors import SourceError

NAMES = ["cat", "a dog", "bee"]


def frame_of(source: Any, **options: Any) -> pd.DataFrame:
    """The frame of the dataset that a source becomes, in the order of the source."""
    tfrecorder.convert(source, "out", progress=False, max_reject_fraction=0, **options)
    return tfrecorder.to_frame("out", images="bytes").sort_index()


def wrong(source: Any) -> list[int]:
    """The rows with an error."""
    report = tfrecorder.validate(source)
    return report[report.severity == "error"].row.tolist()


def encoded(shade: int) -> bytes:
    file = io.BytesIO()
    Pictures.new("L", (5, 4), shade).save(file, "PNG")
    return file.getvalue()


def parquet(path: str, columns: dict[str, Any], group: int = 2, **metadata: Any) -> str:
    """A file with row groups of two rows."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    named = {name: json.dumps(value) for name, value in metadata.items()}
    table = pa.table(columns).replace_schema_metadata(named)
    pq.write_table(table, path, row_group_size=group)
    return path


def images(first: int, count: int) -> list[dict[str, Any]]:
    return [{"bytes": encoded(first + n), "path": f"{first + n}.png"} for n in range(count)]


#: As `datasets` writes it; the order of the classes is not that of their names.
FEATURES = {
    "info": {
        "features": {
            "photo": {"_type": "Image"},
            "kind": {"names": NAMES, "_type": "ClassLabel"},
            "words": {"dtype": "string", "_type": "Value"},
        }
    }
}


def hugging_face(path: str, first: int, count: int) -> str:
    kinds = pa.array([n % 3 for n in range(count)], pa.int64())
    words = [f"no {first + n}" for n in range(count)]
    columns = {"photo": images(first, count), "kind": kinds, "words": words}
    return parquet(path, columns, huggingface=FEATURES)


def test_a_folder_as_hugging_face_has_it_gives_bytes_classes_and_splits() -> None:
    hugging_face("set/data/train-00000-of-00002.parquet", 0, 5)
    hugging_face("set/data/train-00001-of-00002.parquet", 5, 3)
    hugging_face("set/data/test-00000-of-00001.parquet", 8, 1)
    Path("set/README.md").write_text("a card")
    frame = frame_of("set")
    assert frame.split.tolist() == ["TEST", *["TRAIN"] * 8]
    shades = [8, 0, 1, 2, 3, 4, 5, 6, 7]
    assert frame.image_uri.tolist() == [*map(encoded, shades)]
    assert frame.label.tolist() == [NAMES[n] for n in (0, 0, 1, 2, 0, 1, 0, 1, 2)]
    assert tfrecorder.info("out").class_names == tuple(NAMES)


@pytest.mark.slow
def test_what_datasets_itself_writes_is_what_it_reads() -> None:
    datasets = pytest.importorskip("datasets")
    features = {"image": datasets.Image(), "label": datasets.ClassLabel(names=NAMES)}
    rows = {"image": images(0, 4), "label": [2, -1, 0, 1]}
    made = datasets.Dataset.from_dict(rows, features=datasets.Features(features))
    made.to_parquet("a.parquet")
    assert wrong("a.parquet") == [1]
    made.select([0, 2, 3]).to_parquet("b.parquet")
    assert frame_of("b.parquet").label.tolist() == ["bee", "cat", "a dog"]


def test_uris_in_several_files_of_different_types() -> None:
    """One may be missing; the columns have another order in the second file."""
    for name in ("a", "b b", "c"):
        picture(Path("set", f"{name}.png"), 4, 3)
    parquet("set/x/one.parquet", {"image_uri": ["../a.png", "../b b.png"], "label": [7, 3]})
    parquet("set/x/two.parquet", {"label": pa.array([9], pa.int32()), "image_uri": ["../c.png"]})
    pattern = frame_of("set/x/*.parquet", splits={"TRAIN": 1})
    assert pattern.label.tolist() == [7, 3, 9]
    several = ["set/x/one.parquet", "set/x/two.parquet"]
    assert wrong(several) == []
    parquet("set/x/one.parquet", {"image_uri": ["../a.png", "../b b.png"], "label": [7, None]})
    assert wrong(several) == [1]


@pytest.mark.slow
def test_a_schema_names_its_columns_and_one_is_inferred() -> None:
    hugging_face("a.parquet", 0, 4)
    assert str(tfrecorder.infer_schema("a.parquet")) == (
        f"Schema(image_uri=Image(), label=Label(names={tuple(NAMES)}), words=Text())"
    )
    assert "image_uri: image" in invoke("schema", "a.parquet").output
    frame = frame_of("a.parquet", schema={"photo": "image", "words": "text"})
    assert frame.words.tolist() == ["no 0", "no 1", "no 2", "no 3"]
    frame = frame_of("a.parquet", schema={"image_uri": "image", "kind": "label"}, overwrite=True)
    assert frame.kind.tolist() == ["cat", "a dog", "bee", "cat"]
    parquet("plain.parquet", {"image_uri": [encoded(n) for n in range(3)]})
    assert len(frame_of("plain.parquet", overwrite=True)) == 3


def test_files_that_are_not_sound_are_named_in_one_line() -> None:
    Path("bad.parquet").write_text("image_uri,label\na.png,x\n")
    parquet("a.parquet", {"image_uri": ["a.png"]})
    parquet("b.parquet", {"image_uri": ["a.png"], "label": ["x"]})
    parquet("c.parquet", {"image_uri": [["a.png"]]})
    two = {"one": images(0, 1), "two": images(1, 1)}
    for source, words in (
        ("bad.parquet", "bad.parquet is not sound Parquet"),
        (["a.parquet", "b.parquet"], "give files of one form"),
        (["a.parquet", "c.parquet"], "types of its columns differ"),
        (
            parquet("two.parquet", two),
            "are all images: rename one to 'image_uri', or give a schema",
        ),
    ):
        with pytest.raises(SourceError, match=words) as caught:
            tfrecorder.validate(source)
        assert "\n" not in str(caught.value)
    result = invoke("validate", "bad.parquet")
    assert result.exit_code != 0
    assert "is not sound Parquet" in result.output
    assert ".." not in result.output
    assert "Parquet has its own form" in invoke("validate", "a.parquet", "--sep", ";").output


ROWS = [("a.png", "cat"), ("two words.png", "dog"), ("sub/c.png", "cat")]


def metadata(folder: str, ending: str, **more: Any) -> None:
    """Images, and the table that names them."""
    for name, _ in ROWS:
        picture(Path(folder, name), 4, 3)
    frame = pd.DataFrame(ROWS, columns=["file_name", "label"]).assign(**more)
    path = f"{folder}/metadata.{ending}"
    if ending == "csv":
        frame.to_csv(path, index=False)
    elif ending == "jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        frame.to_parquet(path)


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_a_table_in_a_folder_says_what_its_images_are(ending: str) -> None:
    metadata("set", ending, text="seen", number=[3, 4, 5])
    picture(Path("set/more/unnamed.png"), 4, 3)
    Path("set/.hidden").write_text("")
    result = tfrecorder.convert("set", "out", progress=False, splits={"TRAIN": 1})
    assert "skipped in the folder: 1 hidden file, 1 image without a row" in str(result)
    frame = tfrecorder.to_frame("out").sort_index()
    assert [*zip(frame.image_uri, frame.label, strict=True)] == ROWS
    schema = {"image_uri": "image", "number": {"kind": "number", "dtype": "int64"}, "text": "text"}
    frame = frame_of("set", schema=schema, overwrite=True)
    assert frame.number.tolist() == [3, 4, 5]
    assert str(tfrecorder.infer_schema("set")).startswith("Schema(file_name=Image(), label=Label")


def test_a_table_in_the_folder_of_each_split() -> None:
    metadata("set/train", "csv")
    metadata("set/test", "jsonl")
    frame = frame_of("set")
    assert frame.split.tolist() == ["TEST"] * 3 + ["TRAIN"] * 3
    assert tfrecorder.to_frame("out").image_uri.str.startswith(("train/", "test/")).all()


def test_the_folders_in_one_table_are_the_splits() -> None:
    rows = ["train/a.png,x", "Validation/b.png,y", "other/c.png,x"]
    for row in rows:
        picture(Path("set", row.partition(",")[0]), 4, 3)
    Path("set/metadata.csv").write_text("\n".join(["file_name,label", *rows, ""]))
    frame = frame_of("set", splits={"TEST": 1})
    assert frame.split.tolist() == ["TRAIN", "VALIDATION", "TEST"]
    assert wrong("set/metadata.csv") == []


def test_a_table_of_another_tool_is_a_file_that_is_no_image() -> None:
    picture(Path("set/cat/a.png"), 4, 3)
    Path("set/metadata.csv").write_text("camera,place\nx,y\n")
    pd.DataFrame({"n": [1]}).to_parquet("set/cat/sizes.parquet")
    result = tfrecorder.convert("set", "out", progress=False)
    assert result.records == 1
    assert "2 files that are no images" in str(result)


def test_the_files_of_a_vertex_job_have_the_splits_of_their_names() -> None:
    """Without an ending, and without `ml_use` in their lines."""
    for number, name in enumerate(
        ["training-00001-of-00002", "training-00002-of-00002", "validation-1", "test-1"]
    ):
        picture(Path(f"{number}.png"), 4, 3)
        label = {"displayName": "cat"}
        line = {"imageGcsUri": f"{number}.png", "classificationAnnotation": label}
        Path(name).write_text(json.dumps(line) + "\n")
    variables = {f"AIP_{name.upper()}_DATA_URI": f"{name}-*" for name in ("training", "validation")}
    variables["AIP_TEST_DATA_URI"] = "test-*"
    frame = frame_of([*variables.values()], base=".")
    assert frame.split.tolist() == ["TRAIN", "TRAIN", "VALIDATION", "TEST"]
    assert set(frame.label) == {"cat"}
    lone = tfrecorder.validate("training-00001-of-00002")
    assert lone.code.tolist() == ["few_images"]


def test_several_csvs_have_the_splits_of_their_names_unless_they_have_a_column() -> None:
    for name in "ab":
        picture(Path(f"{name}.png"), 4, 3)
    Path("train.csv").write_text("image_uri,label\na.png,x\n")
    Path("val.csv").write_text("image_uri,label\nb.png,x\n")
    assert frame_of(["train.csv", "val.csv"]).split.tolist() == ["TRAIN", "VALIDATION"]
    for name in ("train", "val"):
        text = Path(f"{name}.csv").read_text().replace("\n", ",test\n")
        Path(f"{name}.csv").write_text(text.replace("label,test", "label,split"))
    frame = frame_of(["train.csv", "val.csv"], overwrite=True)
    assert frame.split.tolist() == ["TEST", "TEST"]


def test_only_the_row_groups_that_are_needed_are_read_again() -> None:
    """Images of many row groups, in the order of a shuffled plan."""
    rows = np.random.default_rng(0).permutation(60)
    cells = [{"bytes": encoded(int(n)), "path": None} for n in rows]
    parquet("a.parquet", {"image": cells, "label": rows.tolist()}, group=7)
    frame = frame_of("a.parquet")
    assert frame.image_uri.tolist() == [encoded(int(n)) for n in rows]
    assert frame.label.tolist() == rows.tolist()


# --------------------------------------------------------------------------------- packed tables


def packed(text: str) -> dict[str, bytes]:
    """A text in each of the forms in which files are packed, by the ending of its name."""
    data = text.encode()
    zstandard = pa.compress(data, codec="zstd", asbytes=True)
    half = len(data) // 2
    return {
        "gz": gzip.compress(data),
        "members.gz": gzip.compress(data[:half]) + gzip.compress(data[half:]),
        "bz2": bz2.compress(data),
        "xz": lzma.compress(data),
        "zst": zstandard,
    }


TEXT = "split,image_uri,label\nTRAIN,a.jpg,x\nTRAIN,b.jpg,\nTRAIN,c.jpg,y\n"
LINES = '{"image_uri": "a.jpg", "label": "x"}\n{"image_uri": "b.jpg", "label": null}\n'


@pytest.mark.parametrize("end", packed(""))
def test_packed_files_are_read_as_plain_ones(end: str) -> None:
    for name, text in (("a.csv", TEXT), ("a.jsonl", LINES)):
        Path(name).write_text(text)
        plain = str(tfrecorder.validate(name))
        assert "error: null_label (1)\n  line " in plain
        data = packed(text)[end]
        path = Path(f"{name}.{end.rpartition('.')[2]}")
        path.write_bytes(data)
        assert str(tfrecorder.validate(path)) == plain
        assert "error: null_label (1)\n  line " in str(tfrecorder.validate(io.BytesIO(data)))
    Path("b.csv").write_bytes(packed(TEXT)[end])  # the name does not say so
    assert wrong("b.csv") == [1]


@pytest.mark.parametrize("end", packed(""))
def test_a_packed_file_that_is_cut_off_is_named(end: str) -> None:
    Path(f"a.csv.{end}").write_bytes(packed(TEXT * 99)[end][:-9])
    with pytest.raises(SourceError, match=rf"a\.csv\.{end}: its .* cannot be unpacked") as caught:
        tfrecorder.validate(f"a.csv.{end}")
    assert "\n" not in str(caught.value)


# -------------------------------------------------------------------------------- tables of Arrow


class Stream:
    """A table of a library that we know nothing of, but that it gives its rows to Arrow."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


def as_views(table: pa.Table) -> pa.Table:
    """A table with the texts that polars has."""
    return pa.table(
        {name: table.column(name).cast(pa.string_view()) for name in table.schema.names}
    )


@pytest.mark.slow
def test_a_table_of_arrow_is_read_as_the_frame_of_it() -> None:
    frame = photo_frame(6)
    table = pa.Table.from_pandas(frame)
    tfrecorder.convert(frame, "frame", progress=False)
    labels = table.column("label").dictionary_encode()
    forms = [table, Stream(table), as_views(table), table.set_column(2, "label", labels)]
    forms.append(pa.RecordBatchReader.from_batches(table.schema, table.to_batches(2)))
    for number, form in enumerate(forms):
        tfrecorder.convert(form, f"out{number}", progress=False)
        assert public_files(f"out{number}") == public_files("frame")
    assert str(tfrecorder.infer_schema(Stream(table))) == str(tfrecorder.infer_schema(frame))


@pytest.mark.slow
def test_such_a_table_is_appended_compared_and_removed() -> None:
    table = pa.Table.from_pandas(photo_frame(6))
    tfrecorder.convert(table.slice(0, 3), "out", progress=False)
    assert tfrecorder.append(Stream(table), "out", progress=False).records == 3
    other = table.set_column(2, "label", pa.array(["new"] * 6))
    assert set(tfrecorder.validate(Stream(other), against="out").code) == {"other_values"}
    assert tfrecorder.update(Stream(other), "out", progress=False).changes.corrected == 6
    assert tfrecorder.remove("out", Stream(table.slice(0, 2)), progress=False).changes.removed == 2
    back = tfrecorder.to_frame("out")
    assert pa.RecordBatchReader.from_stream(back).read_all().num_rows == 4
    columns = tfrecorder.Records("out", "TRAIN").table()
    assert pa.RecordBatchReader.from_stream(columns).read_all().num_rows == 4


def test_images_and_classes_of_such_a_table_are_those_of_parquet() -> None:
    cells = [{"bytes": path.read_bytes(), "path": path.name} for path in PHOTOS[:3]]
    data = pa.array([cell["bytes"] for cell in cells])
    for images in (pa.array(cells), data, data.cast(pa.binary_view())):
        table = pa.table({"image_uri": images, "label": pa.array([[0], [2**60], None])})
        report = tfrecorder.validate(Stream(table), check_images=True)
        assert [*report[report.severity == "error"].code] == ["missing_value"]


def test_what_is_no_table_is_named_with_its_package_and_in_bounds() -> None:
    for source, words in (
        (photo_frame(9).to_dict("records") * 5000, r"list of 45,000: .*`pandas\.DataFrame"),
        (pa.array([1]), r"a pyarrow\.Int64Array; give a frame of pandas or polars"),
        (pa.chunked_array([[1]]), r"a pyarrow\.ChunkedArray; give"),
        (pa.Table.from_arrays([pa.array([1])] * 2, ["a", "a"]), "more than one column 'a'"),
    ):
        with pytest.raises(SourceError, match=words) as caught:
            tfrecorder.validate(source)
        assert len(str(caught.value)) < 400
