"""`compact`: all generations of a dataset as one new dataset, by copying records.

The plan of the new dataset says for each row where its record is in the old one; workers copy it,
compare its checksums and decode nothing.  Otherwise it is a conversion like any other.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tfrecorder import storage
from tfrecorder.conversion import job
from tfrecorder.conversion.record_copies import all_rows, uris_of
from tfrecorder.conversion.staged import PlannedRows
from tfrecorder.conversion.table import Say
from tfrecorder.errors import DatasetError, OptionError, refuse_missing
from tfrecorder.options.convert import OF_PLACE, ConvertOptions
from tfrecorder.options.subsets import NOT_COMPACTED, OF_ORDER
from tfrecorder.output.directory import refuse_nested
from tfrecorder.output.path import output_path
from tfrecorder.output.result import ConversionResult
from tfrecorder.plan.plan import (
    RECORD_OVERHEAD,
    Plan,
    PlanKind,
    fingerprint,
    shard_counts,
    shuffled,
)
from tfrecorder.reading.dataset import StoredDataset
from tfrecorder.reading.dataset_files import STORED_FILES
from tfrecorder.reading.generations import Generation
from tfrecorder.reading.open import open_generations
from tfrecorder.reading.stream_positions import streams_of
from tfrecorder.runners.beam_options import check_runner
from tfrecorder.schema.fields import Field
from tfrecorder.schema.splits import SPLITS
from tfrecorder.validation.statistics import describe_columns
from tfrecorder.validation.values import default_of

if TYPE_CHECKING:
    import pyarrow as pa

    from tfrecorder.runners.dataflow.job import DataflowJob


def compact(
    directory: str | os.PathLike[str],
    output_dir: str | os.PathLike[str],
    *,
    drop: Iterable[str] | str | os.PathLike[str] | None = None,
    at: int | None = None,
    **options: Any,
) -> ConversionResult | DataflowJob:
    """Write all generations of a dataset as one new dataset, shuffled again.

    Records are copied as they are, with their checksums compared; no image is decoded, and the
    sources are not needed.  Rejects are listed again.  The old dataset is only read.  To continue
    an interrupted compaction, repeat the call.

    Args:
        directory: what `convert` and `append` wrote.
        output_dir: a directory that is new or empty, or that of the compaction to continue.
        drop: image uris whose records are left out, or the path of a text file with one uri per
            line.  Nothing of these records is in the new dataset.
        at: the last generation to include; None means the newest.
        **options: num_shards, shard_size, shuffle, seed, name, version, overwrite, and the options
            about runners and progress, as for `tfrecorder.convert`.

    Returns:
        What `tfrecorder.convert` returns.

    Raises:
        OptionError: an option's name or value is wrong, or a uri to drop is not in the dataset.
        DatasetError: there is no whole dataset written by this package, or a record is damaged.
        TfrecorderError: otherwise as `tfrecorder.convert` raises them.

    Example:
        >>> tfrecorder.compact("out", "out-2")  # doctest: +SKIP
    """
    # Rows that became rejects were already accepted as such when they were converted.
    ConvertOptions.of(options, NOT_COMPACTED)
    chosen = ConvertOptions.of({**options, "max_reject_fraction": 1.0})
    path = output_path(output_dir, chosen)
    where, target = storage.absolute(storage.given_path(directory)), storage.absolute(path)
    if target == where or f"{target}/".startswith(f"{where}/"):
        raise OptionError.of("output_dir", target, f"give a directory outside of {where}.")
    rows = partial(_rows, where, target, _uris(drop), at, chosen)
    return job.run(job.Job("compaction", path, chosen, rows))


def _rows(
    where: str,
    target: str,
    drop: Collection[str],
    at: int | None,
    options: ConvertOptions,
    say: Say,
) -> PlannedRows:
    """The rows of all generations, planned for the new dataset."""
    check_runner(options)
    refuse_missing("apache_beam")
    refuse_nested(target, options)
    say("reading the plans")
    stored, generations = open_generations(where, STORED_FILES, at)
    if not generations:
        raise DatasetError(f"{where} was not written by tfrecorder, which compacts only its own.")
    plan, planned = _plan(where, stored, generations, drop, options)
    records = sum(stored.records(split) or 0 for split in stored.splits)
    size = sum(map(stored.bytes, stored.splits)) // max(1, records)
    sizes = [max(0, size - RECORD_OVERHEAD)]
    return PlannedRows(
        folder=target, plan=plan, planned=planned, options=options, sizes=lambda: sizes
    )


def _uris(drop: Iterable[str] | str | os.PathLike[str] | None) -> Collection[str]:
    """The uris to drop, each once."""
    if drop is None:
        return ()
    if isinstance(drop, (str, os.PathLike)):
        path = storage.given_path(drop)
        try:
            text = storage.read_bytes(path).decode("utf-8-sig")
        except (storage.UnreadableError, UnicodeDecodeError) as error:
            raise OptionError.of("drop", path, f"it cannot be read: {error}.") from error
        # Not splitlines: a uri may hold U+2028 and others that it takes for the end of a line.
        return dict.fromkeys(filter(None, text.replace("\r\n", "\n").split("\n")))
    uris = list(drop)
    wrong = [uri for uri in uris if not isinstance(uri, str)]
    if wrong:
        words = f"`drop` names {wrong[0]!r}, which is not a uri; give texts, or the path of a file."
        raise OptionError(words)
    return dict.fromkeys(uris)


def _plan(
    where: str,
    stored: StoredDataset,
    generations: Sequence[Generation],
    drop: Collection[str],
    options: ConvertOptions,
) -> tuple[Plan, pa.Table]:
    """The plan of the new dataset, and its rows in the order of its shards."""
    rows, splits = all_rows(where, stored, generations)
    if drop:
        kept = ~_dropped(where, uris_of(rows, stored.fields), drop)
        rows, splits = rows.filter(kept), splits[kept]
    if not len(rows):
        raise OptionError("`drop` would leave no record; name fewer uris.")
    order, split_rows = [], {}
    for split in SPLITS:
        numbers = np.flatnonzero((splits == split).to_numpy())
        if len(numbers):
            order.append(shuffled(numbers, split, options.seed) if options.shuffle else numbers)
            split_rows[split] = len(numbers)
    columns = {name: rows.column(name).combine_chunks() for name in rows.column_names}
    values = {feature.key: columns[feature.key] for feature in _valued(stored, columns)}
    missing = _missing(stored.fields, values, splits, generations)
    recorded = generations[-1].metadata["options"]
    now = options.content_options()
    # The new dataset is elsewhere: it has the name that was given for it, or none.
    taken = {name: value for name, value in recorded.items() if name not in OF_PLACE}
    changed = {name: now[name] for name in (*OF_ORDER, *OF_PLACE) if name in now}
    plan = Plan(
        rows=len(rows),
        source_rows=_source_rows(generations[-1]),
        split_rows=split_rows,
        split_shards=shard_counts(split_rows, (), options),
        fields=stored.fields,
        statistics=describe_columns(stored.fields, values, splits, missing),
        base=where,
        fingerprint=fingerprint(splits, columns),
        options={**taken, **changed},
        remote=not storage.is_local(where),
        kind=PlanKind.COMPACTION,
        streams=streams_of(generations),
    )
    return plan, rows.take(np.concatenate(order))


def _valued(stored: StoredDataset, columns: Collection[str]) -> list[Any]:
    return [feature for feature in stored.record if feature.key in columns]


def _missing(
    fields: Sequence[Field],
    values: Mapping[str, pa.Array],
    splits: pd.Series,
    generations: Sequence[Generation],
) -> dict[str, np.ndarray]:
    """Which rows have a default, by column.

    Metadata say how many these are in each split.  Which of the rows with this value they are makes
    no difference to the statistics: the first ones.
    """
    missing = {}
    for field in fields:
        counts = Counter[str]()
        for generation in generations:
            of_split = generation.metadata["statistics"].get(field.column, {})
            counts.update({split: of.get("missing", 0) for split, of in of_split.items()})
        if counts.total():
            key, default = default_of(field)
            same = pd.Series([value == default for value in values[key].to_pylist()])
            number = same.groupby(splits.to_numpy(object)).cumsum()
            missing[field.column] = (same & (number <= splits.map(counts).astype(int))).to_numpy()
    return missing


def _source_rows(newest: Generation) -> int:
    """The rows of all sources: more than any row's number."""
    before = newest.metadata.get("before", {"rows": 0})
    return int(before["rows"] + newest.metadata["source_rows"])


def _dropped(where: str, uris: pa.Array | None, drop: Collection[str]) -> np.ndarray:
    import pyarrow as pa
    import pyarrow.compute as pc

    if uris is None:
        raise OptionError(
            f"the records of {where} have no images, so they have no uris; leave `drop` out."
        )
    wanted = pa.array(list(drop), pa.large_string())
    absent = wanted.filter(pc.invert(pc.is_in(wanted, value_set=uris)))
    if len(absent):
        raise OptionError(
            f"{len(absent):,} of {len(wanted):,} uris that `drop` names are not in {where}, such "
            f"as {absent[0].as_py()!r}; write each exactly as the source did."
        )
    return np.asarray(pc.is_in(uris, value_set=wanted).to_numpy(zero_copy_only=False))
