"""The commands that read a dataset: `tfrecorder info`, `tfrecorder benchmark`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tfrecorder.cli.output import at_option, image_size, json_option, key_options, show
from tfrecorder.cli.quiet_start import quiet_start
from tfrecorder.errors import DatasetError, OptionError

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
@key_options
@at_option
@json_option
def info(directory: str, at: int | None, as_json: bool, **keys: str | None) -> None:
    from tfrecorder.reading.info import info as run

    show(run(directory, at, **keys), as_json)


def _check_before_tensorflow(directory: str, split: str, **reading: Any) -> None:
    """Raise now what would otherwise wait seconds for TensorFlow's import."""
    from tfrecorder import storage
    from tfrecorder.loading.options import LoadOptions

    options = LoadOptions.of(reading)
    if storage.is_local(directory):  # TensorFlow itself reads other stores
        from tfrecorder.reading.open import open_dataset

        with storage.failing_as(DatasetError, directory):
            stored = open_dataset(directory, named=options.keys)
        refuse_split(stored, split)


def refuse_split(stored: StoredDataset, split: str) -> None:
    """Raise an OptionError unless the dataset has the split given as `--split`."""
    try:
        stored.split(split)
    except DatasetError as error:
        raise OptionError(str(error)) from None


@click.command(
    help="""Measure how fast the dataset in DIRECTORY is read.

    Shows images/s, MB/s, CPU seconds per 1,000 images and the time to the first batch.""",
    epilog="Example: tfrecorder benchmark out --batch-size 64 --image-size 224 --step-time 50",
)
@click.argument("directory")
@click.option("--split", default="TRAIN", show_default=True, help="The split to read.")
@click.option(
    "--batch-size", type=int, default=64, show_default=True, metavar="N", help="Images per batch."
)
@click.option(
    "--image-size",
    default="224",
    show_default=True,
    metavar="SIZE",
    callback=image_size,
    help="Pixels: one number for a square, HEIGHTxWIDTH, or none for the stored size.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    metavar="FLOAT",
    default=10.0,
    show_default=True,
    help="How long to measure.",
)
@click.option(
    "--step-time",
    "step_ms",
    type=click.FloatRange(min=0, min_open=True),
    metavar="MS",
    help="Simulate a training step of this many milliseconds: shows what share of the time an "
    "accelerator would wait.",
)
@key_options
def benchmark(
    directory: str,
    split: str,
    seconds: float,
    step_ms: float | None,
    **reading: Any,
) -> None:
    _check_before_tensorflow(directory, split, **reading)
    with quiet_start():
        import tfrecorder.loading.pipeline  # noqa: F401  (it imports TensorFlow)
    from tfrecorder.loading.throughput import benchmark as run

    show(run(directory, split, seconds=seconds, step_ms=step_ms, **reading))
