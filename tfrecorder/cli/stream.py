"""The command of a stream: `tfrecorder stream`."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

import click

from tfrecorder.cli.options import SharingCommand, options_of, pairs
from tfrecorder.cli.output import result_options, show
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.options.option import in_shell
from tfrecorder.options.stream import StreamOptions
from tfrecorder.options.subsets import NOT_STREAMED


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """A block in which SIGTERM, which stops services, acts like Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


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
def stream(source: str, output_dir: str, as_json: bool, **options: Any) -> None:
    from tfrecorder.streaming.stream import stream as run

    with _ended_by_sigterm():
        show(in_shell(run)(source, output_dir, **options), as_json)
