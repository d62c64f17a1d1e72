"""What `_tfrecorder/metadata.json` must look like for a reader to go by it."""

from __future__ import annotations

from tfrecorder.json_form import (
    anything,
    classes,
    each,
    either,
    null,
    record,
    row,
    table,
    text,
    whole,
    word,
)
from tfrecorder.kinds.stated_form import stated_form
from tfrecorder.plan_form import SPLIT

_LARGEST_SIDE = 2**31 - 1
_SIDE = whole(0, _LARGEST_SIDE)
_FIXED_SIDE = either(null, whole(1, _LARGEST_SIDE))
_SHAPE = row(_FIXED_SIDE, _FIXED_SIDE, whole(1, 4))
_SHARD = record(
    {"file": text, "split": SPLIT, "records": whole(), "bytes": whole()}, {"crc32c": whole()}
)

#: The kinds of feature that this version reads.
KINDS = ("image", "mask", "text", "bytes", "int64", "float", "bool", "label")

#: Of the parts that readers use; an earlier version wrote fewer, a later one may write more.
METADATA = record(
    {
        "shards": each(_SHARD),
        "split_rows": table(whole(), keys=SPLIT),
        "class_names": either(null, each(text)),
        "features": table(word(*KINDS)),
        "image_shape": _SHAPE,
    },
    {
        "num_classes": either(null, classes),
        "image_sides": either(null, row(), row(row(_SIDE, _SIDE), row(_SIDE, _SIDE))),
        "image_shapes": table(_SHAPE),
        "stated": stated_form,
        "options": table(anything),
        "totals": record(
            {},
            {
                "formats": table(whole()),
                "reasons": table(whole()),
                "suspects": whole(),
                "oriented": whole(),
            },
        ),
    },
)
