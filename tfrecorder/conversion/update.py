"""`update`: the records of a dataset as a table has them now.

Rows of the table are those of the dataset whose images and masks are in the same places.  The rest
are new.  Images come from the records.
"""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import IO, TYPE_CHECKING, Any, Literal, overload

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tfrecorder import storage
from tfrecorder.conversion import dry_run as trial, job
from tfrecorder.conversion.append import EARLY, own_dataset
from tfrecorder.conversion.changed_rows import Added, StoredRows, changed_plan
from tfrecorder.conversion.existing_rows import NOWHERE, joined_texts, texts_of
from tfrecorder.conversion.inherited_options import inherited_options
from tfrecorder.conversion.new_classes import named_classes
from tfrecorder.conversion.record_copies import statistics_of
from tfrecorder.conversion.removed import read_marks
from tfrecorder.conversion.same_schema import fit_texts, refuse_other_schema
from tfrecorder.conversion.staged import PlannedRows, Summary
from tfrecorder.conversion.table import Say, check_table
from tfrecorder.core.checks import flag
from tfrecorder.format.plan_columns import (
    BASE,
    CHANGE,
    COPY_OF,
    MADE,
    READ,
    SAME,
    VALUES,
    value_columns,
)
from tfrecorder.options.append import UpdateOptions
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.options.keywords import UpdateKeywords
from tfrecorder.options.option import names_of, require
from tfrecorder.options.signature import takes
from tfrecorder.options.subsets import NOT_APPENDED
from tfrecorder.output.changes import Changes
from tfrecorder.output.path import output_path
from tfrecorder.output.result import ConversionResult, read_result
from tfrecorder.output.spool import spool_images
from tfrecorder.output.status import ConversionStatus
from tfrecorder.plan.next_commit import rows_of
from tfrecorder.plan.plan import PlanKind, described, spooled_images
from tfrecorder.plan.preflight import open_some, sizes_of_some
from tfrecorder.reading.commits import commits
from tfrecorder.reading.open import open_dataset
from tfrecorder.reading.shard_tables import joined
from tfrecorder.runners.beam_options import check_runner
from tfrecorder.schema.fields import Field
from tfrecorder.schema.keys import SOURCE_ID, SPLIT_COLUMN
from tfrecorder.schema.kinds import Boxes, Image, Label, Mask
from tfrecorder.schema.splits import SPLIT_TYPE
from tfrecorder.schema.statistics import merged
from tfrecorder.sources.places import places
from tfrecorder.sources.source import read_source
from tfrecorder.validation.rules import Checked
from tfrecorder.verification.sources import other_sources
from tfrecorder.writing.commit import complete

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict
    from typing_extensions import Unpack

    from tfrecorder.conversion.dry_run import DryRun
    from tfrecorder.options.keywords import OnDataflow, Path, Source
    from tfrecorder.runners.dataflow.job import DataflowJob


