"""Messages mark what they say of options, so that each face words it: Python, the command line."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from doc_pages import ROOT
from support import CSV, commands, invoke, photo_frame

import tfrecorder

PACKAGE = ROOT / "tfrecorder"

#: Every option of a command or a call, by its name in Python.
NAMES = {param.name for command in commands().values() for param in command.params}
NAMES |= {*inspect.signature(tfrecorder.convert).parameters}
NAMES |= {*inspect.signature(tfrecorder.load).parameters}

#: An option with a value, or a name that cannot be an English word.
NAMED = re.compile(
    rf"(?<![\w.?&-])(?:{'|'.join(map(str, NAMES))})=(?!=)"
    rf"|(?<![\w./-])(?:{'|'.join(str(name) for name in NAMES if '_' in str(name))})(?![\w/=(-])"
)


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The literals of a module that are sentences, with "…" for what is put in; no docstrings."""
    passed = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        if id(node) in passed or not all(map(_is_part, parts)):
            continue
        passed |= {id(part) for part in parts if part is not node}
        shown = [part.value if isinstance(part, ast.Constant) else "…" for part in parts]
        if " " in (text := "".join(map(str, shown))):
            yield getattr(node, "lineno", 0), text


def _is_part(node: ast.AST) -> bool:
    return isinstance(node, ast.FormattedValue) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


@pytest.mark.slow
def test_a_message_that_names_an_option_marks_it() -> None:
    unmarked = [
        f"{path}:{line}: {text}"
        for path in PACKAGE.rglob("*.py")
        if path.parent.name != "images"  # reasons of rejects stand in rejects.csv as they are
        for line, text in texts(ast.parse(path.read_text()))
        if NAMED.search(re.sub("`[^`]*`|Example: tfrecorder .*", "", text))
    ]
    assert unmarked == []


def in_python(**options: object) -> str:
    with pytest.raises(tfrecorder.TfrecorderError) as caught:
        tfrecorder.convert(CSV, "out", **options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("options", "marked", "given", "typed"),
    [
        (
            {"image_format": "raw"},
            "such as `image_size=(128, 128)`, and a `resize` other",
            ("--image-format", "raw"),
            "such as --image-size 128x128, and a --resize other",
        ),
        (
            {"resize": "crop"},
            "no effect without `image_size=…`; give that too.",
            ("--resize", "crop"),
            "no effect without --image-size; give that too.",
        ),
        (
            {"runner_options": {"streaming": True}},
            "runner_options={'streaming': True}: a conversion",
            ("--runner-option", "streaming"),
            "--runner-option streaming=True: a conversion",
        ),
        (
            {"runner": "PortableRunner"},
            "give it, such as `runner_options={'job_endpoint': 'localhost:8099'}`",
            ("--runner", "PortableRunner"),
            "give it, such as --runner-option job_endpoint=localhost:8099",
        ),
    ],
    ids=str,
)
def test_each_face_has_its_own_words(
    options: dict[str, object], marked: str, given: tuple[str, ...], typed: str
) -> None:
    assert marked in in_python(**options)
    assert typed in invoke("convert", CSV, "out", *given).stderr


def test_remedies_of_a_report_are_typed_too() -> None:
    Path("a.csv").write_text("image_url,label\na.jpg,x\n")
    assert "the column: `frame.rename(columns={'image_url': 'image_uri'})`." in str(
        tfrecorder.validate("a.csv")
    )
    assert "the column: --column image_url=image_uri." in invoke("validate", "a.csv").stdout


def test_calls_are_typed_as_commands() -> None:
    photo_frame(4).assign(z=1).to_csv("it's.csv", index=False)
    with pytest.warns(UserWarning, match=r"see `tfrecorder.validate\(\"it's.csv\"\)`"):
        tfrecorder.convert("it's.csv", "out", progress=False)
    warned = invoke("convert", "it's.csv", "other").stderr
    assert "see `tfrecorder validate 'it'\"'\"'s.csv'`" in warned
    refused = invoke("convert", "it's.csv", "out", "--seed", "3").stderr
    assert "error: --seed was 0 and now is 3; " in refused
    photo_frame(3).assign(z=1).to_csv("fewer.csv", index=False)
    refused = invoke("convert", "fewer.csv", "out").stderr
    assert "`tfrecorder append` adds rows that are new" in refused


@pytest.mark.parametrize("name", ["a`b", "seed=3", "`", "a`seed=3`b", "`seed=3`", "x y`z` `"])
def test_a_path_is_shown_as_it_is(name: str) -> None:
    Path("in", name).mkdir(parents=True)
    Path("in", name, "mine.txt").write_text("mine")
    path = str(Path("in", name).absolute())
    refused = invoke("convert", CSV, path).stderr
    assert refused.startswith(f"error: {path} holds 'mine.txt', which does not belong to")
    assert refused.endswith("choose a new or empty directory as OUTPUT_DIR.\n")


def test_an_argument_is_named_as_the_command_that_runs_has_it(dataset: Path) -> None:
    Path("mine.txt").write_text("mine")
    words = invoke("inspect", dataset, "--output-dir", "mine.txt").stderr
    assert words == "error: mine.txt is a file; give a folder, new or empty, as --output-dir.\n"
