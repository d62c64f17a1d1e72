"""The plan: which row goes to which position of which shard, decided from the frame alone.

Pure arithmetic over values, without Beam and without any image's pixels; then two files,
`plan.json` and `plan.parquet` (a row group a shard), from which a worker reads only its own part.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from tfrecorder import layout, storage
from tfrecorder.errors import OutputError
from tfrecorder.labels import build_vocabulary
from tfrecorder.layout import Shard
from tfrecorder.options import ConvertOptions
from tfrecorder.rules import Checked
from tfrecorder.schema import LABEL_COLUMN, NO_LABEL, SPLIT_COLUMN, URI_COLUMN
from tfrecorder.splits import SPLITS

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
        decides = {k: value for k, value in asdict(self).items() if k not in ("base", "remote")}
        return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()

    def shard_rows(self, shard: Shard) -> int:
        """How many rows a shard was given."""
        start, stop = shard_bounds(self.split_rows[shard.split], shard.count)[shard.index]
        return stop - start

    def to_json(self) -> bytes:
        return json.dumps({"version": PLAN_VERSION, **asdict(self)}, indent=1).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Plan:
        fields = json.loads(data)
        version = fields.pop("version")
        if version != PLAN_VERSION:
            raise ValueError(f"the plan is of version {version}; this is {PLAN_VERSION}")
        if fields["class_names"] is not None:
            fields["class_names"] = tuple(fields["class_names"])
        return cls(**fields)


@dataclass(frozen=True)
class PlannedRow:
    """One row as a worker needs it.

    Attributes:
        row: its number in the source, from 0.
        image_uri: as the source gave it.
        label: its integer; -1 without labels.
        text: the label's text; "" without labels.
    """

    row: int
    image_uri: str
    label: int
    text: str


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
    row_bytes = (float(np.mean(sizes)) if len(sizes) else 0.0) + RECORD_OVERHEAD
    order, split_rows, split_shards = [], {}, {}
    for split in SPLITS:
        rows = np.flatnonzero((frame[SPLIT_COLUMN] == split).to_numpy())
        if not len(rows):
            continue
        order.append(shuffled(rows, split, options.seed) if options.shuffle else rows)
        split_rows[split] = len(rows)
        asked = options.shards_of(split)
        split_shards[split] = shard_count(len(rows), row_bytes, options.shard_bytes, asked)
    numbers, texts, names = _number_labels(checked, options)
    planned = pd.DataFrame(
        {"row": frame.index, "image_uri": frame[URI_COLUMN], "label": numbers, "text": texts}
    ).iloc[np.concatenate(order)]
    plan = Plan(
        rows=len(frame),
        split_rows=split_rows,
        split_shards=split_shards,
        label_kind=checked.label_kind,
        class_names=names,
        num_classes=len(names) if names is not None else int(numbers.max()) + 1,
        base=base,
        fingerprint=fingerprint(frame),
        options=options.content_options(),
        remote=not storage.is_local(base) or _any_remote(frame[URI_COLUMN]),
    )
    return plan, planned


def _any_remote(uris: pd.Series) -> bool:
    with_scheme = uris[uris.str.contains("://", regex=False)]
    return any(map(storage.scheme, with_scheme))


def _number_labels(
    checked: Checked, options: ConvertOptions
) -> tuple[np.ndarray, np.ndarray, tuple[str, ...] | None]:
    """Integers and texts of all rows, and the class names where there are any."""
    frame, given = checked.frame, options.labels
    if checked.label_kind == "none":
        rows = len(frame)
        return np.full(rows, NO_LABEL, dtype=np.int64), np.full(rows, "", dtype=object), None
    column = frame[LABEL_COLUMN]
    if checked.label_kind == "integer":
        numbers = column.to_numpy(dtype=np.int64)
        lookup, inverse = np.unique(numbers, return_inverse=True)
        texts = [str(number) if given is None else given[number] for number in lookup]
        return numbers, np.array(texts, dtype=object)[inverse], given
    codes, distinct = pd.factorize(column)
    names = build_vocabulary(distinct) if given is None else given
    place = {name: number for number, name in enumerate(names)}
    numbers = np.array([place[label] for label in distinct], dtype=np.int64)[codes]
    return numbers, column.to_numpy(dtype=object), names


def fingerprint(frame: pd.DataFrame) -> str:
    """SHA-256 of a table's columns and values in the order of its rows, whatever their dtypes."""
    import pyarrow as pa

    digest = hashlib.sha256()
    for name in frame.columns:
        values = frame[name].to_numpy()
        digest.update(f"{name}:{values.dtype.kind}:{len(values)}:".encode())
        if values.dtype == np.int64:
            digest.update(values.astype("<i8").tobytes())
            continue
        # Arrow's own buffers: the texts and where each begins, equal for equal values.
        _, offsets, texts = pa.array(values, type=pa.large_string()).buffers()
        starts = np.frombuffer(offsets, "<i8", len(values) + 1)
        digest.update(starts.tobytes())
        digest.update(memoryview(texts)[: starts[-1]] if texts else b"")
    return digest.hexdigest()


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


