"""The default schema as fields, for whoever treats all datasets alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfrecorder.kinds.columns import Image, Label
from tfrecorder.kinds.fields import Field, from_json
from tfrecorder.schema import LABEL_COLUMN, URI_COLUMN


def dataset_fields(metadata: Mapping[str, Any]) -> tuple[Field, ...]:
    """The fields of a dataset by its metadata, also where its schema is the default one."""
    stated = metadata.get("stated")
    if stated is not None:
        return from_json(stated["fields"])
    names = metadata["class_names"]
    return (
        Field(URI_COLUMN, Image(), "image"),
        Field(
            LABEL_COLUMN,
            Label(),
            "image/class",
            None if names is None else tuple(names),
            metadata.get("num_classes") or 0,
            integer=metadata.get("label_kind") == "integer",
        ),
    )
