"""The conversion, start to end: source, validation, plan, pipeline, result."""

from __future__ import annotations

import dataclasses
import itertools
import os
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from tfrecorder import launch, metadata, storage
from tfrecorder.errors import ImagesUnreachableError, OptionError, ValidationError
from tfrecorder.labels import needs_escape
from tfrecorder.layout import Shard
from tfrecorder.options import ConvertOptions
from tfrecorder.output import claim, clear, plan_to_continue, reopen
from tfrecorder.plan import SAMPLE_ROWS, Plan, make_plan, sample_rows, stage_plan
from tfrecorder.progress import is_shown, progress_bar
from tfrecorder.report import has_errors, summarize
from tfrecorder.result import ConversionResult, read_result
from tfrecorder.rules import Checked, check_source
from tfrecorder.schema import URI_COLUMN
from tfrecorder.sources import Source, read_source

if TYPE_CHECKING:
    import pandas as pd

    from tfrecorder.dataflow.job import DataflowJob

#: Images opened before launch, and the share of them that may be missing.
OPENED_ROWS = 100
MISSING_SHARE = 0.5


def convert(
    source: pd.DataFrame | str | os.PathLike[str],
    output_dir: str | os.PathLike[str],
    **options: Any,
) -> ConversionResult | DataflowJob:
    """Write a table of images as a TFRecord dataset.

    A conversion that was interrupted is continued by the same call.

    Args:
        source: a frame with the columns image_uri and, if they are known, split and label; the
            path of such a CSV; or a folder `split/label/file` or `label/file`.
        output_dir: a directory, new, empty, or that of the conversion to continue.
        **options: see `tfrecorder.ConvertOptions`.

    Returns:
        Counts by split, rejects, bytes, seconds and class names.  With the DataflowRunner, unless
        told to wait, the handle of the job at once.

    Raises:
        OptionError: an option's name or value is wrong.
        SourceError: the source cannot be read as a table.
        ValidationError: the table has faults; its `.report` lists all of them.
        OutputError: the directory cannot be written, or holds something else.
        ImagesUnreachableError: most images are not there.
        RejectedError: more images than allowed were rejected.
        RunnerError: the runner failed, or did not take the job.
        KeyboardInterrupt: with words on how to continue.

    Example:
        >>> result = tfrecorder.convert("flowers.csv", "out", num_shards=8)  # doctest: +SKIP
    """
    started = time.perf_counter()
    chosen = ConvertOptions.of(options)
    where = storage.absolute(_output_path(output_dir))
    launch.check_runner(chosen)
    table = read_source(source, chosen.columns, chosen.labels, chosen.schema)
    checked = check_source(table, chosen.seed, chosen.labels)
    if has_errors(checked.report):
        raise ValidationError(
            "the source has faults; nothing was written.\n" + summarize(checked.report),
            checked.report,
        )
    if chosen.runner == "DataflowRunner":
        from tfrecorder.dataflow import checks

        uris = itertools.chain.from_iterable(checked.file_columns)
        checks.check((storage.resolve(uri, table.base) for uri in uris), where, chosen)
    passed_over = dict(table.passed_over)
    try:
        with claim(where):
            plan = _prepare(where, table, checked, chosen)
            del table, checked  # a million rows, which only the plan was made from
            _warn_of_escapes(plan)
            stays = chosen.wait or chosen.runner != "DataflowRunner"
            shown = is_shown(chosen.progress) and stays
            with progress_bar(where, plan, shown):
                job = launch.run(plan, where, chosen, progress=shown)
    except KeyboardInterrupt as interrupt:
        if interrupt.args:  # a job goes on elsewhere
            raise
        raise KeyboardInterrupt(
            f"Interrupted: no partial file is left under a final name in {where}. Run the same "
            "conversion again to continue where it stopped."
        ) from None
    if job is not None:
        return dataclasses.replace(job, passed_over=passed_over)
    seconds = time.perf_counter() - started
    result = read_result(where, passed_over, seconds)
    return dataclasses.replace(result, output_dir=os.fspath(output_dir))


def _output_path(output_dir: str | os.PathLike[str]) -> str:
    if not isinstance(output_dir, (str, os.PathLike)) or not os.fspath(output_dir):
        raise OptionError(f"output_dir={output_dir!r}: give the path of a directory.")
    path = os.fspath(output_dir)
    refusal = storage.refusal(storage.scheme(path))
    if refusal is not None:
        raise OptionError(
            f"output_dir={path!r}: a dataset cannot be written to {storage.scheme(path)}://: "
            f"{refusal}."
        )
    if not path.isprintable():  # a NUL, or bytes that are no Unicode
        raise OptionError(f"output_dir={path!r}: give a path of printable characters.")
    return path


