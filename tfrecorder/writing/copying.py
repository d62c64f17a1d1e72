"""One row of a plan that copies: its record as it is, checksums compared, nothing decoded."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from tfrecorder.format.example import Values, parse_example
from tfrecorder.format.plan_columns import COPY_OF, REDUCED
from tfrecorder.format.tfrecord import unframe
from tfrecorder.images import jpeg, png
from tfrecorder.images.check import CheckedImage
from tfrecorder.plan.plan import Plan, PlannedRow
from tfrecorder.reading.dataset import ShardFile
from tfrecorder.reading.record_bytes import OpenFiles, damaged_record
from tfrecorder.schema.fields import Field
from tfrecorder.schema.kinds import Image
from tfrecorder.writing.rows import Loaded, LoadRow, Rejected, planned_reject


def record_copier(plan: Plan) -> LoadRow:
    """The function that copies the record of a row; threads share it and its open files."""
    read = record_reader(plan.base)
    images = [field for field in plan.fields if isinstance(field.kind, Image)]

    def copy(row: PlannedRow) -> Loaded | Rejected:
        if (reject := planned_reject(row)) is not None:
            return reject
        framed, features = read(row)
        return loaded(row, [framed], features, images, row.values[COPY_OF.warning])

    return copy


def record_reader(directory: str) -> Callable[[PlannedRow], tuple[bytes, dict[str, Values]]]:
    """The function that reads the record of a row from a dataset: framed, and its features.

    Raises:
        DatasetError: the record is damaged.
    """
    files = OpenFiles()

    def read(row: PlannedRow) -> tuple[bytes, dict[str, Values]]:
        file, offset, size, _ = (row.values[name] for name in COPY_OF)
        shard = ShardFile(os.path.join(directory, file), None, 0)
        framed = files.read(shard, offset, size)
        try:
            return framed, parse_example(unframe(framed))
        except ValueError as error:
            raise damaged_record(shard, offset, error) from error

    return read


def loaded(
    row: PlannedRow,
    parts: list[bytes],
    features: Mapping[str, Values],
    images: Sequence[Field],
    warning: str,
) -> Loaded:
    """A row whose record is already written.

    Args:
        parts: the framed record.
        features: its values.
        images: the columns of images.
        warning: of the decoder; "" if there is none.
    """
    stored = [(field.key, _image(field, features)) for field in images]
    if stored:
        key, first = stored[0]
        stored[0] = key, first._replace(warning=warning or None)
    return Loaded(
        row=row,
        images=as_noted(row, stored),
        parts=parts,
        size=sum(map(len, parts)),
        input_bytes=sum(len(image.data) for _, image in stored),
    )


def as_noted(
    row: PlannedRow, images: Sequence[tuple[str, CheckedImage]]
) -> list[tuple[str, CheckedImage]]:
    """Images from a record, the first with all that their files had and training does not see."""
    text = row.values.get(REDUCED)
    if text is None:  # then what the records show is all that is known
        return [*images]
    words = tuple(text.split(",")) if text else ()
    return [
        (key, image._replace(reduced=() if at else words)) for at, (key, image) in enumerate(images)
    ]


def _image(field: Field, features: Mapping[str, Values]) -> CheckedImage:
    """An image as its record describes it; only its file's header says whether it is rotated."""
    data = bytes(features[field.encoded_key][0])
    kind = bytes(features[f"{field.key}/format"][0]).decode()
    height, width, channels = (int(features[key][0]) for key in field.size_keys)
    of_format = {"jpeg": jpeg, "png": png}.get(kind)
    if of_format is None:
        return CheckedImage(data, kind, height, width, channels, 1, None)
    *_, orientation, reduced = of_format.read_header(data, None)
    unseen = tuple(word for word in reduced if word != "depth" or field.depth == 8)
    return CheckedImage(data, kind, height, width, channels, orientation, None, reduced=unseen)
