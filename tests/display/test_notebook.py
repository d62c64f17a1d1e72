"""In a notebook: a bar while it runs, a table or pictures at the end, and nothing else.

Where nobody watches, as under papermill and `jupyter nbconvert --execute`, there is no bar.

The inner law: a call that is done at once shows none, so the tests take that pause away.
"""

from __future__ import annotations

import base64
import importlib.util
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
from helpers.looking_cases import ReadPage
from nbclient import NotebookClient
from PIL import Image
from support import CSV, PHOTOS, SAMPLES

#: Kernels run what all of them look at.
pytestmark = pytest.mark.slow

#: Images of every kind, a file that is none, and one that is missing.
URIS = [*PHOTOS[:4], *sorted((SAMPLES / "mixed").iterdir()), CSV, SAMPLES / "gone.jpg"]

CELLS = (
    "import pandas as pd, tfrecorder",
    f"tfrecorder.convert({str(CSV)!r}, 'out')",
    f"tfrecorder.convert({str(CSV)!r}, 'quiet', progress=False)",
    f"tfrecorder.convert({str(CSV)!r}, 'processes', num_workers=2)",
    f"tfrecorder.validate({str(CSV)!r})",
    f"df = pd.DataFrame({{'image_uri': {list(map(str, URIS))}, 'label': 'a <b>'}})",
    "df.tensorflow.preview()",
    "tfrecorder.preview('out')",
    "tfrecorder.preview('out', progress=False)",
    "df.tensorflow.validate(check_images=True)",
)

#: Every call that may be long.  What has no count is shown after a second, here at once.
AT_ONCE = "import numpy as np, tfrecorder.display.bars; tfrecorder.display.bars.SHOWN_AFTER = 0"
LONG = {
    "validate": f"tfrecorder.validate({str(CSV)!r}, check_images=True)",
    "dry run": f"tfrecorder.convert({str(CSV)!r}, 'other', dry_run=True)",
    "convert": f"rows = pd.read_csv({str(CSV)!r})\n"
    f"rows['image_uri'] = {str(CSV.parent)!r} + '/' + rows['image_uri']\n"
    "tfrecorder.convert(rows[:40], 'long')",
    "append": "tfrecorder.append(rows[40:], 'long')",
    "to_frame": "frame = tfrecorder.to_frame('long')",
    "update": "tfrecorder.update(frame[:3].assign(label='cat'), 'long')",
    "remove": "tfrecorder.remove('long', frame[:2])",
    "compact": "tfrecorder.compact('long')",
    "suspects": "found = tfrecorder.suspects('long', None, np.full((50, 4), 0.25))",
    "preview": "page = tfrecorder.preview('long', suspects=found)",
    "duplicates": "copies = tfrecorder.duplicates('long')",
    "verify": "tfrecorder.verify('long', sources=True, absent=['gone.jpg'])",
    "repair": "import pathlib\n"
    "shard = next(pathlib.Path('long').glob('train-*.tfrecord'))\n"
    "_ = shard.write_bytes(shard.read_bytes()[:-9])\n"
    "tfrecorder.repair('long')",
    "export": "tfrecorder.export('long', 'exported', to='csv')",
    "card": "tfrecorder.card('long')",
}
#: Those that do something without a count, some of them after what has a bar.
WITHOUT_COUNT = ("to_frame", "suspects", "verify", "repair")

#: One state of a bar of text, which is there where ipywidgets are not installed.
BAR = (
    r"\r?(?:[a-z ]+: )? *(?:starting \[|(?:reading|checking) the table \[|planning \["
    r"|\d+%\||\d+ (?:records|images) \[)[^\r\n]*"
)


class Watched(NotebookClient):
    """Says of each cell, as notebooks in a window do, that somebody is there to answer."""

    async def async_start_new_kernel_client(self) -> Any:
        client = await super().async_start_new_kernel_client()
        client.allow_stdin = True
        return client


def execute(folder: Path, cells: Sequence[str], client: type = NotebookClient) -> list[list[Any]]:
    """What each cell shows, run by a real kernel."""
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
    where = {"metadata": {"path": str(folder)}}
    client(notebook, timeout=300, kernel_name="python3", resources=where).execute()
    return [cell.outputs for cell in notebook.cells]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> list[list[Any]]:
    """What each cell shows where somebody watches."""
    cells = [*CELLS, AT_ONCE, *LONG.values()]
    return execute(tmp_path_factory.mktemp("notebook"), cells, Watched)


@pytest.fixture(scope="module")
def unwatched(tmp_path_factory: pytest.TempPathFactory) -> list[list[Any]]:
    """What each cell shows in a notebook that is executed, to be looked at later."""
    return execute(tmp_path_factory.mktemp("unwatched"), CELLS)


def html_of(output: Any) -> str:
    assert output.output_type == "execute_result"
    return output.data["text/html"]


def text_of(outputs: list[Any]) -> str:
    """All that some outputs say besides results."""
    return "".join(
        output.text if output.output_type == "stream" else str(output.data) for output in outputs
    )


