"""The commands that change a dataset: `append`, `update`, `remove`, `compact`, `undo`, `stream`."""

from __future__ import annotations

import contextlib
import re
import signal
import threading
from collections.abc import Callable, Container, Iterator
from typing import Any

import click

from tfrecorder.cli.convert import SOURCE_HELP, dry_run_option, opened
from tfrecorder.cli.options import Decorator, SharingCommand, at_option, options_of, pairs
from tfrecorder.cli.output import result_options, show
from tfrecorder.cli.process import ENDED_WITH, TERMINATED
from tfrecorder.options.changes import (
    NOT_APPENDED,
    NOT_COMPACTED,
    NOT_REMOVED,
    NOT_STREAMED,
    NOT_UPDATED,
    AppendOptions,
    StreamOptions,
    UpdateOptions,
)
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.options.option import in_shell
from tfrecorder.schema.keys import URI_COLUMN

NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"

stage_only_option = click.option(
    "--stage-only",
    is_flag=True,
    help="Only check and plan. Then run `tfrecorder work` on one or more machines, and `tfrecorder "
    "commit`.",
)

copies_option = click.option(
    "--copies",
    is_flag=True,
    help="Also remove records that have the same bytes under other names. Default: count them, and "
    "name the first.",
)


def options_of_changes(without: Container[str]) -> Decorator:
    """What a command takes that changes a dataset: when it ends, and options of `convert`."""

    def with_options(command: Callable[..., None]) -> Callable[..., None]:
        shared = options_of(ConvertOptions, without=without, shared=True)
        return stage_only_option(dry_run_option(shared(result_options(command))))

    return with_options


@click.command(
    cls=SharingCommand,
    help=f"""Add SOURCE to the finished dataset in DIRECTORY, as a new generation.

    Rows whose images are already in the dataset are skipped. The schema, the classes, the shares
    of the splits and all else that decides what the records contain stay as they are in the
    dataset, unless you pass an option for it; new classes get the next integers. To continue an
    interrupted append, repeat the command.

    {SOURCE_HELP}""",
    epilog="Example: tfrecorder append more.csv out",
)
@click.argument("source")
@click.argument("directory")
@options_of(AppendOptions)
@options_of_changes(NOT_APPENDED)
def append(
    source: str,
    directory: str,
    as_json: bool,
    **options: Any,
) -> None:
    from tfrecorder.conversion.append import append as run

    show(in_shell(run)(opened(source), directory, **options), as_json)


@click.command(
    cls=SharingCommand,
    help=f"""Correct the dataset in DIRECTORY to match SOURCE; add new rows.

    Rows whose images are in the dataset are corrected where SOURCE has other values, such as
    another label; the others are added. Images come from the records, so their files need not exist
    any more. Only shards with a corrected record are written again; records keep their numbers
    and classes their integers, unless rows are removed or go to another split. To continue an
    interrupted update, repeat the command.

    {SOURCE_HELP}""",
    epilog="Example: tfrecorder update photos.csv out --dry-run",
)
@click.argument("source")
@click.argument("directory")
@options_of(UpdateOptions)
@options_of_changes(NOT_UPDATED)
def update(
    source: str,
    directory: str,
    as_json: bool,
    **options: Any,
) -> None:
    from tfrecorder.conversion.update import update as run

    show(in_shell(run)(opened(source), directory, **options), as_json)


