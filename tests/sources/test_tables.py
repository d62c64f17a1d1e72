"""Tables as other tools keep them: Parquet, `metadata.*` in a folder, the files of a Vertex job."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.annotation_cases import picture
from PIL import Image as Pictures
from support import invoke

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
