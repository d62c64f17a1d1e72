"""The conversion, start to end: source, validation, plan, pipeline, result."""

from __future__ import annotations

import dataclasses
import itertools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tfrecorder import storage
from tfrecorder.dataset import layout
from tfrecorder.dataset.layout import Shard
from tfrecorder.display.bars import is_shown, stage_line
from tfrecorder.display.tables import counted
from tfrecorder.display.warning import warn
from tfrecorder.errors import (
    ImagesUnreachableError,
    OptionError,
    OutputError,
    UnreachableError,
    ValidationError,
    refuse_missing,
)
from tfrecorder.loading.options import LoadOptions
from tfrecorder.options.convert import DEFAULT_VERSION, NOT_STAGED, ConvertOptions, is_version
from tfrecorder.plan.directory import (
    claim,
    clear,
    exchange_begun,
    folder_to_write,
    is_finished,
    plan_to_continue,
    refuse_foreign,
    refuse_nested,
    reopen,
)
from tfrecorder.plan.dry_run import DryRun, estimate
from tfrecorder.plan.exchange import complete
from tfrecorder.plan.plan import Plan, make_plan, shard_bounds, shard_counts
from tfrecorder.plan.preflight import in_files, open_some, sizes_of_some
from tfrecorder.plan.spool import remove_spool, spool_images
from tfrecorder.plan.staging import read_plan, restage_rows, stage_plan
from tfrecorder.runners import run
from tfrecorder.schema.fields import Field
from tfrecorder.schema.labels import needs_escape
from tfrecorder.schema.splits import SPELLINGS, SPLITS
from tfrecorder.sources.hugging_face import is_hugging_face
from tfrecorder.sources.source import read_with, refuse_idle
from tfrecorder.sources.table import Source
from tfrecorder.stored.files import local_files, stored_files
from tfrecorder.stored.open import open_dataset
from tfrecorder.validation.report import ValidationReport, count_warnings, has_errors
from tfrecorder.validation.rules import Checked, check_source
from tfrecorder.validation.validate import report_on
from tfrecorder.writing.done import read_all_done
from tfrecorder.writing.progress import progress_bar
from tfrecorder.writing.result import ConversionResult, counts_in_words, read_result
from tfrecorder.writing.status import ConversionStatus, status

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    import tensorflow as tf
    from datasets import Dataset, DatasetDict

    from tfrecorder.runners.dataflow.job import DataflowJob


def convert(
    source: pd.DataFrame | Dataset | DatasetDict | str | os.PathLike[str] | IO[Any],
    output_dir: str | os.PathLike[str],
    **options: Any,
) -> ConversionResult | DataflowJob:
    """Write a table of images as a TFRecord dataset.

    To continue a conversion that was interrupted, repeat the call.

    Args:
        source: a frame with the columns image_uri and, if known, split and label; a Hugging Face
            `Dataset` or `DatasetDict`; the path of such a CSV; a folder `split/label/file` or
            `label/file`; or an open file to read a CSV from.  An image_uri may also be the image
            itself: the bytes of its file, {"bytes": …, "path": …}, a Pillow image, or a `data:`
            uri.
        output_dir: a new or empty directory, or that of the conversion to continue.  With the
            option `name`, the dataset is the directory output_dir/name/version.
        **options: see `tfrecorder.ConvertOptions`.

    Returns:
        Counts by split, rejects, bytes, seconds and class names.  With the DataflowRunner and
        wait=False, the handle of the job, at once.

    Raises:
        OptionError: an option's name or value is wrong.
        SourceError: the source cannot be read as a table.
        ValidationError: the table has faults; its `.report` lists all of them.
        OutputError: the directory cannot be written, or holds something else.
        ImagesUnreachableError: most images are not there, or their store does not answer.
        DatasetError: the dataset was finished before, and a shard of it is missing.
        UnreachableError: a disk or a service failed for more than two minutes.
        RejectedError: more images than allowed were rejected.
        RunnerError: the runner failed, or did not take the job.
        PackageError: Apache Beam is not installed.
        KeyboardInterrupt: its message says how to continue.

    Example:
        >>> result = tfrecorder.convert("flowers.csv", "out", num_shards=8)  # doctest: +SKIP
    """
    started = time.perf_counter()
    chosen = ConvertOptions.of(options)
    with storage.acting_as(chosen.account):
        return _convert(source, output_dir, chosen, started)


