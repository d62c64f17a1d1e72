"""Each export is opened by the reader it is for, with odd names, texts and mixed formats."""

from __future__ import annotations

import io
import itertools
import json
import os
import random
import tarfile
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image as PillowImage
from support import invoke, skip_without

import tfrecorder
from tfrecorder.errors import OptionError
from tfrecorder.schema import Boxes, Image, Label, Mask, Number, Schema, Split, Text

QUIET = {"progress": False}

#: Parts of paths that some file system, or some tool, does not take or does not tell apart.
PARTS = (
    *("a", "A", "a.jpg", "a.JPG", "a.jpeg", "a.png", "a.x", "a.x.jpg", "a.jpg.png", "b", "b.jpg"),
    *("é", "e\u0301", "straße", "STRASSE", "猫", "नमस्ते", "🐈", "con", "nul.jpg", "lpt1", "console"),
    *("a ", "a.", ".a", "-a", "~", "a:b", "a\\b", "a?", "a*", 'a"', "a#b", "a%20b", "a&b", "[a]"),
    *(
        "x" * 300,
        "猫" * 90,
        "names.csv",
        "dataset.csv",
        "schema.yaml",
        "_tfrecorder",
        "mask",
        "train",
    ),
    *(
        "00000000",
        "00000001.jpg",
        "test",
        "..",
        "a\tb",
        "a\nb",
        "\u202ea",
        "a\u200b",
        "=a",
        "metadata",
    ),
)


def picture(number: int, form: str = "PNG", **options: Any) -> bytes:
    """A small image that differs from all others."""
    pixels = np.full((8, 10, 3), 60, np.uint8)
    pixels[:, :, 0] = number % 251
    pixels[:4, :, 1] = number // 251
    file = io.BytesIO()
    comment = {"comment": str(number)} if form == "JPEG" else {}
    PillowImage.fromarray(pixels).save(file, form, **comment, **options)
    return file.getvalue()


def images(uris: Sequence[str], forms: Sequence[str] = ("PNG", "JPEG")) -> list[dict[str, Any]]:
    """A picture under each of these names, of these formats in turn."""
    turns = zip(uris, itertools.cycle(forms), strict=False)
    return [{"bytes": picture(n, form), "path": uri} for n, (uri, form) in enumerate(turns)]


def converted(frame: Any, schema: Schema | None = None, **options: Any) -> None:
    tfrecorder.convert(frame, "out", schema=schema, **QUIET, **options)


def pairs(dataset: str) -> list[tuple[bytes, Any]]:
    frame = tfrecorder.to_frame(dataset, images="bytes")
    return sorted(frame[["image_uri", "label"]].itertuples(False, None))


def one_name(path: Path) -> str:
    """A path as a file system sees it that knows neither case nor forms of accents."""
    return unicodedata.normalize("NFC", str(path).casefold())


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 3))])
@pytest.mark.parametrize("to", ["csv", "folder"])
def test_no_two_images_are_one_file_on_any_machine(to: str, seed: int) -> None:
    chance = random.Random(seed)
    uris = [*PARTS, *("/".join(chance.choices(PARTS, k=chance.randint(2, 3))) for _ in range(30))]
    uris = list(dict.fromkeys(uris))
    chance.shuffle(uris)
    labels = [f"l{number % 3}" for number in range(len(uris))]
    split = ["TRAIN" if number % 4 else "TEST" for number in range(len(uris))]
    converted(pd.DataFrame({"split": split, "image_uri": images(uris), "label": labels}))
    tfrecorder.export("out", "given", to=to, **QUIET)
    files = [path.relative_to("given") for path in Path("given").rglob("*") if path.is_file()]
    beside = {"names.csv", "dataset.csv", "schema.yaml", "metadata.parquet"}
    pictures = [path for path in files if path.name not in beside]
    assert len({*map(one_name, pictures)}) == len(pictures) == len(uris)
    folders = {one_name(folder) for path in files for folder in path.parents}
    assert folders.isdisjoint(map(one_name, files))
    ending = {".jpg", ".jpeg", ".png"}
    assert {path.suffix.lower() for path in pictures} <= ending
    # What each file was called, by the page: names.csv, or the file's own name but for an ending.
    names = dict(pd.read_csv("given/names.csv", dtype=str, keep_default_na=False).to_numpy())
    stored = tfrecorder.to_frame("out", images="bytes")["image_uri"].tolist()
    uri_of = dict(zip(stored, tfrecorder.to_frame("out")["image_uri"], strict=True))
    for path in pictures:
        called = names.get(str(path), str(path))
        assert uri_of[Path("given", path).read_bytes()] in (called, called.rpartition(".")[0])
    if to == "csv":
        tfrecorder.convert("given/dataset.csv", "again", schema="given/schema.yaml", **QUIET)
    else:
        tfrecorder.convert("given", "again", **QUIET)
    assert pairs("again") == pairs("out")


