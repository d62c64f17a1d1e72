"""`compact`: all records of a dataset in new shards, in place or in another directory.

The plan says for each row where its record is; workers copy it, compare its checksums and decode
nothing.  Otherwise it is a conversion like any other.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from tfrecorder import storage
from tfrecorder.conversion.changed_rows import Added, StoredRows, changed_plan, stored_rows
from tfrecorder.conversion.job import run_as_asked
from tfrecorder.conversion.on_dataset import own_dataset, own_state
from tfrecorder.conversion.operation import Operation, Planned, Say
from tfrecorder.conversion.removal_marks import Marks, read_marks
from tfrecorder.core.arrays import Bools
from tfrecorder.core.option import flag, spelled
from tfrecorder.errors import OptionError
from tfrecorder.format.layout import SAME
from tfrecorder.format.manifest import lasting_losses
from tfrecorder.format.plan import Carried, History, PlanKind
from tfrecorder.format.summary import Changes, Summary
from tfrecorder.options.changes import NOT_COMPACTED, OF_ORDER
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.options.keywords import CompactKeywords, Unpack
from tfrecorder.options.option import require, takes
from tfrecorder.output.directory import refuse_nested
from tfrecorder.output.result import ConversionResult, read_result
from tfrecorder.output.state import DatasetState, output_path
from tfrecorder.plan.make_plan import RECORD_OVERHEAD
from tfrecorder.reading.choice import choose
from tfrecorder.reading.commits import Commit, commit_at, commits
from tfrecorder.reading.dataset import StoredDataset
from tfrecorder.reading.open import open_own
from tfrecorder.runners.beam_options import check_runner
from tfrecorder.schema.fields import Field, primary_file
from tfrecorder.schema.statistics import merged
from tfrecorder.sources.path_source import uri_list


@takes(CompactKeywords, ConvertOptions)
def compact(  # type: ignore[explicit-any]  # overloads would say the same thing four times
    directory: str | os.PathLike[str],
    output_dir: str | os.PathLike[str] | None = None,
    *,
    drop: Iterable[str] | str | os.PathLike[str] | None = None,
    copies: bool = False,
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
            images do not come back by `append` or `stream`, unless `readmit` is given.  Those that
            were removed before are passed over and counted.
        copies: also leave out records that have the same bytes as one of these under another name;
            otherwise the result counts them and names the first.
        at: the last generation to include, in another directory; None means the newest.
        stage_only, dry_run: as for `tfrecorder.append`.
        **options: num_shards, shard_size, shuffle, seed, name, overwrite, and the options
            about runners and progress, as for `tfrecorder.convert`.

    Returns:
        What `tfrecorder.convert` returns; with stage_only, what `tfrecorder.parts.stage` returns;
        with dry_run, what would be rewritten, in the words of the result's `changes`.  Type
        checkers take it for the result of a conversion that has ended.

    Raises:
        OptionError: an option's name or value is wrong, or a uri to drop was never in the dataset.
        DatasetError: there is no whole dataset written by this package, or a record is damaged.
        TfrecorderError: otherwise as `tfrecorder.convert` raises them.

    Example:
        >>> tfrecorder.compact("out")           # doctest: +SKIP
        >>> tfrecorder.compact("out", "out-2")  # doctest: +SKIP
    """
    require(flag, copies=copies)
    if copies and drop is None:
        words = f"it has no effect without {spelled('drop')}; give that too."
        raise OptionError.of("copies", copies, words)
    uris = uri_list("drop", drop)
    compaction = Compaction(directory, output_dir, uris, at, given=options, copies=copies)
    return run_as_asked(compaction, is_staged=stage_only, is_tried=dry_run)


