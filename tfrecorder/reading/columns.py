"""Which columns are an element's inputs and targets, and how their images are prepared."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from tfrecorder.errors import DatasetError, OptionError
from tfrecorder.images.picture import Picture
from tfrecorder.options.read import ReadOptions
from tfrecorder.reading.dataset import Shape, StoredDataset
from tfrecorder.schema.fields import Field, image_of, primary_image
from tfrecorder.schema.kinds import Boxes, Bytes, Image, Label, Labels, Mask, Number, Text

_CLASSES = (Label, Labels, Boxes, Mask)


def selected(
    stored: StoredDataset, options: ReadOptions
) -> tuple[tuple[Field, ...], tuple[Field, ...]]:
    """The input columns and the target columns.

    By default, inputs are the images or, if there are none, all numbers, texts and bytes that are
    not targets.  Targets are labels, boxes, masks and the numbers that the schema marks as targets.

    Raises:
        OptionError: there is no such column.
        DatasetError: a label, boxes or a mask is not understood, and `targets` is not given.
    """
    _refuse_empty(stored)
    if stored.unread and options.targets is None:
        raise DatasetError(unread_words(stored))
    fields = stored.fields
    images = [field for field in fields if isinstance(field.kind, Image)]
    values = [field for field in fields if isinstance(field.kind, (Number, Text, Bytes))]
    wanted = [field for field in values if isinstance(field.kind, Number) and field.kind.target]
    inputs = images or [field for field in values if field not in wanted]
    targets = [field for field in fields if isinstance(field.kind, _CLASSES) or field in wanted]
    if options.targets is not None:
        targets = _named(stored, "targets", options.targets)
        inputs = [field for field in inputs if field not in targets]
    if options.inputs is not None:
        inputs = _named(stored, "inputs", options.inputs)
    return tuple(inputs), tuple(targets)


def _refuse_empty(stored: StoredDataset) -> None:
    """Refuse files of other tools without any record: we cannot know their columns."""
    if not stored.fields:
        nothing = f"{stored.directory}: there is no record in any file, or none with a value."
        raise DatasetError("; ".join(stored.unread.values()) or f"{nothing} Check the path.")


def unread_words(stored: StoredDataset) -> str:
    """What we do not understand in records of other tools, and how to read the rest."""
    targets = [one.column for one in stored.fields if isinstance(one.kind, _CLASSES)]
    others = [one.column for one in stored.fields if not isinstance(one.kind, Image)]
    name = (targets or others or ["…"])[0]
    return (
        f"{'; '.join(stored.unread.values())}. To read the other columns, name them, such as "
        f"targets=[{name!r}]; features=True gives every key as it is stored."
    )


def _named(stored: StoredDataset, option: str, names: Sequence[str]) -> list[Field]:
    known = {field.column: field for field in stored.fields}
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"the columns are {', '.join(known)}."
            raise OptionError(f"{option}={list(names)!r}: there is no column {name!r}; {hint}")
    return [known[name] for name in names]


def is_ragged(stored: StoredDataset, options: ReadOptions) -> bool:
    """True if elements hold lists of different lengths, so that batches are ragged."""
    if options.features:
        return any(None in one.shape for one in stored.record)
    inputs, targets = selected(stored, options)
    for field in (*inputs, *targets):
        kind = field.kind
        if isinstance(kind, Boxes) and options.max_boxes is None:
            return True
        if isinstance(kind, (Number, Text, Bytes)) and kind.shape == (None,):
            return True
    return False


def decodes(stored: StoredDataset, options: ReadOptions) -> tuple[Field, ...]:
    """The images and masks that elements hold."""
    if options.features:
        _refuse_empty(stored)
        chosen = stored.fields
    else:
        inputs, targets = selected(stored, options)
        chosen = (*inputs, *targets)
    return tuple(field for field in chosen if isinstance(field.kind, (Image, Mask)))


def refuse_sizes(stored: StoredDataset, options: ReadOptions, batch_size: int | None) -> None:
    """Refuse batches of images that differ in size.

    Raises:
        OptionError: they do.
    """
    pictures = [picture_for(stored, field, options) for field in decodes(stored, options)]
    differ = any(None in picture.stored_size for picture in pictures)
    to_batch = batch_size and options.decode and not options.map_fn
    if differ and to_batch and options.image_size is None:
        raise OptionError(
            f"batch_size={batch_size}: the images of {stored.directory} differ in size "
            "and cannot share a batch; give image_size, such as image_size=(224, 224)."
        )


def picture_for(stored: StoredDataset, field: Field, options: ReadOptions) -> Picture:
    """How to prepare an image, or a mask or boxes on it."""
    image = primary_image(stored.fields) or field
    if isinstance(field.kind, Mask):
        image = image_of(field, stored.fields)
    elif isinstance(field.kind, Image):
        image = field
    key = image.encoded_key if isinstance(image.kind, Image) else ""
    return picture_of(
        stored.shape_of(key), options, stored.sides if key == stored.image_key else None
    )


def picture_of(
    shape: Shape,
    options: ReadOptions,
    sides: tuple[tuple[int, int], tuple[int, int]] | None = None,
) -> Picture:
    """How to prepare images of this shape, with sides in these ranges."""
    height, width, channels = shape
    return Picture(
        channels=channels,
        stored_size=(height, width),
        sides=sides,
        size=options.size,
        resize=options.resize,
        antialias=options.antialias,
        augment=options.augment,
        dtype=options.dtype,
        value_range=options.low_high,
    )


def needed_keys(field: Field, stored: StoredDataset, options: ReadOptions) -> tuple[str, ...]:
    """The keys that a column's value is made from."""
    labels = () if field.label_key is None else (field.label_key,)
    if isinstance(field.kind, (Label, Labels)):
        return labels
    if isinstance(field.kind, Boxes):
        image = primary_image(stored.fields)
        masks = () if field.masks_key is None else (field.masks_key,)
        sizes: tuple[str, ...] = ()
        if image is not None and needs_size(field, options):
            sizes = image.size_keys[:2] or (image.encoded_key,)
        return (*field.box_keys, *labels, *masks, *sizes)
    if isinstance(field.kind, (Image, Mask)):
        return (field.encoded_key, *(field.size_keys[:2] if options.size is not None else ()))
    return tuple(one.key for one in field.features)


def needs_size(boxes: Field, options: ReadOptions) -> bool:
    """Whether boxes need the stored image's size, to be placed or turned into fractions."""
    return options.size is not None or boxes.in_pixels or boxes.masks_key is not None
