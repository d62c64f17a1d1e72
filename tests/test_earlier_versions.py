"""Datasets that earlier versions wrote: read, verified, repaired, inspected; never continued.

`data/earlier.tar.xz` holds their sources, eight small photographs with masks, and below a folder
for each version what its code made of them: `3f5a2aa` noted checksums of shards alone, `9346bab`
those of every file. `unfinished` of each has all its shards, but no commit.
"""

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from support import error_of, examples, public_files

import tfrecorder
from tfrecorder import (
    Boxes,
    Image,
    Label,
    Labels,
    Mask,
    Number,
    OutputError,
    Schema,
    Split,
    Text,
)
from tfrecorder.format.forms import parse_metadata
from tfrecorder.plan.plan import Plan

ARCHIVE = Path(__file__).parent / "data/earlier.tar.xz"
VERSIONS = ("3f5a2aa", "9346bab")
KINDS = ("text", "integer", "unlabelled", "columns")

COLUMNS = Schema(
    split=Split(),
    image_uri=Image(),
    mask_uri=Mask(),
    grade=Label(),
    tags=Labels(separator="|"),
    angle=Number(target=True),
    caption=Text(),
    boxes=Boxes(label="what"),
)


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("earlier")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture
def here(unpacked: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The sources' folder, which is the working directory."""
    monkeypatch.chdir(unpacked / "images")
    return unpacked


@pytest.fixture(params=[f"{version}/{kind}" for version in VERSIONS for kind in KINDS])
def out(request: pytest.FixtureRequest, here: Path, tmp_path: Path) -> Path:
    """A copy of a dataset."""
    return Path(shutil.copytree(here / request.param, tmp_path / Path(request.param).name))


#: The folder of the images on the machine that made the datasets.
THERE = "/earlier/images"


def source(kind: str) -> tuple[Any, dict[str, Any]]:
    """What a dataset was made of, and its options."""
    options: dict[str, Any] = {"num_shards": 2, "max_reject_fraction": 0.5, "progress": False}
    if kind != "columns":
        return f"{kind}.csv", options
    frame = pd.DataFrame(json.loads(Path("columns.json").read_text()))
    return frame, {**options, "schema": COLUMNS}


@pytest.mark.slow
def test_it_is_what_this_version_writes(out: Path, tmp_path: Path) -> None:
    table, options = source(out.name)
    tfrecorder.convert(table, tmp_path / "now", **options)
    assert public_files(out) == public_files(tmp_path / "now")
    # Statistics of a label by its column are of this version.
    then, now = (tfrecorder.info(folder) for folder in (out, tmp_path / "now"))
    names = ("class_names", "num_classes", "class_counts", "image_shape", "image_sides", "features")
    names += ("splits", "rejects", "options", "columns")
    assert [getattr(then, name) for name in names] == [getattr(now, name) for name in names]
    frames = [tfrecorder.to_frame(folder) for folder in (out, tmp_path / "now")]
    pd.testing.assert_frame_equal(*frames)


def test_it_is_verified(out: Path) -> None:
    report = tfrecorder.verify(out, decode=True)
    assert report.ok, str(report)
    shard = out / "train-00001-of-00002.tfrecord"
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    assert {fault.file for fault in tfrecorder.verify(out).found} == {shard.name}


def test_it_is_loaded(out: Path) -> None:
    options: dict[str, Any] = {"image_size": 32, "shuffle": False}
    images, target = next(iter(tfrecorder.load(out, "TRAIN", batch_size=2, **options)))
    assert images.shape == (2, 32, 32, 3)
    label = target["grade"] if out.name == "columns" else target
    key = "grade/label" if out.name == "columns" else "image/class/label"
    stored = examples(out / "train-00000-of-00002.tfrecord")
    assert label.numpy().tolist() == [one[key][0] for one in stored[:2]]


def test_it_is_inspected(out: Path, tmp_path: Path) -> None:
    seen = tfrecorder.inspect(out, output_dir=tmp_path / "seen")
    assert len(seen) == 6
    tfrecorder.preview(out, tmp_path / "page.html", progress=False)
    assert "brick-" in (tmp_path / "page.html").read_text()


def test_it_is_repaired(out: Path, here: Path) -> None:
    whole = public_files(out)
    (out / "train-00000-of-00002.tfrecord").unlink()
    (out / "features.json").write_text("{}")
    tfrecorder.repair(out, base=here / "images")
    assert public_files(out) == whole
    assert tfrecorder.verify(out).ok
    assert tfrecorder.info(out).columns


@pytest.mark.slow
def test_it_is_appended_to_and_compacted(out: Path) -> None:
    table, _ = source(out.name)
    whole, records = public_files(out), tfrecorder.info(out).records
    frame = pd.read_csv(table) if isinstance(table, str) else table
    there = {name: f"{THERE}/" + frame[name] for name in frame if name.endswith("_uri")}
    assert tfrecorder.append(frame.assign(**there), out).was_finished
    added = tfrecorder.append(table, out, duplicates="keep", max_reject_fraction=1.0)
    assert tfrecorder.info(out).records == records + added.records
    assert tfrecorder.verify(out).ok
    assert public_files(out) == whole
    assert tfrecorder.compact(out, f"{out}-new").records == records + added.records
    assert tfrecorder.verify(f"{out}-new").ok


@pytest.mark.slow
def test_it_is_not_continued(out: Path) -> None:
    table, options = source(out.name)
    whole = public_files(out)
    for more in ({}, {"retry_rejects": True}):
        words = error_of(OutputError, table, out, **more, **options)
        assert "of an earlier version of tfrecorder" in words
        assert "give overwrite=True" in words
    assert public_files(out) == whole
    tfrecorder.convert(table, out, overwrite=True, **options)
    assert tfrecorder.verify(out).ok
    assert public_files(out) == whole
    assert json.loads((out / "_tfrecorder/plan.json").read_bytes())["version"] == 2


@pytest.mark.parametrize("version", VERSIONS)
def test_an_unfinished_one_is_refused_in_one_line(here: Path, tmp_path: Path, version: str) -> None:
    out = Path(shutil.copytree(here / version / "unfinished", tmp_path / "out"))
    table, options = source("text")
    said = str(tfrecorder.status(out)).splitlines()[-1]
    assert said.startswith("not committed: started by an earlier version of tfrecorder, which this")
    assert said.endswith("overwrite=True starts it again")
    words = error_of(OutputError, table, out, **options)
    assert "an unfinished conversion of an earlier version of tfrecorder" in words
    assert "overwrite=True" in words
    assert "\n" not in words
    tfrecorder.convert(table, out, overwrite=True, **options)
    assert public_files(out) == public_files(here / version / "text")
    assert tfrecorder.verify(out).ok


#: What somebody may have written in the place of any value.
NASTY = (None, True, -1, 10**30, 1.5, "", "x", "\ud800", [], {}, [[]], [{}], {"x": 1}, ["x", "x"])


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("file", ["plan", "metadata"])
def test_one_with_any_value_exchanged_is_read_or_refused(here: Path, kind: str, file: str) -> None:
    data = (here / VERSIONS[-1] / kind / f"_tfrecorder/{file}.json").read_bytes()
    read = Plan.from_json if file == "plan" else parse_metadata
    read(data)
    refused = 0
    for place in _places(json.loads(data)):
        for value in NASTY:
            document = inner = json.loads(data)
            for key in place[:-1]:
                inner = inner[key]
            inner[place[-1]] = value
            try:
                read(json.dumps(document).encode())
            except ValueError:
                refused += 1
    assert refused > 100


def _places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value of a JSON document."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        yield (*above, key)
        if isinstance(inner, (dict, list)):
            yield from _places(inner, (*above, key))