@overload
def update(  # type: ignore[overload-overlap]
    source: Source, directory: Path, *, runner: OnDataflow, **options: Unpack[UpdateKeywords]
) -> DataflowJob: ...
@overload
def update(
    source: Source, directory: Path, *, stage_only: Literal[True], **options: Unpack[UpdateKeywords]
) -> ConversionStatus: ...
@overload
def update(
    source: Source, directory: Path, *, dry_run: Literal[True], **options: Unpack[UpdateKeywords]
) -> DryRun: ...
@overload
def update(
    source: Source, directory: Path, *, runner: str | None = None, **options: Unpack[UpdateKeywords]
) -> ConversionResult: ...
@takes(UpdateKeywords, UpdateOptions, ConvertOptions)
def update(
    source: pd.DataFrame | Dataset | DatasetDict | str | os.PathLike[str] | IO[Any],
    directory: str | os.PathLike[str],
    *,
    runner: str | None = None,
    stage_only: bool = False,
    dry_run: bool = False,
    **options: Unpack[UpdateKeywords],
) -> ConversionResult | DataflowJob | ConversionStatus | DryRun:
    """Make a dataset what a table says now: correct labels and other values, add new rows.

    A row of the table is the row of the dataset whose images and masks are in the same places,
    however their uris are spelled; without a mask in the same place, the row whose images are.
    Rows without images are the same if all their values are, so they are never corrected.  Images
    are taken from the records: their files need not exist any more.  Only shards with a corrected
    record are written again.  Records keep their numbers, and classes their integers, unless rows
    are removed or go to another split.  A row keeps its split unless the table states another.  To
    continue an interrupted update, repeat the call.

    Args:
        source: as for `tfrecorder.append`.
        directory: a finished dataset.
        stage_only: as for `tfrecorder.append`.
        dry_run: run every check, and return what would change; nothing is written.
        **options: of `tfrecorder.convert`, as for `tfrecorder.append`.

    Returns:
        What `tfrecorder.convert` returns, for the whole dataset; its `changes` says what was
        corrected, added, moved and removed.  With stage_only, what `tfrecorder.parts.stage`
        returns; with dry_run, what would change.

    Raises:
        OptionError: an option's name or value is wrong, or does not fit the dataset.
        DatasetError: there is no finished dataset written by this package, or a shard is damaged.
        SourceError: the source cannot be read as a table, its columns are not the dataset's, or a
            corrected row cannot be written.
        OutputError: another operation is running there, or was begun and not finished.
        TfrecorderError: otherwise as `tfrecorder.convert` raises them.

    Example:
        >>> tfrecorder.update("flowers.csv", "out").changes.corrected  # doctest: +SKIP
        12
    """
    require(flag, stage_only=stage_only, dry_run=dry_run)
    given: dict[str, Any] = {"runner": runner, **options}
    own = {name: given.pop(name) for name in names_of(UpdateOptions) if name in given}
    updating = UpdateOptions.of(own)
    early = {name: given[name] for name in (*EARLY, *NOT_APPENDED) if name in given}
    chosen = ConvertOptions.of(early, NOT_APPENDED)
    path = output_path(directory, chosen, "directory")
    where = storage.absolute(path)
    with storage.acting_as(chosen.account):
        own_dataset(where)  # otherwise the claim would make a directory
    rows = partial(_rows, source, where, updating, given, dry_run)
    work = job.Job("update", path, chosen, rows, source, adds=True)
    if dry_run:
        return trial.of_job(work)
    return job.stage_only(work) if stage_only else job.run(work)


