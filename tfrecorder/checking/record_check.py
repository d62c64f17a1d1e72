"""One record: does it tell the truth about its image and its label?"""

from __future__ import annotations

import math
from collections.abc import Iterator

from tfrecorder.checking.record_form import Finding, Record
from tfrecorder.checking.typed_check import check_typed, typed_against_plan
from tfrecorder.images import jpeg, png
from tfrecorder.images.header import Header
from tfrecorder.images.rejects import Reject
from tfrecorder.plan.plan import Plan, PlannedRow
from tfrecorder.schema import keys


def check_label(record: Record, plan: Plan) -> Iterator[Finding]:
    """Where a record contradicts the dataset's vocabulary."""
    if plan.fields is not None:
        yield from check_typed(record, plan)
    elif plan.label_kind == "none":
        if record.label != keys.NO_LABEL or record.text:
            yield (
                "label",
                f"label {record.label} and text {record.text!r} in a dataset without labels",
            )
    elif not 0 <= record.label < plan.num_classes:
        yield "label", f"label {record.label} is none of the {plan.num_classes} classes"
    else:
        name = str(record.label) if plan.class_names is None else plan.class_names[record.label]
        if record.text != name:
            yield "label", f"label {record.label} is {name!r}, but the text is {record.text!r}"


def check_image(record: Record, plan: Plan) -> tuple[Header | None, list[Finding]]:
    """The header of a record's image, if it can be read, and where the record contradicts it."""
    if plan.fields is not None and not record.format:
        return None, []  # a table without images
    if record.format == "raw" and plan.options.get("image_format") == "raw":
        due, there = math.prod(record.shape), len(record.encoded)
        words = f"{due:,} bytes of pixels are due, {there:,} are there"
        return None, [] if due == there else [("shape", words)]
    read_header = {"jpeg": jpeg.read_header, "png": png.read_header}.get(record.format)
    if read_header is None:
        words = f"{keys.FORMAT} is {record.format!r}, neither 'jpeg' nor 'png'"
        return None, [("format", words)]
    try:
        header = read_header(record.encoded, None)
    except Reject as reject:
        # verify="none" keeps what cannot be read, and says so by the shape (0, 0, 0).
        if plan.options.get("verify") == "none" and record.shape == (0, 0, 0):
            return None, []
        return None, [("format", f"the image is no readable {record.format}: {reject}")]
    found = (header.height, header.width, header.channels)
    if found == record.shape:
        return header, []
    says, shows = (" x ".join(map(str, shape)) for shape in (record.shape, found))
    words = f"height x width x channels are {says}, but the image's are {shows}"
    return header, [("shape", words)]


def check_against_plan(record: Record, planned: PlannedRow, plan: Plan) -> Iterator[Finding]:
    """Where a record is not what was planned for its row."""
    if record.values is not None:
        yield from typed_against_plan(record, planned, plan)
        return
    pairs = (
        (keys.FILENAME, record.filename, planned.image_uri),
        (keys.LABEL, record.label, planned.label),
        (keys.TEXT, record.text, planned.text),
    )
    for key, found, wanted in pairs:
        if found != wanted:
            yield "row", f"row {record.row}: {key} is {found!r}, but {wanted!r} was planned"
