"""How a plan is made: rows get their places in shards, from the frame alone.

Pure arithmetic on values, without Beam, files or the pixels of any image.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tfrecorder import storage
from tfrecorder.core.arrays import Ints
from tfrecorder.format.plan import Carried, Layout, Plan, PlanKind, PlannedRows
from tfrecorder.format.plan_columns import REJECT_OF, is_of_place, spool_columns
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.plan.shard_counts import shard_counts
from tfrecorder.schema.keys import SOURCE_ID, SPLIT_COLUMN
from tfrecorder.schema.splits import SPLIT_TYPE, SPLITS
from tfrecorder.schema.statistics import Statistics
from tfrecorder.validation.rules import Checked
from tfrecorder.validation.statistics import describe_columns

#: How many uris are looked at together.
_TOGETHER = 2**16

#: Of so many rows the files' sizes are looked up.
SAMPLE_ROWS = 1000


def sample_rows(rows: int, size: int, seed: int) -> Ints:
    """At most `size` of the row numbers 0 to rows-1, seeded, in ascending order."""
    if rows <= size:
        return np.arange(rows)
    return np.sort(_random(seed, 99).choice(rows, size, replace=False))


def shuffled(rows: Ints, split: str, seed: int) -> Ints:
    """The rows of one split in a seeded random order."""
    return rows[_random(seed, SPLITS.index(split)).permutation(len(rows))]


def order_of(splits: pd.Series[str], options: ConvertOptions) -> tuple[Ints, dict[str, int]]:
    """The places of rows in the order of their plan, and how many each split has that has any."""
    order = [np.arange(0)]
    split_rows = {}
    for split in SPLITS:
        rows = np.flatnonzero((splits == split).to_numpy())
        if len(rows):
            order.append(shuffled(rows, split, options.seed) if options.shuffle else rows)
            split_rows[split] = len(rows)
    return np.concatenate(order), split_rows


def _random(seed: int, stream: int) -> np.random.RandomState:
    # RandomState, not Generator: NumPy promises never to change the numbers it gives (NEP 19).
    return np.random.RandomState([seed, stream])


def make_plan(
    checked: Checked,
    base: str,
    options: ConvertOptions,
    kind: PlanKind = PlanKind.CONVERSION,
) -> tuple[Plan, pa.Table]:
    """Decide a conversion.

    Args:
        checked: a table without errors.
        base: the folder that relative uris start from.
        options: what the user asked for.
        kind: as in `Plan`.

    Returns:
        The plan, whose numbers of shards are not decided yet unless the options state them; and its
        rows in the order of the shards: an Arrow table with the row's number
        under `SOURCE_ID`, and a column for each other key of the record that the source has.
    """
    splits = checked.frame[SPLIT_COLUMN]
    order, split_rows = order_of(splits, options)
    plan = Plan(
        rows=PlannedRows(
            count=len(splits),
            in_source=checked.source_rows,
            statistics=described(checked),
            base=base,
            fingerprint=fingerprint(splits, checked.values),
            remote=not storage.is_local(base) or any(map(_any_remote, checked.files)),
            spooled=spooled_images(checked.values),
        ),
        layout=Layout(split_rows, shard_counts(split_rows, (), options)),
        fields=checked.fields,
        options=options.content_options(),
        kind=kind,
        carried=Carried(0 if checked.frame.empty else int(checked.frame.index.max()) + 1),
    )
    # Last, because every value is there twice from now on.
    numbers = pa.array(checked.frame.index.take(order).to_numpy(np.int64))
    taken = {name: column.take(pa.array(order)) for name, column in checked.values.items()}
    return plan, pa.table({SOURCE_ID: numbers, **taken})


def described(checked: Checked) -> Statistics:
    """Statistics of all rows' values, without those known to be rejects, which have no values."""
    values = checked.values
    missing = checked.missing
    splits = checked.frame[SPLIT_COLUMN]
    if REJECT_OF.reason in values:
        sound = pc.equal(values[REJECT_OF.reason], "")
        values = {name: column.filter(sound) for name, column in values.items()}
        kept = sound.to_numpy(zero_copy_only=False)
        missing = {name: rows[kept] for name, rows in missing.items()}
        splits = splits[kept]
    return describe_columns(checked.fields, values, splits, missing)


def spooled_images(values: Mapping[str, pa.Array]) -> int:
    """How many different images came as bytes."""
    columns = [values[name] for name in spool_columns(values)]
    if not columns:
        return 0
    files = pa.concat_arrays(columns)
    return int(pc.count_distinct(files.filter(pc.not_equal(files, ""))).as_py())


def _any_remote(uris: pd.Series[str]) -> bool:
    blocks = (uris.iloc[start : start + _TOGETHER] for start in range(0, len(uris), _TOGETHER))
    with_scheme = (some[some.str.contains("://", regex=False)] for some in blocks)
    return any(storage.scheme(uri) for some in with_scheme for uri in some)


def fingerprint(splits: pd.Series[str], values: Mapping[str, pa.Array]) -> str:
    """SHA-256 of the splits and the values of all rows, in their order."""
    digest = hashlib.sha256()
    split = pa.array(splits.astype(SPLIT_TYPE)).dictionary_decode().cast(pa.large_string())
    decisive = ((name, column) for name, column in values.items() if not is_of_place(name))
    for name, column in [(SPLIT_COLUMN, split), *decisive]:
        digest.update(f"{name}:{column.type}:{len(column)}:".encode())
        for buffer in _buffers(column):
            digest.update(buffer)
    return digest.hexdigest()


def _buffers(array: pa.Array) -> Iterator[bytes | memoryview]:
    """Arrow's own buffers of values none of which is missing: equal for equal values."""
    if pa.types.is_large_list(array.type):
        yield array.offsets.to_numpy().astype("<i8").tobytes()
        yield from _buffers(array.flatten())
    elif pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type):
        # The texts, and where each starts.
        _, offsets, texts = array.buffers()
        starts = np.frombuffer(offsets, "<i8", len(array) + 1) if offsets else np.zeros(1, "<i8")
        yield starts.tobytes()
        if texts:
            yield memoryview(texts)[: starts[-1]]
    else:
        yield array.to_numpy(zero_copy_only=False).tobytes()
