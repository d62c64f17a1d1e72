"""A Hugging Face `Dataset` or `DatasetDict` as a table whose images are read when needed.

`datasets` is never imported here: the caller who has such a value has imported it.  Its rows are in
Arrow files mapped into memory, so columns are requested in Arrow, a few rows of images at a time,
and nothing is decoded.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from tfrecorder.errors import OptionError, SourceError
from tfrecorder.schema.keys import COLUMNS, LABEL_COLUMN, SPLIT_COLUMN, URI_COLUMN
from tfrecorder.schema.kinds import BOX_COLUMNS, Schema, Split
from tfrecorder.schema.splits import SPELLINGS, SPLITS
from tfrecorder.sources.default_schema import MASK_COLUMN

#: How many rows of images are in memory at a time.
PIECE = 16


def is_hugging_face(source: object) -> bool:
    """True for what `datasets.load_dataset` returns; others may have a module of that name too."""
    names = _names(source)
    if names & {"Dataset", "IterableDataset"}:
        return hasattr(source, "features")
    return bool(names & {"DatasetDict", "IterableDatasetDict"})


def _names(value: object) -> set[str]:
    """The names of a value's classes that belong to the package `datasets`."""
    classes = type(value).__mro__
    return {one.__name__ for one in classes if one.__module__.partition(".")[0] == "datasets"}


class DatasetCells:
    """The cells of a column of images in several datasets, one after the other."""

    def __init__(self, datasets: Sequence[Any], column: str) -> None:
        self._parts = [one.select_columns([column]).with_format("arrow") for one in datasets]
        self._starts = np.cumsum([0, *map(len, self._parts)]).tolist()

    def __len__(self) -> int:
        return int(self._starts[-1])

    def read(self, rows: Sequence[int] | np.ndarray) -> Iterator[Any]:
        for _, group in itertools.groupby(map(int, rows), key=self._piece):
            wanted = list(group)
            part = bisect.bisect_right(self._starts, wanted[0]) - 1
            first, last = (row - self._starts[part] for row in (wanted[0], wanted[-1]))
            (column,) = self._parts[part][first : last + 1].columns
            for row in wanted:
                yield column[row - wanted[0]].as_py()

    def _piece(self, row: int) -> tuple[int, int]:
        part = bisect.bisect_right(self._starts, row) - 1
        return part, (row - self._starts[part]) // PIECE


@dataclasses.dataclass(frozen=True)
class Rows:
    """The rows of a dataset.

    Attributes:
        frame: all of its columns.  Those of images hold empty texts, those that are not needed hold
            False.
        columns: which of them stand for which of ours.
        cells: the cells of the image columns, by the dataset's name for the column.
        classes: the class names of columns that have them, in the order of their integers.
    """

    frame: pd.DataFrame
    columns: dict[str, str]
    cells: dict[str, DatasetCells]
    classes: dict[str, tuple[str, ...]]


def read_rows(
    source: Any, columns: Mapping[str, str], schema: Schema | None, split_by: str | None
) -> Rows:
    """The rows of a `Dataset`, or of all splits of a `DatasetDict` one after the other.

    Args:
        columns, schema, split_by: as for `read_source`.

    Raises:
        OptionError: columns names a column that does not exist.
        SourceError: it is a stream, it has a split with another name, its splits have different
            columns, or more than one column could hold the images or the labels.
    """
    parts = _parts(source)
    features = parts[0][1].features
    for word, one in parts:
        if one.features != features:
            raise SourceError(
                f"split {word!r} of the dataset has different features from {parts[0][0]!r}: "
                f"{dict(one.features)}, not {dict(features)}."
            )
    for name in columns:
        if name not in features:
            raise OptionError(
                f"columns: the dataset has no column {name!r}; it has: {[*features]}."
            )
    named = dict(columns)
    if schema is None:
        named |= _found(features, named)
    datasets = [one for _, one in parts]
    needed = {named.get(name, name): name for name in features}
    wanted = {*COLUMNS, *BOX_COLUMNS, MASK_COLUMN} if schema is None else schema.source_columns()
    kept = {name for ours, name in needed.items() if ours in wanted or name == split_by}
    cells = {
        name: DatasetCells(datasets, name)
        for name, feature in features.items()
        if name in kept and _kind(feature) == "Image"
    }
    classes = {name: found for name in kept if (found := _classes(features[name]))}
    rows = sum(map(len, datasets))
    frame: dict[str, pd.Series] = {}
    for name in features:
        if name in cells:
            frame[name] = pd.Series("", index=range(rows))
        elif name in kept:
            frame[name] = _plain(datasets, name, classes.get(name))
        else:
            frame[name] = pd.Series(np.zeros(rows, dtype=bool))
    if isinstance(source, Mapping):
        split = SPLIT_COLUMN if schema is None else next(iter(schema.of(Split)), SPLIT_COLUMN)
        if split in needed:
            raise SourceError(
                f"the splits are the keys of the DatasetDict, and it has a column {split!r} too; "
                "rename or remove that column."
            )
        words = np.repeat([word for word, _ in parts], [len(one) for one in datasets])
        frame[split] = pd.Series(pd.Categorical(words))
    return Rows(pd.DataFrame(frame), named, cells, classes)