@click.command(
    cls=SharingCommand,
    help="""Remove records from the dataset in DIRECTORY for good: no file names them afterwards.

    CONDITION is COLUMN=VALUE, or COLUMN=LOW..HIGH for numbers from LOW to HIGH, either of which may
    be left out. The columns are those of the dataset, split, and row, the number of a row in the
    source. Conditions on several columns must all hold; of several on one column, one must.

    Nothing of the records is left below the directory. Append, stream and update do not add the
    same images again, unless you pass them --readmit. To continue an interrupted removal, repeat
    the command.""",
    epilog="""\b
    Example: tfrecorder remove out label=cat label=dog
    Example: tfrecorder remove out label=cat width=..31
    Example: tfrecorder remove out --uris gone.txt --dry-run""",
)
@click.argument("directory")
@click.argument("where", metavar="[CONDITION]...", nargs=-1)
@click.option(
    "--uris",
    metavar="FILE",
    help="A text file with one image uri per line, whose records to remove.",
)
@copies_option
@options_of_changes(NOT_REMOVED)
def remove(
    directory: str,
    where: tuple[str, ...],
    uris: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    from tfrecorder.conversion.remove import remove as run
    from tfrecorder.sources.path_source import uri_list

    if bool(where) == (uris is not None):
        raise click.UsageError("Give a CONDITION, or --uris.")
    chosen = _where(where) if uris is None else {URI_COLUMN: uri_list("uris", uris)}
    show(in_shell(run)(directory, chosen, **options), as_json)


def _where(conditions: tuple[str, ...]) -> dict[str, Any]:
    """What `tfrecorder.remove` takes, of conditions as they are typed."""
    where: dict[str, Any] = {}
    for condition in conditions:
        column, equals, value = condition.partition("=")
        if not equals:
            raise click.UsageError(f"{condition!r} is no condition: write COLUMN=VALUE.")
        ends = re.fullmatch(rf"({NUMBER})?\.\.({NUMBER})?", value)
        if column in where and (ends or isinstance(where[column], tuple)):
            raise click.UsageError(f"{condition!r}: give a range alone on its column.")
        where[column] = ends.groups() if ends else [*where.get(column, []), value]
    return where


@click.command(
    cls=SharingCommand,
    help="""Merge small shards of the dataset in DIRECTORY, or write it anew into OUTPUT_DIR.

    Records are copied unchanged and shuffled again; no image is decoded, and the sources are
    not needed. In place, few large shards replace the small ones that appends and streams leave,
    and large ones stay, unless --num-shards or --drop is given. With OUTPUT_DIR, DIRECTORY is not
    changed. To continue an interrupted compaction, repeat the command.""",
    epilog="Example: tfrecorder compact out",
)
@click.argument("directory")
@click.argument("output_dir", required=False)
@click.option(
    "--drop",
    metavar="FILE",
    help="A text file with one image uri per line; their records are left out.",
)
@copies_option
@at_option
@options_of_changes(NOT_COMPACTED)
def compact(
    directory: str,
    output_dir: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    from tfrecorder.conversion.compact import compact as run

    show(in_shell(run)(directory, output_dir, **options), as_json)


@click.command(
    help="""Abandon the unfinished operation in DIRECTORY; without one, take back the newest.

    An unfinished operation: what it wrote is removed, and the dataset stays as it was before it. A
    finished append, or batch of a stream: its rows go, with the classes that came with them; the
    stream later begins again with these rows. An update: its corrections and new rows go. Repeat
    the command to take back the addition before.""",
    epilog="Example: tfrecorder undo out",
)
@click.argument("directory")
@click.option("--dry-run", is_flag=True, help="Show what would be taken back; change nothing.")
@result_options
def undo(
    directory: str,
    dry_run: bool,
    as_json: bool,
) -> None:
    from tfrecorder.conversion.undo import undo as run

    show(run(directory, dry_run=dry_run), as_json)


@click.command(
    cls=SharingCommand,
    help="""Write images into OUTPUT_DIR as they arrive in SOURCE, until Ctrl-C.

    Each batch becomes a new generation of the dataset, which is created if it does not
    exist. Repeat the command to continue where the last one ended, even after a crash: each
    image becomes exactly one record or one reject. The schema, the classes, the shares of the
    splits and all else that decides what the records contain stay as they are in the dataset.

    SOURCE is a folder that images arrive in, laid out as for convert; or
    kafka://HOST:PORT/TOPIC.""",
    epilog="Example: tfrecorder stream incoming out --every-seconds 300",
)
@click.argument("source")
@click.argument("output_dir")
@options_of(StreamOptions)
@click.option(
    "--source-option",
    "source_options",
    metavar="NAME=VALUE",
    multiple=True,
    callback=pairs,
    help="Of a folder, settle=SECONDS: how long a file must stay unchanged before it is read. Of "
    "Kafka, see docs/stream-kafka.md. Repeatable.",
)
@options_of(ConvertOptions, without=NOT_STREAMED, shared=True)
@result_options
def stream(
    source: str,
    output_dir: str,
    as_json: bool,
    **options: Any,
) -> None:
    from tfrecorder.streaming.stream import stream as run

    with _ended_by_sigterm():
        show(in_shell(run)(source, output_dir, **options), as_json)


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """A block in which SIGTERM, which stops services, acts like Ctrl-C, but for the exit code."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ended = click.get_current_context().meta

    def end(*_: object) -> None:
        ended[ENDED_WITH] = TERMINATED
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