def names_kept(*uris: str, to: str = "csv", forms: Sequence[str] = ("JPEG",)) -> list[str]:
    """The names of files in an export of images with these uris, in the order of the uris."""
    table = pd.DataFrame({"split": "TRAIN", "image_uri": images(uris, forms), "label": "l"})
    converted(table, shuffle=False)
    tfrecorder.export("out", "given", to=to, **QUIET)
    made = {path.read_bytes(): path for path in Path("given").rglob("*.*") if path.is_file()}
    frame = tfrecorder.to_frame("out", images="bytes")
    names = dict(zip(tfrecorder.to_frame("out")["image_uri"], frame["image_uri"], strict=True))
    return [str(made[names[uri]].relative_to("given")) for uri in uris]


@pytest.mark.parametrize(
    ("uris", "names"),
    [
        # One name that clashes leaves the others as they are.
        (("a", "a.jpg", "b/c.jpg"), ("a.jpg", "train/00000001.jpg", "b/c.jpg")),
        (("f.x", "f.x.JPG", "g"), ("f.x.jpg", "train/00000001.jpg", "g.jpg")),
        (("a", "a.jpg/b.jpg"), ("a.jpg", "train/00000001.jpg")),
        (("猫.jpg", "e\u0301.jpg", "é.jpg"), ("猫.jpg", "e\u0301.jpg", "train/00000002.jpg")),
        (
            ("console.jpg", "con.jpg", "x."),
            ("console.jpg", *(f"train/0000000{n}.jpg" for n in (1, 2))),
        ),
        (("train/00000001", ".a"), ("train/00000001.jpg", "train_1/00000001_1.jpg")),
        (("train", ".a"), ("train.jpg", "train_1/00000001_1.jpg")),
        # Absolute uris are known by what differs.
        (("/in/x/a.jpg", "/in/x/b/a.jpg"), ("a.jpg", "b/a.jpg")),
        (("gs://b/x/a.jpg", "gs://c/x/a.jpg"), ("b/x/a.jpg", "c/x/a.jpg")),
        (("/in/x/a.jpg", "b.jpg"), ("train/00000000.jpg", "b.jpg")),
    ],
)
def test_a_name_is_kept_where_it_can_be(uris: Sequence[str], names: Sequence[str]) -> None:
    assert names_kept(*uris) == list(names)


def test_a_name_is_kept_below_its_label() -> None:
    assert names_kept("x/a.jpg", "y/a.JPG", "y/b.gif", to="folder") == [
        *("train/l/a.jpg", "train/l/00000001.jpg", "train/l/b.gif.jpg"),
    ]


@pytest.mark.parametrize(
    "labels", [("Cat", "cat"), ("straße", "STRASSE"), ("a", "metadata.parquet")]
)
def test_labels_that_are_one_folder_elsewhere_are_refused(labels: Sequence[str]) -> None:
    frame = {"split": "TRAIN", "image_uri": images(["a", "b"]), "label": labels}
    kinds = Schema(split=Split(), image_uri=Image(), label=Label())
    converted(pd.DataFrame(frame), kinds)
    with pytest.raises(OptionError, match="is no name of a folder of its own on every machine"):
        tfrecorder.export("out", "given", to="folder", **QUIET)


#: Texts that a CSV, or who reads one, may take for something else.
TEXTS = (
    *(
        "two\rthree",
        "end\r",
        "\rstart",
        "a\r\nb",
        "a\n",
        "\n",
        " pad ",
        "\t",
        ",",
        '"',
        '""',
        "'",
        "''",
    ),
    *(
        "=1+1",
        "+1",
        "-rf",
        "@x",
        "＝1",
        "007",
        "1e5",
        "NA",
        "nan",
        "null",
        "None",
        "",
        "#",
        "\\",
        "\\N",
    ),
    *(
        "True",
        "2026-01-01",
        "猫",
        "\ufeffx",
        "\u2028",
        "\x85",
        "\x1c",
        "a;b",
        "a\tb",
        '[1, "x"]',
        "{}",
    ),
)