def with_classes(schema: Schema, classes: Mapping[str, Sequence[str]], split: bool) -> Schema:
    """A schema with the class names of a dataset, where the schema has none itself.

    Args:
        classes: by the name of the column, as the schema has it.
        split: the rows have splits that the schema may not name.
    """
    kinds = dict(schema.fields)
    for name, kind in kinds.items():
        column = getattr(kind, "label", name) or name
        if hasattr(kind, "names") and kind.names is None and column in classes:
            kinds[name] = dataclasses.replace(kind, names=tuple(classes[column]))  # type: ignore[type-var]
    if split and not schema.of(Split):
        kinds = {SPLIT_COLUMN: Split(), **kinds}
    return Schema(kinds)


def _parts(source: Any) -> list[tuple[str, Any]]:
    """The datasets with their splits."""
    streams = isinstance(source, Mapping) and any(
        "IterableDataset" in _names(one) for one in source.values()
    )
    if streams or "IterableDataset" in _names(source):
        raise SourceError(
            "source is a stream of Hugging Face, whose rows cannot be read twice; load it without "
            "streaming=True, or give its rows to tfrecorder.stream."
        )
    if not isinstance(source, Mapping):
        return [("", source)]
    for word in source:
        if SPELLINGS.get(str(word).strip().lower()) not in SPLITS:
            raise SourceError(
                f"split {word!r} of the dataset is not train, validation or test; leave it out, or "
                f"rename it: datasets.DatasetDict(train=found[{str(word)!r}])."
            )
    if not source:
        raise SourceError("source is a DatasetDict without a split.")
    return [(str(word), one) for word, one in source.items()]


def _found(features: Mapping[str, Any], named: Mapping[str, str]) -> dict[str, str]:
    """The columns that stand for ours, based on the types of their values."""
    found = {}
    ours = {named.get(name, name) for name in features}
    for wanted, kind, words in (
        (URI_COLUMN, "Image", "images"),
        (LABEL_COLUMN, "ClassLabel", "class labels"),
    ):
        these = [name for name, one in features.items() if _kind(one) == kind and name not in named]
        if wanted in ours or not these:
            continue
        if len(these) > 1:
            raise SourceError(
                f"the columns {these} of the dataset are all {words}: say which one to take, as "
                f"columns={{{these[0]!r}: {wanted!r}}}; or give a schema."
            )
        found[these[0]] = wanted
    return found


def _kind(feature: Any) -> str:
    """The name of a feature's type; "" for lists and dicts of features."""
    return type(feature).__name__ if _names(feature) else ""


def _classes(feature: Any) -> tuple[str, ...]:
    """The class names of a feature; for a list, those of its one feature."""
    if isinstance(feature, (list, tuple)) and len(feature) == 1:
        return _classes(feature[0])
    inner = getattr(feature, "feature", None)
    if inner is not None:
        return _classes(inner)
    return tuple(feature.names) if _kind(feature) == "ClassLabel" else ()


def _plain(datasets: Sequence[Any], name: str, classes: Sequence[str] | None) -> pd.Series:
    """A column without images."""
    import pyarrow as pa

    found = [one.select_columns([name]).with_format("arrow")[:].column(0) for one in datasets]
    chunks = itertools.chain.from_iterable(one.chunks for one in found)
    whole = pa.chunked_array(chunks, found[0].type)
    if classes is None:
        return whole.to_pandas()
    texts = np.array([*classes, None], dtype=object)  # -1 means no class
    if pa.types.is_integer(whole.type):
        return pd.Series(texts[whole.fill_null(-1).to_numpy()])
    cells = (cell.as_py() for cell in whole)
    return pd.Series([_named(cell, texts) for cell in cells], dtype=object)


def _named(cell: Iterable[int] | None, texts: np.ndarray) -> list[str] | None:
    return None if cell is None else [texts[number] for number in cell]
