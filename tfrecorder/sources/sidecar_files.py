"""What stands in a file beside an image of a folder: `a.json` with values, `a.txt` with a text."""

from __future__ import annotations

import json
import os
from typing import Any

import pandas as pd

from tfrecorder.schema.keys import URI_COLUMN
from tfrecorder.schema.kinds import Kind, Schema, Text
from tfrecorder.sources.finding import Finding
from tfrecorder.sources.objects import texts_of


def with_sidecar_files(
    frame: pd.DataFrame, folder: str, schema: Schema
) -> tuple[pd.DataFrame, int, list[Finding]]:
    """A folder's images with the columns of the schema that its paths do not give.

    A JSON file has them by name.  A text file gives the only column of texts that no JSON file has:
    its text, or of a column of lists its lines.

    Returns:
        The frame, how many of these files were read, and those that are not understood.
    """
    wanted = [name for name in schema.source_columns() if name not in frame]
    if not wanted:
        return frame, 0, []
    stems = [os.path.join(folder, os.path.splitext(uri)[0]) for uri in frame[URI_COLUMN]]
    files = texts_of([f"{stem}.json" for stem in stems])
    documents = []
    findings = []
    for row, text in enumerate(files):
        documents.append(_document(text))
        if text is not None and not documents[-1]:
            message = f"{stems[row]}.json is not a JSON object with values"
            uri = frame[URI_COLUMN][row]
            findings.append(Finding("bad_annotation", [row], URI_COLUMN, [uri], message))
    values = {name: [of.get(name) for of in documents] for name in wanted}
    values = {name: cells for name, cells in values.items() if any(c is not None for c in cells)}
    texts = [n for n in wanted if n not in values and isinstance(schema.columns.get(n), Text)]
    if len(texts) == 1:
        text_files = texts_of([f"{stem}.txt" for stem in stems])
        files += text_files
        if any(text is not None for text in text_files):
            values[texts[0]] = [_cell(schema.columns[texts[0]], text) for text in text_files]
    columns = {name: pd.Series(cells, frame.index, object) for name, cells in values.items()}
    return frame.assign(**columns), sum(text is not None for text in files), findings


def _document(text: str | None) -> dict[str, Any]:
    try:
        read = json.loads(text or "{}")
    except ValueError:
        read = None
    return read if isinstance(read, dict) else {}


def _cell(kind: Kind, text: str | None) -> str | list[str] | None:
    if text is None or getattr(kind, "shape", ()) == ():
        return text and text.strip()
    return [line.strip() for line in text.splitlines() if line.strip()]