def test_every_text_comes_back_from_a_csv_and_from_pandas() -> None:
    frame = pd.DataFrame(
        {"split": "TRAIN", "image_uri": images([f"{n}" for n in range(len(TEXTS))])}
    )
    frame["text"] = [text or "x" for text in TEXTS]
    frame["same"] = [f"{text}|" for text in TEXTS]
    kinds = Schema(split=Split(), image_uri=Image(), text=Text(), same=Text())
    converted(frame, kinds)
    tfrecorder.export("out", "given", to="csv", **QUIET)
    tfrecorder.convert("given/dataset.csv", "again", schema="given/schema.yaml", **QUIET)
    stored = [sorted(tfrecorder.to_frame(d)["text"]) for d in ("out", "again")]
    assert stored[1] == stored[0] == sorted(frame["text"])
    with open("given/dataset.csv", newline="") as file:
        read = pd.read_csv(file, dtype=str, keep_default_na=False)
    assert sorted(read["text"]) == sorted(frame["text"])
    assert sorted(read["same"]) == sorted(frame["same"])


def mixed(forms: Sequence[str] = ("PNG", "JPEG"), **columns: Any) -> pd.DataFrame:
    """Twelve rows in two splits, of images of these formats in turn."""
    frame = pd.DataFrame({"split": ["TRAIN"] * 8 + ["TEST"] * 4})
    frame["image_uri"] = images([f"x/{n}" for n in range(12)], forms)
    return frame.assign(label=["cat", "dog", "eel"] * 4, **columns)


def mask(number: int) -> bytes:
    file = io.BytesIO()
    PillowImage.fromarray(np.full((8, 10), number % 3, np.uint8)).save(file, "PNG")
    return file.getvalue()


@pytest.mark.slow
def test_one_format_makes_archives_that_every_reader_takes() -> None:
    skip_without("datasets", "webdataset")
    import datasets
    import webdataset

    frame = mixed(**{"a b/c": [mask(n) for n in range(12)], "A_b c": [mask(n) for n in range(12)]})
    names = {"a b/c": Mask(of="image_uri"), "A_b c": Mask(of="image_uri")}
    kinds = Schema({"split": Split(), "image_uri": Image(), **names, "label": Label()})
    converted(frame, kinds, num_shards={"TRAIN": 2})
    result = str(tfrecorder.export("out", "given", to="webdataset", **QUIET))
    assert "members differ: " in result
    assert "png and a_b_c.png and column.png 6" in result
    assert "readers want the same of each record: `image_format='png'`" in result
    shown = invoke("export", "out", "png", "--to", "webdataset", "--image-format", "png")
    assert shown.exit_code == 0, shown.output
    assert "members differ" not in shown.output
    read = datasets.load_dataset("webdataset", data_files="png/train-*.tar", cache_dir="hf")[
        "train"
    ]
    stored = tfrecorder.to_frame("out", "TRAIN", images="bytes")
    assert read["cls"] == [["cat", "dog", "eel"].index(label) for label in stored["label"]]
    archives = sorted(map(str, Path("png").glob("train-*.tar")))
    pipe = webdataset.WebDataset(archives, shardshuffle=False).decode("pil")
    samples = list(pipe.to_tuple("png", "cls", "a_b_c.png", "column.png", "json"))
    wanted = [np.asarray(PillowImage.open(io.BytesIO(data))) for data in stored["image_uri"]]
    for sample, row, pixels, of in zip(
        samples, stored.to_dict("records"), wanted, read, strict=True
    ):
        assert np.array_equal(sample[0], pixels)
        assert np.array_equal(of["png"], pixels)
        assert sample[4]["label"] == row["label"] == of["json"]["label"]
        for member, column in ((sample[2], "a b/c"), (sample[3], "A_b c")):
            shade = PillowImage.open(io.BytesIO(row[column]))
            assert np.array_equal(np.asarray(member)[..., 0], np.asarray(shade))


