"""What a user may hand over as images and labels, and what becomes of it."""

from __future__ import annotations

import io
import os
import re
import shutil
from pathlib import Path
from typing import Any

import fsspec
import pandas as pd
import pyarrow as pa
import pytest
from source_cases import Checked, judged, large_from_here, report_of, schema_of, source_of
from support import CSV, PHOTOS, labelled

import tfrecorder
from tfrecorder.errors import OptionError, SourceError
from tfrecorder.schema import Image, Label, Schema

#: Labels that have broken CSV readers, label files and joined rows elsewhere.
AWKWARD = [
    "a, b",
    'say "hi"',
    "two\nlines",
    "carriage\r\nreturn",
    "naïve café",
    "日本語",
    "👩‍👩‍👧",
    " leading",
    "trailing ",
    "\u2028separator",
    "NA",
    "null",
    "None",
    "nan",
    "../../etc",
    "007",
    "1e5",
    "=cmd()",
]


def read(source: object, **options: Any) -> Checked:
    """A source as a conversion sees it; without errors."""
    checked = judged(source_of(source, **options))
    report = report_of(checked)
    errors = report[report.severity == "error"]
    assert errors.empty, errors.to_string()
    return checked


def rows(source: object, **options: object) -> list[tuple[object, ...]]:
    return list(
        read(source, **options).frame[["split", "image_uri", "label"]].itertuples(False, None)
    )


def csv(text: str | bytes, name: str = "images.csv") -> Path:
    path = Path(name)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def fault(source: object, **options: object) -> str:
    with pytest.raises(SourceError) as caught:
        source_of(source, **options)
    return str(caught.value)


ROWS = [("TRAIN", "a.jpg", "cat"), ("TEST", "b.jpg", "dog")]
TABLE = pd.DataFrame(ROWS, columns=["split", "image_uri", "label"])


# ------------------------------------------------------------------------------------- frames


@pytest.mark.parametrize(
    "dtype",
    [
        "object",
        "str",
        "string",
        "string[python]",
        "category",
        pd.ArrowDtype(pa.string()),
        pd.ArrowDtype(pa.large_string()),
        pd.ArrowDtype(pa.dictionary(pa.int8(), pa.string())),
    ],
    ids=str,
)
def test_text_columns_of_every_kind_are_the_same(dtype: object) -> None:
    assert rows(TABLE.astype(dtype)) == ROWS


@pytest.mark.parametrize(
    "dtype",
    ["int8", "uint16", "Int64", "float64", "object", "category", pd.ArrowDtype(pa.int32())],
    ids=str,
)
def test_integer_labels_stay_as_they_are(dtype: object) -> None:
    frame = TABLE.assign(label=pd.Series([7, 0]).astype(dtype))
    assert read(frame).fields[-1].integer
    assert [label for _, _, label in rows(frame)] == [7, 0]


def test_boolean_labels_are_two_classes() -> None:
    assert [label for _, _, label in rows(TABLE.assign(label=[True, False]))] == ["True", "False"]


def test_paths_are_taken_for_their_text() -> None:
    frame = TABLE.assign(image_uri=pd.Series([Path("a.jpg"), "b.jpg"], dtype=object))
    assert rows(frame) == ROWS


@pytest.mark.parametrize("index", [[5, 5], [9, -1], ["x", "y"], pd.to_datetime(["2020", "2019"])])
def test_the_index_does_not_matter(index: object) -> None:
    frame = TABLE.set_axis(index)
    assert rows(frame) == ROWS
    assert read(frame).frame.index.tolist() == [0, 1]


def test_columns_may_stand_in_any_order() -> None:
    assert rows(TABLE[["label", "split", "image_uri"]]) == ROWS


def test_the_frame_is_left_as_it_was() -> None:
    frame = TABLE.assign(split=["train", None], extra=[[1], [2]]).set_axis([3, 3])
    before = frame.copy(deep=True)
    frame.tensorflow.validate()
    pd.testing.assert_frame_equal(frame, before)


