"""A dataset in the forms of other tools: every image byte for byte, every annotation equal."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.kind_cases import EVERY_KIND, every_kind, values
from support import SAMPLES, copied_photos, given_again, invoke, skip_without

import tfrecorder
from tfrecorder.errors import OptionError, OutputError
from tfrecorder.schema import Boxes, Image, Label, Mask, Number, Schema, Split, Text


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The photographs as a dataset whose uris are relative; not to be changed."""
    folder = tmp_path_factory.mktemp("photos")
    frame = copied_photos(folder)
    frame["image_uri"] = [os.path.relpath(uri, folder) for uri in frame["image_uri"]]
    tfrecorder.convert(frame, folder / "out", base=folder, num_shards=2, progress=False)
    return folder / "out"


@pytest.fixture(scope="module")
def boxed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset with boxes in pixels, an image without any, and a caption."""
    folder = tmp_path_factory.mktemp("boxed")
    frame = copied_photos(folder)[:6]
    pixels = np.random.default_rng(0).uniform(0, 50, (6, 3, 2)).round(2)
    for place, edge in enumerate(("x", "y")):
        low = pixels[..., place]
        frame[f"{edge}_min"] = [row[: n % 3].tolist() for n, row in enumerate(low)]
        frame[f"{edge}_max"] = [(row[: n % 3] + 60.25).tolist() for n, row in enumerate(low)]
    frame["thing"] = [["eye", "ear"][: n % 3] for n in range(6)]
    frame["caption"] = "a picture"
    schema = Schema(
        split=Split(),
        image_uri=Image(),
        boxes=Boxes(label="thing", unit="pixel", names=["nose", "eye", "ear"]),
        caption=Text(),
    )
    columns = frame.drop(columns="label")
    tfrecorder.convert(columns, folder / "out", schema=schema, progress=False)
    return folder / "out"


def files_of(folder: str) -> list[str]:
    """The paths of all files below a folder."""
    return sorted(
        str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file()
    )


def rows_of(dataset: Any, *without: str) -> list[str]:
    """All rows with the bytes of their images, whatever their order and their uris."""
    frame = given_again(dataset, images="bytes").drop(columns=list(without))
    return sorted(map(repr, values(frame)))


def test_a_csv_reads_back_to_the_same_dataset(out: Path) -> None:
    tfrecorder.export(out, "csv", to="csv", progress=False)
    tfrecorder.convert("csv/dataset.csv", "again", schema="csv/schema.yaml", progress=False)
    assert rows_of("again") == rows_of(out)
    uris = [{*tfrecorder.to_frame(dataset)["image_uri"]} for dataset in (out, "again")]
    assert uris[0] == uris[1]
    assert not Path("csv/_tfrecorder").exists()


@pytest.mark.slow
def test_every_kind_of_column_goes_through_a_csv() -> None:
    frame = every_kind(12).assign(split=["TRAIN"] * 8 + ["TEST"] * 4)
    tfrecorder.convert(frame, "out", schema=EVERY_KIND, progress=False)
    result = tfrecorder.export("out", "csv", to="csv", progress=False)
    assert result.left_out == ("blob",)
    assert "left out, as csv has no place for them: blob" in str(result)
    tfrecorder.convert("csv/dataset.csv", "again", schema="csv/schema.yaml", progress=False)
    assert rows_of("again") == rows_of("out", "blob")
    names = [tfrecorder.info(dataset).columns["multi"].class_names for dataset in ("out", "again")]
    assert names == [("a", "b", "c")] * 2


@pytest.mark.slow
def test_masks_and_boxes_a_row_go_through_a_csv(tmp_path: Path) -> None:
    shutil.copytree(SAMPLES, tmp_path, dirs_exist_ok=True)
    photos = pd.read_csv("photos.csv")
    masks = photos[photos["label"] == "coffee"].drop(columns="label")
    masks["mask_uri"] = [f"masks/{Path(uri).stem}.png" for uri in masks["image_uri"]]
    kinds = Schema(split=Split(), image_uri=Image(), mask_uri=Mask())
    tfrecorder.convert(masks, "masked", schema=kinds, progress=False)
    rows = (
        photos[:3].iloc[[0, 0, 1]].assign(x_min=[0.1, 0.2, 0.3], y_min=0.1, x_max=0.5, y_max=0.75)
    )
    tfrecorder.convert(rows, "boxed", progress=False)
    for dataset in ("masked", "boxed"):
        tfrecorder.export(dataset, f"{dataset}_csv", to="csv", progress=False)
        source, schema = f"{dataset}_csv/dataset.csv", f"{dataset}_csv/schema.yaml"
        tfrecorder.convert(source, f"{dataset}_again", schema=schema, progress=False)
        assert rows_of(f"{dataset}_again") == rows_of(dataset)


def test_a_folder_reads_back_to_the_same_dataset(out: Path) -> None:
    tfrecorder.export(out, "folder", to="folder", progress=False)
    assert {*files_of("folder")} >= {"train/cat/cat_01.jpg", "names.csv"}
    tfrecorder.convert("folder", "again", progress=False)
    assert rows_of("again", "image_uri") == rows_of(out, "image_uri")
    images = [{*tfrecorder.to_frame(d, images="bytes").image_uri} for d in (out, "again")]
    assert images[0] == images[1]


def test_coco_holds_the_boxes_of_the_records(boxed: Path) -> None:
    skip_without("pycocotools")
    from pycocotools.coco import COCO

    result = tfrecorder.export(boxed, "coco", to="coco", progress=False)
    assert result.left_out == ("caption",)
    for split in tfrecorder.info(boxed).splits:
        coco = COCO(f"coco/annotations/instances_{split.lower()}.json")
        names = {number: one["name"] for number, one in coco.cats.items()}
        assert names == {1: "nose", 2: "eye", 3: "ear"}
        frame = tfrecorder.to_frame(boxed, split, images="bytes").reset_index(drop=True)
        assert sorted(coco.imgs) == list(range(1, len(frame) + 1))
        for number, row in frame.iterrows():
            image = coco.imgs[int(number) + 1]
            assert Path("coco/images", image["file_name"]).read_bytes() == row.image_uri
            found = coco.loadAnns(coco.getAnnIds(image["id"]))
            assert [names[one["category_id"]] for one in found] == list(row.thing)
            edges = [
                [x, y, x + width, y + height]
                for x, y, width, height in (one["bbox"] for one in found)
            ]
            wanted = np.array([row.x_min, row.y_min, row.x_max, row.y_max]).T.reshape(-1, 4)
            np.testing.assert_allclose(np.reshape(edges, (-1, 4)), wanted, atol=2e-3)


def test_fractions_are_pixels_in_coco(tmp_path: Path) -> None:
    shutil.copytree(SAMPLES / "photos", "photos")
    edges = {"x_min": 0.25, "y_min": 0.5, "x_max": 0.75, "y_max": 1.0}
    frame = pd.DataFrame({"split": "TRAIN", "image_uri": ["photos/cat/cat_01.jpg"], **edges})
    kinds = Schema(split=Split(), image_uri=Image(), boxes=Boxes(label=None))
    tfrecorder.convert(frame, "out", schema=kinds, progress=False)
    tfrecorder.export("out", "coco", to="coco", progress=False)
    document = json.loads(Path("coco/annotations/instances_train.json").read_text())
    (image,), (one,) = document["images"], document["annotations"]
    width, height = image["width"], image["height"]
    assert one["bbox"] == [width / 4, height / 2, width / 2, height / 2]
    assert document["categories"] == [{"id": 1, "name": "object"}]


def test_webdataset_reads_every_record(out: Path) -> None:
    skip_without("webdataset")
    import webdataset

    tfrecorder.export(out, "archives", to="webdataset", progress=False)
    for split in tfrecorder.info(out).splits:
        archives = sorted(map(str, Path("archives").glob(f"{split.lower()}-*.tar")))
        samples = list(webdataset.WebDataset(archives, shardshuffle=False))
        frame = tfrecorder.to_frame(out, split, images="bytes")
        names = tfrecorder.info(out).class_names
        assert [sample["jpg"] for sample in samples] == list(frame.image_uri)
        assert [names[int(sample["cls"])] for sample in samples] == list(frame.label)
        assert [json.loads(sample["json"])["label"] for sample in samples] == list(frame.label)
        assert len({sample["__key__"] for sample in samples}) == len(frame)


@pytest.mark.slow
@pytest.mark.parametrize("to", ["csv", "webdataset"])
def test_an_export_that_was_killed_continues(to: str, tmp_path: Path) -> None:
    frame = copied_photos(tmp_path)
    many = pd.concat([frame] * 60, ignore_index=True)
    tfrecorder.convert(many, "out", num_shards=12, progress=False)
    tfrecorder.export("out", "whole", to=to, progress=False)
    code = f"import tfrecorder; tfrecorder.export('out', 'killed', to={to!r}, progress=False)"
    process = subprocess.Popen([sys.executable, "-c", code])
    deadline = time.monotonic() + 60
    while len(files_of("killed")) < 8 and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    before = {name: os.stat(f"killed/{name}").st_mtime_ns for name in files_of("killed")}
    complete = {name: when for name, when in before.items() if "_tfrecorder" not in name}
    assert 0 < len(complete) < len(files_of("whole"))
    assert not {"dataset.csv"} & {*complete}
    tfrecorder.export("out", "killed", to=to, progress=False)
    assert files_of("killed") == files_of("whole")
    for name in files_of("whole"):
        assert Path("killed", name).read_bytes() == Path("whole", name).read_bytes()
    assert {name: os.stat(f"killed/{name}").st_mtime_ns for name in complete} == complete


def test_a_uri_that_is_no_path_becomes_a_number(tmp_path: Path) -> None:
    frame = copied_photos(tmp_path)[:4]
    frame["image_uri"] = [os.path.relpath(uri, tmp_path) for uri in frame["image_uri"]]
    shutil.copy(frame.image_uri[0], tmp_path / "up.jpg")
    frame.loc[0, "image_uri"] = "photos/../up.jpg"
    tfrecorder.convert(frame, "out", progress=False)
    result = tfrecorder.export("out", "csv", to="csv", progress=False)
    assert "named otherwise than their uris: 1 image; names.csv has both" in str(result)
    assert Path("csv/names.csv").read_text() == "file,uri\ntest/00000000.jpg,photos/../up.jpg\n"
    assert {*files_of("csv")} >= {*frame.image_uri[1:]}


def test_an_image_that_was_made_again_gets_the_ending_of_what_it_is() -> None:
    shutil.copytree(SAMPLES / "mixed", "mixed")
    frame = pd.DataFrame({"split": "TRAIN", "image_uri": ["mixed/cat.gif", "mixed/gravel.tif"]})
    tfrecorder.convert(frame, "out", progress=False)
    tfrecorder.export("out", "csv", to="csv", progress=False)
    assert {*files_of("csv")} >= {"mixed/cat.gif.png", "mixed/gravel.tif.png"}


@pytest.mark.parametrize(
    ("to", "words"),
    [
        ("coco", "to='coco': it holds boxes, and this dataset has none; give 'csv'."),
        ("yolo", "to='yolo': it holds boxes, and this dataset has none; give 'csv'."),
        ("voc", "to='voc': give one of 'coco', 'csv', 'folder', 'webdataset', 'yolo'."),
    ],
)
def test_what_a_form_cannot_hold_is_refused(out: Path, to: str, words: str) -> None:
    with pytest.raises(OptionError) as caught:
        tfrecorder.export(out, "other", to=to)
    assert str(caught.value) == words
    assert not Path("other").exists()


def test_a_label_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    frame = copied_photos(tmp_path)[:4].assign(label="../up")
    tfrecorder.convert(
        frame, "out", schema=Schema(split=Split(), image_uri=Image(), label=Label()), progress=False
    )
    with pytest.raises(OptionError, match=r"'\.\./up' is no name of a folder"):
        tfrecorder.export("out", "folder", to="folder")
    kinds = Schema(split=Split(), image_uri=Image(), n=Number())
    tfrecorder.convert(frame.assign(n=1), "two", schema=kinds, progress=False)
    with pytest.raises(OptionError, match="not one column of them"):
        tfrecorder.export("two", "folder", to="folder")


def test_a_folder_that_holds_something_else_is_refused(out: Path) -> None:
    Path("mine").mkdir()
    Path("mine/notes.txt").write_text("mine")
    with pytest.raises(OutputError, match=r"mine holds 'notes.txt'; give a new or empty folder"):
        tfrecorder.export(out, "mine", to="csv")
    tfrecorder.export(out, "csv", to="csv", progress=False)
    with pytest.raises(OutputError, match="csv holds"):
        tfrecorder.export(out, "csv", to="webdataset")


def test_the_command(out: Path) -> None:
    shown = invoke("export", out, "csv", "--to", "csv", "--no-progress")
    assert shown.exit_code == 0, shown.output
    assert shown.output == "52 records in csv, as csv\n"
    assert invoke("export", out, "other", "--to", "yolo").exit_code == 2
