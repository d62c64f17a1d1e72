"""Whatever a stranger writes, the answer is a table, or an error of ours that is soon there."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from support import PHOTOS, invoke, slow_cases

import tfrecorder
from tfrecorder.errors import TfrecorderError
from tfrecorder.schema import File, Image, Label, Labels, Number, Schema, Text

#: Near the interpreter's limit, where what can be read may not be shown; and far beyond.
DEPTHS = [1, 20, 21, *range(904, 1000, 13), 30_000]

#: Deep values; some end before they are closed.
DEEP: dict[str, Callable[[int], str]] = {
    "lists": lambda depth: "[" * depth + "1" + "]" * depth,
    "objects": lambda depth: '{"a":' * depth + "1" + "}" * depth,
    "open": lambda depth: "[" * depth,
}


def put(path: str, text: str) -> str:
    """A file beside an image."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(PHOTOS[0], Path(path).parent / "0.jpg")
    Path(path).write_text(text)
    return path


def line(name: str, value: str) -> str:
    return f'{{"file_name": "0.jpg", "{name}": {value}}}\n'


def frame(text: str) -> pd.DataFrame:
    return pd.DataFrame({"image_uri": [put("0/0.txt", "").replace("txt", "jpg")], "n": [text]})


FORMS: dict[str, Callable[[str], object]] = {
    "coco": lambda deep: put("a/a.json", deep),
    "coco's images": lambda deep: put("a/a.json", f'{{"images": {deep}, "annotations": []}}'),
    "json beside an image": lambda deep: str(Path(put("a/0.json", deep)).parent),
    "json lines": lambda deep: put("a.jsonl", line("label", deep)),
    "metadata.jsonl": lambda deep: str(Path(put("a/metadata.jsonl", line("n", deep))).parent),
    "objects": lambda deep: str(Path(put("a/metadata.jsonl", line("objects", deep))).parent),
    "objects as text": lambda deep: frame(deep).rename(columns={"n": "objects"}),
    "label": lambda deep: frame(deep).rename(columns={"n": "label"}),
    "csv": lambda deep: put("a.csv", frame(deep).to_csv(index=False)),
    **{
        f"vertex's {name}": lambda deep, name=name: put(
            "a.jsonl", line(name, deep).replace("file_name", "imageGcsUri")
        )
        for name in (
            "classificationAnnotation",
            "classificationAnnotations",
            "boundingBoxAnnotations",
            "dataItemResourceLabels",
        )
    },
}

KINDS = [Number(shape=(2,)), Labels(), Label(), Text(), File()]

SCHEMAS = [
    "{}",
    '{{"image_uri": {}}}',
    '{{"image_uri": "image", "n": {{"kind": {}}}}}',
    '{{"image_uri": "image", "n": {{"kind": "number", "shape": {}}}}}',
    '{{"image_uri": "image", "n": {{"kind": "number", "default": {}}}}}',
    '{{"image_uri": "image", "n": {{"kind": "bytes", "default": {{"hex": {}}}}}}}',
    '{{"image_uri": "image", "n": {{"kind": "label", "names": {}}}}}',
]


def judge(source: object, schema: object = None) -> None:
    """The law: a report, or an error of ours of a bounded length; and soon."""
    began = time.monotonic()
    try:
        said = str(tfrecorder.validate(source, schema=schema))
    except TfrecorderError as error:
        said = str(error)
    assert len(said) <= 10_500
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("deep", ["lists", *slow_cases("objects", "open")])
@pytest.mark.parametrize("form", FORMS)
def test_a_source_however_deep(form: str, deep: str) -> None:
    for depth in DEPTHS if deep != "open" else DEPTHS[-1:]:
        judge(FORMS[form](DEEP[deep](depth)))


