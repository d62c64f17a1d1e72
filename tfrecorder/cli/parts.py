"""The commands of a conversion on many machines without Beam: `stage`, `work`, `commit`."""

from __future__ import annotations

from typing import Any

import click

from tfrecorder.cli.convert import SOURCE_HELP, opened
from tfrecorder.cli.options import SharingCommand, option_of, options_of
from tfrecorder.cli.output import result_options, show
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.options.option import in_shell
from tfrecorder.options.subsets import NOT_STAGED


def _part(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
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
    epilog="Example: tfrecorder stage flowers.csv out --num-shards 64",
)
@click.argument("source")
@click.argument("output_dir")
@options_of(ConvertOptions, without=NOT_STAGED, shared=True)
@result_options
def stage(source: str, output_dir: str, as_json: bool, **options: Any) -> None:
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
def work(directory: str, part: Any, part_index: Any, as_json: bool, **options: Any) -> None:
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
def commit(directory: str, as_json: bool, **options: Any) -> None:
    from tfrecorder.parts import commit as run

    show(run(directory, **options), as_json)
