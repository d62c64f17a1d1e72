"""The drawings of the pages: as their scripts draw them, and true of what they show."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from helpers.doc_pages import DOCS, ROOT
from support import photo_frame, run

import tfrecorder

GROWTH = DOCS / "drawings/growth.svg"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.slow
def test_the_drawings_are_what_their_script_draws() -> None:
    done = run(ROOT / "scripts/drawings.py", "--check")
    assert done.returncode == 0, done.stdout + done.stderr


def drawn_files(operation: str) -> dict[str, bool]:
    """The files after an operation in the drawing of the directory: whether each is a hard link."""
    [group] = ElementTree.parse(GROWTH).findall(f".//*[@id='{operation}']")
    names = [str(text.text) for text in group.iter(f"{SVG}text")]
    dashed = ["stroke-dasharray" in box.attrib for box in group.iter(f"{SVG}rect")]
    return dict(zip(names, dashed, strict=True))


def inodes() -> dict[str, int]:
    """The shards of the directory and its commit."""
    paths = [*Path("out").glob("*.tfrecord"), Path("out/dataset_info.json")]
    return {path.name: os.stat(path).st_ino for path in paths}


def version() -> str:
    return str(json.loads(Path("out/dataset_info.json").read_text())["version"])


def test_a_directory_grows_as_it_is_drawn() -> None:
    rows = photo_frame(36)
    rows.loc[:5, "split"] = "VALIDATION"
    tfrecorder.convert(rows[:30], "out", num_shards={"TRAIN": 2, "VALIDATION": 1}, progress=False)
    first, versions = inodes(), [version()]
    assert first.keys() == drawn_files("convert").keys()

    tfrecorder.append(rows, "out", progress=False)
    second, versions = inodes(), [*versions, version()]
    assert second.keys() == drawn_files("append").keys()
    kept = {name for name in first if second[name] == first[name]}
    assert kept == first.keys() - {"dataset_info.json"}

    table = tfrecorder.to_frame("out")
    of_first_shard = table.index[table["split"] == "TRAIN"][0]
    table.loc[of_first_shard, "label"] = min({*rows["label"]} - {table["label"][of_first_shard]})
    tfrecorder.update(table, "out", progress=False)
    third, versions, drawn = inodes(), [*versions, version()], drawn_files("update")
    assert third.keys() == drawn.keys()
    linked = {name for name in third if third[name] in second.values()}
    assert linked == {name for name in drawn if drawn[name]} | {"validation-00000.tfrecord"}
    assert re.findall(r"version ([\d.]+)", GROWTH.read_text()) == versions


@pytest.mark.slow
def test_the_recording_shows_what_the_commands_print() -> None:
    done = run(ROOT / "scripts/recording.py", "--check")
    assert done.returncode == 0, done.stdout + done.stderr
