"""The command line: `tfrecorder convert`, `tfrecorder validate`.

The options of `convert` are the fields of `ConvertOptions`, with their help texts.
"""

from __future__ import annotations

import dataclasses
import re
import sys
import warnings
from collections.abc import Callable
from typing import Any

import click

from tfrecorder.cli_checking import repair, verify
from tfrecorder.cli_looking import inspect, preview
from tfrecorder.cli_reading import benchmark, info
from tfrecorder.cli_running import runner_option, status
from tfrecorder.cli_schema import schema
from tfrecorder.errors import TfrecorderError, ValidationError
from tfrecorder.images.limits import DEFAULT_MAX_PIXELS, FITS, FORMATS, VERIFY_LEVELS
from tfrecorder.options.convert import ON_ERROR, ConvertOptions
from tfrecorder.validation import report as reports
from tfrecorder.version import __version__

INTERRUPTED = 130  # 128 + SIGINT, as shells have it

_SOURCE_HELP = """SOURCE is a CSV with the columns image_uri and, where known, split and label; a
    CSV in the order of AutoML or Vertex AI without a header; or a folder of images,
    split/label/file or label/file."""


class _UsageError(click.ClickException):
    """A wrong argument in one line: Click's own form takes four."""

    exit_code = 2


class _Group(click.Group):
    """Turns the errors that a user can meet into one clear message and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        warnings.showwarning = _show_warning
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            command = error.ctx.command_path if error.ctx else ctx.command_path
            words = f"{error.format_message()} See {command} --help."
            raise _UsageError(words) from error
        except ValidationError as error:
            raise click.ClickException(_with_flags(str(error))) from error
        except TfrecorderError as error:
            words = " ".join(str(error).splitlines())
            raise click.ClickException(_with_flags(words)) from error
        except KeyboardInterrupt as error:
            click.echo(f"\n{str(error) or 'interrupted'}", err=True)
            ctx.exit(INTERRUPTED)


def _with_flags(words: str) -> str:
    """A message of the library with its options as the command line writes them."""
    return re.sub(r"\b([a-z_]+)=True\b", lambda m: "--" + m[1].replace("_", "-"), words)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    click.echo(f"Warning: {message}", err=True)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, package_name="tfrecorder")
def main() -> None:
    """A table or folder of images in, a training-ready TFRecord dataset out.

    \b
    tfrecorder schema flowers.csv
    tfrecorder validate flowers.csv
    tfrecorder convert flowers.csv out
    tfrecorder status out
    tfrecorder verify out
    tfrecorder repair out
    """


def _pairs(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> Any:
    """NAME=VALUE arguments as a dict, or None without any."""
    pairs = {}
    for value in values:
        name, equals, given = value.partition("=")
        if not equals:
            raise click.BadParameter(f"{value!r} has no '='; write for instance path=image_uri.")
        pairs[name] = given
    return pairs or None


def _shards(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
    """ "8" as a number, "TRAIN=8,TEST=2" as a dict."""
    if value is None or value.isdecimal():
        return None if value is None else int(value)
    pairs = [pair.partition("=") for pair in value.split(",")]
    if not all(number.isdecimal() for _, _, number in pairs):
        raise click.BadParameter(f"{value!r}; write for instance 8 or TRAIN=8,TEST=2.")
    return {split: int(number) for split, _, number in pairs}


def _size(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
    """ "256" as the short side, "224x320" as height and width."""
    if value is None or value.isdecimal():
        return None if value is None else int(value)
    sides = value.lower().split("x")
    if len(sides) != 2 or not all(side.isdecimal() for side in sides):
        raise click.BadParameter(f"{value!r}; write for instance 256 or 224x320.")
    return int(sides[0]), int(sides[1])


_column_option = click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="NAME=OURS",
    callback=_pairs,
    help="A column of the source that stands for split, image_uri or label; may be repeated.",
)
_label_option = click.option(
    "--label",
    "labels",
    multiple=True,
    metavar="NAME",
    callback=lambda ctx, param, values: values or None,
    help="A class name, repeated in the order of the integers. Default: the sorted labels found.",
)

#: Fields whose command line form is not what their default value tells.
_SPECIAL: dict[str, Callable[[Any], Any]] = {
    "columns": _column_option,
    "labels": _label_option,
    "runner_options": runner_option,
}
_TYPES: dict[str, dict[str, Any]] = {
    "schema": {"type": str},
    "num_shards": {"type": str, "callback": _shards},
    "shard_size": {"type": str},
    "verify": {"type": click.Choice(VERIFY_LEVELS)},
    "image_size": {"type": str, "callback": _size},
    "image_fit": {"type": click.Choice(FITS)},
    "image_format": {"type": click.Choice(FORMATS)},
    "on_error": {"type": click.Choice(ON_ERROR)},
    "num_workers": {"type": int},
    "num_threads": {"type": int},
}


def _convert_options(command: Callable[..., None]) -> Callable[..., None]:
    """An option for each field of ConvertOptions."""
    for item in reversed(dataclasses.fields(ConvertOptions)):
        special = _SPECIAL.get(item.name)
        command = special(command) if special else _field_option(item)(command)
    return command


def _field_option(item: dataclasses.Field[Any]) -> Callable[[Any], Any]:
    name = item.name.replace("_", "-")
    settings: dict[str, Any] = {"default": item.default, "help": item.metadata["help"]}
    if item.name == "progress" or item.default is True:
        return click.option(f"--{name}/--no-{name}", **settings)
    if item.default is False:
        return click.option(f"--{name}", is_flag=True, **settings)
    settings["show_default"] = item.default is not None
    if item.metadata["metavar"]:
        settings["metavar"] = item.metadata["metavar"]
    return click.option(f"--{name}", **settings, **_TYPES.get(item.name, {}))


@click.command(
    help=f"""Write SOURCE as a TFRecord dataset into OUTPUT_DIR.

    An interrupted conversion is continued by the same command.

    {_SOURCE_HELP}""",
    epilog="Example: tfrecorder convert flowers.csv out --num-shards 8",
)
@click.argument("source")
@click.argument("output_dir")
@_convert_options
def convert(source: str, output_dir: str, **options: Any) -> None:
    from tfrecorder.conversion import convert as run

    click.echo(run(source, output_dir, **options))


@click.command(
    help=f"""List every problem of SOURCE at once; write nothing.

    Ends with exit code 1 if there are errors; warnings alone are no failure.

    {_SOURCE_HELP}""",
    epilog="Example: tfrecorder validate flowers.csv --check-images",
)
@click.argument("source")
@click.option("--check-images", is_flag=True, help="Also open and check every image.")
@_column_option
@click.option("--schema", metavar="FILE", help="What each column holds, as for convert.")
@_label_option
@click.option("--seed", default=0, show_default=True, help="As for convert.")
@click.option(
    "--verify",
    type=click.Choice(VERIFY_LEVELS),
    default="decode",
    show_default=True,
    help="With --check-images, the check of each image, as for convert.",
)
@click.option(
    "--max-pixels",
    default=DEFAULT_MAX_PIXELS,
    show_default=True,
    metavar="N",
    help="With --check-images, refuse images of more pixels than this.",
)
@click.option("--csv", "as_csv", is_flag=True, help="Print the whole report as CSV.")
def validate(source: str, check_images: bool, as_csv: bool, **options: Any) -> None:
    from tfrecorder.validation.validate import validate as run

    found = run(source, check_images, **options)
    if as_csv:
        click.echo(found.to_csv(index=False), nl=False)
    elif found.empty:
        click.echo(f"{source}: no problems found.")
    else:
        click.echo(reports.summarize(found))
    sys.exit(1 if reports.has_errors(found) else 0)


main.add_command(convert)
main.add_command(validate)
main.add_command(status)
main.add_command(verify)
main.add_command(repair)
main.add_command(info)
main.add_command(benchmark)
main.add_command(inspect)
main.add_command(preview)
main.add_command(schema)
