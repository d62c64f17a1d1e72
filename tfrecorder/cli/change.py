"""The commands that change the records of a dataset: `update`, `remove`."""

from __future__ import annotations

from typing import Any

import click

from tfrecorder.cli.convert import SOURCE_HELP, dry_run_option, opened, stage_only_option
from tfrecorder.cli.options import SharingCommand, given_options, options_of
from tfrecorder.cli.output import json_option, quiet_option, show
from tfrecorder.options.append import UpdateOptions
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.options.signature import in_shell
from tfrecorder.options.subsets import NOT_APPENDED, NOT_REMOVED
from tfrecorder.schema.keys import URI_COLUMN


@click.command(
    cls=SharingCommand,
    help=f"""Make the dataset in DIRECTORY what SOURCE says now.

    Rows whose images are in the dataset are corrected where SOURCE has other values, such as
    another label; the rest are added. Images come from the records, so their files need not exist
    any more. Only shards with a corrected record are written again; records keep their numbers
    and classes their integers, unless rows are removed or go to another split. To continue an
    interrupted update, repeat the command.

    {SOURCE_HELP}""",
    epilog="Example: tfrecorder update flowers.csv out --dry-run",
)
@click.argument("source")
@click.argument("directory")
@options_of(UpdateOptions)
@stage_only_option
@dry_run_option
@options_of(ConvertOptions, without=NOT_APPENDED, appends=True, shared=True)
@json_option
@quiet_option
@click.pass_context
def update(ctx: click.Context, source: str, directory: str, as_json: bool, **options: Any) -> None:
    from tfrecorder.conversion.update import update as run

    given = given_options(ctx, options)
    show(in_shell(run)(opened(source), directory, **given), as_json)


@click.command(
    cls=SharingCommand,
    help="""Remove records from the dataset in DIRECTORY for good, with every name of them.

    CONDITION is one as pandas takes it, on the columns of the dataset, split, and row, the number
    of a row in the source. Nothing of the records is left below the directory. The same images do
    not come back by append, stream or update, unless --readmit is given. To continue an
    interrupted removal, repeat the command.""",
    epilog="""\b
    Example: tfrecorder remove out "label == 'cat' and split == 'TEST'"
    Example: tfrecorder remove out --uris gone.txt --dry-run""",
)
@click.argument("directory")
@click.argument("condition", required=False)
@click.option(
    "--uris",
    metavar="FILE",
    help="A text file with one image uri per line; their records go.",
)
@stage_only_option
@dry_run_option
@options_of(ConvertOptions, without=NOT_REMOVED, shared=True)
@json_option
@quiet_option
@click.pass_context
def remove(
    ctx: click.Context,
    directory: str,
    condition: str | None,
    uris: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    from tfrecorder.conversion.remove import remove as run
    from tfrecorder.sources.uri_list import uri_list

    if (condition is None) == (uris is None):
        raise click.UsageError("Give a CONDITION, or --uris.")
    where: Any = condition if uris is None else {URI_COLUMN: uri_list("uris", uris)}
    show(in_shell(run)(directory, where, **given_options(ctx, options)), as_json)
