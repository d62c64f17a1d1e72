"""The commands of a conversion: `convert`, `validate`, `schema`, `status`, and its parts.

The parts, `stage`, `work` and `commit`, are a conversion on many machines without Beam.
"""

from __future__ import annotations

import sys
from typing import Any

import click

from tfrecorder.cli.options import GroupedCommand, SharingCommand, option_of, options_of
from tfrecorder.cli.output import is_quiet, json_option, refuse_both, result_options, show
from tfrecorder.format.csv_cells import csv_of
from tfrecorder.options.changes import (
    NOT_STAGED,
    NOT_VALIDATED,
)
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.options.option import in_shell
from tfrecorder.validation import report as reports

_SOURCES = """SOURCE is one of:

    \b
    - a CSV with the columns image_uri and, where known, split and label
    - a CSV without a header, or JSON Lines, in the form of AutoML and
      Vertex AI
    - Parquet: a file, or a folder of files
    - COCO's JSON, or a folder with it; a folder of YOLO or of Pascal VOC
    - a folder of images, as split/label/file or label/file, or with a
      table metadata.*
    - "-": a CSV on standard input"""

SOURCE_HELP = "SOURCE is as for `tfrecorder convert`, whose help lists what it may be."

dry_run_option = click.option(
    "--dry-run",
    is_flag=True,
    help="Check, and show what would change: splits, shards, estimated bytes, classes and "
    "warnings. Nothing is written.",
)


def opened(source: str) -> Any:
    """The SOURCE of a command: a path, or standard input for "-"."""
    if source != "-":
        return source
    if sys.stdin is None:
        raise click.UsageError("- is standard input, which is closed; give a file.")
    return sys.stdin.buffer


@click.command(
    cls=GroupedCommand,
    help=f"""Write SOURCE as a TFRecord dataset into OUTPUT_DIR.

    To continue an interrupted conversion, repeat the command.

    {_SOURCES}""",
    epilog="Example: tfrecorder convert photos.csv out --num-shards 8",
)
@click.argument("source")
@click.argument("output_dir")
@options_of(ConvertOptions)
@dry_run_option
@result_options
def convert(
    source: str,
    output_dir: str,
    dry_run: bool,
    as_json: bool,
    **options: Any,
) -> None:
    from tfrecorder.conversion.convert import convert as run

    show(in_shell(run)(opened(source), output_dir, dry_run=dry_run, **options), as_json)


@click.command(
    cls=SharingCommand,
    help=f"""List every problem in SOURCE at once; write nothing.

    The exit code is 1 if there are errors, and 0 if there are only warnings.

    {SOURCE_HELP}""",
    epilog="Example: tfrecorder validate photos.csv --check-images",
)
@click.argument("source")
@click.option(
    "--check-images",
    is_flag=True,
    help="Also open and check every image, as --check and --max-pixels say.",
)
@click.option(
    "--against",
    metavar="DIRECTORY",
    help="A dataset that SOURCE may be added to: report on rows, classes and columns that it does "
    "not have, and on images that it has under other names.",
)
@options_of(ConvertOptions, without=NOT_VALIDATED, shared=True)
@click.option("--csv", "as_csv", is_flag=True, help="Print the whole report as CSV.")
@result_options
def validate(
    source: str,
    check_images: bool,
    against: str | None,
    as_csv: bool,
    as_json: bool,
    **options: Any,
) -> None:
    refuse_both(as_json, as_csv)
    from tfrecorder.conversion.validate import validate as run

    report = in_shell(run)(opened(source), check_images, against, **options)
    ok = not reports.has_errors(report)
    if as_csv:
        click.echo(csv_of(report), nl=False)
    elif as_json:
        show({"source": source, "ok": ok, "problems": reports.problems(report)}, as_json)
    else:
        said = report.errors if is_quiet() else report
        show(f"{source}: {said}", is_error=not ok)
    sys.exit(0 if ok else 1)