def test_splits_in_any_spelling() -> None:
    words = ["train", "TRAINING", "Val", "valid", " validation ", "test", "Testing"]
    frame = pd.DataFrame(
        {"split": words, "image_uri": [f"{n}.jpg" for n in range(7)], "label": "x"}
    )
    assert [split for split, _, _ in rows(frame)] == ["TRAIN"] * 2 + ["VALIDATION"] * 3 + [
        "TEST"
    ] * 2


def test_rows_without_a_split_keep_theirs_when_rows_are_added() -> None:
    uris = [f"{n}.jpg" for n in range(1000)]
    few = read(pd.DataFrame({"image_uri": uris[::-1][:500]})).frame.set_index("image_uri").split
    many = read(pd.DataFrame({"image_uri": uris, "split": "UNASSIGNED"})).frame
    many = many.set_index("image_uri").split
    assert (many[few.index] == few).all()
    assert 750 < (many == "TRAIN").sum() < 850
    assert 70 < (many == "TEST").sum() < 130


def test_columns_with_other_names_are_mapped() -> None:
    frame = TABLE.rename(columns={"image_uri": "path", "label": "kind"}).assign(price=1)
    columns = {"path": "image_uri", "kind": "label"}
    assert rows(frame, columns=columns) == ROWS
    assert source_of(frame, columns=columns).left_out == ("price",)


def test_a_mapped_column_may_take_the_place_of_one_that_is_mapped_away() -> None:
    swapped = TABLE.rename(columns={"split": "label", "label": "split"})
    assert rows(swapped, columns={"split": "label", "label": "split"}) == ROWS


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"pfad": "image_uri"}, "no column 'pfad'; it has: ['split', 'image_uri', 'label']"),
        ({"split": "image_uri"}, "the source also has a column 'image_uri'"),
    ],
)
def test_a_wrong_mapping_is_named(columns: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=re.escape(words)):
        source_of(TABLE, columns=columns)


def test_two_columns_of_one_name_are_refused() -> None:
    twice = pd.concat([TABLE, TABLE[["label"]]], axis=1)
    assert "more than one column 'label'" in fault(twice)


ROW = "TRAIN,a.jpg,cat,dog,1\n"
TWICE = {
    "plain": "split,image_uri,label,label,n\n" + ROW,
    "three": "label,image_uri,label,label,n\n" + ROW,
    "in quotes": 'split,image_uri,"label",label,n\n' + ROW,
    "byte order mark": "\ufefflabel,image_uri,split,label,n\n" + ROW,
    "after an empty line": "\nsplit,image_uri,label,label,n\n" + ROW,
    "renamed by pandas": "split,image_uri,label,label.1,label\n" + ROW,
    "semicolons": ("split,image_uri,label,label,n\n" + ROW).replace(",", ";"),
}


@pytest.mark.parametrize("form", TWICE)
def test_two_columns_of_one_name_in_a_csv_are_refused_in_the_same_words(form: str) -> None:
    options = {"sep": ";"} if form == "semicolons" else {}
    text, words = TWICE[form], "^the source has more than one column 'label'; drop all but one.$"
    path = csv(text)
    for source in (path, io.BytesIO(text.encode())):
        with pytest.raises(SourceError, match=words):
            source_of(source, **options)
    schema = Schema(image_uri=Image(), label=Label())
    with pytest.raises(SourceError, match=words):
        source_of(path, **options, schema=schema)
    with pytest.raises(SourceError, match=words):
        schema_of(path, **options)


def test_a_large_csv_with_two_columns_of_one_name_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    large_from_here(monkeypatch)
    assert "more than one column 'label'" in fault(csv(TWICE["plain"]))


def test_a_column_that_is_called_as_pandas_would_rename_one_is_kept() -> None:
    read = source_of(csv("image_uri,label,label.1\na.jpg,cat,dog\n"))
    assert (list(read.frame["label"]), read.left_out) == (["cat"], ("label.1",))