def test_coco_finds_images_of_odd_names_and_mixed_formats() -> None:
    skip_without("pycocotools")
    from pycocotools.coco import COCO

    frame = mixed().drop(columns="label")
    uris = [
        "a",
        "a.jpg",
        "A.JPG",
        "b/../c",
        "猫.png",
        "con",
        "x.gif",
        "annotations/y",
        "",
        "z?",
        "q",
        "Q",
    ]
    frame["image_uri"] = images(uris)
    edges = {"x_min": 0.0, "y_min": 0.0, "x_max": 0.5, "y_max": 0.5}
    frame = frame.assign(**{name: [[edge]] * 12 for name, edge in edges.items()})
    kinds = Schema(split=Split(), image_uri=Image(), boxes=Boxes(label=None))
    converted(frame, kinds)
    tfrecorder.export("out", "given", to="coco", **QUIET)
    found = []
    for split in ("train", "test"):
        coco = COCO(f"given/annotations/instances_{split}.json")
        names = [image["file_name"] for image in coco.loadImgs(coco.getImgIds())]
        found += [Path("given/images", name).read_bytes() for name in names]
    assert found == tfrecorder.to_frame("out", images="bytes")["image_uri"].tolist()
    tfrecorder.convert("given", "again", **QUIET)
    assert tfrecorder.info("again").records == 12


def test_archives_are_named_for_their_place_and_not_for_our_revisions() -> None:
    converted(mixed(), num_shards={"TRAIN": 3})
    tfrecorder.update(mixed(label2=1).assign(label="eel"), "out", **QUIET)
    tfrecorder.export("out", "given", to="webdataset", **QUIET)
    names = sorted(path.name for path in Path("given").iterdir())
    assert names == ["test-00000.tar", *(f"train-0000{n}.tar" for n in range(3))]


def test_imagefolder_reads_labels_as_they_are_now() -> None:
    skip_without("datasets")
    import datasets

    frame = mixed()
    frame["image_uri"] = images([f"{label}/{n}" for n, label in enumerate(frame["label"])])
    frame["label"] = ["007", "NA", "2026-01-01", "1", "true", "猫"] * 2
    kinds = Schema(split=Split(), image_uri=Image(), label=Label())
    converted(frame, kinds)
    tfrecorder.export("out", "given", to="folder", **QUIET)
    read = datasets.load_dataset("imagefolder", data_dir="given", cache_dir="hf")
    for split, rows in read.items():
        stored = tfrecorder.to_frame("out", split, images="bytes")
        wanted = sorted(stored[["image_uri", "label"]].itertuples(False, None))
        rows = rows.cast_column("image", datasets.Image(decode=False))
        found = [(Path(row["image"]["path"]).read_bytes(), row["label"]) for row in rows]
        assert sorted(found) == wanted
    converted_back = tfrecorder.convert("given", "again", **QUIET)
    assert converted_back.records == 12
    assert pairs("again") == pairs("out")


@pytest.mark.engines
def test_torchvision_reads_classes_as_they_are_now() -> None:
    torchvision = pytest.importorskip("torchvision")
    frame = mixed()
    frame["image_uri"] = images([f"{n}.a.b" for n in range(12)])
    converted(frame)
    tfrecorder.export("out", "given", to="folder", **QUIET)
    for split in tfrecorder.info("out").splits:
        folder = torchvision.datasets.ImageFolder(f"given/{split.lower()}")
        found = sorted((Path(path).read_bytes(), folder.classes[n]) for path, n in folder.samples)
        stored = tfrecorder.to_frame("out", split, images="bytes")
        assert found == sorted(stored[["image_uri", "label"]].itertuples(False, None))


#: Names of columns that a card, or its reader, may not take as they are.
COLUMNS = (
    *(
        "record",
        "shard",
        "record_",
        "turn id",
        "turn%20id",
        "turn_id",
        "a\tb",
        "a\u00a0b",
        " lead",
        "a/b",
    ),
    *(
        "größe",
        "x=1",
        "%",
        "#",
        "?",
        ":",
        ",",
        '"',
        "'",
        "\\",
        "name",
        "@id",
        "猫",
        "a.b",
        "a\nb",
        "file_name",
    ),
)


