"""The samples do what they promise: notebooks and walk-through run whole, on a fresh copy."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.doc_pages import DOCS
from helpers.notebooks import NOTEBOOKS, code_of, executed, is_left_out, read, running_kernel
from jupyter_client.manager import KernelManager
from support import SAMPLES, skip_without

#: Notebooks that draw, and how many pictures they show.
DRAWN = {
    "coco": 2,
    "correct": 1,
    "detection": 2,
    "grain": 1,
    "keras": 1,
    "real_pictures": 3,
    "segmentation": 3,
    "stream": 1,
}
#: What notebooks need that is not installed with the package; without it they are skipped.
NEEDS = {
    "coco": ["matplotlib", "pycocotools"],
    "correct": ["cleanlab", "matplotlib"],
    "pytorch": ["torch"],
    "grain": ["grain", "jax", "matplotlib"],
    "keras": ["matplotlib"],
    "keras_backends": ["jax", "torch"],
    "real_pictures": ["matplotlib"],
    "segmentation": ["matplotlib"],
    "stream": ["matplotlib"],
}
#: Debian's packages of pictures, which notebooks fetch.
FETCHED = {"real_pictures": "openclipart-png"}

#: What `convert` says of a table that validation warns of, and the line of code below it.
WARNED = r"[^\n]*UserWarning: [\d,]+ warnings?: [^\n]*\n[^\n]*\n?"


@pytest.fixture(scope="module")
def kernel() -> Iterator[KernelManager]:
    with running_kernel() as manager:
        yield manager


def _fetch(package: str, folder: Path) -> None:
    """Download one of Debian's packages as the notebook does; without it, skip the test."""
    if shutil.which("apt-get") is None:
        pytest.skip(f"without apt-get there is no {package}")
    command = ["apt-get", "-qq", "download", package]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    if done.returncode:
        pytest.skip(f"{package} cannot be downloaded: {done.stderr}")


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(
    path: Path, kernel: KernelManager, tmp_path: Path
) -> None:
    skip_without(*NEEDS.get(path.stem, ()))
    if path.stem in FETCHED:
        _fetch(FETCHED[path.stem], tmp_path)
    notebook = executed(path, kernel, tmp_path)  # raises a cell's error
    for cell in code_of(notebook):
        for output in cell.outputs:
            assert output.output_type != "error"
            text = output.get("text", "") if output.get("name") == "stderr" else ""
            # A bar may be there; warnings and logs would be between the reader and the result.
            said = re.sub(WARNED, "", text)
            assert not re.search("Warning|Traceback", said), f"{cell.source}\n{text}"
    shown = [output.get("data", {}) for cell in code_of(notebook) for output in cell.outputs]
    pictures = [data for data in shown if "image/png" in data]
    assert len(pictures) == DRAWN.get(path.stem, 0)


def test_only_what_needs_a_cloud_is_left_out() -> None:
    left_out = {path.stem: sum(map(is_left_out, code_of(read(path)))) for path in NOTEBOOKS}
    assert left_out.pop("dataflow") == 4
    for cell in filter(is_left_out, read(SAMPLES / "dataflow.ipynb").cells):
        compile(cell.source, "dataflow.ipynb", "exec")
    assert set(left_out.values()) == {0}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_small_and_has_no_outputs(path: Path) -> None:
    notebook = read(path)
    assert path.stat().st_size < 20_000
    assert all(not cell.outputs and cell.execution_count is None for cell in code_of(notebook))


def test_every_notebook_is_listed_in_the_docs() -> None:
    listed = re.findall(r"`(\w+\.ipynb)`", (DOCS / "notebooks.md").read_text())
    assert sorted(listed) == [path.name for path in NOTEBOOKS]
    assert len(listed) > 0


@pytest.mark.slow
def test_the_walk_through_goes_to_its_end(tmp_path: Path) -> None:
    scripts = os.path.dirname(sys.executable)
    done = subprocess.run(
        ["sh", SAMPLES / "walkthrough.sh", "tour"],
        cwd=tmp_path,
        env={**os.environ, "PATH": scripts + os.pathsep + os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "52 records in" in done.stdout
    assert "the checksum of the data is wrong" in done.stdout
    assert "all is well" in done.stdout
    assert len(list((tmp_path / "tour/look").glob("*.jpg"))) == 3
    assert (tmp_path / "tour/report.html").stat().st_size > 10_000