@click.command(
    help=f"""Print a schema for SOURCE as YAML, one line per column, for you to check and edit.

    Pass the edited file to `tfrecorder convert --schema`.

    {SOURCE_HELP}""",
    epilog="Example: tfrecorder schema photos.csv > schema.yaml",
)
@click.argument("source")
@option_of("sep")
@option_of("encoding")
@option_of("form")
def schema(source: str, **options: Any) -> None:
    from tfrecorder.schema.schema_file import write_schema
    from tfrecorder.sources.inference import inferred

    click.echo(write_schema(inferred(opened(source), ConvertOptions.of(options))), nl=False)


@click.command(
    help="""Show the progress of the conversion into DIRECTORY.

    Reads only the directory, whatever runs the conversion, and changes nothing. The exit code is 1
    if the dataset is finished and a shard is missing or has the wrong size.""",
    epilog="Example: tfrecorder status gs://my-bucket/photos",
)
@click.argument("directory")
@json_option
def status(directory: str, as_json: bool) -> None:
    from tfrecorder.output.status import status as run

    state = run(directory)
    show(state, as_json)
    sys.exit(1 if state.damage else 0)


def _part(
    ctx: click.Context,
    param: click.Parameter,
    value: str | None,
) -> Any:
    """ "3/16" as a pair; counted from 1, or from 0 for `--part-index`."""
    if value is None:
        return None
    first = 0 if param.name == "part_index" else 1
    number, _, parts = value.partition("/")
    whole = number.isdecimal() and parts.isdecimal()
    if not whole or not first <= int(number) < int(parts) + first:
        of = int(parts) if whole and int(parts) else 16
        last = f"{of - 1 + first}/{of}"
        raise click.BadParameter(f"{value!r}; of {of} parts, write {first}/{of} to {last}.")
    return int(number) + 1 - first, int(parts)


@click.command(
    cls=SharingCommand,
    help=f"""Check SOURCE and plan its shards, for `work` on many machines and `commit`.

    Writes no images. To continue a staged conversion that is not finished, repeat
    the command.

    {SOURCE_HELP}""",
    epilog="Example: tfrecorder stage photos.csv out --num-shards 64",
)
@click.argument("source")
@click.argument("output_dir")
@options_of(ConvertOptions, without=NOT_STAGED, shared=True)
@result_options
def stage(
    source: str,
    output_dir: str,
    as_json: bool,
    **options: Any,
) -> None:
    from tfrecorder.parts import stage as run

    show(in_shell(run)(opened(source), output_dir, **options), as_json)


@click.command(
    help="""Write one part of the shards that `stage` planned in DIRECTORY.

    Run it once for each part, at the same time or one after the other, on one machine or
    many. All must see DIRECTORY and the images under the same paths. If a part fails, run
    it again. Without --part, all shards are written.""",
    epilog="Example: tfrecorder work out --part 3/16",
)
@click.argument("directory")
@click.option(
    "--part",
    metavar="K/N",
    callback=_part,
    help="Part K of N, with K counted from 1. Default: 1/1.",
)
@click.option(
    "--part-index",
    metavar="K/N",
    callback=_part,
    help="As --part, with K counted from 0, as in Kubernetes and SLURM arrays.",
)
@option_of("num_threads")
@option_of("progress")
@result_options
def work(
    directory: str,
    part: Any,
    part_index: Any,
    as_json: bool,
    **options: Any,
) -> None:
    if part and part_index:
        raise click.UsageError("--part and --part-index cannot be combined.")
    from tfrecorder.parts import work as run

    show(run(directory, part=part or part_index or (1, 1), **options), as_json)


@click.command(
    help="""Make what `work` wrote into DIRECTORY one dataset, once all parts are done.

    If parts are missing, lists them and changes nothing.""",
    epilog="Example: tfrecorder commit out",
)
@click.argument("directory")
@option_of("max_reject_fraction")
@result_options
def commit(
    directory: str,
    as_json: bool,
    **options: Any,
) -> None:
    from tfrecorder.parts import commit as run

    show(run(directory, **options), as_json)
