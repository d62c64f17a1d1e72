"""The schema: what each column of a source holds, and the record keys that it makes.

>>> from tfrecorder.schema import Image, Label, Number, Schema
>>> Schema(photo=Image(), age=Number(default=0), species=Label())
Schema(photo=Image(), age=Number(default=0), species=Label())
"""

from tfrecorder.schema.kinds import (
    Boxes,
    Bytes,
    File,
    Ignore,
    Image,
    Label,
    Labels,
    Mask,
    Number,
    Schema,
    Split,
    Text,
)

__all__ = [
    "Boxes",
    "Bytes",
    "File",
    "Ignore",
    "Image",
    "Label",
    "Labels",
    "Mask",
    "Number",
    "Schema",
    "Split",
    "Text",
]
