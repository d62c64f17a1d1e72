"""What a staged plan and a done-record must look like to be followed."""

from __future__ import annotations

from typing import Any

from tfrecorder.json_form import (
    anything,
    classes,
    each,
    either,
    null,
    record,
    row,
    string,
    table,
    truth,
    whole,
    word,
)
from tfrecorder.kinds.stated_form import stated_form
from tfrecorder.options import FITS, FORMATS, VERIFY_LEVELS
from tfrecorder.splits import SPLITS

#: More shards than any split has; each is an object in memory before its file is looked at.
_MOST_SHARDS = 10**6

SPLIT = word(*SPLITS)
_OPTIONS = record(
    {"verify": word(*VERIFY_LEVELS), "max_pixels": whole(1)},
    {
        "image_size": either(null, whole(1), row(whole(1), whole(1))),
        "image_fit": word(*FITS),
        "image_format": word(*FORMATS),
        "image_quality": whole(1, 100),
        "apply_exif": truth,
    },
)
_FIELDS = record(
    {
        "version": anything,
        "rows": whole(1),
        "split_rows": table(whole(1), keys=SPLIT),
        "split_shards": table(whole(1, _MOST_SHARDS), keys=SPLIT),
        "label_kind": string,
        "class_names": either(null, each(string)),
        "num_classes": classes,
        "base": string,
        "fingerprint": string,
        "options": _OPTIONS,
    },
    {"remote": truth, "stated": stated_form},
)


def plan_form(value: Any) -> str | None:
    """A form of `json_form`: the fields of a plan, and that they agree with one another."""
    if fault := _FIELDS(value):
        return fault
    rows, shards = value["split_rows"], value["split_shards"]
    if list(rows) != list(shards):
        return "split_rows and split_shards are of other splits"
    if sum(rows.values()) != value["rows"]:
        return f"rows: {value['rows']} is not the sum of split_rows"
    if value.get("stated") and value["stated"]["source_rows"] < value["rows"]:
        return "stated: source_rows is less than rows"
    more = [split for split in rows if shards[split] > rows[split]]
    return f"split_shards: {more[0]} has more shards than rows" if more else None


_SHAPES = each(row(whole(), whole(), whole()))

#: A form of `json_form`: the fields of a done-record.
DONE = record(
    {
        "plan": string,
        "shard": string,
        "rows": whole(),
        "records": whole(),
        "reasons": table(whole()),
        "suspects": whole(),
        "oriented": whole(),
        "input_bytes": whole(),
        "bytes": whole(),
        "crc32c": whole(0, 2**32 - 1),
        "formats": table(whole()),
    },
    {
        "shapes": _SHAPES,
        "sides": each(row(whole(), whole())),
        "retries": whole(),
        "further": table(_SHAPES),
    },
)
