"""The commands about what was written: `tfrecorder verify`, `tfrecorder repair`."""

from __future__ import annotations

import sys

import click

from tfrecorder.cli.output import (
    at_option,
    is_quiet,
    json_option,
    quiet_option,
    refuse_both,
    show,
)

_progress_option = click.option(
    "--progress/--no-progress",
    default=None,
    help="Show a bar. Default: in a terminal.",
)


@click.command(
    help="""Check every byte of the dataset in DIRECTORY; change nothing.

    Every file must hold the bytes that were written, by size and CRC32C: shards, indexes, lists of
    rejects and suspects, the plan, the files of the commit. Of a damaged shard the records whose
    checksums are wrong are named. A bucket is checked by its own CRC32Cs, without a download.
    Ends with exit code 0 only if all is well.""",
    epilog="Example: tfrecorder verify out --decode",
)
@click.argument("directory")
@click.option("--decode", is_flag=True, help="Also decode every image, as training does.")
@at_option
@click.option("--csv", "as_csv", is_flag=True, help="Print all faults as CSV.")
@json_option
@_progress_option
@quiet_option
def verify(
    directory: str,
    decode: bool,
    at: int | None,
    as_csv: bool,
    as_json: bool,
    progress: bool | None,
) -> None:
    refuse_both(as_json, as_csv)
    from tfrecorder.verification.verify import verify as run

    report = run(directory, decode, False if is_quiet() else progress, at)
    if as_csv:
        click.echo(report.faults.to_csv(index=False), nl=False)
    else:
        show(report, as_json, is_error=not report.ok)
    sys.exit(0 if report.ok else 1)


@click.command(
    help="""Write the missing and damaged files of the dataset in DIRECTORY again.

    Each comes back with the bytes that it had, from the staged plan and the sources; where a
    source has changed since, its shard is named and left as it is.""",
    epilog="Example: tfrecorder repair out",
)
@click.argument("directory")
@click.option(
    "--base",
    metavar="FOLDER",
    help="Where relative image paths are taken from, if the images have moved.",
)
@_progress_option
@quiet_option
def repair(directory: str, base: str | None, progress: bool | None) -> None:
    from tfrecorder.verification.repair import repair as run

    show(run(directory, base, False if is_quiet() else progress))
