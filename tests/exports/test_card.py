"""The card of a dataset: what registries, reviews and other tools read of it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import tensorflow_datasets as tfds
from helpers.kind_cases import EVERY_KIND, every_kind
from helpers.public_types import Card
from PIL import Image as PillowImage
from support import SAMPLES, copied_photos, invoke, skip_without

import tfrecorder
from tfrecorder.errors import DatasetError, OptionError, OutputError
from tfrecorder.schema import Boxes, Image, Mask, Number, Schema, Split

FILES = {"croissant.json", "README.md", "card.jpg", "records.parquet"}

YAML = """
name: "Four *things*"
description: Photographs | of four things.
license: cc-by-4.0
citation: "@misc{things}"
homepage: https://example.org/things
rai:
  dataBiases: only four things
  hasSyntheticData: false
  dataUseCases: [training, tests]
croissant:
  datePublished: 2026-01-01
  creator: {"@type": Person, name: Ann}
  "prov:wasDerivedFrom": {"@id": "https://example.org/raw"}
"""


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> tuple[pd.DataFrame, Path]:
    """The rows of a dataset of the photographs, which was appended to; it is not to be changed."""
    folder = tmp_path_factory.mktemp("grown")
    frame = copied_photos(folder)
    tfrecorder.convert(frame[:40], folder / "out", num_shards=3, progress=False)
    tfrecorder.append(frame[40:], folder / "out", progress=False)
    return frame, folder / "out"


@pytest.fixture
def photos(grown: tuple[pd.DataFrame, Path]) -> pd.DataFrame:
    """The dataset of `grown` in "out", and its rows."""
    shutil.copytree(grown[1], "out")
    return grown[0]


def made(**options: Any) -> Card:
    return tfrecorder.card("out", progress=False, **options)


def document(out: str = "out") -> dict[str, Any]:
    return json.loads(Path(out, "croissant.json").read_text())


def sums(out: str = "out") -> dict[str, str]:
    return {file["contentUrl"]: file["sha256"] for file in document(out)["distribution"]}


def stated(text: str = YAML) -> None:
    Path("out/card.yaml").write_text(text)


def of_kinds() -> dict[str, tuple[Any, dict[str, Any]]]:
    """Sources and options of a dataset of each kind; in the folder of the samples."""
    table = pd.read_csv("photos.csv")
    masks = table[table["label"] == "coffee"].drop(columns="label")
    masks["mask_uri"] = [f"masks/{Path(uri).stem}.png" for uri in masks["image_uri"]]
    edges = {"x_min": [[0.1], [], [0.2, 0.3]], "y_min": [[0.1], [], [0.2, 0.3]]}
    edges |= {"x_max": [[0.6], [], [0.7, 0.8]], "y_max": [[0.9], [], [0.8, 0.9]]}
    boxes = {"split": ["TRAIN", "TEST", "TRAIN"], "image_uri": table["image_uri"][:3], **edges}
    boxes["thing"] = [["eye"], [], ["ear", "eye"]]
    rejected = pd.concat([table, table[:2].assign(image_uri=["absent.jpg", "README.md"])])
    numbers = Schema(split=Split(), width=Number(dtype="int64"), lit=Number(dtype="bool"))
    return {
        "labels": ("photos.csv", {"num_shards": 3}),
        "a folder": ("photos", {}),
        "no labels": (table.drop(columns="label"), {}),
        "labels that are numbers": (table.assign(label=table["label"].str.len()), {}),
        "every kind": (every_kind(12), {"schema": EVERY_KIND}),
        "boxes": (
            pd.DataFrame(boxes),
            {"schema": Schema(split=Split(), image_uri=Image(), boxes=Boxes(label="thing"))},
        ),
        "masks": (
            masks,
            {"schema": Schema(split=Split(), image_uri=Image(), mask_uri=Mask())},
        ),
        "rejects": (rejected, {"max_reject_fraction": 0.1, "num_shards": 2}),
        "no images": (table.assign(width=7, lit=True), {"schema": numbers}),
    }


KINDS = (
    *("labels", "a folder", "no labels", "labels that are numbers", "every kind", "boxes"),
    *("masks", "rejects", "no images"),
)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_mlcroissant_reads_every_row_of_every_split(kind: str, tmp_path: Path) -> None:
    skip_without("mlcroissant")
    import mlcroissant

    shutil.copytree(SAMPLES, tmp_path, dirs_exist_ok=True)
    source, options = of_kinds()[kind]
    tfrecorder.convert(source, "out", progress=False, **options)
    stated()
    made()
    dataset = mlcroissant.Dataset(jsonld="out/croissant.json")
    assert not dataset.metadata.ctx.issues.errors
    assert not dataset.metadata.ctx.issues.warnings
    rows = list(dataset.records("records"))
    counts = {name: split.records for name, split in tfrecorder.info("out").splits.items()}
    assert Counter(row["records/split"].decode().upper() for row in rows) == counts
    listed = {row["splits/name"]: row["splits/records"] for row in dataset.records("splits")}
    assert listed == {split.lower(): count for split, count in counts.items()}
    tables = {split.lower(): tfrecorder.Records("out", split).table() for split in counts}
    for row in rows:
        values = {name.removeprefix("records/"): value for name, value in row.items()}
        stored = tables[values.pop("split").decode()].iloc[values.pop("record")]
        assert Path("out", values.pop("shard").decode()).is_file()
        assert values.keys() == {*stored.index} - {"split", "blob"}
        assert {name: plain(value) for name, value in values.items()} == {
            name: plain(stored[name]) for name in values
        }


def plain(value: Any) -> list[Any]:
    """A value, or those of a list or an array, to compare whatever their types."""
    values = np.ravel(np.array([]) if value is None else np.asarray(value)).tolist()
    texts = (one.decode() if isinstance(one, bytes) else one for one in values)
    return [one if isinstance(one, str) else round(float(one), 5) for one in texts if one == one]


def test_the_sums_are_those_of_the_files(photos: pd.DataFrame) -> None:
    made()
    shards = {path.name for path in Path("out").glob("*.tfrecord")}
    assert sums().keys() == {*shards, "records.parquet"}
    for name, sha256 in sums().items():
        assert hashlib.sha256(Path("out", name).read_bytes()).hexdigest() == sha256


@pytest.mark.slow
def test_after_an_append_only_what_was_added_is_hashed(photos: pd.DataFrame) -> None:
    first = made()
    before, shards = sums(), first.shards
    assert first.hashed == shards == len(before) - 1
    copies = [shutil.copy(uri, Path(uri).name) for uri in photos.image_uri[:2]]
    more = photos[:2].assign(image_uri=copies)
    tfrecorder.append(more, "out", duplicates="keep", progress=False)
    again = made()
    assert (again.hashed, again.commit) == (again.shards - shards, 2)
    assert again.hashed > 0
    assert {name: sums()[name] for name in before if name.endswith(".tfrecord")}.items() <= (
        before.items()
    )
    assert made().hashed == 0


@pytest.mark.slow
def test_a_shard_whose_name_came_again_is_hashed(photos: pd.DataFrame) -> None:
    made()
    tfrecorder.undo("out")
    tfrecorder.append(photos[44:], "out", progress=False)
    made()
    for name, sha256 in sums().items():
        assert hashlib.sha256(Path("out", name).read_bytes()).hexdigest() == sha256


def test_what_is_stated_is_in_every_file_that_has_a_place_for_it(photos: pd.DataFrame) -> None:
    stated()
    made()
    croissant, readme = document(), Path("out/README.md").read_text()
    assert croissant["name"] == "Four *things*"
    assert croissant["license"] == "cc-by-4.0"
    assert croissant["rai:hasSyntheticData"] is False
    assert croissant["rai:dataUseCases"] == ["training", "tests"]
    assert croissant["datePublished"] == "2026-01-01"
    assert "commit 1, append" in croissant["prov:wasGeneratedBy"]["prov:label"]
    assert readme.startswith("---\npretty_name: Four *things*\nlicense: cc-by-4.0\n")
    assert "# Four &#42;things&#42;\n\nPhotographs &#124; of four things." in readme
    assert "- dataUseCases: training; tests" in readme
    assert "| TRAIN | 39 |" in readme
    assert tfds.builder_from_directory("out").info.description == "Written by tfrecorder."
    copy = shutil.copy(photos.image_uri[0], "copy.jpg")
    more = photos[:1].assign(image_uri=copy)
    tfrecorder.append(more, "out", duplicates="keep", progress=False)
    info = tfds.builder_from_directory("out").info
    assert info.description == "Photographs | of four things."
    assert (info.citation, info.homepage) == ("@misc{things}", "https://example.org/things")
    assert info.redistribution_info.license == "cc-by-4.0"
    assert tfrecorder.verify("out", progress=False).ok
    tfrecorder.undo("out")  # as it was, until the next commit
    assert tfds.builder_from_directory("out").info.citation == ""
    assert tfrecorder.verify("out", progress=False).ok


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("licence: x", "card.yaml: there is no option 'licence'; did you mean `license`?"),
        ("license: 7", "card.yaml: license=7: give text."),
        ("rai: {dataBiasses: x}", "there is no option 'dataBiasses'; did you mean `dataBiases`?"),
        ("- a", "card.yaml: give names with values, one a line."),
        ("a: [", "card.yaml: while parsing"),
    ],
)
def test_a_wrong_field_is_named_and_nothing_is_written(
    photos: pd.DataFrame, text: str, words: str
) -> None:
    stated(text)
    with pytest.raises(OptionError, match=r"card\.yaml") as caught:
        made()
    assert words in str(caught.value)
    assert not FILES & {*os.listdir("out")}


@pytest.mark.slow
def test_names_of_the_data_are_no_markup(tmp_path: Path) -> None:
    frame = copied_photos(tmp_path)
    frame["label"] = frame["label"].replace({"cat": "<img src=x>|[a](http://b)\n# c"})
    tfrecorder.convert(frame, "out", progress=False)
    made()
    readme = Path("out/README.md").read_text()
    assert "<img" not in readme
    assert "](http" not in readme
    assert "\n# c" not in readme
    assert "&#60;img src=x&#62;&#124;&#91;a&#93;(http&#58;//b)" in readme


def test_the_pictures_are_of_the_records(photos: pd.DataFrame) -> None:
    assert {*made(per_split=3).files} == FILES
    with PillowImage.open("out/card.jpg") as picture:
        assert picture.size == (6 * 128, 128)


def test_info_says_when_the_card_is_older(photos: pd.DataFrame) -> None:
    assert tfrecorder.info("out").card is None
    made()
    assert tfrecorder.info("out").card == 1
    copy = shutil.copy(photos.image_uri[0], "copy.jpg")
    more = photos[:1].assign(image_uri=copy)
    tfrecorder.append(more, "out", duplicates="keep", stage_only=True, progress=False)
    tfrecorder.undo("out")  # no record changes
    assert [*tfrecorder.info("out").generations] == [0, 1, 2]
    assert "card" not in str(tfrecorder.info("out"))
    tfrecorder.undo("out")
    shown = invoke("info", "out").output
    assert "card: older than the dataset: of commit 1; `tfrecorder card out` writes it" in shown


@pytest.mark.slow
def test_what_is_removed_is_not_in_the_card(photos: pd.DataFrame) -> None:
    stated()
    made()
    tfrecorder.remove("out", {"image_uri": list(photos.image_uri[:2])}, progress=False)
    assert not FILES & {*os.listdir("out")}
    assert not Path("out/_tfrecorder/card.json").exists()
    assert Path("out/card.yaml").exists()
    assert tfrecorder.info("out").card is None
    made()
    uris = pq.read_table("out/records.parquet")["image_uri"].to_pylist()
    assert {*uris} == {*photos.image_uri[2:]}


@pytest.mark.slow
def test_an_update_keeps_the_card_unless_it_removes(photos: pd.DataFrame) -> None:
    made()
    tfrecorder.update(photos.assign(label="one"), "out", progress=False)
    assert {*os.listdir("out")} >= FILES
    made()
    tfrecorder.update(photos[1:].assign(label="one"), "out", missing="remove", progress=False)
    assert not FILES & {*os.listdir("out")}


def test_files_of_others_are_not_replaced(photos: pd.DataFrame) -> None:
    Path("out/README.md").write_text("mine")
    with pytest.raises(OutputError, match=r"README.md is there, and no card wrote it"):
        made()
    os.remove("out/README.md")
    made()
    Path("out/README.md").write_text("mine")
    with pytest.raises(OutputError, match=r"README.md was changed since it was written"):
        made()
    assert Path("out/README.md").read_text() == "mine"
    tfrecorder.append(photos[:1], "out", progress=False)  # it is still a dataset of ours


def test_a_readme_that_no_card_wrote_is_foreign(photos: pd.DataFrame) -> None:
    Path("out/README.md").write_text("mine")
    with pytest.raises(OutputError, match=r"README.md"):
        tfrecorder.append(photos[:1], "out", progress=False)


def test_it_is_of_the_newest_commit_of_our_own(photos: pd.DataFrame) -> None:
    with pytest.raises(OptionError, match="at=0: leave it out"):
        made(at=0)
    with pytest.raises(DatasetError, match="not a finished dataset"):
        tfrecorder.card(SAMPLES / "photos")


def test_the_command(photos: pd.DataFrame) -> None:
    shown = invoke("card", "out", "--per-split", 2)
    assert shown.exit_code == 0, shown.output
    assert "croissant.json, README.md, card.jpg, records.parquet in out" in shown.output
    assert json.loads(invoke("card", "out", "--json").output)["hashed"] == 0
