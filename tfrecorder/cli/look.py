"""The commands that show what a dataset holds, or write it in another form.

They are `info`, `history`, `benchmark`, `cache`, `inspect`, `duplicates`, `preview`, `card` and
`export`.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tfrecorder import storage
from tfrecorder.cli.options import (
    at_option,
    cache_options,
    key_options,
    option_of,
    options_of,
    record_options,
)
from tfrecorder.cli.output import (
    complain,
    json_option,
    quiet_option,
    quiet_start,
    result_options,
    show,
)
from tfrecorder.display.tables import counted, cut, one_line, readable_bytes, text_table
from tfrecorder.errors import DatasetError, OptionError
from tfrecorder.format.csv_cells import csv_of
from tfrecorder.loading.options import BenchmarkOptions, benchmark_options
from tfrecorder.options.keywords import FORMS, IMAGE_FORMATS
from tfrecorder.options.read import NamedKeys, PreviewOptions

if TYPE_CHECKING:
    import pandas as pd

    from tfrecorder.reading.dataset import StoredDataset

_DIRECTORY_HELP = """DIRECTORY is the output of a conversion, a TFDS directory of one version, or a
    pattern of TFRecord files."""

#: The first columns of the printed table, and the names that some columns have there.
_FIRST = (
    "record",
    "image/source_id",
    "image/class/label",
    "image/class/text",
    "image/format",
    "image/height",
    "image/width",
    "image/channels",
    "image_bytes",
)
_SHORT = {"image/source_id": "row", "image_bytes": "bytes", "image_file": "file"}

split_option = click.option(
    "--split",
    default="TRAIN",
    show_default=True,
    metavar="SPLIT",
    help="The split to read.",
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
def info(
    directory: str,
    at: int | None,
    as_json: bool,
    **keys: Any,
) -> None:
    from tfrecorder.reading.info import info as run

    show(run(directory, at, **keys), as_json)


@click.command(
    help="""Show what was done to the dataset in DIRECTORY, newest first.

    A line for each commit: its number, when it began (UTC), and how many rows were added,
    corrected, moved to another split, removed and rejected.""",
    epilog="Example: tfrecorder history out",
)
@click.argument("directory")
@json_option
def history(directory: str, as_json: bool) -> None:
    from tfrecorder.reading.commits import history as run

    entries = run(directory)
    values = {"commits": [vars(entry) for entry in entries]}
    show(values if as_json else "\n".join(map(str, entries)), as_json)


def refuse_split(stored: StoredDataset, split: str) -> None:
    """Raise an OptionError unless the dataset has the split given as `--split`."""
    try:
        stored.split(split)
    except DatasetError as error:
        raise OptionError(str(error)) from None


@click.command(
    help="""Measure how fast the dataset in DIRECTORY is read.

    Shows images/s, MB/s, CPU seconds per 1,000 images and the time to the first batch.""",
    epilog="Example: tfrecorder benchmark out --batch-size 64 --image-size 224",
)
@click.argument("directory")
@split_option
@options_of(BenchmarkOptions)
@cache_options
@key_options
def benchmark(
    directory: str,
    split: str,
    **options: Any,
) -> None:
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
def cache(
    folder: str,
    clear: bool,
    as_json: bool,
) -> None:
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


@click.command(
    help=f"""Print the first records of a split as a table.

    With --output-dir, also write their images, as stored, and the whole table as
    records.csv. {_DIRECTORY_HELP}""",
    epilog="Example: tfrecorder inspect out --split TEST --output-dir look",
)
@click.argument("directory")
@split_option
@click.option(
    "--num-records",
    type=int,
    default=20,
    show_default=True,
    metavar="N",
    help="How many records to print.",
)
@click.option(
    "--output-dir",
    metavar="FOLDER",
    help="A new or empty folder for the images and records.csv.",
)
@record_options
@click.option("--csv", "as_csv", is_flag=True, help="Print the whole table as CSV.")
def inspect(
    directory: str,
    split: str,
    num_records: int,
    output_dir: str | None,
    at: int | None,
    as_csv: bool,
    **keys: Any,
) -> None:
    from tfrecorder.inspection.inspect import inspect as run
    from tfrecorder.reading.record_set import open_stored

    refuse_split(open_stored(directory, at, NamedKeys(**keys)), split)
    table = run(directory, split, num_records, output_dir, at, **keys)
    if as_csv:
        click.echo(csv_of(table), nl=False)
        return
    lines = text_table(_cells(table))
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
        lines = [cut(line, width) for line in lines]
    click.echo("\n".join(lines))
    if output_dir is not None:
        click.echo(f"\n{counted(len(table), 'record')} written to {output_dir}")


def _cells(table: pd.DataFrame) -> list[list[str]]:
    """The table as text, with the columns that people look at first in front."""
    last = ["image/filename"]
    if table["image_file"].any():
        last.append("image_file")
    others = [name for name in table if name not in (*_FIRST, *last, "split", "image_file")]
    shown = table[[name for name in (*_FIRST, *others, *last) if name in table]]
    # Without the prefix that all of them share.
    head = [_SHORT.get(name, name.removeprefix("image/")) for name in map(str, shown)]
    return [head, *([one_line(_cell(value)) for value in row] for row in shown.to_numpy().tolist())]


def _cell(value: Any) -> str:
    """A value to look at: four digits of a float32, alone or in a list, tell enough."""
    if isinstance(value, list):
        return f"[{', '.join(map(_cell, value))}]"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@click.command(
    help="""Print the images in DIRECTORY that occur more than once, as CSV.

    Exact copies (same bytes) and near ones: resized, encoded again, cut a little. Only images that
    may be copies are read. Copies of one image have the same group. Their distance is the number of
    bits, of 63, in which they look different from the first of the group.""",
    epilog="Example: tfrecorder duplicates out",
)
@click.argument("directory")
@at_option
@option_of("progress")
def duplicates(directory: str, **options: Any) -> None:
    from tfrecorder.images.near_copies import Copies
    from tfrecorder.inspection.duplicates import duplicates as run

    found = run(directory, **options)
    click.echo(csv_of(found), nl=False)
    click.echo(f"copies: {Copies(**found.attrs['copies']).words()}", err=True)


@click.command(
    help=f"""Make a page that shows the dataset in DIRECTORY: one HTML file that works offline.

    It shows random records of each split with their labels, boxes and masks; the distribution of
    labels, sizes and brightness; near-constant images; duplicates, and leakage between splits;
    and rejects with their reasons. {_DIRECTORY_HELP}""",
    epilog="Example: tfrecorder preview out --html report.html --open",
)
@click.argument("directory")
@click.option(
    "--html",
    metavar="FILE",
    help="The page to write. Default: NAME-preview.html in the current folder.",
)
@click.option(
    "--open",
    "opened",
    is_flag=True,
    help="Show the page in a browser; without --html, as a temporary file.",
)
@options_of(PreviewOptions)
@quiet_option
def preview(
    directory: str,
    html: str | None,
    opened: bool,
    **options: Any,
) -> None:
    from tfrecorder.inspection.preview import preview as run

    page = html or _page_of(directory)
    if opened and html is None:
        page = os.path.join(tempfile.mkdtemp(prefix="tfrecorder-"), "preview.html")
    show(run(directory, page, **options))
    if opened and not webbrowser.open(Path(page).resolve().as_uri()):
        complain("warning", f"no browser could be started; open {page} yourself.")


@click.command(
    help="""Write the card of the dataset in DIRECTORY, into it.

    The card is croissant.json (Croissant 1.1, with the SHA-256 of each shard), records.parquet (a
    row for each record), and README.md with pictures. Write what only people know into card.yaml in
    DIRECTORY: name, description, license, citation, homepage, rai, croissant.""",
    epilog="Example: tfrecorder card out",
)
@click.argument("directory")
@options_of(PreviewOptions, ("at", "image", "label", "features"))
@result_options
def card(
    directory: str,
    as_json: bool,
    **options: Any,
) -> None:
    from tfrecorder.exports.card import card as run

    show(run(directory, **options), as_json)


@click.command(
    help="""Write the dataset in DIRECTORY for other tools, into OUTPUT_DIR.

    Images stay byte for byte as they are stored, unless one format is asked for. To continue an
    interrupted export, repeat the command.""",
    epilog="Example: tfrecorder export out photos_coco --to coco",
)
@click.argument("directory")
@click.argument("output_dir")
@click.option(
    "--to",
    type=click.Choice(FORMS),
    required=True,
    help="What to write. coco: COCO's JSON; csv: a CSV and a schema; folder: split/label/file; "
    "webdataset: tar files; yolo: Ultralytics' data.yaml. Each with the images.",
)
@click.option(
    "--image-format",
    type=click.Choice(IMAGE_FORMATS),
    default="keep",
    show_default=True,
    help="Encode all images in this format.",
)
@at_option
@option_of("progress")
@result_options
def export(
    directory: str,
    output_dir: str,
    as_json: bool,
    **options: Any,
) -> None:
    from tfrecorder.exports.export import export as run

    show(run(directory, output_dir, **options), as_json)


def _page_of(directory: str) -> str:
    """A page in the current folder, named after its dataset."""
    name = os.path.basename(os.path.abspath(directory)) or "dataset"
    return re.sub(r"[^\w.-]+", "_", name).strip("_.") + "-preview.html"