@pytest.mark.parametrize("deep", ["objects", *slow_cases("lists", "open")])
@pytest.mark.parametrize("kind", KINDS, ids=[type(kind).__name__ for kind in KINDS])
def test_a_cell_however_deep(kind: object, deep: str) -> None:
    for depth in DEPTHS:
        judge(frame(DEEP[deep](depth)), Schema(image_uri=Image(), n=kind))


@pytest.mark.parametrize("ending", ["json", *slow_cases("yaml")])
@pytest.mark.parametrize("form", SCHEMAS)
def test_a_schema_however_deep(form: str, ending: str) -> None:
    rows = frame("1")
    for make in DEEP.values():
        for depth in DEPTHS if ending == "json" else DEPTHS[:3]:
            judge(rows, put(f"s.{ending}", form.format(make(depth))))


VALUES = ["[x]", "{x: y}", "1", "null", "", "[1, [x]]", "{hex: zz}", "{hex: [1]}", "x" * 20_000]


@pytest.mark.parametrize("form", ["a: {}", "a: {{kind: {}}}", "- {}"])
def test_a_schema_whose_values_are_of_other_types(form: str) -> None:
    for value in VALUES:
        judge(frame("1"), put("s.yaml", form.format(value)))


@pytest.mark.parametrize(
    "kind", ["number", *slow_cases("image", "label", "bytes", "text", "boxes", "mask")]
)
def test_a_setting_of_another_type(kind: str) -> None:
    for name in ("default", "shape", "names", "required", "depth", "dtype", "max_bytes", "no"):
        for value in VALUES:
            judge(frame("1"), put("s.yaml", f"n: {{kind: {kind}, {name}: {value}}}"))


VALUES_OF_JSON = [1, "x", [], [[1]], {"a": 1}, None, True, [{"displayName": [1]}], "x" * 30_000]


@pytest.mark.parametrize(
    "name",
    [
        "imageGcsUri",
        "classificationAnnotation",
        "classificationAnnotations",
        "boundingBoxAnnotations",
        "dataItemResourceLabels",
    ],
)
def test_a_line_of_vertex_whose_values_are_of_other_types(name: str) -> None:
    for value in VALUES_OF_JSON:
        written = {"imageGcsUri": put("0/0.txt", "").replace("txt", "jpg"), name: value}
        judge(put("a.jsonl", json.dumps(written)))


def test_a_command_says_it_in_one_line() -> None:
    put("in/metadata.jsonl", line("label", DEEP["lists"](30_000)))
    result = invoke("validate", "in")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.endswith("not sound JSON: its lists or objects are nested too deeply.\n")


ALIASES = "a: &a [x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n"
    for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    "text",
    [ALIASES + "names: *i", "names: [" + "x," * 30_000 + "]", "names: " + "x" * 300_000],
    ids=["aliases", "many", "long"],
)
def test_a_list_of_yolo_is_not_printed_whole(text: str) -> None:
    put("in/images/train/a.txt", "")
    put("in/labels/train/0.txt", "0 .5 .5 .1 .1\n")
    judge(str(Path(put("in/data.yaml", text)).parent))


BOMBS = {
    "deep": "<annotation>" + "<object>" * 30_000,
    "deep and sound": f"<annotation>{'<object>' * 30_000}{'</object>' * 100_000}</annotation>",
    "entities": "<!DOCTYPE a [<!ENTITY a 'aaaaaaaaaa'>"
    + "".join(f"<!ENTITY a{'a' * n} '{f'&a{chr(97) * (n - 1)};' * 10}'>" for n in range(1, 9))
    + "]><annotation><filename>&aaaaaaaaa;</filename></annotation>",
    "a file": "<!DOCTYPE a [<!ENTITY a SYSTEM 'file:///etc/passwd'>]><annotation>&a;</annotation>",
    "long": f"<{'x' * 3_000_000}></a>",
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_file_of_pascal_voc(bomb: str) -> None:
    put("in/JPEGImages/0.txt", "")
    judge(str(Path(put("in/Annotations/0.xml", BOMBS[bomb])).parents[1]))
