"""How a plan is made: rows get their numbers, and their places in the shards of the next commit.

Pure arithmetic on values, without Beam, files or the pixels of any image.  No two rows of a dataset
have one number: what corrects or removes a row finds it by that.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tfrecorder import storage
from tfrecorder.core.arrays import Bools, Ints
from tfrecorder.errors import OutputError
from tfrecorder.format.layout import COPY_OF, REJECT_OF, STATED_OF, is_of_place, spool_columns
from tfrecorder.format.manifest import Manifest, lasting_losses
from tfrecorder.format.plan import (
    Adds,
    Begins,
    Carried,
    Layout,
    Plan,
    PlanKind,
    PlannedRows,
    Rewrites,
)
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.schema.keys import SOURCE_ID, SPLIT_COLUMN
from tfrecorder.schema.splits import SPLIT_TYPE, SPLITS
from tfrecorder.schema.statistics import Statistics
from tfrecorder.validation.rules import Checked
from tfrecorder.validation.values import describe_columns

#: How many uris are looked at together.
_TOGETHER = 2**16

#: Of so many rows the files' sizes are looked up.
SAMPLE_ROWS = 1000


def sample_rows(
    rows: int,
    size: int,
    seed: int,
) -> Ints:
    """At most `size` of the row numbers 0 to rows-1, seeded, in ascending order."""
    if rows <= size:
        return np.arange(rows)
    return np.sort(_random(seed, 99).choice(rows, size, replace=False))


def shuffled(
    rows: Ints,
    split: str,
    seed: int,
) -> Ints:
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
    """SHA-256 of the splits and the values of all rows, in their order, and of stated sizes."""
    split = pa.array(splits.astype(SPLIT_TYPE)).dictionary_decode().cast(pa.large_string())
    decisive = [(SPLIT_COLUMN, split)]
    stated = []
    for name, column in values.items():
        if name in STATED_OF:
            stated.append((name, column))
        elif not is_of_place(name):
            decisive.append((name, column))
    # Earlier versions had none: what they planned begins with the same.
    return _sha256(decisive) + (_sha256(stated) if stated else "")


def _sha256(columns: Sequence[tuple[str, pa.Array]]) -> str:
    digest = hashlib.sha256()
    for name, column in columns:
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


def as_next_commit(
    plan: Plan,
    newest: Manifest | None,
    next_row: int,
    *,
    adds: bool,
) -> Plan:
    """A plan as the commit that follows the newest one.

    Args:
        newest: the manifest of the newest commit; None if there is none.
        next_row: the number that the next new row of that dataset gets; 0 without one.
        adds: its shards are added to those of the newest commit; otherwise they replace these.
    """
    # Boxes with a row each: the numbers end with the source's rows, not with the last record's.
    rows_before = next_row if adds else 0
    next_row = max(next_row, plan.carried.next_row, rows_before + plan.rows.in_source)
    if newest is None:
        return dataclasses.replace(plan, commit=0, follows=Begins()).carrying(next_row=next_row)
    before = newest.plan
    dataset = newest.dataset
    splits = dataset.splits
    revisions = dict(before.layout.revisions)
    for split, state in splits.items():
        revisions[split] = state.revision
    if adds:
        # A split that was dropped comes again under names that it never had.
        again = [
            split for split in plan.layout.split_rows if split in revisions and split not in splits
        ]
        revisions |= {split: revisions[split] + 1 for split in again}
        counts = {split: state.shards for split, state in splits.items()}
    else:
        # A split whose shards all stay keeps their names.
        all_of = {split: list(range(state.shards)) for split, state in splits.items()}
        stays = {split for split, kept in plan.layout.kept.items() if kept == all_of.get(split)}
        written = {*plan.layout.split_rows, *plan.layout.kept} - stays
        revisions |= dict.fromkeys(written, max(revisions.values()) + 1)
        counts = {split: len(kept) for split, kept in plan.layout.kept.items()}
    carried = plan.carried
    if plan.kind not in (PlanKind.CONVERSION, PlanKind.COMPACTION):
        losses = lasting_losses(before.carried.losses)
        carried = dataclasses.replace(carried, history=dataset.history, losses=losses)
    marks = carried.marks or before.carried.marks
    digest = newest.commit.digest
    follows: Rewrites | Adds = Rewrites(digest, plan.follows.renumbers)
    if adds:
        follows = Adds(digest, rows_before, dataset.image_shapes, dataset.image_sides)
    plan = plan.laid_out(
        starts={split: counts[split] for split in plan.layout.split_rows if counts.get(split)},
        revisions={split: number for split, number in revisions.items() if number != 1},
    )
    return dataclasses.replace(
        plan,
        carried=dataclasses.replace(carried, next_row=next_row, marks=marks),
        commit=before.commit + 1,
        follows=follows,
    )


#: Bytes of a record apart from the image: framing, keys, and the small features of a typical row.
RECORD_OVERHEAD = 400

#: A dataset of any size gets up to this many shards per split, with at least this many rows each,
#: so that readers can interleave them.  A batch of a stream gets one: there will be many more.
SMALL_SHARDS = 8
SMALL_SHARD_ROWS = 8


def shard_count(
    rows: int,
    row_bytes: float,
    shard_bytes: int,
    asked: int | None = None,
    small_shards: int = SMALL_SHARDS,
) -> int:
    """How many shards a split of `rows` >= 1 rows gets.

    Args:
        row_bytes: the mean size of a record.
        shard_bytes: the target size of a shard.
        asked: the number that the user wants, if any; never more than there are rows.

    >>> shard_count(1_000_000, 100_000, 128 * 2**20)
    746
    >>> shard_count(10, 100_000, 128 * 2**20), shard_count(1000, 100_000, 128 * 2**20)
    (2, 8)
    """
    if asked is not None:
        return min(rows, asked)
    by_size = -(-round(rows * row_bytes) // shard_bytes)
    by_rows = min(small_shards, -(-rows // SMALL_SHARD_ROWS))
    return min(rows, max(1, by_size, by_rows))


def shard_counts(
    split_rows: Mapping[str, int],
    sizes: Sequence[float],
    options: ConvertOptions,
    small_shards: int = SMALL_SHARDS,
) -> dict[str, int]:
    """How many shards each split gets, based on its rows.

    Args:
        sizes: file sizes in bytes of a sample of the images.
        options: what the user asked for.
    """
    row_bytes = (float(np.mean(sizes)) if len(sizes) else 0.0) + RECORD_OVERHEAD
    return {
        split: shard_count(
            rows,
            row_bytes,
            options.shard_bytes,
            options.shards_of(split),
            small_shards,
        )
        for split, rows in split_rows.items()
    }


def refuse_taken_numbers(
    where: str,
    planned: pa.Table,
    next_row: int,
    retried: Ints | None = None,
) -> None:
    """Refuse planned rows of which two have one number, or a new one has a number that is given.

    Args:
        where: the dataset directory, for messages.
        planned: the rows of a plan.
        next_row: the number that the next new row of the dataset gets; 0 where it begins anew.
        retried: numbers of rejects that are tried again, which keep theirs.

    Raises:
        OutputError: a number is taken.
    """
    numbers = planned.column(SOURCE_ID).to_numpy()
    is_copy = _is_text(planned, COPY_OF.file)
    # Each attempt at a reject is kept, under the one number of its row.
    refuse_doubles(where, numbers[~(is_copy & _is_text(planned, REJECT_OF.reason))])
    new = numbers[~is_copy]
    if retried is not None:
        new = new[~np.isin(new, retried)]
    if len(new) and new.min() < next_row:
        raise OutputError(
            f"{where}: a new row would get the number {new.min()}, but the next free one is "
            f"{next_row}. Nothing was written. This must not happen: please report it."
        )


def _is_text(planned: pa.Table, name: str) -> Bools:
    """True for each row with a text in a column, which not every plan has."""
    if name not in planned.column_names:
        return np.zeros(len(planned), bool)
    return np.asarray(pc.not_equal(planned.column(name), "").to_numpy())


def _different(numbers: Ints) -> int:
    """How many different numbers there are."""
    lowest = numbers.min()
    span = int(numbers.max() - lowest) + 1
    if span > _MOST_FLAGS * len(numbers):
        return len(np.unique(numbers))
    # A flag a number takes a fraction of the memory and time that sorting 50,000,000 of them does.
    is_given = np.zeros(span, bool)
    is_given[numbers - lowest] = True
    return int(np.count_nonzero(is_given))


#: So many flags a number at the most: a repaired dataset may leave a range of numbers out.
_MOST_FLAGS = 64


def refuse_doubles(where: str, numbers: Ints) -> None:
    """Refuse numbers of which two are equal.

    Raises:
        OutputError: as `refuse_taken_numbers`.
    """
    if not len(numbers):
        return
    if _different(numbers) == len(numbers):
        return
    values, counts = np.unique(numbers, return_counts=True)
    double = values[counts > 1]
    raise OutputError(
        f"{where}: {len(double):,} row numbers stand for two records or more, such as {double[0]}, "
        "so what corrects or removes one could take another. Nothing was written. Convert "
        "`tfrecorder.to_frame(directory, images='bytes')` into a new directory, whose rows are "
        "numbered anew."
    )
