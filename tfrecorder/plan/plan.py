"""The plan: which row goes to which position of which shard, decided from the frame alone.

Pure arithmetic over values, without Beam, without files and without any image's pixels;
`staging.py` writes down what is decided here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tfrecorder import storage
from tfrecorder.dataset.forms import plan_form
from tfrecorder.dataset.json_form import parse
from tfrecorder.dataset.layout import Shard
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.schema.fields import Field, image_of, record_features
from tfrecorder.schema.fields import from_json as fields_from_json
from tfrecorder.schema.fields import to_json as fields_to_json
from tfrecorder.schema.keys import (
    DEFAULT_FEATURES,
    LABEL,
    LABEL_COLUMN,
    NO_LABEL,
    SPLIT_COLUMN,
    URI_COLUMN,
    Feature,
)
from tfrecorder.schema.labels import number_labels
from tfrecorder.schema.splits import SPLITS
from tfrecorder.validation.rules import Checked

if TYPE_CHECKING:
    from tfrecorder.validation.rules import Stated


#: The form of the plan's files; another number is another form.
PLAN_VERSION = 1

SAMPLE_ROWS = 1000

#: Of a record beside the image: framing, keys, and the small features of a typical row.
RECORD_OVERHEAD = 400

#: A data set of any size gets up to this many shards a split, of at least this many rows each, so
#: that reading can interleave them.
SMALL_SHARDS = 8
SMALL_SHARD_ROWS = 8


@dataclass(frozen=True)
class Plan:
    """A conversion, decided.

    Attributes:
        rows: of the whole source.
        split_rows: rows of each split that has any, in the order TRAIN, VALIDATION, TEST.
        split_shards: shards of each of these splits.
        label_kind: "text", "integer" or "none".
        class_names: the name of each integer from 0; None where integers have no names.
        num_classes: one more than the largest label; 0 without labels.
        base: the folder that relative uris are taken from.
        fingerprint: SHA-256 of the rows as validated.
        options: `ConvertOptions.content_options()`.
        stated: of a stated schema, its fields with their vocabularies, statistics of the columns,
            and the rows of the source, as JSON values; None for the default schema.
        remote: images are on a store elsewhere, so that many can be asked for at once.
    """

    rows: int
    split_rows: dict[str, int]
    split_shards: dict[str, int]
    label_kind: str
    class_names: tuple[str, ...] | None
    num_classes: int
    base: str
    fingerprint: str
    options: dict[str, Any]
    remote: bool = False
    stated: dict[str, Any] | None = None

    @cached_property
    def shards(self) -> list[Shard]:
        """All shards, in the order of the row groups of `plan.parquet`."""
        return [
            Shard(split, index, count)
            for split, count in self.split_shards.items()
            for index in range(count)
        ]

    @property
    def digest(self) -> str:
        """SHA-256 of all that decides what the files hold."""
        decides = {k: v for k, v in _plain(self).items() if k not in ("base", "remote")}
        return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()

    @cached_property
    def fields(self) -> tuple[Field, ...] | None:
        """The columns of a stated schema; None for the default schema."""
        return None if self.stated is None else fields_from_json(self.stated["fields"])

    @cached_property
    def features(self) -> tuple[Feature, ...]:
        """Every key of the record."""
        return DEFAULT_FEATURES if self.fields is None else record_features(self.fields)

    @property
    def classes(self) -> dict[str, int]:
        """How many classes each key with classes has."""
        if self.fields is None:
            return {LABEL: self.num_classes}
        return {one.label_key: one.num_classes for one in self.fields if one.label_key}

    def image_of_mask(self, key: str) -> str:
        """The key of the image that the mask under a key belongs to."""
        fields = self.fields or ()
        mask = next(one for one in fields if key == f"{one.key}/encoded")
        return f"{image_of(mask, fields).key}/encoded"

    @property
    def source_rows(self) -> int:
        """Rows of the source; of boxes with a row each, more than there are records."""
        return self.rows if self.stated is None else int(self.stated["source_rows"])

    @property
    def vocabularies(self) -> dict[str, tuple[str, ...] | None]:
        """The class names of each key with classes, None where they have none."""
        if self.fields is None:
            return {LABEL: self.class_names}
        return {one.label_key: one.names for one in self.fields if one.label_key}

    def shard_rows(self, shard: Shard) -> int:
        """How many rows a shard was given."""
        start, stop = shard_bounds(self.split_rows[shard.split], shard.count)[shard.index]
        return stop - start

    def to_json(self) -> bytes:
        return json.dumps({"version": PLAN_VERSION, **_plain(self)}, indent=1).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Plan:
        fields = parse(data, plan_form)
        version = fields.pop("version")
        if version != PLAN_VERSION:
            raise ValueError(f"the plan is of version {version}; this is {PLAN_VERSION}")
        if fields["class_names"] is not None:
            fields["class_names"] = tuple(fields["class_names"])
        return cls(**fields)


def _plain(plan: Plan) -> dict[str, Any]:
    """A plan as JSON values, as plans were before there were stated schemas where it has none."""
    found = asdict(plan)
    if found["stated"] is None:
        del found["stated"]
    return found


@dataclass(frozen=True)
class PlannedRow:
    """One row as a worker needs it.

    Attributes:
        row: its number in the source, from 0.
        image_uri: as the source gave it.
        label: its integer; -1 without labels.
        text: the label's text; "" without labels.
        values: of a stated schema, what the source tells of each key of the record.
    """

    row: int
    image_uri: str
    label: int
    text: str
    values: dict[str, Any] | None = None


def sample_rows(rows: int, size: int, seed: int) -> np.ndarray:
    """At most `size` of the row numbers 0 to rows-1, seeded, in ascending order."""
    if rows <= size:
        return np.arange(rows)
    return np.sort(_random(seed, 99).choice(rows, size, replace=False))


def shard_count(rows: int, row_bytes: float, shard_bytes: int, asked: int | None = None) -> int:
    """How many shards a split of `rows` >= 1 rows gets.

    Args:
        row_bytes: the mean size of a record.
        shard_bytes: the size of a shard aimed at.
        asked: the number that the user wants, if any; never more than there are rows.

    >>> shard_count(1_000_000, 100_000, 128 * 2**20)
    746
    >>> shard_count(10, 100_000, 128 * 2**20), shard_count(1000, 100_000, 128 * 2**20)
    (2, 8)
    """
    if asked is not None:
        return min(rows, asked)
    by_size = -(-round(rows * row_bytes) // shard_bytes)
    by_rows = min(SMALL_SHARDS, -(-rows // SMALL_SHARD_ROWS))
    return min(rows, max(1, by_size, by_rows))


def shard_counts(
    split_rows: Mapping[str, int], sizes: Sequence[int], options: ConvertOptions
) -> dict[str, int]:
    """How many shards each split gets, by its rows.

    Args:
        sizes: file sizes in bytes of a sample of the images.
        options: what the user asked for.
    """
    row_bytes = (float(np.mean(sizes)) if len(sizes) else 0.0) + RECORD_OVERHEAD
    return {
        split: shard_count(rows, row_bytes, options.shard_bytes, options.shards_of(split))
        for split, rows in split_rows.items()
    }


def shard_bounds(rows: int, shards: int) -> list[tuple[int, int]]:
    """Row ranges (start, stop) of `shards` balanced shards: sizes differ by at most one.

    >>> shard_bounds(10, 3)
    [(0, 3), (3, 6), (6, 10)]
    """
    return [(rows * i // shards, rows * (i + 1) // shards) for i in range(shards)]


def shuffled(rows: np.ndarray, split: str, seed: int) -> np.ndarray:
    """The rows of one split in a seeded random order."""
    return rows[_random(seed, SPLITS.index(split)).permutation(len(rows))]


def _random(seed: int, stream: int) -> np.random.RandomState:
    # RandomState, not Generator: NumPy promises never to change the numbers it gives (NEP 19).
    return np.random.RandomState([seed, stream])


def make_plan(
    checked: Checked, base: str, sizes: Sequence[int], options: ConvertOptions
) -> tuple[Plan, pd.DataFrame]:
    """Decide a conversion.

    Args:
        checked: a table without errors.
        base: the folder that relative uris are taken from.
        sizes: file sizes in bytes of a sample of the images.
        options: what the user asked for.

    Returns:
        The plan, and its rows (columns row, image_uri, label, text) in the order of the shards.
    """
    frame = checked.frame
    order, split_rows = [], {}
    for split in SPLITS:
        rows = np.flatnonzero((frame[SPLIT_COLUMN] == split).to_numpy())
        if not len(rows):
            continue
        order.append(shuffled(rows, split, options.seed) if options.shuffle else rows)
        split_rows[split] = len(rows)
    uris = frame[URI_COLUMN] if URI_COLUMN in frame else pd.Series("", frame.index, dtype=object)
    numbers, texts, names = _number_labels(checked, options)
    planned = pd.DataFrame({"row": frame.index, "image_uri": uris, "label": numbers, "text": texts})
    classes = int(numbers.max()) + 1 if names is None else len(names)
    kind = checked.label_kind
    if checked.stated is not None:
        assert checked.stated.values is not None
        table = checked.stated.values.to_struct_array().combine_chunks()
        planned["values"] = pd.array(table, dtype=pd.ArrowDtype(table.type))
        kind, names, classes = _only_classes(checked.stated.fields)
    planned = planned.iloc[np.concatenate(order)]
    plan = Plan(
        rows=len(frame),
        split_rows=split_rows,
        split_shards=shard_counts(split_rows, sizes, options),
        label_kind=kind,
        class_names=names,
        num_classes=classes,
        base=base,
        fingerprint=fingerprint(frame, None if checked.stated is None else checked.stated.values),
        options=options.content_options(),
        remote=not storage.is_local(base) or any(map(_any_remote, checked.file_columns)),
        stated=None if checked.stated is None else _stated(checked.stated),
    )
    return plan, planned


def _any_remote(uris: pd.Series) -> bool:
    with_scheme = uris[uris.str.contains("://", regex=False)]
    return any(map(storage.scheme, with_scheme))


def _stated(stated: Stated) -> dict[str, Any]:
    return {
        "fields": fields_to_json(stated.fields),
        "statistics": stated.statistics,
        "source_rows": stated.source_rows,
    }


def _only_classes(fields: Sequence[Field]) -> tuple[str, tuple[str, ...] | None, int]:
    """Label kind, class names and their number where one column alone has classes."""
    found = [field for field in fields if field.label_key]
    if len(found) != 1:
        return "none", None, 0
    kind = "integer" if found[0].names is None else "text"
    return kind, found[0].names, found[0].num_classes


def _number_labels(
    checked: Checked, options: ConvertOptions
) -> tuple[np.ndarray, np.ndarray, tuple[str, ...] | None]:
    """Integers and texts of all rows, and the class names where there are any."""
    if checked.label_kind == "none":
        rows = len(checked.frame)
        return np.full(rows, NO_LABEL, dtype=np.int64), np.full(rows, "", dtype=object), None
    return number_labels(checked.frame[LABEL_COLUMN], options.labels)


def describe_difference(staged: Plan, now: Plan) -> list[str]:
    """What keeps a staged plan from being continued, in words; empty if nothing does."""
    faults = []
    if staged.rows != now.rows:
        faults.append(f"the source had {staged.rows:,} rows and now has {now.rows:,}")
    elif staged.fingerprint != now.fingerprint:
        faults.append("the source has other values in its rows now")
    for name in sorted(staged.options.keys() | now.options.keys()):
        then, given = staged.options.get(name), now.options.get(name)
        if then != given:
            faults.append(f"{name} was {then!r} and now is {given!r}")
    return faults


def fingerprint(frame: pd.DataFrame, values: Any = None) -> str:
    """SHA-256 of a table's columns and values in the order of its rows, whatever their dtypes.

    Args:
        frame: of integers and texts.
        values: further columns, an Arrow table.
    """
    import pyarrow as pa

    digest = hashlib.sha256()
    for name in frame.columns:
        column = frame[name].to_numpy()
        digest.update(f"{name}:{column.dtype.kind}:{len(column)}:".encode())
        if column.dtype == np.int64:
            digest.update(column.astype("<i8").tobytes())
            continue
        _feed(digest, pa.array(column, type=pa.large_string()))
    for name in () if values is None else values.column_names:
        column = values.column(name).combine_chunks()
        digest.update(f"{name}:{column.type}:{len(column)}:".encode())
        _feed(digest, column)
    return digest.hexdigest()


def _feed(digest: Any, array: Any) -> None:
    """Arrow's own buffers, of values none of which is missing: equal for equal values."""
    import pyarrow as pa

    if pa.types.is_large_list(array.type):
        digest.update(array.offsets.to_numpy().astype("<i8").tobytes())
        _feed(digest, array.flatten())
    elif pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type):
        # Texts, and where each begins.
        _, offsets, texts = array.buffers()
        starts = np.frombuffer(offsets, "<i8", len(array) + 1) if offsets else np.zeros(1, "<i8")
        digest.update(starts.tobytes())
        digest.update(memoryview(texts)[: starts[-1]] if texts else b"")
    else:
        digest.update(array.to_numpy(zero_copy_only=False).tobytes())