def _convert(
    source: Any,
    output_dir: str | os.PathLike[str],
    chosen: ConvertOptions,
    started: float,
) -> ConversionResult | DataflowJob:
    path = output_path(output_dir, chosen)
    where = storage.absolute(path)
    with storage.failing_as(OutputError, where):
        refuse_nested(where, chosen)
    shown = is_shown(chosen.progress)
    with stage_line(shown) as begin:
        table, checked, report = read_and_check(source, where, chosen, begin)
    refuse_missing("apache_beam")  # before anything is staged
    known = Known(dict(table.passed_over), report.notes, count_warnings(report))
    warn_of_source(known.warnings, source, chosen)
    try:
        with claim(where):
            with stage_line(shown) as begin:
                begin("planning")
                prepared = prepare(where, table, checked, chosen)
            del table, checked  # perhaps a million rows, and only the plan needed them
            job = None if prepared is None else follow(prepared, chosen)
    except (UnreachableError, KeyboardInterrupt) as error:
        if (explained := how_to_go_on(error, where)) is None:
            raise
        raise explained from (error if isinstance(error, UnreachableError) else None)
    if job is not None:
        return dataclasses.replace(job, passed_over=known.passed_over)
    found = result_of(where, prepared, known, time.perf_counter() - started)
    return dataclasses.replace(found, output_dir=path)


def how_to_go_on(
    error: UnreachableError | KeyboardInterrupt, where: str, verb: str = "conversion"
) -> UnreachableError | KeyboardInterrupt | None:
    """The error with a message on what is left and how to continue; None if it says enough itself.

    Not a context manager, which would add its lines to the traceback of each Ctrl-C.

    Args:
        verb: what to run again.
    """
    # Nothing was written, or a job continues elsewhere.
    if isinstance(error, ImagesUnreachableError):
        return None
    if isinstance(error, UnreachableError):
        return UnreachableError(
            f"{error} Shards that are done are kept in {where}: run the same {verb} again to "
            "continue."
        )
    if error.args:
        return None
    return KeyboardInterrupt(
        f"Interrupted: no partial file is left under a final name in {where}. Run the same "
        f"{verb} again to continue where it stopped."
    )


class Known(NamedTuple):
    """What a result says about its source; the dataset does not hold it."""

    passed_over: dict[str, int]
    notes: tuple[str, ...]
    warnings: dict[str, int]


def result_of(
    where: str, prepared: Prepared | None, known: Known, seconds: float
) -> ConversionResult:
    """The result of a conversion that is committed in a directory."""
    return dataclasses.replace(
        read_result(where, known.passed_over, seconds),
        notes=known.notes,
        warnings=known.warnings,
        was_finished=prepared is None,
        shards_before=prepared.shards_before if prepared else 0,
        rows_before=prepared.rows_before if prepared else 0,
    )


#: Options of a conversion that change what `validate` finds.
_OF_VALIDATION = (
    *("columns", "schema", "labels", "background_class", "sep", "encoding", "base"),
    *("seed", "splits", "stratify", "split_by"),
)


def warn_of_source(found: dict[str, int], source: Any, options: ConvertOptions) -> None:
    """Validation's warnings in one line, before a conversion that may take hours."""
    if found:
        total = counted(sum(found.values()), "warning")
        warn(f"{total}: {counts_in_words(found)}; {_where_listed(source, options)}")


def _where_listed(source: Any, options: ConvertOptions) -> str:
    """The call that lists all warnings."""
    name = getattr(source, "name", None)
    call = "see df.tensorflow.validate()"
    if is_hugging_face(source):
        call = "see tfrecorder.validate(dataset)"
    if isinstance(source, (str, os.PathLike)):
        call = f"see tfrecorder.validate({str(source)!r})"
    elif hasattr(source, "read") and isinstance(name, str) and os.path.isfile(name):
        call = f"see tfrecorder.validate({name!r})"
    elif hasattr(source, "read"):  # a pipe, which can be read only once
        call = "to list them, save the table in a file and see tfrecorder.validate('table.csv')"
    default = ConvertOptions()
    given = any(getattr(options, one) != getattr(default, one) for one in _OF_VALIDATION)
    return call + (" with the same options" if given else "")