def _rows(
    source: Any,
    where: str,
    updating: UpdateOptions,
    given: dict[str, Any],
    dry_run: bool,
    say: Say,
) -> PlannedRows | ConversionResult:
    """The rows of a dataset with the values of a table, planned to be written again."""
    if not dry_run:
        complete(where)
    dataset, newest = open_dataset(where), own_dataset(where)
    options = inherited_options(where, newest, given)
    check_runner(options)
    say("reading the table")
    table = fit_texts(read_source(source, options), dataset.fields, source)
    say("checking the table")
    refuse_other_schema(where, dataset.fields, table)
    options = dataclasses.replace(options, warnings=updating.severe(options.warnings))
    beside = partial(named_classes, dataset.fields, updating)
    checked, report = check_table(table, where, options, dataset.fields, beside)
    refuse_other_schema(where, dataset.fields, table, checked.fields)
    say("comparing it with the dataset")
    stored = StoredRows(where, newest)
    checked = _fitted(checked, stored.rows)
    at, remade = _matching(stored, checked, table.base, dataset.fields)
    known = np.flatnonzero(at >= 0)
    gone, moved = np.zeros(len(stored.rows), bool), np.zeros(len(at), bool)
    if updating.missing == "remove":
        absent = stored.is_newest.copy()
        absent[at[known]] = False
        gone |= stored.all_of(absent)
    splits = checked.frame[SPLIT_COLUMN].to_numpy(object)
    before = stored.splits.to_numpy(object)
    moved[known] = ~checked.unassigned[known] & (splits[known] != before[at[known]])
    gone |= stored.all_of(_mask(at[moved], len(gone)))
    change, differing = _changes(stored, checked, table.base, at, remade, options.transforms)
    read_again = 0
    if updating.reread:
        say("comparing the images with their files")
        files = _replaced_files(stored, dataset.fields) & _mask(at[known], len(change))
        change[files] = READ
        read_again = int(files.sum())
    labels = _relabelled(stored, checked, at, checked.fields)
    rows = _with_values(stored.rows, checked, table.base, at, change)
    new, first, marks = checked.part(at < 0), rows_of(newest.manifest), read_marks(where, newest)
    stays, left = marks.sift(table.only(table.frame.index.isin(new.frame.index)), updating.readmit)
    removed = int((~stays).sum())
    new = new.part(stays)
    of_moved = rows.append_column(CHANGE, pa.array(change, pa.int8())).take(pa.array(at[moved]))
    added = _added(of_moved, splits[moved], new, table.base, first)
    stored.rows = rows
    stays = stored.is_newest & ~gone
    parts = [
        (rows.filter(pa.array(stays)), stored.splits[stays]),
        (of_moved, pd.Series(splits[moved], dtype=SPLIT_TYPE)),
    ]
    every = commits(where, newest)
    old, of_split = joined([p for p, _ in parts]), pd.concat([s for _, s in parts])
    statistics = [statistics_of(checked.fields, _columns(old), of_split, every)]
    if len(new.frame):
        statistics.append(described(new))
    plan, planned, touched = changed_plan(
        stored,
        gone,
        np.where(gone, SAME, change),
        added,
        checked.fields,
        options,
        PlanKind.UPDATE,
        table.base,
        merged(statistics),
    )
    corrected = (change != SAME) & stays
    corrected[at[moved]] |= change[at[moved]] != SAME
    names = (f"{old} → {now}" for old, now in zip(before[at[moved]], splits[moved], strict=True))
    changes = Changes(
        corrected=int(corrected.sum()),
        columns=differing,
        labels=labels,
        read_again=read_again,
        moved=Counter(names),
        added=len(new.frame),
        removed=int((stored.is_newest & gone).sum()) - int(moved.sum()),
        shards=len(touched),
        of_shards=len(stored.shards),
        bytes=sum(stored.size_of(place) for place in touched),
    )
    if changes == Changes(of_shards=len(stored.shards)):
        result = read_result(where, newest.number)
        return dataclasses.replace(result, was_finished=True, changes=changes, removed=removed)
    read = planned.filter(pc.equal(planned.column(CHANGE), READ))
    spooled = spooled_images(
        {name: read.column(name).combine_chunks() for name in read.column_names}
    )
    return PlannedRows(
        folder=where,
        plan=dataclasses.replace(plan, spooled=spooled),
        planned=planned,
        options=options,
        sizes=partial(sizes_of_some, new, table.base, options),
        check=partial(open_some, new, table.base, options),
        spool=partial(_spool_new, checked),
        summary=Summary(report, dict(table.passed_over), removed=removed, changes=changes),
        marks=None if left == marks else left,
    )


def _replaced_files(stored: StoredRows, fields: Sequence[Field]) -> np.ndarray:
    """True for each row of the dataset of which an image or mask has other bytes now."""
    others = other_sources(stored.where, stored.shards, fields)
    rows = {other.row for other in others if other.fault.code == "source_changed"}
    numbers = stored.rows.column(SOURCE_ID).to_numpy()
    return np.isin(numbers, [*rows]) & stored.is_newest


def _mask(places: np.ndarray, size: int) -> np.ndarray:
    mask = np.zeros(size, bool)
    mask[places] = True
    return mask


