"""The command about schemas: `tfrecorder schema`."""

from __future__ import annotations

import click


@click.command(
    help="""Print a schema for SOURCE, a line a column, as a YAML file to look over and edit.

    SOURCE is a CSV, Vertex AI's JSON Lines, or a folder of images. Give the edited file to
    `tfrecorder convert --schema`.""",
    epilog="Example: tfrecorder schema flowers.csv > schema.yaml",
)
@click.argument("source")
def schema(source: str) -> None:
    from tfrecorder.schema.schema_file import write_schema
    from tfrecorder.sources.inference import infer_schema

    click.echo(write_schema(infer_schema(source)), nl=False)
