"""The notebooks of samples/, and how they are run: by tests, and for the site."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import nbformat
from jupyter_client.manager import KernelManager, start_new_kernel
from nbclient import NotebookClient
from nbformat import NotebookNode

SAMPLES = Path(__file__).parents[2] / "samples"
NOTEBOOKS = sorted(SAMPLES.glob("*.ipynb"))

#: Between two notebooks in one kernel, which spares the seconds that TensorFlow takes to load.
_ANEW = "%reset -f\nimport os\nos.chdir({folder!r})\ndel os"


@contextlib.contextmanager
def running_kernel() -> Iterator[KernelManager]:
    """One running kernel for all notebooks."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
    manager, client = start_new_kernel(kernel_name="python3", env=environment)
    client.stop_channels()
    try:
        yield manager
    finally:
        manager.shutdown_kernel(now=True)


def read(path: Path) -> NotebookNode:
    return nbformat.read(path, as_version=4)


def code_of(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def is_left_out(cell: NotebookNode) -> bool:
    """Whether a cell needs a cloud."""
    return "not-run" in cell.metadata.get("tags", ())


def executed(path: Path, kernel: KernelManager, folder: Path) -> NotebookNode:
    """A notebook with its outputs, run on a fresh copy of the samples.

    Args:
        folder: for the copy.

    Raises:
        CellExecutionError: a cell raised an error.
    """
    shutil.copytree(SAMPLES, folder, dirs_exist_ok=True)
    notebook, run = read(path), nbformat.v4.new_notebook()
    anew = nbformat.v4.new_code_cell(_ANEW.format(folder=str(folder)))
    run.cells = [anew, *(cell for cell in notebook.cells if not is_left_out(cell))]
    NotebookClient(run, km=kernel, timeout=600, coalesce_streams=True).execute()
    return notebook