def test_every_column_of_a_card_comes_back() -> None:
    skip_without("mlcroissant")
    import mlcroissant

    frame = mixed(**{name: range(n, n + 12) for n, name in enumerate(COLUMNS)})
    kinds = {"split": Split(), "image_uri": Image(), "label": Label()}
    kinds |= {name: Number(dtype="int64") for name in COLUMNS}
    converted(frame, Schema(kinds))
    card = tfrecorder.card("out", **QUIET)
    said = str(card)
    assert "The column 'record' is 'record__1' in records.parquet." in said
    assert "The column 'shard' is 'shard_' in records.parquet." in said
    dataset = mlcroissant.Dataset(jsonld="out/croissant.json")
    assert not dataset.metadata.ctx.issues.errors
    fields = {
        field["source"]["extract"]["column"]: field["@id"]
        for records in json.loads(Path("out/croissant.json").read_text())["recordSet"]
        for field in records["field"]
        if "source" in field
    }
    tables = {split: tfrecorder.to_frame("out", split) for split in ("TRAIN", "TEST")}
    names = {"record": "record__1", "shard": "shard_"}
    rows = list(dataset.records("records"))
    assert len(rows) == 12
    for row in rows:
        table = tables[row["records/split"].decode().upper()]
        stored = table.iloc[row["records/record"]]
        for column in COLUMNS:
            assert row[fields[names.get(column, column)]] == stored[column], column


def test_every_column_comes_back_from_a_csv_and_from_archives() -> None:
    frame = mixed(**{name: [f"{name}{n}" for n in range(12)] for name in (*COLUMNS, "=x", "a\rb")})
    names = [name for name in frame if name not in ("split", "image_uri", "label")]
    kinds = {"split": Split(), "image_uri": Image(), "label": Label()}
    converted(frame, Schema(kinds | {name: Text() for name in names}))
    tfrecorder.export("out", "given", to="csv", **QUIET)
    tfrecorder.convert("given/dataset.csv", "again", schema="given/schema.yaml", **QUIET)
    both = [tfrecorder.to_frame(dataset)[["label", *names]] for dataset in ("out", "again")]
    rows = [sorted(rows.astype(str).to_numpy().tolist()) for rows in both]
    assert rows[0] == rows[1] == sorted(frame[["label", *names]].to_numpy().tolist())
    tfrecorder.export("out", "tar", to="webdataset", **QUIET)
    with tarfile.open("tar/train-00000.tar") as archive:
        members = [name for name in archive.getnames() if name.endswith(".json")]
        read = [json.loads(archive.extractfile(name).read()) for name in members]
    assert [{*row} for row in read] == [{"split", "image_uri", "label", *names}] * 8


def test_another_format_has_the_stored_pixels_and_their_orientation() -> None:
    exif = PillowImage.Exif()
    exif[0x0112] = 6
    data = picture(5, "JPEG", exif=exif)
    frame = pd.DataFrame({"split": "TRAIN", "image_uri": [{"bytes": data, "path": "a.jpg"}]})
    converted(frame)
    tfrecorder.export("out", "given", to="csv", image_format="png", **QUIET)
    with PillowImage.open("given/a.jpg.png") as made, PillowImage.open(io.BytesIO(data)) as stored:
        assert np.array_equal(np.asarray(made), np.asarray(stored))
        assert made.getexif()[0x0112] == 6
    with pytest.raises(OptionError, match="image_format='gif': give one of 'keep', 'jpeg', 'png'"):
        tfrecorder.export("out", "other", to="csv", image_format="gif")


def test_sixteen_bits_become_no_jpeg() -> None:
    grey = np.linspace(0, 65535, 80).astype(np.uint16).reshape(8, 10)
    file = io.BytesIO()
    PillowImage.fromarray(grey).save(file, "PNG")
    frame = pd.DataFrame({"split": "TRAIN", "image_uri": [file.getvalue()]})
    converted(frame, Schema(split=Split(), image_uri=Image(depth=16)))
    with pytest.raises(OptionError, match="it holds 8 bits a channel, and this dataset has images"):
        tfrecorder.export("out", "given", to="csv", image_format="jpeg", **QUIET)
    tfrecorder.export("out", "given", to="csv", image_format="png", **QUIET)
    (path,) = Path("given").glob("*.png")
    assert path.read_bytes() == file.getvalue()


def test_an_export_in_another_format_is_not_continued_by_this_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    converted(mixed())
    asked = {"to": "csv", "image_format": "png", **QUIET}
    replace, left = os.replace, iter(range(6))

    def interrupted(*arguments: Any, **options: Any) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt
        replace(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            tfrecorder.export("out", "given", **asked)
    with pytest.raises(tfrecorder.errors.OutputError, match="given holds '"):
        tfrecorder.export("out", "given", to="csv", **QUIET)
    tfrecorder.export("out", "given", **asked)
    tfrecorder.convert("given/dataset.csv", "again", schema="given/schema.yaml", **QUIET)
    assert {*tfrecorder.inspect("again", num_records=8)["image/format"]} == {"png"}
