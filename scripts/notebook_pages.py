"""Adds a page with its outputs for each notebook of samples/ to the site, where mkdocs builds it.

A hook of mkdocs.yml.  The pages are made anew by each `make docs`, and stand in no folder.  A
notebook that cannot run here, for want of a package or of a network, is shown without outputs; all
are if NOTEBOOKS=off stands in the environment, as in .ci/run, where the tests have just run them.
"""

from __future__ import annotations

import functools
import logging
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files, InclusionLevel
from nbclient.exceptions import CellExecutionError

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from helpers import notebooks  # noqa: E402

_log = logging.getLogger("mkdocs.hooks.notebook_pages")

#: Colours of a terminal.
_COLOURS = re.compile(r"\x1b\[[\d;]*m")


def on_files(files: Files, config: Any) -> Files:
    for name, markdown in pages().items():
        page = File.generated(config, name, content=markdown, inclusion=InclusionLevel.NOT_IN_NAV)
        files.append(page)
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The names of notebooks on their page become links to their pages."""
    if page.file.src_uri != "notebooks.md":
        return markdown
    return re.sub(r"`(\w+)\.ipynb`", r"[`\1.ipynb`](notebooks/\1.md)", markdown)


@functools.cache  # `mkdocs serve` asks each time a page is written
def pages() -> dict[str, str]:
    """The page of each notebook, by its place in the site."""
    if os.environ.get("NOTEBOOKS") == "off":
        unrun = {path.stem: notebooks.read(path) for path in notebooks.NOTEBOOKS}
        return {f"notebooks/{name}.md": "\n\n".join(_blocks(one)) for name, one in unrun.items()}
    with notebooks.running_kernel() as kernel, tempfile.TemporaryDirectory() as folder:
        found = {}
        for path in notebooks.NOTEBOOKS:
            try:
                notebook = notebooks.executed(path, kernel, Path(folder, path.stem))
            except CellExecutionError as error:
                _log.info("%s is shown without outputs: %s", path.name, error.evalue)
                notebook = notebooks.read(path)
            page = "\n\n".join(_blocks(notebook))
            found[f"notebooks/{path.stem}.md"] = page.replace(f"{folder}/{path.stem}/", "")
        return found


def _blocks(notebook: Any) -> Iterator[str]:
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            yield cell.source.replace("](../docs/", "](../")
        else:
            yield f"```python\n{cell.source}\n```"
            yield from map(_shown, cell.outputs)


def _shown(output: Any) -> str:
    """An output of a cell, as Markdown; nothing of bars and of logs, which tell of the machine."""
    if output.get("name") == "stderr":
        return ""
    data = output.get("data", {})
    if "image/png" in data:
        inner = f"<img alt='' src='data:image/png;base64,{data['image/png'].strip()}'>"
    elif "text/html" in data:
        # Without pandas' own look of a table it gets that of the site.
        inner = data["text/html"].replace('border="1" class="dataframe"', "")
    else:
        text = _COLOURS.sub("", output.get("text") or data.get("text/plain", ""))
        return f"```text\n{text.strip()}\n```" if text.strip() else ""
    return f"<div data-search-exclude>{inner}</div>"