def _matching(
    stored: StoredRows, checked: Checked, base: str, fields: Sequence[Field]
) -> tuple[np.ndarray, np.ndarray]:
    """For each row of a table, the row of the dataset that it is; -1 for a new one.

    Of several rows in the same places, the first is the first.

    Returns:
        These rows, and for each whether its mask is another one.
    """
    images = [field for field in fields if isinstance(field.kind, Image)]
    files = [field for field in fields if isinstance(field.kind, (Image, Mask))]
    at = np.full(len(checked.frame), -1)
    free, remade = stored.is_newest.copy(), np.zeros(len(at), bool)
    names = sorted({*value_columns(stored.rows.column_names)} & {*checked.values})
    numbers = stored.rows.column(SOURCE_ID).to_numpy()

    def pair(keys: pa.Array, among: np.ndarray) -> pd.Series:
        """Give each row without one a row of the dataset with the same key; those that got one."""
        codes = keys.dictionary_encode().indices.to_numpy()
        known = _turns(codes[: len(among)], among, numbers)
        wanted = _turns(codes[len(among) :], at < 0, np.arange(len(at)))
        found = wanted.merge(known, on=["key", "turn"], suffixes=("", "_there"))
        at[found["row"]] = found["row_there"]
        return found["row"]

    # With another mask, it is a correction of the row with the image.
    for compared in [files, images] if len(files) > len(images) > 0 else [files]:
        here = _keys(checked.values, base, compared, names)
        there = pa.nulls(len(free), pa.large_string())
        for folder in stored.rows.column(BASE).unique().to_pylist():
            of = pc.equal(stored.rows.column(BASE), folder).combine_chunks()
            values = _columns(stored.rows.filter(of))
            there = pc.replace_with_mask(there, of, _keys(values, folder, compared, names))
        remade[pair(pa.concat_arrays([there, here]), free)] = compared is not files
        free[at[at >= 0]] = False
    came_as_bytes = _came_as_bytes(stored.rows, images)
    if came_as_bytes.any():  # a frame of the dataset has their names alone
        of_tables = [
            joined_texts([table[one.uri_key] for one in images])
            for table in (_columns(stored.rows), checked.values)
        ]
        pair(pa.concat_arrays(of_tables), free & came_as_bytes)
    return at, remade


def _columns(rows: pa.Table) -> dict[str, pa.Array]:
    return {name: rows.column(name).combine_chunks() for name in rows.column_names}


def _came_as_bytes(rows: pa.Table, images: Sequence[Field]) -> np.ndarray:
    """True for each row of a dataset of which an image came as bytes."""
    came = np.zeros(len(rows), bool)
    for field in images:
        if field.spool_key in rows.column_names:
            came |= np.asarray(pc.not_equal(rows.column(field.spool_key), ""))
    return came


def _turns(keys: np.ndarray, among: np.ndarray, order: np.ndarray) -> pd.DataFrame:
    """Rows with their keys, each with its turn among those with the same key."""
    rows = np.flatnonzero(among)
    rows = rows[np.argsort(order[rows], kind="stable")]
    frame = pd.DataFrame({"key": keys[rows], "row": rows})
    return frame.assign(turn=frame.groupby("key").cumcount())


def _keys(
    values: Mapping[str, pa.Array], base: str, files: Sequence[Field], names: Sequence[str]
) -> pa.Array:
    """What rows are known by: the places of their files, or without any all their values."""
    if not files:
        return joined_texts([values[name] for name in names])
    of_files = [(values[one.uri_key], base or NOWHERE, values.get(one.spool_key)) for one in files]
    return joined_texts([places(*of_file) for of_file in of_files])


def _fitted(checked: Checked, rows: pa.Table) -> Checked:
    """A table with its values in the types of a dataset's."""
    types = {name: rows.schema.field(name).type for name in rows.column_names}
    values = {
        name: column.cast(types[name]) if name in types else column
        for name, column in checked.values.items()
    }
    return dataclasses.replace(checked, values=values)


def _changes(
    stored: StoredRows,
    checked: Checked,
    base: str,
    at: np.ndarray,
    remade: np.ndarray,
    transforms: bool,
) -> tuple[np.ndarray, dict[str, int]]:
    """What becomes of each record of the dataset, and how many differ in each column.

    Boxes and masks are placed on the image as it was before it was resized, so they need the source
    again where images are stored otherwise.

    Args:
        remade: which rows of the table have another mask.
    """
    change, differing = np.full(len(stored.rows), SAME), dict[str, int]()
    known = np.flatnonzero(at >= 0)
    here, there = pa.array(known), pa.array(at[known])
    has_record = stored.rows.column(COPY_OF.size).to_numpy()[at[known]] >= 0
    elsewhere = stored.rows.column(BASE).take(there).to_numpy() != base
    for field in checked.fields:
        if isinstance(field.kind, Image):
            continue
        differs = remade[known] if isinstance(field.kind, Mask) else np.zeros(len(known), bool)
        for name in () if isinstance(field.kind, Mask) else _names(field, checked, stored.rows):
            column = stored.rows.column(name).combine_chunks()
            differs |= _differ(column.take(there), checked.values[name].take(here))
        how = np.full(len(known), VALUES)
        if isinstance(field.kind, (Boxes, Mask)):
            how[:] = READ if transforms else MADE
            how[elsewhere & isinstance(field.kind, Mask)] = READ  # whose place starts elsewhere
        change[at[known]] = np.maximum(change[at[known]], np.where(differs, how, SAME))
        if count := int((differs & has_record).sum()):
            differing[field.column] = count
    return change, differing