def test_columns_without_a_name_as_spreadsheets_write_them_are_left_out() -> None:
    path = csv("image_uri,label,,\na.jpg,cat,,\n")
    assert rows(path) == [("TRAIN", "a.jpg", "cat")]
    assert list(tfrecorder.infer_schema(path).columns)[:2] == ["image_uri", "label"]


def test_the_source_s_own_name_of_a_column_that_is_there_twice_is_named() -> None:
    path = csv("path,path,label,who,who\na.jpg,b.jpg,cat,x,y\n")
    for named in ({"columns": {"path": "image_uri"}}, {"schema": Schema(path=Image())}):
        with pytest.raises(SourceError, match="more than one column 'path'"):
            source_of(path, **named)


def test_two_columns_of_one_name_that_nothing_needs_are_left_out() -> None:
    path = csv("image_uri,x_min,y_min,x_max,y_max,note,note\na.jpg,0,0,1,1,x,y\n")
    found = source_of(path)
    assert (found.left_out, found.schema.of(tfrecorder.schema.Boxes)) == (("note",), ["boxes"])
    assert "more than one column 'note'" in fault(path, split_by="note")


def test_a_name_that_is_twice_in_an_object_of_json_lines_is_refused() -> None:
    path = csv('{"imageGcsUri": "a.jpg", "imageGcsUri": "b.jpg"}\n', "x.jsonl")
    words = "line 1 is not sound JSON: a name is there twice among ['imageGcsUri', 'imageGcsUri']."
    assert words in fault(path)


def test_no_source_at_all_is_named() -> None:
    assert "there is no such file or folder" in fault("missing.csv")
    assert "give the paths of files" in fault([1, 2])
    assert "source is a pandas.Series; give" in fault(TABLE.label)


# --------------------------------------------------------------------------------------- CSVs


@pytest.mark.parametrize(
    "text",
    [
        "split,image_uri,label\nTRAIN,a.jpg,cat\nTEST,b.jpg,dog\n",
        "label,split,image_uri\ncat,TRAIN,a.jpg\ndog,TEST,b.jpg",
        "\ufeffsplit,image_uri,label\r\nTRAIN,a.jpg,cat\r\nTEST,b.jpg,dog\r\n",
        "\n\nsplit,image_uri,label\n\nTRAIN,a.jpg,cat\n\nTEST,b.jpg,dog\n\n",
        '"split","image_uri","label"\n"TRAIN","a.jpg","cat"\n"TEST","b.jpg","dog"\n',
        "TRAIN,a.jpg,cat\nTEST,b.jpg,dog\n",
        "\ufeffTRAIN,a.jpg,cat\r\n\r\nTEST,b.jpg,dog\r\n",
        "\nTRAIN,a.jpg,cat\nTEST,b.jpg,dog\n",
        "training,a.jpg,cat\ntest,b.jpg,dog\n",
        "TRAIN,a.jpg,cat,\nTEST,b.jpg,dog,,\n",
    ],
)
def test_csvs_with_and_without_a_header(text: str) -> None:
    assert rows(csv(text)) == ROWS


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("a.jpg,cat\nb.png,dog\n", ["image_uri", "split", "label"]),
        ("a.jpg\nb.jpg\n", ["image_uri", "split"]),
        ("TRAIN,a.jpg\nTEST,b.jpg\n", ["image_uri", "split"]),
        ("UNASSIGNED,a.jpg,cat\n,b.jpg,dog\n", ["image_uri", "split", "label"]),
        ("image_uri\na.jpg\nb.jpg\n", ["image_uri", "split"]),
    ],
)
def test_split_and_label_may_be_missing(text: str, columns: list[str]) -> None:
    frame = read(csv(text)).frame
    assert set(frame.columns) == set(columns)
    assert frame.image_uri.str[0].tolist() == ["a", "b"]
    assert set(frame.split) <= {"TRAIN", "VALIDATION", "TEST"}


