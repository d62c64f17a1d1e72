"""The commands that read a dataset: `tfrecorder info`, `tfrecorder benchmark`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tfrecorder.cli.options import key_options, options_of, record_options
from tfrecorder.cli.output import json_option, show
from tfrecorder.cli.quiet_start import quiet_start
from tfrecorder.errors import DatasetError, OptionError
from tfrecorder.loading.options import BenchmarkOptions, benchmark_options

if TYPE_CHECKING:
    from tfrecorder.reading.dataset import StoredDataset


@click.command(
    help="""Show what the dataset in DIRECTORY holds, and check its shards by name and size.

    It shows splits, shards, records, bytes, classes with their counts, columns with their
    statistics, image sizes and formats, rejects by reason, and the options of the conversion.
    DIRECTORY is the output of a conversion, a TFDS directory of one version, or a pattern of
    TFRecord files.""",
    epilog="Example: tfrecorder info out",
)
@click.argument("directory")
@record_options
@json_option
def info(directory: str, at: int | None, as_json: bool, **keys: str | None) -> None:
    from tfrecorder.reading.info import info as run

    show(run(directory, at, **keys), as_json)


def refuse_split(stored: StoredDataset, split: str) -> None:
    """Raise an OptionError unless the dataset has the split given as `--split`."""
    try:
        stored.split(split)
    except DatasetError as error:
        raise OptionError(str(error)) from None


@click.command(
    help="""Measure how fast the dataset in DIRECTORY is read.

    Shows images/s, MB/s, CPU seconds per 1,000 images and the time to the first batch.""",
    epilog="Example: tfrecorder benchmark out --batch-size 64 --image-size 224 --step-ms 50",
)
@click.argument("directory")
@click.option("--split", default="TRAIN", show_default=True, help="The split to read.")
@options_of(BenchmarkOptions)
@key_options
def benchmark(directory: str, split: str, **options: Any) -> None:
    from tfrecorder.reading.open import open_dataset

    # What is wrong is said now, not after the seconds that TensorFlow's import takes.
    _, reading = benchmark_options(options)
    refuse_split(open_dataset(directory, named=reading.keys), split)
    with quiet_start():
        import tfrecorder.loading.pipeline  # noqa: F401  (it imports TensorFlow)
    from tfrecorder.loading.throughput import benchmark as run

    show(run(directory, split, **options))
