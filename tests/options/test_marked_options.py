"""What messages say of options, each face words: Python, the command line."""

from __future__ import annotations

import ast
import functools
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.doc_pages import ROOT
from support import CSV, commands, invoke, photo_frame

import tfrecorder

PACKAGE = ROOT / "tfrecorder"

#: Every option of a command or a call, by its name in Python.
NAMES = {param.name for command in commands().values() for param in command.params}
NAMES |= {*inspect.signature(tfrecorder.convert).parameters}
NAMES |= {*inspect.signature(tfrecorder.load).parameters}

#: Options that a command has, and its arguments.
TYPED = {param.name for command in commands().values() for param in command.params}

#: What Python alone says: of readers, of what only Python can give, of options that have the name
#: of another one.
OF_PYTHON = (
    "accessor.py",
    "images/check.py",
    "keras.py",
    "loading/",
    "options/convert.py",
    "options/ranks.py",
    "options/read.py",
    "reading/batches.py",
    "reading/growth.py",
    "reading/position.py",
    "reading/record_set.py",
    "reading/trainers.py",
    "streaming/kafka.py",
    "streaming/stream.py",
    "torch.py",
)

#: An option with a value, or a name that cannot be an English word.
NAMED = re.compile(
    rf"(?<![\w.?&-])(?:{'|'.join(map(str, NAMES))})=(?!=)"
    rf"|(?<![\w./-])(?:{'|'.join(str(name) for name in NAMES if '_' in str(name))})(?![\w/=(-])"
)


#: Code of Python, what a remedy gets put in, calls of pandas for `spelled`, and examples of help.
MARKED = r"`[^`]*`|\{\w+\}|(frame|pandas|tfrecorder)\..*|Example: tfrecorder .*"


@functools.cache
def parsed(path: Path) -> ast.AST:
    return ast.parse(path.read_text())


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
        for line, text in texts(parsed(path))
        if NAMED.search(re.sub(MARKED, "", text))
    ]
    assert unmarked == []


def of_python(text: str) -> list[str]:
    """The options of commands that a text names as Python does."""
    return [name for name in re.findall(r"`(\w+)(?:=[^`]*)?`", text) if name in TYPED]


def test_a_message_that_both_faces_say_has_the_option_of_neither() -> None:
    wrong = [
        f"{path}:{line}: {text}"
        for path in PACKAGE.rglob("*.py")
        if not str(path.relative_to(PACKAGE)).startswith(OF_PYTHON)
        for line, text in texts(parsed(path))
        if of_python(text)
    ]
    assert wrong == []


def test_each_option_that_is_spelled_is_one_of_a_command() -> None:
    spelled = {
        node.args[0].value
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "spelled"
        if isinstance(node.args[0], ast.Constant)
    }
    assert "overwrite" in spelled
    assert spelled - TYPED == set()


def test_help_has_no_option_of_python() -> None:
    shown = {name: invoke(name, "--help").stdout for name in commands()}
    assert {name: of_python(words) for name, words in shown.items() if of_python(words)} == {}


def test_the_words_of_one_call_are_no_longer_those_of_the_next() -> None:
    assert "--num-shards 0: " in invoke("convert", CSV, "out", "--num-shards", "0").stderr
    assert in_python(num_shards=0).startswith("num_shards=0: ")


def test_what_is_stored_is_the_same_whoever_speaks() -> None:
    frame = photo_frame(6)
    frame.loc[2, "image_uri"] = "http://127.0.0.1:1/a.jpg"
    frame.loc[3, "image_uri"] = "gone.jpg"
    frame.to_csv("a.csv", index=False)
    tfrecorder.convert("a.csv", "python", max_reject_fraction=1, progress=False)
    typed = invoke("convert", "a.csv", "shell", "--max-reject-fraction", "1")
    assert typed.exit_code == 0, typed.stderr
    rejects = Path("python/rejects.csv").read_text()
    assert "private address" in rejects
    assert Path("shell/rejects.csv").read_text() == rejects


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
            "no effect without `image_size`; give that too.",
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
    assert "rename that: `frame.rename(columns={'image_url': 'image_uri'})`." in str(
        tfrecorder.validate("a.csv")
    )
    assert "rename that: --column image_url=image_uri." in invoke("validate", "a.csv").stdout


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
    assert "`append` adds rows that are new" in refused


@pytest.mark.parametrize("name", ["a`b", "seed=3", "`", "a`seed=3`b", "`seed=3`", "x y`z` `"])
def test_a_path_is_shown_as_it_is(name: str) -> None:
    Path("in", name).mkdir(parents=True)
    Path("in", name, "mine.txt").write_text("mine")
    path = str(Path("in", name).absolute())
    refused = invoke("convert", CSV, path).stderr
    assert refused.startswith(f"error: {path} holds 'mine.txt', which does not belong to")
    assert refused.endswith("choose a new or empty directory.\n")


def test_an_argument_is_named_as_the_command_that_runs_has_it(dataset: Path) -> None:
    Path("mine.txt").write_text("mine")
    words = invoke("inspect", dataset, "--output-dir", "mine.txt").stderr
    assert words == "error: mine.txt is a file; give a new or empty folder.\n"