def _names(field: Field, checked: Checked, rows: pa.Table) -> list[str]:
    """The columns of a field's values that both a table and a dataset have."""
    keys = (one.key for one in field.features)
    return [key for key in keys if key in checked.values and key in rows.column_names]


def _differ(old: pa.Array, new: pa.Array) -> np.ndarray:
    """True where two values differ; NaN is NaN."""
    differ = pc.not_equal(texts_of(old), texts_of(new))
    return np.asarray(pc.fill_null(differ, False).to_numpy(zero_copy_only=False))


def _relabelled(
    stored: StoredRows, checked: Checked, at: np.ndarray, fields: Sequence[Field]
) -> dict[str, int]:
    """How many records go from one class to another, for the columns with one class a record."""
    names: Counter[str] = Counter()
    known = np.flatnonzero(at >= 0)
    has_record = stored.rows.column(COPY_OF.size).to_numpy()[at[known]] >= 0
    known = known[has_record]
    for field in fields:
        if not isinstance(field.kind, Label) or not _names(field, checked, stored.rows):
            continue
        key = field.text_key or field.label_key or ""
        old = stored.rows.column(key).combine_chunks().take(pa.array(at[known]))
        new = checked.values[key].take(pa.array(known))
        differs = pa.array(_differ(old, new))
        pairs = zip(old.filter(differs).to_pylist(), new.filter(differs).to_pylist(), strict=True)
        names.update(f"{was} → {now}" for was, now in pairs)
    return dict(names)


def _with_values(
    rows: pa.Table,
    checked: Checked,
    base: str,
    at: np.ndarray,
    change: np.ndarray,
) -> pa.Table:
    """The rows of a dataset with the values of a table where these differ."""
    known = np.flatnonzero(at >= 0)
    given = {**checked.values, BASE: pa.repeat(pa.scalar(base, pa.large_string()), len(at))}
    least = dict.fromkeys(given, VALUES) | {BASE: READ}
    for field in checked.fields:
        if isinstance(field.kind, (Image, Mask)):
            how = READ if isinstance(field.kind, Image) else MADE
            least |= {field.uri_key: how, field.spool_key: how}
    for name in (name for name in given if name in rows.column_names):
        changed = known[change[at[known]] >= least[name]]
        if len(changed):
            take = np.arange(len(rows))
            take[at[changed]] = len(rows) + changed
            both = pa.concat_arrays([rows.column(name).combine_chunks(), given[name]])
            place = rows.column_names.index(name)
            rows = rows.set_column(place, name, both.take(pa.array(take)))
    return rows


def _added(
    moved: pa.Table,
    of_moved: np.ndarray,
    new: Checked,
    base: str,
    first: int,
) -> Added:
    """The rows that are added at the ends of their splits.

    Args:
        moved: those that come from another split.
        of_moved: their splits.
        first: the number of the first new row.
    """
    count = len(new.frame)
    texts = {BASE: base, COPY_OF.file: ""}
    columns = {
        SOURCE_ID: pa.array(np.arange(first, first + count)),
        **new.values,
        **{
            name: pa.repeat(pa.scalar(text, pa.large_string()), count)
            for name, text in texts.items()
        },
        CHANGE: pa.array(np.full(count, READ), pa.int8()),
    }
    splits = [*new.frame[SPLIT_COLUMN], *of_moved]
    rows = joined([part for part in (pa.table(columns), moved) if len(part)] or [moved])
    return Added(rows, pd.Series(splits, dtype=SPLIT_TYPE))


def _spool_new(checked: Checked, where: str, rows: pa.Table) -> None:
    """Spool the images that came as bytes of the rows that are read from the table."""
    read = pc.equal(rows.column(CHANGE), READ)
    spool_images(checked.contents.values(), where, rows.filter(read))
