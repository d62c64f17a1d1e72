"""The table of a folder of images, as Hugging Face has it: `metadata.csv`, or another ending."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

import pandas as pd

from tfrecorder import storage
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.schema.keys import FILE_NAME, SPLIT_COLUMN
from tfrecorder.schema.splits import SPELLINGS
from tfrecorder.sources.files import read_files
from tfrecorder.sources.parquet import read_parquet
from tfrecorder.sources.path_source import PathSource, uri_below
from tfrecorder.sources.table import RawTable

#: The names of such tables.
TABLES = ("metadata.csv", "metadata.jsonl", "metadata.parquet")


def read_metadata(
    folder: str,
    tables: Sequence[str],
    images: Collection[str],
    passed_over: Mapping[str, int],
    options: ConvertOptions,
) -> RawTable | None:
    """The tables of a folder as one; None if none of them has a column `file_name`.

    Args:
        tables, images: their paths in the folder.
        passed_over: the other files.
    """
    raw_tables = []
    for name in tables:
        path = f"{folder}/{name}"
        raw = _read(PathSource(path, (path,)), options)
        if raw is not None:
            start = name.removesuffix(name.rpartition("/")[2])
            files = raw.frame[FILE_NAME].map(partial(uri_below, start), na_action="ignore")
            raw_tables.append(replace(raw, frame=raw.frame.assign(**{FILE_NAME: files})))
    if not raw_tables:
        return None
    frame = pd.concat([raw.frame for raw in raw_tables], ignore_index=True)
    without = len({*images}.difference(frame[FILE_NAME]))
    if SPLIT_COLUMN not in frame:
        tops = [str(file).partition("/")[0].lower() for file in frame[FILE_NAME]]
        if not {*tops}.isdisjoint(SPELLINGS):
            frame = frame.assign(**{SPLIT_COLUMN: [SPELLINGS.get(top, "") for top in tops]})
    return replace(
        raw_tables[0],
        frame=frame,
        base=folder,
        text=raw_tables[0].text if len(raw_tables) == 1 else None,
        typed=all(raw.typed for raw in raw_tables),
        passed_over={**passed_over, "images without a row": without},
    )


def _read(table: PathSource, options: ConvertOptions) -> RawTable | None:
    """A table; None if another tool's, of which nothing is read."""
    (path,) = table.files
    if not path.endswith(".parquet"):
        with storage.open_seekable(path) as file:
            if FILE_NAME.encode() not in file.read(2**16).partition(b"\n")[0]:
                return None
    raw = read_parquet(table, options) or read_files(table, options)
    return raw if raw is not None and FILE_NAME in raw.frame else None
