"""`compact`: all records of a dataset in new shards, in place or in another directory.

The plan says for each row where its record is; workers copy it, compare its checksums and decode
nothing.  Otherwise it is a conversion like any other.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tfrecorder import storage
from tfrecorder.conversion.changed_rows import Added, StoredRows, changed_plan, stored_rows
from tfrecorder.conversion.job import Job
from tfrecorder.conversion.on_dataset import own_dataset, run_as_asked
from tfrecorder.conversion.removal_marks import read_marks, unmarked_words
from tfrecorder.conversion.staged import PlannedRows
from tfrecorder.conversion.table import Say
from tfrecorder.core.checks import flag
from tfrecorder.errors import OptionError
from tfrecorder.format.losses import lasting
from tfrecorder.format.plan import History, PlanKind
from tfrecorder.format.plan_columns import SAME
from tfrecorder.format.summary import Changes, Summary
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.options.keywords import CompactKeywords, Unpack
from tfrecorder.options.option import require, takes
from tfrecorder.options.subsets import NOT_COMPACTED, OF_ORDER
from tfrecorder.output.directory import refuse_nested
from tfrecorder.output.path import output_path
from tfrecorder.output.result import ConversionResult, read_result
from tfrecorder.plan.shard_counts import RECORD_OVERHEAD
from tfrecorder.reading.commits import Commit, commit_at, commits
from tfrecorder.reading.dataset import StoredDataset
from tfrecorder.reading.open import open_dataset
from tfrecorder.runners.beam_options import check_runner
from tfrecorder.schema.fields import Field, primary_file
from tfrecorder.schema.statistics import merged
from tfrecorder.sources.uri_list import uri_list
from tfrecorder.writing.commit import complete


@takes(CompactKeywords, ConvertOptions)
def compact(
    directory: str | os.PathLike[str],
    output_dir: str | os.PathLike[str] | None = None,
    *,
    drop: Iterable[str] | str | os.PathLike[str] | None = None,
    at: int | None = None,
    stage_only: bool = False,
    dry_run: bool = False,
    **options: Unpack[CompactKeywords],
) -> ConversionResult | Any:
    """Merge the small shards of a dataset in place, or write all its records as a new dataset.

    Records are copied as they are and shuffled, with their checksums compared; no image is
    decoded, and the sources are not needed.  Rejects are listed again.  In place, the small shards
    that appends and streams leave become few large ones; large ones stay, unless num_shards or drop
    is given.  Readers see the old shards until the commit.  To continue an interrupted compaction,
    repeat the call.

    Args:
        directory: what `convert` and `append` wrote.
        output_dir: a directory that is new or empty, or that of the compaction to continue; None
            compacts the dataset in place.
        drop: image uris whose records are left out, or the path of a text file with one uri per
            line.  Nothing of these records is left in the compacted dataset, and rows with the same
            images do not come back by `append` or `stream`, unless `readmit` is given.
        at: the last generation to include, in another directory; None means the newest.
        stage_only, dry_run: as for `tfrecorder.append`.
        **options: num_shards, shard_size, shuffle, seed, name, overwrite, and the options
            about runners and progress, as for `tfrecorder.convert`.

    Returns:
        What `tfrecorder.convert` returns; with stage_only, what `tfrecorder.parts.stage` returns;
        with dry_run, what would be rewritten, in the words of the result's `changes`.  Type
        checkers take it for the result of a conversion that has ended.

    Raises:
        OptionError: an option's name or value is wrong, or a uri to drop is not in the dataset.
        DatasetError: there is no whole dataset written by this package, or a record is damaged.
        TfrecorderError: otherwise as `tfrecorder.convert` raises them.

    Example:
        >>> tfrecorder.compact("out")           # doctest: +SKIP
        >>> tfrecorder.compact("out", "out-2")  # doctest: +SKIP
    """
    # Rows that became rejects were already accepted as such when they were converted.
    given = ConvertOptions.of(options, NOT_COMPACTED)
    chosen = dataclasses.replace(given, max_reject_fraction=1.0)
    where = storage.absolute(storage.given_path(directory))
    in_place = output_dir is None
    if in_place and chosen.name is not None:
        words = "in place, a dataset keeps its name; leave it out, or give an `output_dir` too."
        raise OptionError.of("name", chosen.name, words)
    argument = "directory" if output_dir is None else "output_dir"
    path = output_path(directory if output_dir is None else output_dir, chosen, argument)
    target = storage.absolute(path)
    if in_place:
        if at is not None:
            raise OptionError.of("at", at, "give an `output_dir` too; later records would be lost.")
        own_dataset(where)  # otherwise the claim would make a directory
    elif f"{target}/".startswith(f"{where}/"):
        raise OptionError.of(
            "output_dir", target, f"give a directory outside of {where}, or leave it out."
        )
    require(flag, stage_only=stage_only, dry_run=dry_run)
    rows = partial(_rows, where, target, uri_list("drop", drop), at, chosen, dry_run)
    work = Job("compaction", path, chosen, rows, adds=in_place)
    return run_as_asked(work, stage_only=stage_only, dry_run=dry_run)


def _rows(
    where: str,
    target: str,
    drop: Collection[str],
    at: int | None,
    options: ConvertOptions,
    dry_run: bool,
    say: Say,
) -> PlannedRows | ConversionResult:
    """The rows of a dataset, planned to be written again."""
    check_runner(options)
    if where == target and not dry_run:
        complete(where)
    elif where != target:
        refuse_nested(target, options)
    say("reading the tables")
    newest, in_place = commit_at(where, own_dataset(where), at), where == target
    dataset, history = open_dataset(where, at), newest.dataset.history
    kept = _large(dataset, options) if in_place and not drop else {}
    shards = [shard for shard in newest.shards if shard.index not in kept.get(shard.split, ())]
    taken = _options(newest, options, elsewhere=not in_place)
    if in_place and not drop and (not shards or _is_compacted(newest, taken)):
        return dataclasses.replace(read_result(where), was_finished=True)
    stored = stored_rows(where, newest, shards)
    dropped = stored.is_newest & _dropped(stored, dataset.fields, drop)
    stays = stored.is_newest & ~dropped
    if not stays.any():
        raise OptionError.of("drop", ..., "it would leave no record; name fewer uris.")
    left = Added(stored.rows.filter(pa.array(stays)), stored.splits[stays])
    if drop:
        statistics = stored.statistics(dataset.fields, left.rows, left.splits)
    else:
        every = commits(where, newest)
        statistics = merged(commit.plan.statistics for commit in every)
    every_row, change = np.ones(len(stays), bool), np.full(len(stays), SAME)
    kind = PlanKind.COMPACTION
    plan, planned, rewritten = changed_plan(
        stored, every_row, change, left, dataset.fields, options, kind, where, statistics
    )
    marks, gone = read_marks(where, own_dataset(where)), int(dropped.sum())
    if drop:
        marks = marks.marking(stored.rows.filter(pa.array(dropped)), dataset.fields)
    notes = unmarked_words(stored.rows.filter(pa.array(dropped)), dataset.fields)
    notes += [storage.keeps_removed(target)] if drop and in_place else []
    changes = rewritten if in_place else Changes()
    changes = dataclasses.replace(changes, removed=gone, of_shards=len(newest.shards))
    records = sum(dataset.records(split) or 0 for split in dataset.splits)
    size = sum(map(dataset.bytes, dataset.splits)) // max(1, records)
    sizes = [max(0, size - RECORD_OVERHEAD)]
    return PlannedRows(
        plan=dataclasses.replace(
            plan,
            options=taken,
            kept=kept,
            carried=history if in_place else History(history.origins),
            summary=Summary(
                notes=tuple(filter(None, notes)), changes=changes if in_place or gone else None
            ),
            losses=lasting(own_dataset(where).plan.losses),
        ),
        planned=planned,
        options=options,
        sizes=lambda: sizes,
        marks=marks if drop or (marks and not in_place) else None,
    )


def _large(stored: StoredDataset, options: ConvertOptions) -> dict[str, list[int]]:
    """The numbers of the shards of each split that are large enough to stay as they are."""
    if options.num_shards is not None:
        return {}
    large = {}
    for split, shards in stored.splits.items():
        numbers = [n for n, shard in enumerate(shards) if shard.bytes * 2 >= options.shard_bytes]
        if len(numbers) >= len(shards) - 1:  # a single small one has none to be merged with
            numbers = list(range(len(shards))) if numbers else []
        if numbers:
            large[split] = numbers
    return large


def _is_compacted(newest: Commit, options: Mapping[str, Any]) -> bool:
    """True if nothing was added since a compaction with the same options."""
    plan = newest.plan
    is_last = plan.kind is PlanKind.COMPACTION and newest.dataset.since == newest.number
    return is_last and plan.options == options


#: What a plan says of a name that was given.
_OF_NAME = ("name", "version")


def _options(newest: Commit, options: ConvertOptions, elsewhere: bool) -> dict[str, Any]:
    """The options of the dataset, and those of its order and place that were given."""
    now = options.content_options()
    # A new dataset elsewhere has the name that was given for it, or none.
    left = _OF_NAME if elsewhere else ()
    taken = {n: value for n, value in newest.plan.options.items() if n not in left}
    return {**taken, **{name: now[name] for name in (*OF_ORDER, *_OF_NAME) if name in now}}


def _dropped(stored: StoredRows, fields: Sequence[Field], drop: Collection[str]) -> np.ndarray:
    """True for each row whose first image has one of some uris."""
    if not drop:
        return np.zeros(len(stored.rows), bool)
    image, where = primary_file(fields), stored.where
    if image is None:
        raise OptionError.of("drop", ..., f"the records of {where} have no uris; leave it out.")
    uris = stored.rows.column(image.uri_key).combine_chunks()
    wanted = pa.array(list(drop), pa.large_string())
    absent = wanted.filter(pc.invert(pc.is_in(wanted, value_set=uris)))
    if len(absent):
        raise OptionError.of(
            "drop",
            ...,
            f"{len(absent):,} of {len(wanted):,} uris are not in {where}, such as "
            f"{absent[0].as_py()!r}; write each exactly as the source did.",
        )
    return np.asarray(pc.is_in(uris, value_set=wanted).to_numpy(zero_copy_only=False))
