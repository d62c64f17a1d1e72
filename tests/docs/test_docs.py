"""The documentation is true: its code runs, its links lead somewhere, and no option is left out."""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import operator
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
from helpers.doc_pages import (
    DOCS,
    PAGES,
    ROOT,
    Block,
    anchors,
    blocks,
    fits,
    links,
    prose,
    site,
    without_code,
)
from support import (
    SAMPLES,
    commands,
    is_installed,
    photo_frame,
    run,
    severities,
    skip_without,
)

import tfrecorder
from tfrecorder import errors

#: Pages whose code needs what is not installed with the package; without it they are skipped.
NEEDS = {
    "docs/pytorch.md": ["torch", "torchdata"],
    "docs/choose.md": ["torch"],
    "docs/jax.md": ["grain", "jax"],
    "docs/stream-kafka.md": ["confluent_kafka"],
    "docs/interop.md": ["tensorflow_datasets"],
    "docs/hugging-face.md": ["datasets"],
}
#: Set by `make interop`, whose environment has every tool that a block of a page needs.
ALL_TOOLS = "INTEROP" in os.environ
CODE_PAGES = [name for name, path in PAGES.items() if any(blocks(path))]
#: What a newcomer runs first; the code of the other pages takes minutes.
FIRST_PAGE = "docs/quickstart.md"
#: Pages that a person wrote; the others are made from the code, and name everything anyhow.
GENERATED = {"docs/cli.md", "docs/api.md"}
WRITTEN = "\n".join(path.read_text() for name, path in PAGES.items() if name not in GENERATED)


_PYTHON = ("python", "setup")

#: On these, who uses one tool need not have the others, and some do not go into one process.
_A_TOOL_EACH = {"docs/interop.md"}