@pytest.mark.parametrize("header", [True, False])
def test_awkward_labels_survive_a_csv(header: bool) -> None:
    labels = [label for label in AWKWARD if label != "carriage\r\nreturn"]
    frame = pd.DataFrame({"split": "TRAIN", "image_uri": "a.jpg", "label": labels})
    frame.to_csv("images.csv", index=False, header=header)
    assert read("images.csv").frame.label.tolist() == labels


def test_a_quoted_windows_line_break_survives() -> None:
    assert read(csv('image_uri,label\r\na.jpg,"x\r\ny"\r\n')).frame.label.tolist() == ["x\r\ny"]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["7", "-1"], [7, -1]),
        (["0", "12"], [0, 12]),
        (["007", "8"], ["007", "8"]),
        (["1.0", "2"], [1, 2]),
        (["1", "x"], ["1", "x"]),
        (["+1", "1"], ["+1", "1"]),
        (["1" * 30, "1"], ["1" * 30, "1"]),
    ],
)
def test_labels_of_a_csv_are_integers_only_if_all_are(labels: list, expected: list) -> None:
    text = "image_uri,label\n" + "".join(f"{n}.jpg,{label}\n" for n, label in enumerate(labels))
    assert source_of(csv(text)).frame.label.tolist() == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "the file is empty"),
        (b"\n \n"[:1], "the file is empty"),
        (b"split,image_uri,label\nTRAIN,a.jpg,x\nTRAIN,b.jpg,x,y\n", "Expected 3 fields in line 3"),
        (b"split,image_uri,label\nTRAIN,a.jpg,x,y\n", "more values than the header has names"),
        (b'image_uri,label\na.jpg,"x\n', "not a well-formed CSV"),
        (b'a.jpg,"x\nb.jpg,y\n', "not a well-formed CSV"),
        (b"image_uri,label\na.jpg,x\nb.jpg,caf\xe9\n", "line 3 is not UTF-8"),
        (b"a.jpg,x\nb.jpg,caf\xe9\n", "line 2 is not UTF-8"),
        (b"split;image_uri;label\nTRAIN;a.jpg;x\n", "separated by semicolons"),
        (b"TRAIN;gs://b/a.jpg;x\n", "separated by semicolons"),
        (b"image_uri\tlabel\na.jpg\tx\n", "separated by tabs"),
        (b"Pfad;Klasse\na.jpg;x\n", "separated by semicolons"),
    ],
)
def test_a_csv_that_cannot_be_read_says_why_in_one_line(text: bytes, words: str) -> None:
    message = fault(csv(text))
    assert words in message
    assert message.startswith("images.csv: ")
    assert "\n" not in message


def test_a_misspelt_split_in_the_first_row_is_found() -> None:
    report = tfrecorder.validate(csv("TRIAN,a.jpg,x\nTRAIN,b.jpg,x\n"))
    assert report.iloc[0][["code", "row", "value"]].tolist() == ["unknown_split", 0, "TRIAN"]


def test_relative_images_are_taken_from_the_folder_of_the_csv() -> None:
    Path("tables").mkdir()
    shutil.copy(PHOTOS[0], "tables/a.jpg")
    result = tfrecorder.convert(csv("TRAIN,a.jpg,x\n", "tables/images.csv"), "out")
    assert result.records == 1


