"""What rows are compared by: the places of their files, or their values, as one text a row."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tfrecorder.errors import DatasetError
from tfrecorder.format import layout
from tfrecorder.schema.fields import Field
from tfrecorder.sources.places import places

#: In place of a folder that is not known.
NOWHERE = "/\x1f/"


def file_keys(
    directory: str, columns: Mapping[str, pa.Array], base: str, files: Sequence[Field]
) -> pa.Array:
    """The places of all images and masks of rows whose relative uris start from one folder.

    Args:
        directory: of the dataset, for messages.
        columns: of the rows, by name.
        base: that folder; "" if nobody noted it.
        files: the columns of images and masks.

    Raises:
        DatasetError: the folder is needed, and is not known.
    """
    uris = [(columns[one.uri_key], columns.get(one.spool_key)) for one in files]
    of_files = [places(uri, base or NOWHERE, spooled) for uri, spooled in uris]
    if not base and any(pc.any(pc.starts_with(column, NOWHERE)).as_py() for column in of_files):
        raise DatasetError(
            f"{os.path.join(directory, layout.TABLES)} does not say in which folder the images "
            "were, as after a repair from the records alone. So nobody knows which rows are "
            "already there. Copy it again; or append only new rows, with `duplicates='keep'`."
        )
    return joined_texts(of_files)


def joined_texts(columns: Sequence[pa.Array]) -> pa.Array:
    """The values of each row as one text, which rows with other values do not have."""
    texts = list(map(texts_of, columns))
    if len(texts) == 1:
        return texts[0]
    parts = [part for text in texts for part in (texts_of(pc.binary_length(text)), text)]
    return pc.binary_join_element_wise(*parts, pa.scalar(" ", pa.large_string()))


def texts_of(column: pa.Array) -> pa.Array:
    """Values as texts, equal for equal values."""
    if pa.types.is_nested(column.type):
        cells = map(_without_minus_zero, column.to_pylist())
        return pa.array(map(repr, cells), pa.large_string())
    if pa.types.is_floating(column.type):
        column = pc.add(column, pa.scalar(0, column.type))  # as `_without_minus_zero`
    is_bytes = pa.types.is_large_binary(column.type)
    return column.view(pa.large_string()) if is_bytes else column.cast(pa.large_string())


def _without_minus_zero(cell: Any) -> Any:
    """A cell in which -0.0, which equals 0.0, is written like it."""
    if isinstance(cell, list):
        return [*map(_without_minus_zero, cell)]
    return cell + 0.0 if isinstance(cell, float) else cell
