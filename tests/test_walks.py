"""The reading order of docs/design/walks.md: each stop is there, and called where the page says."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "design" / "walks.md"

#: What "go to definition" may end at, by the name that a call has: a class that is made runs this.
MADE = ("__init__", "__post_init__")


class Stop(NamedTuple):
    depth: int
    file: str
    name: str

    @property
    def last(self) -> str:
        return self.name.rpartition(".")[2]


def walks() -> dict[str, list[Stop]]:
    found: dict[str, list[Stop]] = {}
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            stops = found.setdefault(line[3:], [])
        if listed := re.match(r"( *)- `([\w/]+\.py): ([\w.]+)`", line):
            indent, file, name = listed.groups()
            stops.append(Stop(len(indent) // 4, file, name))
    return found


def tree_of(file: str) -> ast.Module:
    return ast.parse((ROOT / "tfrecorder" / file).read_text())


def definition(stop: Stop) -> ast.AST:
    """The function or class of a stop; of an overloaded function the last one."""
    node: ast.AST = tree_of(stop.file)
    for part in stop.name.split("."):
        inside = [
            child
            for child in ast.iter_child_nodes(node)
            if isinstance(child, (ast.FunctionDef, ast.ClassDef)) and child.name == part
        ]
        assert inside, f"{stop.file} has no {stop.name}"
        node = inside[-1]
    return node


def body_of(stop: Stop) -> ast.AST:
    """What runs at a stop: of a class what makes an object of it."""
    node = definition(stop)
    if isinstance(node, ast.ClassDef):
        for child in node.body:
            if isinstance(child, ast.FunctionDef) and child.name in MADE:
                return child
    return node


def names_of(caller: Stop, called: Stop) -> set[str]:
    """The names by which one stop can call another: its own, or what it is imported as."""
    if caller.file == called.file or "." in called.name:
        return {called.last}
    module = "tfrecorder." + called.file.removesuffix(".py").replace("/", ".")
    names = set()
    for node in ast.walk(tree_of(caller.file)):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if node.module == module and alias.name == called.name:
                    names.add(alias.asname or alias.name)
                if f"{node.module}.{alias.name}" == module:
                    names.add(called.name)
    return names


def calls(caller: Stop, called: Stop) -> list[int]:
    """The lines where the body of one stop names another."""
    names = names_of(caller, called)
    lines = []
    for node in ast.walk(body_of(caller)):
        own = {ast.Name: "id", ast.Attribute: "attr"}.get(type(node))
        if own and getattr(node, own) in names:
            lines.append(node.lineno)
    return sorted(lines)


def pairs(stops: list[Stop]) -> Iterator[tuple[Stop, list[Stop]]]:
    """Each stop with those that it calls."""
    for number, stop in enumerate(stops):
        below = []
        for other in stops[number + 1 :]:
            if other.depth <= stop.depth:
                break
            if other.depth == stop.depth + 1:
                below.append(other)
        yield stop, below


@pytest.mark.parametrize("walk", ["Convert", "Batches", "Update", "Compact", "Info", "Repair"])
def test_each_stop_is_called_by_the_one_above_and_in_this_order(walk: str) -> None:
    stops = walks()[walk]
    assert 4 <= len(stops) <= 25
    for stop, below in pairs(stops):
        assert definition(stop)
        after = 0
        for called in below:
            lines = calls(stop, called)
            assert lines, f"{stop.file}: {stop.name} does not call {called.name}"
            assert lines[-1] >= after, f"{stop.name} calls {called.name} before the stop above it"
            after = next(line for line in lines if line >= after)
