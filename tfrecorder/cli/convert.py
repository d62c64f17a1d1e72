"""The commands before and during a conversion: `convert`, `validate`, `schema`, `status`.

The options of `convert` are the fields of `ConvertOptions`, with their help texts.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable, Container
from typing import Any

import click
from click.core import ParameterSource

from tfrecorder.cli.output import (
    at_option,
    image_size,
    is_quiet,
    json_option,
    quiet_option,
    refuse_both,
    show,
)
from tfrecorder.format.csv_cells import csv_of
from tfrecorder.images.limits import DEFAULT_MAX_PIXELS, FORMATS, RESIZES, VERIFY_LEVELS
from tfrecorder.options.convert import DUPLICATES, OF_COMPACT, ConvertOptions
from tfrecorder.options.convert_values import ON_ERROR
from tfrecorder.validation import report as reports


def _runner_options(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> dict[str, Any] | None:
    """NAME=VALUE arguments as a dict: a bare name is True, a name given twice has both values."""
    found: dict[str, Any] = {}
    for argument in values:
        name, equals, text = argument.partition("=")
        if not name.strip("-"):
            raise click.BadParameter(
                f"{argument!r}; write, for example, machine_type=n1-standard-4."
            )
        value = text if equals else True
        if name in found:
            before = found[name]
            found[name] = [*(before if isinstance(before, list) else [before]), value]
        else:
            found[name] = value
    return found or None


runner_option = click.option(
    "--runner-option",
    "runner_options",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_runner_options,
    help="An option of Beam or its runner, checked by Beam; repeatable.",
)


def _sep(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    r"""A separator as typed: "\t" means a tab, which is hard to type in a shell."""
    return "\t" if value == r"\t" else value


def option_of(name: str, **settings: Any) -> Callable[[Any], Any]:
    """An option of `ConvertOptions`, for other commands."""
    (item,) = (one for one in dataclasses.fields(ConvertOptions) if one.name == name)
    metavar, words = item.metadata["metavar"], item.metadata["help"]
    return click.option(f"--{name.replace('_', '-')}", metavar=metavar, help=words, **settings)


def _text_options(command: Callable[..., None]) -> Callable[..., None]:
    return option_of("sep", callback=_sep)(option_of("encoding")(command))


@click.command(
    help="""Show the progress of the conversion into DIRECTORY.

    Reads only the directory, whatever runs the conversion, and changes nothing. The exit code is 1
    if the dataset is finished and a shard is missing or has the wrong size.""",
    epilog="Example: tfrecorder status gs://my-bucket/flowers",
)
@click.argument("directory")
@json_option
def status(directory: str, as_json: bool) -> None:
    from tfrecorder.output.status import status as run

    found = run(directory)
    show(found, as_json, has_options=True)
    sys.exit(1 if found.damage else 0)


@click.command(
    help="""Print a schema for SOURCE as YAML, one line per column, for you to check and edit.

    SOURCE is a CSV (- for one on standard input), Vertex AI's JSON Lines, or a folder
    of images. Give the edited file to `tfrecorder convert --schema`.""",
    epilog="Example: tfrecorder schema flowers.csv > schema.yaml",
)
@click.argument("source")
@_text_options
def schema(source: str, sep: str | None, encoding: str | None) -> None:
    from tfrecorder.schema.schema_file import write_schema
    from tfrecorder.sources.inference import infer_schema

    found = infer_schema(opened(source), sep=sep, encoding=encoding)
    click.echo(write_schema(found), nl=False)


SOURCE_HELP = """SOURCE is a CSV with the columns image_uri and, where known, split and label; a
    CSV in the order of AutoML or Vertex AI without a header; a folder of images,
    split/label/file or label/file; or - for a CSV on standard input."""


def opened(source: str) -> Any:
    """The SOURCE of a command: a path, or standard input for "-"."""
    return sys.stdin.buffer if source == "-" else source


def pairs(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> Any:
    """NAME=VALUE arguments as a dict, or None if there are none."""
    found = {}
    for value in values:
        name, equals, given = value.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{value!r}; write NAME=VALUE.")
        found[name] = given
    return found or None


def _shards(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
    """ "8" as a number, "TRAIN=8,TEST=2" as a dict."""
    if value is None or value.isdecimal():
        return None if value is None else int(value)
    pairs = [pair.partition("=") for pair in value.split(",")]
    if not all(number.isdecimal() for _, _, number in pairs):
        raise click.BadParameter(f"{value!r}; write, for example, 8 or TRAIN=8,TEST=2.")
    return {split: int(number) for split, _, number in pairs}


def _shares(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
    """ "TRAIN=0.7,VALIDATION=0.3" as a dict."""
    if value is None:
        return None
    pairs = [pair.partition("=") for pair in value.split(",")]
    try:
        return {split: float(share) for split, _, share in pairs}
    except ValueError:
        words = f"{value!r}; write, for example, TRAIN=0.7,VALIDATION=0.3."
        raise click.BadParameter(words) from None


_column_option = click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="NAME=OURS",
    callback=pairs,
    help="A column of the source to use as split, image_uri or label; repeatable.",
)
_label_option = click.option(
    "--label",
    "labels",
    multiple=True,
    metavar="NAME",
    callback=lambda ctx, param, values: values or None,
    help="A class name; repeat it in the order of the integers. Default: the labels found, sorted.",
)


_strict_option = click.option(
    "--strict",
    metavar="[CODE,...]",
    callback=lambda ctx, param, value: value is not None and (value == "all" or value.split(",")),
    help="Treat the warnings of validation as errors: all of them, or those with these codes.",
)

#: Fields whose command-line form does not follow from their default value.
_SPECIAL: dict[str, Callable[[Any], Any]] = {
    "columns": _column_option,
    "labels": _label_option,
    "runner_options": runner_option,
    "strict": _strict_option,
}
_TYPES: dict[str, dict[str, Any]] = {
    "schema": {"type": str},
    "sep": {"type": str, "callback": _sep},
    "num_shards": {"type": str, "callback": _shards},
    "shard_size": {"type": str},
    "splits": {"type": str, "callback": _shares},
    "verify": {"type": click.Choice(VERIFY_LEVELS)},
    "image_size": {"type": str, "callback": image_size},
    "resize": {"type": click.Choice(RESIZES)},
    "image_format": {"type": click.Choice(FORMATS)},
    "on_error": {"type": click.Choice(ON_ERROR)},
    "num_workers": {"type": int},
    "num_threads": {"type": int},
}


def convert_options(
    command: Callable[..., None], without: Container[str] = (), appends: bool = False
) -> Callable[..., None]:
    """An option for each field of ConvertOptions, except those in `without`.

    Args:
        appends: options that decide on the records have no default, because the dataset has them.
    """
    for item in reversed(dataclasses.fields(ConvertOptions)):
        if item.name not in without:
            has_default = not (appends and item.metadata["content"])
            special = _SPECIAL.get(item.name)
            command = special(command) if special else _field_option(item, has_default)(command)
    return command


def _field_option(item: dataclasses.Field[Any], has_default: bool) -> Callable[[Any], Any]:
    name = item.name.replace("_", "-")
    default = item.default if has_default else None
    settings: dict[str, Any] = {"default": default, "help": item.metadata["help"]}
    if item.name == "progress" or item.default is True:
        return click.option(f"--{name}/--no-{name}", **settings)
    if item.default is False:
        return click.option(f"--{name}", is_flag=True, **settings)
    settings["show_default"] = default is not None
    if item.metadata["metavar"]:
        settings["metavar"] = item.metadata["metavar"]
    if isinstance(item.default, int):
        settings["type"] = int
    return click.option(f"--{name}", **{**settings, **_TYPES.get(item.name, {})})


@click.command(
    help=f"""Write SOURCE as a TFRecord dataset into OUTPUT_DIR.

    To continue an interrupted conversion, repeat the command.

    {SOURCE_HELP}""",
    epilog="Example: tfrecorder convert flowers.csv out --num-shards 8",
)
@click.argument("source")
@click.argument("output_dir")
@convert_options
@click.option(
    "--dry-run",
    is_flag=True,
    help="Run every check that a conversion runs first, and show what it would write: splits, "
    "shards, estimated bytes, classes and warnings. Nothing is written.",
)
@json_option
@quiet_option
def convert(source: str, output_dir: str, dry_run: bool, as_json: bool, **options: Any) -> None:
    from tfrecorder.conversion.convert import convert as run
    from tfrecorder.conversion.dry_run import dry_run as describe

    if is_quiet():
        options["progress"] = False
    chosen: Callable[..., Any] = describe if dry_run else run
    show(chosen(opened(source), output_dir, **options), as_json, has_options=True)


_NOT_OF_COMPACT = {item.name for item in dataclasses.fields(ConvertOptions)}.difference(OF_COMPACT)


@click.command(
    help=f"""Add SOURCE to the finished dataset in OUTPUT_DIR, as a new generation.

    Rows whose images are already in the dataset are skipped. Options that decide what the
    records hold, such as --image-size or --schema, stay as they were unless you give them.
    To continue an interrupted append, repeat the command.

    {SOURCE_HELP}""",
    epilog="Example: tfrecorder append more.csv out",
)
@click.argument("source")
@click.argument("output_dir")
@click.option(
    "--duplicates",
    type=click.Choice(DUPLICATES),
    default="skip",
    show_default=True,
    help="Rows whose images are already in the dataset: skip leaves them out, keep adds them.",
)
@click.option(
    "--retry-rejects",
    is_flag=True,
    help="Also add rows that the dataset has only as rejects: their images may exist now.",
)
@functools.partial(convert_options, without={"overwrite", "retry_rejects"}, appends=True)
@json_option
@quiet_option
@click.pass_context
def append(ctx: click.Context, source: str, output_dir: str, as_json: bool, **options: Any) -> None:
    from tfrecorder.conversion.append import append as run

    show(run(opened(source), output_dir, **given_options(ctx, options)), as_json, has_options=True)


def given_options(ctx: click.Context, options: dict[str, Any]) -> dict[str, Any]:
    """The options that the command line gives; a dataset keeps its own for the others."""
    given = {
        name: value
        for name, value in options.items()
        if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT
    }
    return {**given, "progress": False} if is_quiet() else given


@click.command(
    help="""Write all generations of the dataset in DIRECTORY as one new dataset in OUTPUT_DIR.

    Records are copied unchanged and shuffled again; no image is decoded, and the sources are
    not needed. DIRECTORY is not changed. To continue an interrupted compaction, repeat the
    command.""",
    epilog="Example: tfrecorder compact out out-2",
)
@click.argument("directory")
@click.argument("output_dir")
@click.option(
    "--drop",
    metavar="FILE",
    help="A text file with one image uri per line; their records are left out.",
)
@at_option
@functools.partial(convert_options, without=_NOT_OF_COMPACT)
@json_option
@quiet_option
def compact(directory: str, output_dir: str, as_json: bool, **options: Any) -> None:
    from tfrecorder.conversion.compact import compact as run

    if is_quiet():
        options["progress"] = False
    show(run(directory, output_dir, **options), as_json, has_options=True)


@click.command(
    help=f"""List every problem in SOURCE at once; write nothing.

    The exit code is 1 if there are errors, and 0 if there are only warnings.

    {SOURCE_HELP}""",
    epilog="Example: tfrecorder validate flowers.csv --check-images",
)
@click.argument("source")
@click.option("--check-images", is_flag=True, help="Also open and check every image.")
@_column_option
@click.option("--schema", metavar="FILE", help="What each column holds, as in convert.")
@_label_option
@click.option(
    "--background-class", is_flag=True, help="Classes of boxes count from 1, as in convert."
)
@_text_options
@option_of("base")
@click.option("--seed", default=0, show_default=True, help="As in convert.")
@click.option("--splits", metavar="SPLIT=SHARE,...", callback=_shares, help="As in convert.")
@click.option("--stratify", is_flag=True, help="As in convert.")
@click.option("--split-by", metavar="COLUMN", help="As in convert.")
@click.option(
    "--verify",
    type=click.Choice(VERIFY_LEVELS),
    default="decode",
    show_default=True,
    help="With --check-images: how each image is checked, as in convert.",
)
@click.option(
    "--max-pixels",
    default=DEFAULT_MAX_PIXELS,
    show_default=True,
    metavar="N",
    help="With --check-images: refuse images with more pixels than this.",
)
@_strict_option
@click.option(
    "--progress/--no-progress",
    default=None,
    help="Show progress; with --check-images, a bar. Default: only in a terminal.",
)
@click.option("--csv", "as_csv", is_flag=True, help="Print the whole report as CSV.")
@json_option
@quiet_option
def validate(source: str, check_images: bool, as_csv: bool, as_json: bool, **options: Any) -> None:
    refuse_both(as_json, as_csv)
    from tfrecorder.validation.validate import validate as run

    if is_quiet():
        options["progress"] = False
    found = run(opened(source), check_images, **options)
    ok = not reports.has_errors(found)
    if as_csv:
        click.echo(csv_of(found), nl=False)
    elif as_json:
        show({"source": source, "ok": ok, "problems": reports.problems(found)}, as_json)
    else:
        said = found.errors if is_quiet() else found
        show(f"{source}: {said.as_text(shell=True)}", is_error=not ok, has_options=True)
    sys.exit(0 if ok else 1)