def read_and_check(
    source: Any,
    where: str,
    options: ConvertOptions,
    begin: Callable[[str], None],
) -> tuple[Source, Checked, ValidationReport]:
    """The source as a table without errors, and the report on it."""
    run.check_runner(options)
    begin("reading the table")
    table = read_with(source, options)
    refuse_idle(table, options)
    begin("checking the table")
    return check_table(table, where, options)


def check_table(
    table: Source, where: str, options: ConvertOptions, known: Sequence[Field] = ()
) -> tuple[Source, Checked, ValidationReport]:
    """A table without errors, and the report on it.

    Args:
        known: the columns of the dataset to which the table is added.

    Raises:
        ValidationError: the table has faults.
    """
    checked = check_source(table, options.division, known)
    report = report_on(checked.report, table, checked, options.strict)
    if has_errors(report):
        raise ValidationError(f"the source has faults; nothing was written.\n{report}", report)
    if options.runner == "DataflowRunner":
        from tfrecorder.runners.dataflow import checks

        uris = itertools.chain.from_iterable(in_files(one, checked) for one in checked.files)
        checks.check((storage.resolve(uri, table.base) for uri in uris), where, options)
    return table, checked, report


def stage(
    source: pd.DataFrame | Dataset | DatasetDict | str | os.PathLike[str] | IO[Any],
    output_dir: str | os.PathLike[str],
    **options: Any,
) -> ConversionStatus:
    """Check a table and plan its shards, for any number of machines to write without Beam.

    Then call `tfrecorder.work` on each machine, and `tfrecorder.commit` once all are done.  The
    dataset has the same bytes as one written by `tfrecorder.convert`.  To continue a staged
    conversion that was not finished, repeat the call.

    Args:
        source: as for `tfrecorder.convert`.
        output_dir: as for `tfrecorder.convert`; all machines must see it under this path, and the
            images under theirs.
        **options: those of `tfrecorder.ConvertOptions` that decide what is written.  on_error,
            num_threads and progress are options of `work`, max_reject_fraction of `commit`.

    Returns:
        What is planned and how much of it is done, as `tfrecorder.status` returns it.

    Raises:
        TfrecorderError: what `tfrecorder.convert` raises before its launch.

    Example:
        >>> tfrecorder.stage("flowers.csv", "out", num_shards=64)  # doctest: +SKIP
        >>> tfrecorder.work("out", part=(1, 2))                    # doctest: +SKIP
        >>> tfrecorder.work("out", part=(2, 2))                    # doctest: +SKIP
        >>> tfrecorder.commit("out")                               # doctest: +SKIP
    """
    for name in options:
        if name in NOT_STAGED:
            raise OptionError(f"{name}={options[name]!r}: {NOT_STAGED[name]}.")
    chosen = ConvertOptions.of(options)
    path = output_path(output_dir, chosen)
    where = storage.absolute(path)
    with storage.failing_as(OutputError, where):
        refuse_nested(where, chosen)
    table, checked, report = read_and_check(source, where, chosen, lambda stage: None)
    warn_of_source(count_warnings(report), source, chosen)
    with claim(where):
        prepared = prepare(where, table, checked, chosen)
        if prepared is not None:
            _warn_of_escapes(prepared.plan)
    return dataclasses.replace(status(where), output_dir=path)


def dry_run(
    source: pd.DataFrame | Dataset | DatasetDict | str | os.PathLike[str] | IO[Any],
    output_dir: str | os.PathLike[str],
    **options: Any,
) -> DryRun:
    """What `convert` would write, after the same checks; nothing is written.

    Args:
        source, output_dir, options: as for `convert`.

    Returns:
        Rows, shards and estimated bytes by split, the class names, and the warnings of `validate`.

    Raises:
        TfrecorderError: what `convert` raises before its launch.
    """
    chosen = ConvertOptions.of(options)
    with storage.acting_as(chosen.account):
        return _dry_run(source, output_dir, chosen)