def stage_plan(plan: Plan, planned: pd.DataFrame, output_dir: str) -> None:
    """Write the plan's two files; `plan.json` last, so that it stands only beside its rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {"row": pa.int64(), "image_uri": pa.large_string(), "label": pa.int64()}
    table = pa.Table.from_pydict(
        {
            name: pa.array(planned[name].to_numpy(), type=kind)
            for name, kind in {**columns, "text": pa.large_string()}.items()
        }
    )
    with storage.publish(output_dir, layout.PLAN_ROWS) as file:
        buffered = io.BufferedWriter(file)
        with pq.ParquetWriter(
            buffered, table.schema, use_dictionary=["text"], write_statistics=False
        ) as writer:
            start = 0
            for shard in plan.shards:
                size = plan.shard_rows(shard)
                writer.write_table(table.slice(start, size), row_group_size=size)
                start += size
        buffered.flush()
        buffered.detach()
    storage.publish_bytes(output_dir, layout.PLAN, plan.to_json())


def read_plan(output_dir: str) -> Plan | None:
    """The plan that is staged in a directory, or None.

    Raises:
        OutputError: another version of this package staged it.
    """
    path = os.path.join(output_dir, layout.PLAN)
    try:
        return Plan.from_json(storage.read_bytes(path))
    except storage.UnreadableError as error:
        if error.code in ("not_found", "bad_name"):
            return None
        raise OutputError(f"{path} cannot be read: {error}.") from error
    except (KeyError, TypeError, ValueError) as error:
        raise OutputError(
            f"{path} is no plan that this version of tfrecorder can follow ({error}); choose a new "
            "or empty directory as output_dir."
        ) from error


def read_footer(output_dir: str) -> Any:
    """Where the row groups of the staged plan begin, for whoever reads several of them.

    Raises:
        OutputError: it cannot be read.
    """
    import pyarrow.parquet as pq

    path = os.path.join(output_dir, layout.PLAN_ROWS)
    try:
        with storage.open_seekable(path) as opened:
            return pq.read_metadata(opened)
    except storage.UnreadableError as error:
        raise OutputError(f"{path} cannot be read: {error}.") from error


def read_shard_rows(output_dir: str, group: int, footer: Any = None) -> list[PlannedRow]:
    """The rows of one shard, which is row group number `group` of the staged plan.

    Args:
        footer: what `read_footer` returned; without it, it is read once more.

    Raises:
        FileNotFoundError, OSError, ValueError: the plan's rows are missing or damaged.
    """
    import pyarrow.parquet as pq

    path = os.path.join(output_dir, layout.PLAN_ROWS)
    try:
        with storage.open_seekable(path) as opened:
            # Each column of a row group is asked for once, and whole.
            file = pq.ParquetFile(opened, metadata=footer, pre_buffer=True)
            table = file.read_row_group(group)
    except storage.UnreadableError as error:
        kind = FileNotFoundError if error.code == "not_found" else OSError
        raise kind(f"{path}: {error}") from error
    columns = (table.column(name).to_pylist() for name in ("row", "image_uri", "label", "text"))
    return [PlannedRow(*values) for values in zip(*columns, strict=True)]
