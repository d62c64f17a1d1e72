"""The commands that check what was written: `tfrecorder verify`, `tfrecorder repair`."""

from __future__ import annotations

import sys

import click

from tfrecorder.cli.options import option_of
from tfrecorder.cli.output import json_option, quiet_option, quiet_start, refuse_both, show
from tfrecorder.format.csv_cells import csv_of


@click.command(
    help="""Check every byte of the dataset in DIRECTORY; change nothing.

    Every file must have the size and CRC32C that were written: shards, indexes, tables, lists of
    rejects and suspects, the files of the commit. Of a damaged shard, the records with wrong
    checksums are listed. In Google Cloud Storage, the CRC32Cs that the bucket keeps are compared,
    and only damaged shards are downloaded. The exit code is 0 only if all is well.""",
    epilog="Example: tfrecorder verify out --decode",
)
@click.argument("directory")
@click.option("--decode", is_flag=True, help="Also decode every image, as training does.")
@click.option(
    "--records",
    is_flag=True,
    help="Also compare every record with what its table says of it; row numbers must be unique.",
)
@click.option(
    "--sources",
    is_flag=True,
    help="Also list source files that changed or vanished since they were read.",
)
@click.option(
    "--absent",
    metavar="FILE",
    help="A text file with one image uri per line: check that no file of the dataset contains any.",
)
@click.option("--csv", "as_csv", is_flag=True, help="Print all faults as CSV.")
@json_option
@option_of("progress")
@quiet_option
def verify(
    directory: str,
    decode: bool,
    records: bool,
    absent: str | None,
    sources: bool,
    as_csv: bool,
    as_json: bool,
    progress: bool | None,
) -> None:
    refuse_both(as_json, as_csv)
    from tfrecorder.verification.verify import verify as run

    if decode:
        from tfrecorder.storage import given_path
        from tfrecorder.verification.expectation import refuse

        refuse(given_path(directory))  # before the seconds that TensorFlow takes
        with quiet_start():
            import tfrecorder.loading.decoding  # noqa: F401
    report = run(
        directory,
        decode,
        progress,
        records=records,
        sources=sources,
        absent=absent,
    )
    if as_csv:
        click.echo(csv_of(report.faults), nl=False)
    else:
        show(report, as_json, is_error=not report.ok)
    sys.exit(0 if report.ok else 1)


@click.command(
    help="""Rewrite the missing and damaged files of the dataset in DIRECTORY.

    Each gets the bytes that it had, from the tables of the shards and the source images. A shard
    whose sources have changed since is listed, and left as it is.""",
    epilog="Example: tfrecorder repair out",
)
@click.argument("directory")
@click.option(
    "--base",
    metavar="FOLDER",
    help="The folder that relative image paths start from, if the images have moved.",
)
@option_of("progress")
@quiet_option
def repair(
    directory: str,
    base: str | None,
    progress: bool | None,
) -> None:
    from tfrecorder.verification.repair import repair as run

    show(run(directory, base, progress))
