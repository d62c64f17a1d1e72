"""In a notebook: a bar while it runs, a table at the end, and nothing else in the cell."""

from __future__ import annotations

import re
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from support import CSV

CELLS = (
    "import pandas as pd, tfrecorder",
    f"tfrecorder.convert({str(CSV)!r}, 'out')",
    f"tfrecorder.convert({str(CSV)!r}, 'quiet', progress=False)",
    f"tfrecorder.convert({str(CSV)!r}, 'processes', num_workers=2)",
    f"tfrecorder.validate({str(CSV)!r})",
)


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> list[list[Any]]:
    """What each cell shows, run by a real kernel."""
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell(cell) for cell in CELLS]
    where = {"metadata": {"path": str(tmp_path_factory.mktemp("notebook"))}}
    NotebookClient(notebook, timeout=120, kernel_name="python3", resources=where).execute()
    return [cell.outputs for cell in notebook.cells]


def table_of(output: Any) -> str:
    assert output.output_type == "execute_result"
    return output.data["text/html"]


def test_the_result_is_a_table(outputs: list[list[Any]]) -> None:
    html = table_of(outputs[1][-1])
    assert re.search(r"<p>52 records in out \(.+ images/s\)</p>", html)
    assert "<tr><td>TRAIN</td><td>36</td><td>0</td>" in html
    assert "classes: 4: &#x27;brick&#x27;" in html


@pytest.mark.parametrize("cell", [1, 3])
def test_a_bar_and_the_table_are_all_that_a_cell_shows(outputs: list[list[Any]], cell: int) -> None:
    *bar, result = outputs[cell]
    table_of(result)
    shown = "".join(
        output.text if output.output_type == "stream" else str(output.data) for output in bar
    )
    assert re.search(r"52/52 \[[^\]]+ images/s\]", shown)
    if "\r" in shown:  # a bar of text, where ipywidgets are not installed
        assert re.sub(r"\r? *\d+%\|[^\r\n]*", "", shown).strip() == ""


def test_without_progress_only_the_table(outputs: list[list[Any]]) -> None:
    assert outputs[0] == []
    (result,) = outputs[2]
    assert "52 records in quiet" in table_of(result)


def test_a_report_is_a_table_too(outputs: list[list[Any]]) -> None:
    (result,) = outputs[4]
    assert "severity" in table_of(result)