class Compaction(Operation):
    """Copies the records of a dataset into new shards, in place or in another directory.

    Attributes:
        base: the directory of the dataset.
        drop: image uris whose records are left out.
        copies: so are records with the same bytes.
        at: the last generation to include; None for the newest.
        adds: it is in place.
    """

    verb = "compaction"
    source = None

    def __init__(
        self,
        directory: str | os.PathLike[str],
        output_dir: str | os.PathLike[str] | None,
        drop: Collection[str],
        at: int | None,
        given: Mapping[str, object],
        copies: bool,
    ) -> None:
        self.base = storage.absolute(storage.given_path(directory))
        self.drop = drop
        self.copies = copies
        self.at = at
        self.adds = output_dir is None
        # Rows that became rejects were already accepted as such when they were converted.
        options = ConvertOptions.of(given, NOT_COMPACTED)
        self.options = dataclasses.replace(options, max_reject_fraction=1.0)
        if output_dir is None:
            if options.name is not None:
                words = "in place, a dataset keeps its name; leave it out, or name a new directory."
                raise OptionError.of("name", options.name, words)
            self.path = output_path(directory, options, "directory")
            if at is not None:
                words = "name a new directory too; later records would be lost."
                raise OptionError.of("at", at, words)
            return
        self.path = output_path(output_dir, options)
        if f"{self.where}/".startswith(f"{self.base}/"):
            words = f"give a directory outside of {self.base}, or leave it out."
            raise OptionError.of("output_dir", self.where, words)

    def look(self) -> DatasetState:
        """What is there at its start: in place a dataset, which the claim would make otherwise."""
        check_runner(self.options)
        if self.adds:
            return own_state(self.where)
        refuse_nested(self.where, self.options)
        return DatasetState.read(self.where)

    def plan(
        self,
        state: DatasetState,
        say: Say,
    ) -> Planned | ConversionResult:
        """The rows of a dataset, planned to be written again."""
        where = self.base
        options = self.options
        in_place = self.adds
        say("reading the tables")
        last = own_dataset(state if in_place else own_state(where))
        newest = commit_at(where, last, self.at)
        dataset = open_own(where, last, self.at)
        history = newest.dataset.history
        marks = read_marks(where, last)
        dropped = np.zeros(0, bool)
        said = Summary()
        if self.drop:
            stored = stored_rows(where, newest)
            dropped, said = self._dropped(stored, dataset.fields, marks)
        drop = bool(dropped.any())
        kept = _large(dataset, options) if in_place and not drop else {}
        shards = [shard for shard in newest.shards if shard.index not in kept.get(shard.split, ())]
        taken = _options(newest, options, elsewhere=not in_place)
        if in_place and not drop and (not shards or _is_compacted(newest, taken)):
            return dataclasses.replace(read_result(where), was_finished=True, **said.said)
        if not drop:
            stored = stored_rows(where, newest, shards)
            dropped = np.zeros(len(stored.rows), bool)
        stays = stored.is_newest & ~dropped
        if not stays.any():
            raise OptionError.of("drop", ..., "it would leave no record; name fewer uris.")
        left = Added(stored.rows.filter(pa.array(stays)), stored.splits[stays])
        if drop:
            statistics = stored.statistics(dataset.fields, left.rows, left.splits)
        else:
            every = commits(where, newest)
            statistics = merged(commit.plan.rows.statistics for commit in every)
        plan, rows, rewritten = changed_plan(
            stored,
            gone=np.ones(len(stays), bool),
            change=np.full(len(stays), SAME),
            added=left,
            fields=dataset.fields,
            options=options,
            kind=PlanKind.COMPACTION,
            base=where,
            statistics=statistics,
        )
        out = stored.rows.filter(pa.array(dropped))
        notes = said.notes
        if drop:
            marks = marks.marking(out, dataset.fields)
        if drop and in_place:
            notes = (*notes, storage.keeps_removed(where))
        changes = dataclasses.replace(
            rewritten if in_place else Changes(),
            removed=len(out),
            of_shards=len(newest.shards),
        )
        records = sum(dataset.records(split) or 0 for split in dataset.splits)
        size = sum(map(dataset.bytes, dataset.splits)) // max(1, records)
        said = dataclasses.replace(
            said,
            notes=tuple(filter(None, notes)),
            changes=changes if in_place or len(out) else None,
        )
        return Planned(
            plan=dataclasses.replace(
                plan.laid_out(kept=kept),
                options=taken,
                carried=Carried(
                    next_row=plan.carried.next_row,
                    history=history if in_place else History(history.origins),
                    losses=lasting_losses(last.plan.carried.losses),
                ),
                summary=said,
            ),
            rows=rows,
            options=options,
            record_bytes=max(0, size - RECORD_OVERHEAD),
            marks=marks if drop or (marks and not in_place) else None,
        )

    def _dropped(
        self,
        stored: StoredRows,
        fields: Sequence[Field],
        marks: Marks,
    ) -> tuple[Bools, Summary]:
        """The rows to leave out, whose first image has one of the uris; and what to say of them."""
        image = primary_file(fields)
        if image is None:
            words = f"the records of {self.base} have no uris; leave it out."
            raise OptionError.of("drop", ..., words)
        frame = pd.DataFrame({image.column: stored.rows.column(image.uri_key).to_pandas()})
        named, fault, repeated = choose(frame, {image.column: self.drop}, marks)
        if fault is not None:
            raise OptionError.of("drop", ..., fault.remedy)
        named &= stored.is_newest
        dropped, notes = marks.taken(stored, fields, named, repeated, self.copies)
        return dropped, Summary(removed=len(repeated), notes=notes)


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


def _is_compacted(newest: Commit, options: Mapping[str, object]) -> bool:
    """True if nothing was added since a compaction with the same options."""
    plan = newest.plan
    is_last = plan.kind is PlanKind.COMPACTION and newest.dataset.since == newest.number
    return is_last and plan.options == options


#: What a plan says of a name that was given.
_OF_NAME = ("name", "version")


def _options(
    newest: Commit,
    options: ConvertOptions,
    elsewhere: bool,
) -> dict[str, object]:
    """The options of the dataset, and those of its order and place that were given."""
    now = options.content_options()
    # A new dataset elsewhere has the name that was given for it, or none.
    left = _OF_NAME if elsewhere else ()
    taken = {name: value for name, value in newest.plan.options.items() if name not in left}
    for name in (*OF_ORDER, *_OF_NAME):
        if name in now:
            taken[name] = now[name]
    return taken