@pytest.fixture
def _folder_of_a_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in samples/, where the pages begin; `samples` for README; the command on the PATH."""
    os.symlink(SAMPLES, "samples")
    shutil.copytree(SAMPLES, ".", dirs_exist_ok=True)
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"])
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "2")


def _at(name: str, block: Block) -> Any:
    """A block as code whose errors name the page and its line."""
    return compile("\n" * (block.line - 1) + block.code, str(PAGES[name]), "exec")


def _programs(name: str) -> Iterator[list[Block]]:
    """A page's code, and each block that needs more packages, after what stands above it.

    On a page with a tool each, it stands after the first block.
    """
    found = [one for one in blocks(PAGES[name]) if one.language in _PYTHON and not one.not_run]
    plain = [one for one in found if not one.needs]
    yield plain
    for block in found:
        if block.needs and (ALL_TOOLS or all(map(is_installed, block.needs))):
            above = [one for one in plain if one.line < block.line]
            yield [*(above[:1] if name in _A_TOOL_EACH else above), block]


def _compare(name: str, block: Block, printed: str) -> None:
    """Whether a block printed what its comments and the text below it say."""
    where, lines = f"{name}, line {block.line}:\n", iter(printed.splitlines())
    for claim in re.findall(r"^print\(.*\)  # (.+)$", block.code, re.MULTILINE):
        said = any(fits(claim, one) or claim.startswith(f"{one}: ") for one in lines)
        assert said, f"{where}{claim!r} is not in:\n{printed}"
    for before, after in pairwise(blocks(PAGES[name])):
        if after.is_printed and before.line == block.line:
            assert fits(after.code, printed.strip()), f"{where}{printed}"


@pytest.mark.slow
@pytest.mark.usefixtures("_folder_of_a_reader")
@pytest.mark.parametrize(
    "name",
    [
        name if name == FIRST_PAGE else pytest.param(name, marks=pytest.mark.slow)
        for name in CODE_PAGES
    ],
)
def test_the_code_of_a_page_runs_from_top_to_bottom(name: str) -> None:
    skip_without(*NEEDS.get(name, ()))
    if name in NEEDS:  # in a new process: TensorFlow's threads do not survive a fork
        for program in _programs(name):
            code = "\nprint('\\f')\n".join(block.code for block in program)
            done = run("-u", "-c", code, seconds=600)  # children would repeat a buffer
            assert done.returncode == 0, done.stdout + done.stderr
            for block, printed in zip(program, done.stdout.split("\f\n"), strict=True):
                _compare(name, block, printed)
        return
    scope: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(PAGES[name]):
        if block.language in _PYTHON:
            code = _at(name, block)
            if not block.not_run and all(map(is_installed, block.needs)):
                with contextlib.redirect_stdout(io.StringIO()) as output:
                    exec(code, scope)
                _compare(name, block, output.getvalue())
        elif block.language == "sh":
            how = ("-n", "-c") if block.not_run else ("-e", "-c")
            done = subprocess.run(
                ["sh", *how, block.code], capture_output=True, text=True, timeout=300
            )
            shown = f"{name}, line {block.line}:\n{done.stdout}{done.stderr}"
            assert done.returncode == 0, shown
            _compare(name, block, done.stdout)


@pytest.mark.parametrize("name", CODE_PAGES)
def test_every_block_says_what_it_is(name: str) -> None:
    """A block without a language would be checked by nothing."""
    kinds = {block.language for block in blocks(PAGES[name])}
    assert kinds <= {"python", "sh", "setup", "text"}, name


@pytest.mark.parametrize("name", [name for name in CODE_PAGES if "/design/" not in name])
def test_code_fits_its_column(name: str) -> None:
    """What is wider is cut on a laptop; an image in a text cannot be divided."""
    lines = [
        line
        for one in blocks(PAGES[name])
        if one.language in ("python", "sh")
        for line in one.code.splitlines()
    ]
    assert not [line for line in lines if len(line) > 84 and "data:image" not in line]


def test_a_block_that_is_not_run_says_why() -> None:
    marks = [
        mark for path in PAGES.values() for mark in without_code(path).split("<!-- not run")[1:]
    ]
    followed = [block for path in PAGES.values() for block in blocks(path) if block.not_run]
    # Every mark stands right above its block, and none is misspelt.
    assert len(marks) == len(followed) > 0
    assert all(len(block.not_run or "") > 10 for block in followed)


@pytest.mark.parametrize("name", PAGES)
def test_every_internal_link_leads_somewhere(name: str) -> None:
    for link in links(PAGES[name]):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (PAGES[name].parent / path).resolve() if path else PAGES[name]
        assert target.exists(), f"{name}: {link} is dead"
        assert not anchor or anchor in anchors(target), f"{name}: {link} names no heading"


def test_pages_of_the_site_link_only_within_the_site() -> None:
    """A link to a file outside docs/, or to docs/design/, works in the repository alone."""
    for path in DOCS.glob("*.md"):
        assert not [link for link in links(path) if link.startswith(("..", "design/"))], path


def test_each_decision_is_short_and_in_the_index() -> None:
    page = DOCS / "design/decisions.md"
    _, *records = re.split(r"^### ", page.read_text(), flags=re.MULTILINE)
    for record in records:
        title, _, text = record.partition("\n")
        text, *_ = text.split("\n## ")  # the next subject
        assert len(text.split()) <= 120, title
        assert "\nWhy: " in text, title
        assert "\nCosts: " in text, title
    titles = [record.partition("\n")[0] for record in records]
    assert re.findall(r"^- \[(.+)\]\(#", page.read_text(), flags=re.MULTILINE) == titles


def test_every_page_is_in_the_navigation() -> None:
    listed = re.findall(r"[\w-]+\.md", str(site()["nav"]))
    assert sorted(listed) == sorted(path.name for path in DOCS.glob("*.md"))


def _options(call: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    parameters = inspect.signature(call).parameters
    return {name: one for name, one in parameters.items() if one.kind is one.KEYWORD_ONLY}


@pytest.mark.parametrize(
    "option", sorted({*_options(tfrecorder.convert), *_options(tfrecorder.load)})
)
def test_every_option_of_convert_and_load_is_explained(option: str) -> None:
    rows = [line for line in WRITTEN.splitlines() if line.startswith("| `")]
    assert any(f"`{option}`" in row.split("|")[1] for row in rows), (
        f"give {option} a row in docs/options.md (convert) or docs/read-options.md (load)"
    )


@pytest.mark.parametrize("item", _options(tfrecorder.convert).values(), ids=lambda item: item.name)
def test_the_table_of_options_states_the_defaults(item: inspect.Parameter) -> None:
    rows = [line.split("|") for line in (DOCS / "options.md").read_text().splitlines()]
    [default] = [row[2] for row in rows if row[1:2] == [f" `{item.name}` "]]
    if item.default is not None:
        assert re.sub('[`,"]', "", default).strip() == str(item.default)


@pytest.mark.parametrize("command", sorted(commands()))
def test_every_command_and_flag_is_in_the_reference(command: str) -> None:
    text = (DOCS / "cli.md").read_text()
    for parameter in commands()[command].params:
        if isinstance(parameter, click.Option):
            # What `convert` explains is only named in the help of another command.
            explained = parameter.get_help_record(click.Context(commands()[command]))
            name = command if explained or parameter.hidden else "convert"
            section = text.partition(f"\n## tfrecorder {name}\n")[2].partition("\n## ")[0]
            for flag in parameter.opts:
                assert flag in section, f"run `make docs`: {command} {flag} is not in docs/cli.md"


@pytest.mark.slow
def test_the_reference_of_commands_is_what_the_commands_say() -> None:
    done = run(ROOT / "scripts/cli_reference.py", "--check")
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_command_is_used_somewhere_in_the_pages() -> None:
    for command in commands():
        assert f"tfrecorder {command} " in WRITTEN


def test_the_reference_of_functions_lists_every_public_name() -> None:
    listed = re.findall(r"^::: tfrecorder\.(\S+)$", (DOCS / "api.md").read_text(), re.MULTILINE)
    public = {name for name in tfrecorder.__all__ if callable(getattr(tfrecorder, name))}
    public |= {f"schema.{name}" for name in _classes_of(tfrecorder.schema)}
    public |= {f"streaming.{name}" for name in _classes_of(tfrecorder.streaming)}
    public |= {f"errors.{name}" for name in _classes_of(errors) if name not in public}
    public |= {"parts.stage", "parts.work", "parts.commit", "torch.batches", "torch.BatchSampler"}
    assert sorted(public - set(listed)) == []
    assert len(listed) == len(set(listed))


def _classes_of(module: ModuleType) -> list[str]:
    classes = inspect.getmembers(module, inspect.isclass)
    return [name for name, value in classes if value.__module__.startswith("tfrecorder.")]


@pytest.mark.parametrize(
    "name", [*sorted(tfrecorder.__all__), "parts.stage", "parts.work", "parts.commit"]
)
def test_every_parameter_is_in_its_docstring(name: str) -> None:
    value = operator.attrgetter(name)(tfrecorder)
    if inspect.isfunction(value):
        text = inspect.getdoc(value) or ""
        for parameter in inspect.signature(value).parameters:
            assert re.search(rf"\b{parameter}\b", text), f"{name}: {parameter} is not explained"


def _messages() -> list[str]:
    """Every text of the code, with … for what is put in when it is shown."""
    found = []
    for path in (ROOT / "tfrecorder").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = [
                    str(part.value) if isinstance(part, ast.Constant) else "…"
                    for part in node.values
                ]
                found.append("".join(parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return [" ".join(text.split()) for text in found]


@pytest.mark.slow
def test_every_message_in_troubleshooting_is_one_that_the_code_has() -> None:
    page = prose(DOCS / "troubleshooting.md")
    ours = page.partition("## Messages of other programs")[0]
    tables = [part for part in ours.split("\n\n") if part.startswith("| message |")]
    found = [re.findall(r"^\| `(.+?)` \|", table, re.MULTILINE) for table in tables]
    shown = [message for table in found for message in table]
    assert len(shown) > 10
    messages = _messages()
    for message in shown:
        pattern = re.compile(".*".join(map(re.escape, message.strip("…").split("…"))))
        assert any(map(pattern.search, messages)), f"no message of the code is {message!r}"


def test_every_code_of_the_validation_report_is_explained() -> None:
    page = (DOCS / "troubleshooting.md").read_text()
    assert [code for code in severities() if f"`{code}`" not in page] == []


def _complete(what: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The command as a shell calls it for completion."""
    command = Path(sys.executable).parent / "tfrecorder"
    environment = {**os.environ, **variables, "_TFRECORDER_COMPLETE": what}
    return subprocess.run([command], env=environment, capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_is_made(shell: str) -> None:
    done = _complete(f"{shell}_source")
    assert done.returncode == 0
    assert "_TFRECORDER_COMPLETE" in done.stdout
    assert f"_TFRECORDER_COMPLETE={shell}_source" in (DOCS / "cli.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "completed"),
    [("tfrecorder con", "convert"), ("tfrecorder convert a b --check str", "strict")],
)
def test_completion_knows_commands_and_values(words: str, completed: str) -> None:
    done = _complete("bash_complete", COMP_WORDS=words, COMP_CWORD=str(len(words.split()) - 1))
    assert done.stdout.splitlines() == [f"plain,{completed}"]


@pytest.mark.parametrize(("page", "least"), [("contributing", 50), ("decisions", 30)])
def test_pages_of_the_design_name_files_that_are_there(page: str, least: int) -> None:
    package = ROOT / "tfrecorder"
    files = re.findall(r"`((?:\w+/)*\w+\.py)`", (DOCS / f"design/{page}.md").read_text())
    assert len(files) > least
    assert [one for one in files if not any((top / one).exists() for top in (package, ROOT))] == []


def test_the_layout_names_every_folder_of_the_package() -> None:
    page = (DOCS / "design/contributing.md").read_text()
    folders = [path.parent.name for path in (ROOT / "tfrecorder").glob("*/__init__.py")]
    assert [folder for folder in folders if f"`{folder}/`" not in page] == []


@pytest.mark.slow
def test_the_page_of_the_directory_lists_every_file() -> None:
    frame = photo_frame(12).assign(label="a")
    names = set[str]()

    def look() -> None:
        for path in [*Path("out").iterdir(), *Path("out/_tfrecorder").iterdir()]:
            if path.suffix != ".tfrecord" and path.name != "_tfrecorder":
                names.add(f"{path.name}/" if path.is_dir() else path.name)

    tfrecorder.convert(frame[:8], "out", num_shards=4, progress=False)
    tfrecorder.append(frame[8:], "out", stage_only=True, progress=False)
    look()
    tfrecorder.parts.work("out", part=(1, 2), progress=False)
    look()
    tfrecorder.parts.work("out", part=(2, 2), progress=False)
    tfrecorder.parts.commit("out")
    tfrecorder.update(frame[:1].assign(label="b"), "out", new_classes="allow", progress=False)
    tfrecorder.card("out", progress=False)
    look()
    tfrecorder.remove("out", {"label": "b"}, progress=False)
    look()
    assert {"plan.json", "parts.json", "done/", "before/", "removed/", "card.json"} <= names
    page = PAGES["docs/dataset-directory.md"].read_text()
    assert [name for name in sorted(names) if name not in page] == []