def _prepare(output_dir: str, table: Source, checked: Checked, options: ConvertOptions) -> Plan:
    """The plan to follow: the staged one if there is one to continue, else a new one, staged."""
    paths = _image_paths(checked, table.base, SAMPLE_ROWS, options)
    plan, planned = make_plan(checked, table.base, _sizes_of(paths, table.base), options)
    staged = plan_to_continue(output_dir, plan, options)
    pending = plan.shards if staged is None else _pending(output_dir, staged, options)
    if pending:
        # Before anything is removed: a finished dataset is worth more than one that cannot be made.
        _open_some(checked, table.base, options)
    if staged is None:
        clear(output_dir)
        stage_plan(plan, planned, output_dir)
        return plan
    return reopen(output_dir, staged, table.base, pending)


def _sizes_of(paths: list[str], base: str) -> list[int]:
    """The sizes of some images, but for those that cannot be had.

    Raises:
        ImagesUnreachableError: a bucket answers none of the first requests, often as they were
            tried: the others would be waited for in vain, for minutes.
    """
    faults: list[str] = []

    def size(path: str) -> int | None:
        try:
            return storage.size(path)
        except storage.UnreadableError as error:
            if error.code == "read_failed":
                faults.append(f"{path}: {error.detail}")
            return None

    remote, first = _remote_one(paths), paths[: storage.REMOTE_THREADS]
    sizes = storage.each(size, first, remote)
    if first and len(faults) == len(first):
        raise _unreachable(faults, len(first), base)
    sizes += storage.each(size, paths[len(first) :], remote)
    return [found for found in sizes if found is not None]


def _image_paths(checked: Checked, base: str, size: int, options: ConvertOptions) -> list[str]:
    """The paths of the images of a sample of the rows; none of a table without images."""
    if URI_COLUMN not in checked.frame:
        return []
    rows = sample_rows(len(checked.frame), size, options.seed)
    return [storage.resolve(uri, base) for uri in checked.frame[URI_COLUMN].iloc[rows]]


def _remote_one(paths: list[str]) -> str:
    """A path on a remote store, if any is: it decides how many requests are under way at once."""
    return next((path for path in paths if not storage.is_local(path)), "")


def _pending(output_dir: str, plan: Plan, options: ConvertOptions) -> list[Shard]:
    """The shards to write: those not done, and those with rejects that are to be tried again.

    These are images that could not be read; but any rejects where the conversion could only stop
    for them once more.
    """
    done = metadata.read_all_done(output_dir, plan.shards, plan.digest)
    rejects = sum(one.rejects for one in done.values() if one)
    every = options.on_error == "raise" or rejects > options.max_reject_fraction * plan.rows
    return [
        shard for shard, one in done.items() if one is None or one.unread or (every and one.rejects)
    ]


def _open_some(checked: Checked, base: str, options: ConvertOptions) -> None:
    """Open a sample of the images: a disk that is not mounted must not make an empty dataset."""
    paths = _image_paths(checked, base, OPENED_ROWS, options)
    if not paths:
        return

    def fault(path: str) -> str | None:
        try:
            storage.read_bytes(path)
        except storage.UnreadableError as error:
            return f"{path}: {error.detail}"
        return None

    with ThreadPoolExecutor(storage.REMOTE_THREADS) as pool:
        faults = [words for words in pool.map(fault, paths) if words]
    share = len(faults) / len(paths)
    if share < 1 and share <= max(MISSING_SHARE, options.max_reject_fraction):
        return
    raise _unreachable(faults, len(paths), base)


def _unreachable(faults: list[str], opened: int, base: str) -> ImagesUnreachableError:
    examples = "".join(f"\n  {words}" for words in faults[:3])
    return ImagesUnreachableError(
        f"{len(faults)} of {opened} images opened before the launch cannot be read:{examples}\n"
        "Nothing was written. Is a disk not mounted? Relative paths are taken from "
        f"{base!r}."
    )


def _warn_of_escapes(plan: Plan) -> None:
    names = [name for names in plan.vocabularies.values() for name in names or ()]
    odd = [name for name in names if needs_escape(name)]
    if odd:
        warnings.warn(
            f"{len(odd)} class names would not survive in the labels file, which TFDS strips: "
            f"{odd[:3]}. They are escaped there; the records hold them as they are.",
            stacklevel=3,
        )