def without_bars(shown: str) -> str:
    """What is left besides bars."""
    if "\r" not in shown:
        return ""
    return re.sub(BAR, "", shown).strip()


def test_the_result_is_a_table(outputs: list[list[Any]]) -> None:
    html = html_of(outputs[1][-1]).replace(' style="text-align:left"', "")
    assert re.search(r"<p>52 records in out \(.+ images/s\)</p>", html)
    assert "<tr><td>TRAIN</td><td>36</td><td>0</td>" in html
    assert "classes: 4: &#x27;brick&#x27;" in html


@pytest.mark.parametrize("cell", [1, 3])
def test_a_bar_and_the_table_are_all_that_a_cell_shows(outputs: list[list[Any]], cell: int) -> None:
    *bar, result = outputs[cell]
    html_of(result)
    shown = text_of(bar)
    assert re.search(r"52/52 \[[^\]]+ images/s\]", shown)
    assert without_bars(shown) == ""


@pytest.mark.parametrize("cell", [1, 2, 3, 6, 7, 8])
def test_where_nobody_watches_there_is_no_bar(unwatched: list[list[Any]], cell: int) -> None:
    (result,) = unwatched[cell]
    html_of(result)


def test_a_bar_says_that_it_starts_before_it_counts(outputs: list[list[Any]]) -> None:
    shown = text_of(outputs[1])
    assert re.search(r"\r?starting \[\d\d:\d\d\]", shown)
    assert " 0%|" not in shown


def test_the_check_of_every_image_has_a_bar(outputs: list[list[Any]]) -> None:
    *bar, result = outputs[9]
    assert "unusable_image" in html_of(result)
    assert re.search(rf"checking: 100%\|[^|]+\| {len(URIS)}/{len(URIS)} \[", text_of(bar))
    assert without_bars(text_of(bar)) == ""


@pytest.mark.skipif(
    importlib.util.find_spec("ipywidgets") is not None, reason="their bar is not text"
)
@pytest.mark.parametrize("name", LONG)
def test_every_long_call_has_a_line_of_text_that_changes(
    outputs: list[list[Any]], name: str
) -> None:
    of_cell = outputs[len(CELLS) + 1 + [*LONG].index(name)]
    shown = text_of([output for output in of_cell if output.output_type == "stream"])
    states = [state for state in re.split(r"[\r\n]", shown) if state.strip()]
    assert all(re.search(r"\[\d\d:\d\d", state) for state in states), shown
    assert name not in WITHOUT_COUNT or re.search(r"\r[a-z ]*\[00:0\d\]", shown)
    # A line is drawn over the one before, and few stay.
    assert shown.startswith("\r")
    assert shown.count("\n") <= 2
    assert len(shown) < 5000


def test_without_progress_only_the_table(outputs: list[list[Any]]) -> None:
    assert outputs[0] == []
    (result,) = outputs[2]
    assert "52 records in quiet" in html_of(result)


def test_a_report_is_a_table_too(outputs: list[list[Any]]) -> None:
    (result,) = outputs[4]
    assert "no problems in 52 rows" in html_of(result)


def test_a_frame_shows_its_images_and_nothing_else(outputs: list[list[Any]]) -> None:
    (result,) = outputs[6]
    page = ReadPage(html_of(result))
    assert f"all {len(URIS)} rows" in page.text
    assert page.text.count("a <b>") == len(URIS)
    shown = [one["src"].removeprefix("data:image/jpeg;base64,") for one in page.all("img")]
    pictures = [Image.open(io.BytesIO(base64.b64decode(data))) for data in shown]
    assert len(pictures) == len(URIS) - 2
    for uri, picture in zip(URIS[:4], pictures, strict=False):
        with Image.open(uri) as opened:
            true = np.asarray(opened.convert("RGB").resize(picture.size), int)
        assert np.abs(true - np.asarray(picture, int)).mean() < 12
    # Each that cannot be shown says why, in its place.
    assert "not_found" in page.text
    assert "not_an_image" in page.text


@pytest.mark.skipif(
    importlib.util.find_spec("ipywidgets") is not None, reason="their bar is not text"
)
def test_a_page_has_a_bar_that_is_gone_at_the_end(outputs: list[list[Any]]) -> None:
    *bar, result = outputs[7]
    (frame,) = ReadPage(html_of(result)).all("iframe")
    assert "52 records" in ReadPage(frame["srcdoc"]).text
    shown = text_of(bar)
    assert re.search(r"decoding: 100%\|[^|]+\| 52/52 \[[^\]]+ records/s\]", shown), shown
    assert without_bars(shown) == ""
    assert not shown.rpartition("\r")[0].rpartition("\r")[2].strip()


def test_a_page_without_progress_is_all_that_its_cell_shows(outputs: list[list[Any]]) -> None:
    (result,) = outputs[8]
    assert "<iframe" in html_of(result)