def test_several_csvs_are_one_table_if_their_columns_agree() -> None:
    rows = pd.read_csv(CSV)
    rows["image_uri"] = [str(CSV.parent / uri) for uri in rows["image_uri"]]
    os.makedirs("days/other")
    rows[:20].to_csv("days/1.csv", index=False)
    rows[20:].to_csv("days/2.csv", index=False)
    files = ["days/1.csv", "days/2.csv"]
    report = tfrecorder.validate(files)
    assert report.empty
    assert tfrecorder.convert("days/*.csv", "out", progress=False).records == len(rows)
    assert tfrecorder.append(files, "out", progress=False).rows_there == len(rows)
    rows[:3].drop(columns="label").to_csv("days/3.csv", index=False)
    with pytest.raises(SourceError, match=r"3.csv has other columns than .*1.csv: split, image_u"):
        tfrecorder.validate([*files, "days/3.csv"])
    rows[:3].to_csv("days/other/4.csv", index=False)
    with pytest.raises(SourceError, match="are in two folders; `base` says"):
        tfrecorder.validate([*files, "days/other/4.csv"])


def test_the_bundled_csv_and_the_same_as_a_frame_are_one_source() -> None:
    frame = pd.read_csv(CSV)
    pd.testing.assert_frame_equal(read(CSV).frame, read(frame).frame)


# ------------------------------------------------------------------------------------ folders


def folder(*files: str) -> Path:
    root = Path("images")
    root.mkdir(exist_ok=True)
    for file in files:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_bytes(b"x")
    return root


def test_a_folder_of_splits_of_labels() -> None:
    root = folder("Training/cat/a.jpg", "val/dog/B.JPEG", "TEST/cat/c.png")
    assert sorted(rows(root)) == [
        ("TEST", "TEST/cat/c.png", "cat"),
        ("TRAIN", "Training/cat/a.jpg", "cat"),
        ("VALIDATION", "val/dog/B.JPEG", "dog"),
    ]


def test_a_folder_of_labels() -> None:
    checked = read(folder("cat/a.jpg", "007/b.webp", "3/c.tiff"))
    assert checked.frame.label.tolist() == ["007", "3", "cat"]
    assert not checked.fields[-1].integer


def test_files_that_are_no_images_are_passed_over_and_counted() -> None:
    root = folder(
        *("cat/a.jpg", "cat/.DS_Store", "cat/Thumbs.db", "notes.txt", "cat/labels.csv", "README"),
        *(".git/x.jpg", "cat/.hidden.jpg", "cat/.thumbs/a.jpg"),
    )
    source = source_of(root)
    assert source.frame.image_uri.tolist() == ["cat/a.jpg"]
    assert source.passed_over == {"hidden": 5, "not images": 3}
    (root / "dog").symlink_to("/mnt/gone/dog")
    assert source_of(root).passed_over == {**source.passed_over, "links astray": 1}


#: What a NAS, a system or a removed disk leaves among images.
SYSTEM_FILES = [
    *("@eaDir/a.jpg/SYNOPHOTO_THUMB_M.jpg", "cat/@eaDir/a.jpg/SYNOPHOTO_THUMB_XL.jpg"),
    *("#recycle/cat/old.jpg", "#snapshot/GMT-2026/cat/a.jpg", "@Recently-Snapshot/cat/a.jpg"),
    *("$RECYCLE.BIN/S-1-5-21/$R1.jpg", "System Volume Information/a.jpg", "__MACOSX/cat/._a.jpg"),
    *("lost+found/#1234.jpg", "train/@tmp/b.png", "train/dog/LOST.DIR/1.jpg"),
]


def test_folders_that_systems_make_are_no_classes() -> None:
    own = ("train/cat/a.jpg", "train/@nasa/b.jpg", "train/lost+found wallets/c.jpg")
    source = source_of(folder(*own, *SYSTEM_FILES))
    assert source.frame.label.tolist() == ["@nasa", "cat", "lost+found wallets"]
    assert source.passed_over == {"hidden": 0, "not images": 0, "system folders": 11}
    memory = fsspec.filesystem("memory")
    for name in (*own, *SYSTEM_FILES, "train/cat/@eaDir/b.jpg/small.jpg"):
        memory.pipe(f"/nas/photos/{name}", b"")
    assert source_of("memory://nas/photos").frame.label.tolist() == source.frame.label.tolist()
    assert source_of("memory://nas/photos").passed_over["system folders"] == 12