def _dry_run(
    source: Any,
    output_dir: str | os.PathLike[str],
    chosen: ConvertOptions,
) -> DryRun:
    path = output_path(output_dir, chosen)
    where = storage.absolute(path)
    with stage_line(is_shown(chosen.progress)) as begin:
        table, checked, report = read_and_check(source, where, chosen, begin)
    with storage.failing_as(OutputError, where):
        refuse_nested(where, chosen)
        refuse_foreign(where)
        begun = exchange_begun(where)
        folder = layout.next_of(where) if begun else folder_to_write(where, chosen)
        plan, _ = make_plan(checked, table.base, (), chosen)
        keeps = not chosen.retry_rejects and (begun or not chosen.overwrite)
        finished = keeps and is_finished(folder, plan)
        staged = read_plan(folder) if finished else plan_to_continue(folder, plan, chosen)
        pending = [] if finished or staged is None else _pending(folder, staged, chosen)
    sizes = sizes_of_some(checked, table.base, chosen, decisive=True)
    open_some(checked, table.base, chosen)
    if staged is None:
        counts = shard_counts(plan.split_rows, sizes, chosen)
        plan = dataclasses.replace(plan, split_shards=counts)
    return estimate(
        staged or plan,
        output_dir=path,
        sizes=None if chosen.transforms else sizes,
        pending=None if staged is None else len(pending),
        report=report,
        passed_over=dict(table.passed_over),
    )


class Prepared(NamedTuple):
    """A staged plan, its folder, and what was done before this call."""

    folder: str
    plan: Plan
    shards_before: int = 0
    rows_before: int = 0


def follow(prepared: Prepared, options: ConvertOptions) -> DataflowJob | None:
    """Carry out a staged plan; return the handle of a job that still runs, or None if committed."""
    folder, plan = prepared.folder, prepared.plan
    _warn_of_escapes(plan)
    stays = options.wait or options.runner != "DataflowRunner"
    shown = is_shown(options.progress) and stays
    with progress_bar(folder, plan, shown):
        return run.run(plan, folder, options, progress=shown)


def output_path(output_dir: str | os.PathLike[str], options: ConvertOptions) -> str:
    """The dataset directory: the only one that later steps know.

    Args:
        output_dir: as the user gave it.
        options: with a name, the dataset is below it, where TFDS looks.

    Raises:
        OptionError: a dataset cannot be written there.
    """
    if not isinstance(output_dir, (str, os.PathLike)) or not os.fspath(output_dir):
        raise OptionError(f"output_dir={output_dir!r}: give the path of a directory.")
    path = os.fspath(output_dir)
    refusal = storage.refusal(storage.scheme(path))
    if refusal is not None:
        raise OptionError(
            f"output_dir={path!r}: a dataset cannot be written to {storage.scheme(path)}://: "
            f"{refusal}."
        )
    if not path.isprintable():  # a NUL, or bytes that are not Unicode
        raise OptionError(f"output_dir={path!r}: give a path of printable characters.")
    if options.name is not None:
        path = _tfds_path(path, options.name, options.version)
    dataset = layout.dataset_of(storage.absolute(path))
    if dataset != storage.absolute(path):
        raise OptionError(
            f"output_dir={path!r} is where an overwrite of {dataset} is written: give {dataset}."
        )
    grown = layout.grown_of(dataset)
    if grown != dataset:
        raise OptionError(
            f"output_dir={path!r} is where tfrecorder.append adds to {grown}: call it with {grown}."
        )
    return path


def _tfds_path(path: str, name: str, version: str | None) -> str:
    above, last = os.path.split(path.rstrip("/"))
    wanted = version or DEFAULT_VERSION
    if os.path.basename(above) == name and is_version(last) and last != wanted:
        raise OptionError(
            f"output_dir={path!r} is the directory of version {last}: give version={last!r} to "
            f"write there, or {os.path.dirname(above) or '.'} as output_dir to write version "
            f"{wanted}."
        )
    return layout.tfds_directory(path, name, wanted)


