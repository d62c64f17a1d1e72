"""The command about a conversion that runs: `tfrecorder status`; and options for its runner."""

from __future__ import annotations

import json
from typing import Any

import click


def _runner_options(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> dict[str, Any] | None:
    """NAME=VALUE arguments as a dict: a flag alone is True, a name given twice has both values."""
    found: dict[str, Any] = {}
    for argument in values:
        name, equals, text = argument.partition("=")
        if not name.strip("-"):
            raise click.BadParameter(
                f"{argument!r}; write for instance machine_type=n1-standard-4."
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
    help="An option of Beam or its runner, checked by Beam itself; may be repeated.",
)


@click.command(
    help="""Show how far the conversion into DIRECTORY is.

    Read from the directory alone, whatever runs the conversion; nothing is changed.""",
    epilog="Example: tfrecorder status gs://my-bucket/flowers",
)
@click.argument("directory")
@click.option("--json", "as_json", is_flag=True, help="Print all of it as JSON, for programs.")
def status(directory: str, as_json: bool) -> None:
    from tfrecorder.writing.status import status as run

    found = run(directory)
    click.echo(json.dumps(found.as_dict(), indent=2) if as_json else found)
