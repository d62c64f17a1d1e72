"""`remove`: records that go for good, with every name of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from tfrecorder import storage
from tfrecorder.conversion import dry_run as trial, job
from tfrecorder.conversion.append import own_dataset
from tfrecorder.conversion.changed_rows import Added, StoredRows, changed_plan
from tfrecorder.conversion.inherited_options import inherited_options
from tfrecorder.conversion.record_copies import statistics_of
from tfrecorder.conversion.removed import read_marks
from tfrecorder.conversion.staged import PlannedRows, Summary
from tfrecorder.conversion.table import Say
from tfrecorder.core.checks import flag, nearest
from tfrecorder.errors import OptionError
from tfrecorder.format.plan_columns import SAME
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.options.keywords import RemoveKeywords
from tfrecorder.options.option import require
from tfrecorder.options.signature import takes
from tfrecorder.options.subsets import NOT_REMOVED
from tfrecorder.output.changes import Changes
from tfrecorder.output.path import output_path
from tfrecorder.plan.plan import PlanKind
from tfrecorder.reading.commits import commits
from tfrecorder.reading.open import open_dataset
from tfrecorder.runners.beam_options import check_runner
from tfrecorder.schema.fields import Field, primary_image
from tfrecorder.schema.keys import SOURCE_ID, SPLIT_COLUMN, URI_COLUMN
from tfrecorder.schema.kinds import Image, Mask
from tfrecorder.schema.splits import SPLIT_TYPE
from tfrecorder.writing.commit import complete

if TYPE_CHECKING:
    from typing_extensions import Unpack

#: The column of a condition with the number of each row.
ROW = "row"


@takes(RemoveKeywords, ConvertOptions)
def remove(
    directory: str | os.PathLike[str],
    where: Mapping[str, Any] | str,
    *,
    stage_only: bool = False,
    dry_run: bool = False,
    **options: Unpack[RemoveKeywords],
) -> Any:
    """Remove records from a dataset for good, with every name of them.

    Nothing of them is left below the directory: neither in shards nor in tables, lists, manifests
    or what `undo` keeps.  Only shards that hold such a record are written again.  The records after
    them in their split move up, so positions and generations of before are refused.  Classes keep
    their integers.  The same images do not come back by `append`, `stream` or `update`, unless
    `readmit` is given; what is kept for that are salted hashes of their places and bytes.  To
    continue an interrupted removal, repeat the call.

    Args:
        directory: a finished dataset.
        where: which rows: columns, each with a value or a list of values, all of which must hold,
            such as `{"image_uri": ["a.jpg", "b.jpg"]}` or `{"label": "cat", "split": "TEST"}`; or a
            condition as `pandas.DataFrame.query` takes it: "label == 'cat' and width < 32".  The
            columns are those of the dataset, `split`, and `row`, a row's number in the source.
        stage_only: as for `tfrecorder.append`.
        dry_run: only say what would go; nothing is written.
        **options: those about runners and progress, as for `tfrecorder.convert`.

    Returns:
        What `tfrecorder.convert` returns, for the dataset that is left; its `changes` says how many
        rows were removed.  With stage_only, what `tfrecorder.parts.stage` returns; with dry_run,
        what would go.

    Raises:
        OptionError: a column is not in the dataset, a value is in none of its rows, the condition
            cannot be understood, or no record would be left.
        DatasetError: there is no finished dataset written by this package, or a shard is damaged.
        OutputError: another operation is running there, or was begun and not finished.
        TfrecorderError: otherwise as `tfrecorder.convert` raises them.

    Example:
        >>> tfrecorder.remove("out", {"image_uri": "cats/tom.jpg"})  # doctest: +SKIP
    """
    require(flag, stage_only=stage_only, dry_run=dry_run)
    chosen = ConvertOptions.of(options, NOT_REMOVED)
    path = output_path(directory, chosen, "directory")
    folder = storage.absolute(path)
    with storage.acting_as(chosen.account):
        own_dataset(folder)  # otherwise the claim would make a directory
    rows = partial(_rows, folder, where, dict(options), dry_run)
    work = job.Job("removal", path, chosen, rows, adds=True)
    if dry_run:
        return trial.of_job(work)
    return job.stage_only(work) if stage_only else job.run(work)


def _rows(
    folder: str, where: Mapping[str, Any] | str, given: dict[str, Any], dry_run: bool, say: Say
) -> PlannedRows:
    """The rows of a dataset without some of them, planned to be written again."""
    if not dry_run:
        complete(folder)
    dataset, newest = open_dataset(folder), own_dataset(folder)
    options = inherited_options(folder, newest, given)
    check_runner(options)
    say("reading the tables")
    stored = StoredRows(folder, newest)
    chosen = _chosen(stored, dataset.fields, where) & stored.is_newest
    gone = stored.all_of(chosen)
    stays = stored.is_newest & ~gone
    left = stored.rows.filter(pa.array(stays))
    columns = {name: left.column(name).combine_chunks() for name in left.column_names}
    every = commits(folder, newest)
    plan, planned, touched = changed_plan(
        stored,
        gone,
        np.full(len(stored.rows), SAME),
        Added(stored.rows.slice(0, 0), pd.Series([], dtype=SPLIT_TYPE)),
        dataset.fields,
        options,
        PlanKind.REMOVAL,
        folder,
        statistics_of(dataset.fields, columns, stored.splits[stays], every),
    )
    changes = Changes(
        removed=int(chosen.sum()),
        shards=len(touched),
        of_shards=len(stored.shards),
        bytes=sum(map(stored.size_of, touched)),
    )
    marks, keeps = read_marks(folder, newest), storage.keeps_removed(folder)
    return PlannedRows(
        folder=folder,
        plan=plan,
        planned=planned,
        options=options,
        sizes=list,
        summary=Summary(changes=changes, notes=(keeps,) if keeps else ()),
        marks=marks.marking(stored.rows.filter(pa.array(gone)), dataset.fields),
    )


def _chosen(
    stored: StoredRows, fields: tuple[Field, ...], where: Mapping[str, Any] | str
) -> np.ndarray:
    """True for each row that a condition names."""
    frame = _frame(stored, fields)
    if isinstance(where, str):
        try:
            rows = frame.query(where, engine="python").index
        except Exception as error:  # whatever the parser and the values make of it
            names = ", ".join(map(repr, frame.columns))
            words = f"it is no condition on the columns {names}: {error}"
            raise OptionError.of("where", where, words) from error
        chosen = frame.index.isin(rows)
        if not chosen.any():
            raise OptionError.of("where", where, "it holds for no row; nothing was removed.")
        return np.asarray(chosen)
    if not isinstance(where, Mapping) or not where:
        words = "give columns with values, such as `{'label': 'cat'}`, or a condition as a text."
        raise OptionError.of("where", where, words)
    chosen = np.ones(len(frame), bool)
    for name, value in where.items():
        if name not in frame:
            near = nearest(str(name), list(frame.columns)) or ", ".join(map(repr, frame.columns))
            raise OptionError(f"`where`: there is no column {name!r}; there is {near}.")
        values = [value] if isinstance(value, (str, bytes)) or np.isscalar(value) else list(value)
        absent = [one for one in values if not (frame[name] == one).any()]
        if absent:
            more = f", and {len(absent) - 1:,} more" if absent[1:] else ""
            raise OptionError(
                f"`where`: no row has {name!r} {absent[0]!r}{more}; write each exactly as the "
                "source did. Nothing was removed."
            )
        chosen &= frame[name].isin(values).to_numpy()
    if not chosen.any():
        raise OptionError.of("where", dict(where), "no row has all of these; nothing was removed.")
    return chosen


def _frame(stored: StoredRows, fields: tuple[Field, ...]) -> pd.DataFrame:
    """The rows of a dataset with the columns that a condition may name."""
    columns: dict[str, Any] = {ROW: stored.rows.column(SOURCE_ID).to_numpy()}
    columns[SPLIT_COLUMN] = stored.splits.astype(object).to_numpy()
    first = primary_image(fields)
    for field in fields:
        is_file = isinstance(field.kind, (Image, Mask))
        keys = [field.text_key, field.label_key, field.key, *(f.key for f in field.features)]
        for key in [field.uri_key] if is_file else keys:
            if key and key in stored.rows.column_names:
                name = URI_COLUMN if field is first else field.column
                columns[name] = stored.rows.column(key).to_pandas()
                break
    return pd.DataFrame(columns)
