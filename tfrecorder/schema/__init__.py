"""The schema: what each column of a source holds, and the record keys that it makes.

>>> from tfrecorder.schema import Image, Label, Schema, Split
>>> Schema(split=Split(), photo=Image(), label=Label())  # doctest: +SKIP
"""

from tfrecorder.schema.kinds import (
    Boxes as Boxes,
    Bytes as Bytes,
    Ignore as Ignore,
    Image as Image,
    Label as Label,
    Labels as Labels,
    Mask as Mask,
    Number as Number,
    Schema as Schema,
    Split as Split,
    Text as Text,
)
