"""Hostile frames, tables, names and directories: the short form of `make torture`."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

import tfrecorder
from torture import hostile, hostile_directories, hostile_records, hostile_tables, lost
from torture.counts import BrokenError
from torture.sandbox import Sandbox, call, nothing_outside, sandbox

PACKAGE = Path(tfrecorder.__file__).parent

#: What would run code that stands in a file.
EVALUATORS = frozenset(
    ("eval", "exec", "compile", "__import__", "pickle", "cPickle", "dill", "cloudpickle", "marshal")
    + ("shelve", "joblib", "yaml", "jsonpickle", "read_pickle", "runpy", "unpickle")
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "attack",
    [
        hostile.try_paths,
        hostile.try_labels,
        hostile.try_frames,
        hostile_records.try_records,
        hostile.try_numbers,
        hostile.try_lists,
        hostile_tables.try_tables,
        hostile_tables.try_folders,
        hostile_tables.try_sources,
        hostile_tables.try_outputs,
    ],
)
def test_it_ends_well_and_writes_nowhere_else(
    attack: Callable[[Sandbox], int], tmp_path: Path
) -> None:
    with sandbox(tmp_path / "box") as box:
        assert attack(box) > 20


@pytest.mark.slow
def test_an_escaped_image_in_a_uri_is_cheap(tmp_path: Path) -> None:
    with sandbox(tmp_path / "box") as box:
        assert hostile.try_data_uris(box)


@pytest.mark.slow
def test_a_hostile_dataset_directory_harms_nobody(tmp_path: Path) -> None:
    (count,) = hostile_directories.poison(tmp_path / "box", share=0.002)
    assert count.times > 15


@pytest.mark.slow
def test_a_compressed_file_of_a_megabyte_takes_no_gigabyte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = hostile_directories.attacks
    packed = lambda *of: (one for one in every(*of) if one[1].startswith("packed "))  # noqa: E731
    monkeypatch.setattr(hostile_directories, "attacks", packed)
    monkeypatch.setattr(hostile_directories, "MEMORY", 2**30)
    (count,) = hostile_directories.poison(tmp_path / "box")
    assert count.times >= 6


@pytest.mark.slow
def test_what_is_lost_is_not_passed_over(tmp_path: Path) -> None:
    (count,) = lost.lose(tmp_path / "lost", step=7)
    assert count.times > 10


@pytest.mark.slow
def test_what_may_not_be_read_is_not_passed_over(tmp_path: Path) -> None:
    (count,) = lost.shut(tmp_path / "shut")
    assert count.times == 27 + 2 * 5, "each file once, each folder in two ways"


@pytest.mark.slow
def test_what_a_bucket_refuses_is_not_passed_over(tmp_path: Path) -> None:
    (count,) = lost.refuse(tmp_path / "refused", step=5)
    assert count.times > 10


#: Of yaml, what makes plain values alone; its other loaders make any object.
SAFE_OF_YAML = {"safe_load", "safe_dump", "parse", "SafeLoader", "YAMLError"}

#: What comes through a pipe from a process that this one has started, and from nowhere else.
OF_OUR_PROCESSES = ("/local_workers.py: pickle", "/worker_batches.py: pickle")


@pytest.mark.slow
def test_nothing_in_the_package_unpickles_or_evaluates() -> None:
    found = []
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            found += [f"{path}: {name}" for name in EVALUATORS.intersection(_names(node))]
    assert [one for one in found if not one.endswith(OF_OUR_PROCESSES)] == []


def _names(node: ast.AST) -> set[str]:
    """The names that a node calls or imports."""
    if isinstance(node, ast.Import):
        return {part for alias in node.names for part in alias.name.split(".")} - {"yaml"}
    if isinstance(node, ast.ImportFrom):
        return {*(node.module or "").split("."), *(alias.name for alias in node.names)}
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return {node.func.id}
    if isinstance(node, ast.Attribute):
        of_yaml = isinstance(node.value, ast.Name) and node.value.id == "yaml"
        if of_yaml and node.attr not in SAFE_OF_YAML:
            return {"yaml"}
        return {node.attr} if node.attr != "compile" else set()
    return set()


def test_a_file_written_elsewhere_is_noticed(tmp_path: Path) -> None:
    with sandbox(tmp_path / "box") as box:
        with pytest.raises(BrokenError, match="evil"), nothing_outside(box):
            (box.folder / "evil").touch()
        with nothing_outside(box):
            box.out.mkdir()


def test_an_error_that_is_not_ours_is_noticed() -> None:
    with pytest.raises(BrokenError, match="KeyError"):
        call(lambda: {}["x"])