def prepare(
    output_dir: str,
    table: Source,
    checked: Checked,
    options: ConvertOptions,
    before: dict[str, Any] | None = None,
) -> Prepared | None:
    """Where to write, and the plan to follow, which is staged there.

    None if the dataset is finished; if only its exchange was missing, that is done now.

    Args:
        before: as in `Plan`, if the directory is that of a new generation.
    """
    plan, planned = make_plan(checked, table.base, (), options, before)
    if plan.spooled and not storage.is_local(output_dir):
        plan = dataclasses.replace(plan, remote=True)

    def decide(undecided: bool) -> Sequence[int]:
        return sizes_of_some(checked, table.base, options, decisive=undecided)

    def look() -> None:
        open_some(checked, table.base, options)

    def spool(folder: str, plan: Plan, pending: Sequence[Shard]) -> None:
        if plan.spooled and pending:
            rows = planned.take(_rows_of(plan, pending))
            spool_images(folder, rows, checked.contents.values())

    return stage_or_continue(output_dir, plan, planned, options, decide, look, spool)


def _rows_of(plan: Plan, shards: Sequence[Shard]) -> np.ndarray:
    """The planned rows of some shards, by their place in the plan."""
    starts, start = {}, 0
    for split, rows in plan.split_rows.items():
        starts[split], start = start, start + rows
    found = [np.arange(0)]
    for one in shards:
        first, stop = shard_bounds(plan.split_rows[one.split], one.count, one.index)
        found.append(np.arange(starts[one.split] + first, starts[one.split] + stop))
    return np.concatenate(found)


def stage_or_continue(
    output_dir: str,
    plan: Plan,
    planned: pa.Table,
    options: ConvertOptions,
    sizes_of: Callable[[bool], Sequence[int]],
    look: Callable[[], None],
    spool: Callable[[str, Plan, Sequence[Shard]], None] = lambda folder, plan, pending: None,
) -> Prepared | None:
    """`prepare` for a plan whose numbers of shards are not decided yet.

    Args:
        planned: its rows.
        sizes_of: takes whether sizes decide on the shards; returns file sizes in bytes of some
            images.
        look: raises an error if the images are not there; called before anything is changed.
        spool: takes where the plan is staged and which shards will be written; puts those of their
            images there that came as bytes.
    """
    exchanged = complete(output_dir)
    keeps = not options.retry_rejects and (exchanged or not options.overwrite)
    if keeps and is_finished(output_dir, plan):
        # Check that the shards of the finished dataset are there, by name and size.
        open_dataset(output_dir, local_files() if storage.is_local(output_dir) else stored_files())
        if plan.spooled:  # the process that committed may have ended before removing them
            remove_spool(output_dir)
        return None
    folder = folder_to_write(output_dir, options)
    staged = plan_to_continue(folder, plan, options)
    # A staged plan has its numbers of shards, and the user may have given them.
    undecided = staged is None and None in map(options.shards_of, plan.split_rows)
    sizes = sizes_of(undecided)
    if undecided:
        counts = shard_counts(plan.split_rows, sizes, options)
        plan = dataclasses.replace(plan, split_shards=counts)
    pending = plan.shards if staged is None else _pending(folder, staged, options)
    if pending:
        # Before anything is removed: never lose a finished dataset for one that cannot be made.
        look()
    if staged is None:
        clear(folder, keep_spool=bool(plan.spooled))
        spool(folder, plan, pending)
        stage_plan(plan, planned, folder)
        return Prepared(folder, plan)
    spool(folder, staged, pending)
    plan = reopen(folder, staged, plan.base, pending)
    if pending:
        restage_rows(plan, planned, folder)
    standing = [shard for shard in plan.shards if shard not in {*pending}]
    return Prepared(folder, plan, len(standing), sum(map(plan.shard_rows, standing)))


def _pending(output_dir: str, plan: Plan, options: ConvertOptions) -> list[Shard]:
    """The shards to write: those not done, and those with rejects to try again.

    Rejects are tried again if they could not be read.  All rejects are tried again if the
    conversion would otherwise only stop for them again.
    """
    done = read_all_done(output_dir, plan.shards, plan.digest)
    rejects = sum(one.rejects for one in done.values() if one)
    every = options.on_error == "raise" or rejects > options.max_reject_fraction * plan.rows
    return [
        shard for shard, one in done.items() if one is None or one.unread or (every and one.rejects)
    ]


