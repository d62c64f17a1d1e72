"""The commands about looking: `inspect`, `duplicates`, `preview`, `card` and `export`."""

from __future__ import annotations

import os
import re
import tempfile
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tfrecorder.cli.options import at_option, option_of, options_of, record_options
from tfrecorder.cli.output import complain, quiet_option, result_options, show
from tfrecorder.cli.read import refuse_split, split_option
from tfrecorder.display.tables import counted, one_line, text_table
from tfrecorder.format.csv_cells import csv_of
from tfrecorder.options.forms import FORMS
from tfrecorder.options.preview import PreviewOptions
from tfrecorder.options.read import NamedKeys

if TYPE_CHECKING:
    import pandas as pd


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


@click.command(
    help=f"""Print the first records of a split as a table.

    With --output-dir, also write their images, as stored, and the whole table as
    records.csv. {_DIRECTORY_HELP}""",
    epilog="Example: tfrecorder inspect out --split TRAIN --num-records 20 --output-dir look",
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
    **keys: str | None,
) -> None:
    from tfrecorder.inspection.inspect import inspect as run
    from tfrecorder.reading.stored_records import open_stored

    refuse_split(open_stored(directory, at, NamedKeys(**keys)), split)
    table = run(directory, split, num_records, output_dir, at, **keys)
    if as_csv:
        click.echo(csv_of(table), nl=False)
        return
    click.echo("\n".join(text_table(_cells(table))))
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
    return [head, *([one_line(str(cell)) for cell in row] for row in shown.to_numpy().tolist())]


@click.command(
    help="""Print the images in DIRECTORY that occur more than once, as CSV.

    Also near copies: resized, encoded again, or cut by up to 3 % at the borders. Only images that
    may be copies are read. Copies of one image have the same group. Their distance is the number of
    bits, of 63, in which they look different from the first of the group.""",
    epilog="Example: tfrecorder duplicates out",
)
@click.argument("directory")
@at_option
@option_of("progress")
def duplicates(directory: str, **options: Any) -> None:
    from tfrecorder.inspection.near_copies import duplicates as run

    click.echo(csv_of(run(directory, **options)), nl=False)


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
def preview(directory: str, html: str | None, opened: bool, **options: Any) -> None:
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
@options_of(PreviewOptions, ("at", "image", "label"))
@result_options
def card(directory: str, as_json: bool, **options: Any) -> None:
    from tfrecorder.exports.card import card as run

    show(run(directory, **options), as_json)


@click.command(
    help="""Write the dataset in DIRECTORY for other tools, into OUTPUT_DIR.

    Images stay byte for byte as they are stored. To continue an interrupted export, repeat the
    command.""",
    epilog="Example: tfrecorder export out flowers_coco --to coco",
)
@click.argument("directory")
@click.argument("output_dir")
@click.option(
    "--to",
    type=click.Choice(FORMS),
    required=True,
    help="What to write. coco: COCO's JSON; csv: a CSV and a schema; folder: split/label/file; "
    "webdataset: tar files. Each with the images.",
)
@at_option
@option_of("progress")
@result_options
def export(directory: str, output_dir: str, as_json: bool, **options: Any) -> None:
    from tfrecorder.exports.export import export as run

    show(run(directory, output_dir, **options), as_json)


def _page_of(directory: str) -> str:
    """A page in the current folder, named after its dataset."""
    name = os.path.basename(os.path.abspath(directory)) or "dataset"
    return re.sub(r"[^\w.-]+", "_", name).strip("_.") + "-preview.html"
