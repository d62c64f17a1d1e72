"""The commands that read a dataset: `tfrecorder info`, `tfrecorder benchmark`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tfrecorder import storage
from tfrecorder.cli.options import cache_options, key_options, options_of, record_options
from tfrecorder.cli.output import json_option, show
from tfrecorder.cli.quiet_start import quiet_start
from tfrecorder.display.tables import readable_bytes, text_table
from tfrecorder.errors import DatasetError, OptionError
from tfrecorder.loading.options import BenchmarkOptions, benchmark_options

if TYPE_CHECKING:
    from tfrecorder.reading.dataset import StoredDataset

split_option = click.option(
    "--split", default="TRAIN", show_default=True, metavar="SPLIT", help="The split to read."
)


@click.command(
    help="""Show what the dataset in DIRECTORY contains, and check its shards by name and size.

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
@split_option
@options_of(BenchmarkOptions)
@cache_options
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


@click.command(
    help="""Show what the folder of a local cache keeps of each dataset in a bucket.

    FOLDER is the local cache of a reader, or --local-cache of `tfrecorder benchmark`.""",
    epilog="Example: tfrecorder cache /mnt/ssd/cache",
)
@click.argument("folder")
@click.option("--clear", is_flag=True, help="Remove everything that no process uses now.")
@json_option
def cache(folder: str, clear: bool, as_json: bool) -> None:
    from tfrecorder.storage.cache_folder import CacheFolder

    kept = CacheFolder(folder)
    if not kept.is_there():
        raise OptionError.of("folder", folder, "it is not the folder of a local cache.")
    with storage.failing_writes(folder):
        removed = kept.clear() if clear else []
        values = {"datasets": kept.datasets(), **kept.counters()._asdict()}
    if as_json:
        show({**values, "removed": removed}, as_json)
        return
    rows = [[uri, readable_bytes(used)] for uri, used in values["datasets"].items()]
    for uri in removed:
        click.echo(f"removed {uri}")
    click.echo("\n".join(text_table([["dataset", "kept"], *rows])))
    words = [readable_bytes(size) for size in kept.counters()]
    click.echo("{} on the disk; so far {} were fetched and kept, {} not kept".format(*words))