def _warn_of_escapes(plan: Plan) -> None:
    names = [name for names in plan.vocabularies.values() for name in names or ()]
    odd = [name for name in names if needs_escape(name)]
    if odd:
        warn(
            f"{counted(len(odd), 'class name')} would not survive in the labels file, because "
            f"TFDS strips whitespace: {odd[:3]}. They are escaped there; the records hold them "
            "unchanged."
        )


def convert_and_load(
    source: pd.DataFrame | Dataset | DatasetDict | str | os.PathLike[str],
    output_dir: str | os.PathLike[str],
    *,
    load_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> tf.data.Dataset | dict[str, tf.data.Dataset]:
    """Write a table of images as a TFRecord dataset, and load it.

    The same as `tfrecorder.convert(source, output_dir, **options)` and then
    `tfrecorder.load(output_dir, **load_options)`, except that all options are checked before
    anything is written.  For rejects, see `tfrecorder.info(output_dir)` and rejects.csv.  To read
    the finished dataset again, call `tfrecorder.load`.

    Args:
        source: as for `tfrecorder.convert`.
        output_dir: as for `tfrecorder.convert`, where `tfrecorder.load` can read it.
        load_options: options of `tfrecorder.load`, such as {"split": "TRAIN"}; see
            `tfrecorder.LoadOptions`.
        **options: options of the conversion; see `tfrecorder.ConvertOptions`.  The call waits for a
            Dataflow job to end.

    Returns:
        What `load` returns: a dict of all splits, or one of them if load_options has a split.

    Raises:
        OptionError: an option's name or value is wrong.
        DatasetError: the dataset has no such split, or load cannot read where output_dir is.
        TfrecorderError: what `tfrecorder.convert` raises.

    Example:
        >>> train = tfrecorder.convert_and_load(
        ...     "flowers.csv", "out", num_shards=8,
        ...     load_options={"split": "TRAIN", "batch_size": 64, "image_size": 224},
        ... )  # doctest: +SKIP
    """
    reading = _checked_load_options(load_options)
    refuse_missing("tensorflow")
    for name in options:
        if _is_option(name, LoadOptions) and not _is_option(name, ConvertOptions):
            raise OptionError(
                f"{name} is an option of load: give it as load_options={{{name!r}: …}}."
            )
    if options.get("wait", True) is not True:
        raise OptionError(
            f"wait={options['wait']!r}: the dataset must be written before it can be loaded; "
            "leave it out."
        )
    options["wait"] = True
    path = output_path(output_dir, ConvertOptions.of(options))
    if not storage.is_local(path):
        from tfrecorder.loading.remote import files_of

        files_of(path)  # before spending hours on what load cannot read

    convert(source, output_dir, **options)
    from tfrecorder.loading.load import load

    return load(path, **reading)


def _checked_load_options(given: Mapping[str, Any] | None) -> dict[str, Any]:
    if given is not None and not isinstance(given, Mapping):
        raise OptionError(
            f"load_options={given!r}: give a dict, such as {{'split': 'TRAIN', 'batch_size': 64}}."
        )
    chosen = dict(given or {})
    split = chosen.get("split")
    if split is not None and SPELLINGS.get(str(split).strip().lower()) not in SPLITS:
        raise OptionError(
            f"load_options: split={split!r} is not a split; there are {', '.join(SPLITS)}."
        )
    others = {name: value for name, value in chosen.items() if name != "split"}
    for name in others:
        if _is_option(name, ConvertOptions) and not _is_option(name, LoadOptions):
            raise OptionError(
                f"load_options: {name} is an option of the conversion: give it as {name}=…."
            )
    try:
        LoadOptions.of(others)
    except OptionError as error:
        raise OptionError(f"load_options: {error}") from None
    return chosen


def _is_option(name: str, cls: type) -> bool:
    return name in {item.name for item in dataclasses.fields(cls)}