def test_folders_that_systems_make_hold_no_images_of_yolo() -> None:
    root = folder(*(f"images/{name}" for name in SYSTEM_FILES), "images/a.jpg", "labels/a.txt")
    folder("images/._a.jpg", "labels/._a.txt")  # of macOS, on other disks than its own
    (root / "labels/a.txt").write_text("0 0.5 0.5 0.5 0.5\n")
    (root / "data.yaml").write_text("train: images\nnames: [cat]\n")
    assert source_of(root).frame.image_uri.tolist() == ["images/a.jpg"]


def test_what_was_passed_over_is_told() -> None:
    (folder() / "cat").mkdir()
    for photo in PHOTOS[:3]:
        shutil.copy(photo, "images/cat")
    folder("cat/.DS_Store", "cat/notes.txt")
    result = tfrecorder.convert("images", "out")
    assert "skipped in the folder: 1 hidden file, 1 file that is no image" in str(result)
    folder("cat/@eaDir/a.jpg/small.jpg", "@eaDir/cat/small.jpg")
    told = str(tfrecorder.convert("images", "out", overwrite=True, dry_run=True))
    assert "1 file that is no image, 2 folders that a system made" in told


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (["a.jpg", "cat/x/b.jpg"], "image 'a.jpg' is not at label/file"),
        (["cat/a.jpg", "b.jpg"], "image 'b.jpg' is not at label/file"),
        (["train/cat/a.jpg", "val/b.jpg"], "image 'val/b.jpg' is not at split/label/file"),
        (["train/cat/x/a.jpg"], "image 'train/cat/x/a.jpg' is not at split/label/file"),
        (["train/cat/a.jpg", "extra/cat/b.jpg"], "name the folder 'extra' like a split"),
        (["notes.txt", ".DS_Store"], "no images found (2 other files skipped)"),
        ([], "no images found"),
    ],
)
def test_a_folder_of_another_form_is_explained(files: list[str], words: str) -> None:
    assert words in fault(folder(*files))


def test_links_are_followed_but_not_in_circles() -> None:
    folder("cat/a.jpg")
    Path("elsewhere/dogs").mkdir(parents=True)
    Path("elsewhere/dogs/b.jpg").write_bytes(b"x")
    os.symlink(Path("elsewhere/dogs").absolute(), "images/dog")
    os.symlink(Path("elsewhere/dogs/b.jpg").absolute(), "images/cat/link.jpg")
    os.symlink("..", "images/cat/up")
    os.symlink(Path("images").absolute(), "elsewhere/dogs/round")
    uris = source_of("images").frame.image_uri.tolist()
    assert uris == ["cat/a.jpg", "cat/link.jpg", "dog/b.jpg"]


def test_a_folder_has_no_columns_to_map() -> None:
    with pytest.raises(OptionError, match="a folder has no columns"):
        source_of(folder("cat/a.jpg"), columns={"a": "label"})


def test_a_file_name_that_is_not_unicode_is_reported() -> None:
    root = folder("cat/a.jpg")
    with open(os.fsencode(root) + b"/cat/\xff.jpg", "wb"):
        pass
    report = tfrecorder.validate(root)
    assert report.iloc[0][["code", "row"]].tolist() == ["bad_text", 1]
    report.to_csv("report.csv")


def test_a_folder_that_may_not_be_listed_is_an_error_not_fewer_rows(plain_user) -> None:
    folder("cat/a.jpg", "dog/b.jpg")
    os.chmod("images/dog", 0)
    with plain_user():
        assert "images/dog: the folder cannot be listed: Permission denied" in fault("images")


def test_digits_of_a_csv_are_names_where_the_labels_say_so(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("split,image_uri,label\nTRAIN,a.jpg,9\nTRAIN,b.jpg,7\n")
    assert source_of(path).frame["label"].tolist() == [9, 7]
    assert source_of(path, schema=labelled("7", "9")).frame["label"].tolist() == ["9", "7"]
