"""What an element holds and how it is made: all that NumPy and TensorFlow's graph decide alike.

That is which columns are its inputs and targets, which keys each is made from, how boxes of any
tool become fractions of the image, and how pictures are prepared.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfrecorder.core.option import did_you_mean, spelled
from tfrecorder.errors import DatasetError, OptionError
from tfrecorder.format.plan import Shape
from tfrecorder.images.geometry import Picture, as_floats, as_whole, place_boxes
from tfrecorder.options.read import EpochOptions, ReadOptions
from tfrecorder.reading.dataset import StoredDataset
from tfrecorder.schema.fields import Field, Fields, image_of, of_kind, primary_image
from tfrecorder.schema.keys import Feature
from tfrecorder.schema.kinds import (
    FILES,
    Boxes,
    File,
    Image,
    Label,
    Labels,
    Mask,
    Number,
    ValueKind,
)

#: The dtypes of stored numbers by the kind of their feature; all others are bytes.
NUMBERS = {"int64": "int64", "label": "int64", "bool": "int64", "float": "float32"}

#: The class of a missing box in padded batches.
NO_BOX = -1

#: Arrays of NumPy or of TensorFlow, by key.
Values = dict[str, Any]


class Engine(ABC):
    """What NumPy and TensorFlow do each in its own way.

    Attributes:
        xp: the module of the arrays.
    """

    xp: Any

    @abstractmethod
    def multi_hot(
        self,
        labels: Any,
        classes: int,
    ) -> Any:
        """1 for each of so many classes that is present, float32."""

    @abstractmethod
    def padded(
        self,
        values: Any,
        count: int,
        filler: Any,
    ) -> Any:
        """This many values; the filler where there are fewer."""

    @abstractmethod
    def shape_of(self, encoded: Any) -> Any:
        """The height and width of an encoded image."""

    @abstractmethod
    def decode_masks(
        self,
        encoded: Any,
        shape: Any,
        picture: Picture,
        drawn: Any,
    ) -> Any:
        """The masks of an image's objects, uint8 of [n, height, width], placed as the image is.

        Args:
            shape: of the stored image.
            picture: what it becomes.
            drawn: what is drawn for it.
        """

    @abstractmethod
    def take(
        self,
        values: Any,
        places: Any,
    ) -> Any:
        """The values at some places among them."""


@dataclass(frozen=True)
class ElementSpec:
    """What an element holds.

    Attributes:
        inputs: the columns of its first half.
        targets: the columns of its second half; if there are none, the inputs are the element.
        parsed: the features that are read from a record.
        decoded: the images and masks whose pixels it holds.
        pictures: what an image becomes, by the key of its column; those of masks and boxes too.
        image: the image that boxes are on.
        boxes: the column of these boxes.
        is_raw: images are stored as pixels.
        class_maps: by the key of integers of classes, int64 of [members, 1 + most classes]: what
            those of each member become where several datasets are read as one, -1 first.
        options: with `inputs="all"`, an element is a dict of every stored feature, without halves.
    """

    inputs: Fields
    targets: Fields
    parsed: tuple[Feature, ...]
    decoded: Fields
    pictures: Mapping[str, Picture]
    image: Field | None
    boxes: Field | None
    is_raw: bool
    class_maps: Mapping[str, np.ndarray]
    options: ReadOptions

    @property
    def columns(self) -> Fields:
        """The columns of both halves."""
        return (*self.inputs, *self.targets)

    @property
    def ragged(self) -> frozenset[str]:
        """The keys of lists of different lengths, which make batches ragged."""
        if self.options.is_whole:
            return frozenset(feature.key for feature in self.parsed if None in feature.shape)
        all_boxes = self.options.max_boxes is None
        return frozenset(
            field.key
            for field in self.columns
            if (all_boxes if field.of_boxes else getattr(field.kind, "shape", ()) == (None,))
        )

    @property
    def has_boxes(self) -> bool:
        """True if it holds boxes, or other values of which each box has one."""
        return any(field.of_boxes for field in self.columns)

    def pixels_of(self, field: Field) -> tuple[tuple[int | None, ...], str]:
        """The shape and the dtype of the pixels of an image or a mask."""
        picture = self.pictures[field.key]
        if isinstance(field.kind, Mask):
            return (*picture.shape[:2], 1), "uint8"
        return picture.shape, picture.dtype

    def element(
        self,
        values: Values,
        pixels: Values,
        drawn: Any,
        member: Any,
        engine: Engine,
    ) -> Any:
        """The element of one record; or of a batch, if it has no boxes.

        Args:
            values: of the record, by the keys of `parsed`.
            pixels: of `decoded`, by the key of their column.
            drawn: what is drawn for the record, if its images are random parts.
            member: which of several datasets it is from, if their classes differ.
            engine: of all these arrays.
        """
        if member is not None:
            for key in self.class_maps.keys() & values.keys():
                row = member * self.class_maps[key].shape[1]
                flat = self.class_maps[key].reshape(-1)
                values = {**values, key: engine.take(flat, values[key] + 1 + row)}
        if self.options.is_whole:
            return values | {field.encoded_key: pixels[field.key] for field in self.decoded}

        def value(field: Field) -> Any:
            if field.key in pixels:
                return pixels[field.key]
            return self._value(field, values, drawn, engine)

        def half(fields: Sequence[Field]) -> Any:
            """The value of one column, or a dict of the values of several."""
            if len(fields) == 1:
                return value(fields[0])
            return {field.column: value(field) for field in fields}

        return (half(self.inputs), half(self.targets)) if self.targets else half(self.inputs)

    def _value(
        self,
        field: Field,
        values: Values,
        drawn: Any,
        engine: Engine,
    ) -> Any:
        kind = field.kind
        if isinstance(kind, Boxes):
            return self._boxes(field, values, drawn, engine)
        if isinstance(kind, FILES):  # not decoded
            return values[field.encoded_key]
        if field.of_boxes:
            # Only of the boxes that are on the picture.
            assert self.boxes is not None
            stays = self._boxes_on_picture(self.boxes, values, drawn, engine)[1]
            of_boxes = values[field.key][stays]
            if self.options.max_boxes is None:
                return of_boxes
            filler = 0 if isinstance(kind, Number) else b""
            return engine.padded(of_boxes, self.options.max_boxes, filler)
        if field.label_key is None:
            return values[field.key]
        labels = values[field.label_key]
        if isinstance(kind, Label):
            return labels
        return engine.multi_hot(labels, field.num_classes or 0)

    def _boxes(
        self,
        field: Field,
        values: Values,
        drawn: Any,
        engine: Engine,
    ) -> Values:
        picture = self.pictures[field.key]
        most = self.options.max_boxes
        boxes, stays, shape = self._boxes_on_picture(field, values, drawn, engine)
        made = {"boxes": boxes}
        fillers = {"boxes": 0, "labels": NO_BOX, "masks": b""}
        if field.label_key is not None:
            made["labels"] = values[field.label_key][stays]
        if field.masks_key is not None:
            made["masks"] = values[field.masks_key][stays]
            if self.options.decode:
                made["masks"] = engine.decode_masks(made["masks"], shape, picture, drawn)
                fillers["masks"] = 0
        if most is None:
            return made
        return {name: engine.padded(rows, most, fillers[name]) for name, rows in made.items()}

    def _boxes_on_picture(
        self,
        boxes: Field,
        values: Values,
        drawn: Any,
        engine: Engine,
    ) -> Any:
        """The boxes on the picture, which of the stored ones these are, and the stored shape."""
        assert self.image is not None
        picture = self.pictures[boxes.key]
        xp = engine.xp
        shape = stated_shape(self.image, values, xp)
        if shape is None and needs_size(boxes, picture):
            shape = engine.shape_of(values[self.image.encoded_key])
        corners = corners_of(boxes, values, shape, xp)
        return *place_boxes(corners, shape, picture, drawn, xp), shape


def spec_of(stored: StoredDataset, options: ReadOptions) -> ElementSpec:
    """What the elements of a dataset hold.

    Raises:
        OptionError: a column is named that is not there, or an option has no effect on these.
        DatasetError: as `chosen_columns`.
    """
    inputs: Fields = ()
    targets: Fields = ()
    columns = stored.fields
    parsed = stored.record
    image = primary_image(stored.fields)
    boxes = next((field for field in stored.fields if isinstance(field.kind, Boxes)), None)
    pictures = {field.key: _picture_for(stored, field, options) for field in stored.fields}
    if options.is_whole:
        refuse_empty(stored)
    else:
        inputs, targets = chosen_columns(stored, options)
        columns = (*inputs, *targets)
        read = [*columns]
        if boxes is not None and any(field.of_boxes for field in columns):
            read.append(boxes)
        needed = {key for field in read for key in needed_keys(field, pictures[field.key], image)}
        parsed = tuple(feature for feature in stored.record if feature.key in needed)
    decoded = tuple(field for field in columns if isinstance(field.kind, (Image, Mask)))
    if not options.decode:
        decoded = ()
    maps = {key: _stacked(of_members) for key, of_members in stored.class_maps.items()}
    spec = ElementSpec(
        inputs=inputs,
        targets=targets,
        parsed=parsed,
        decoded=decoded,
        pictures=pictures,
        image=image,
        boxes=boxes,
        is_raw=stored.raw,
        class_maps=maps,
        options=options,
    )
    for name, what, is_there in (
        ("max_boxes", "boxes", spec.has_boxes),
        ("augment", "images", spec.has_boxes or bool(decoded)),
    ):
        value = getattr(options, name)
        if value and not is_there:
            raise OptionError.of(
                name,
                value,
                f"no column that is read from {stored.directory} holds {what}; leave it out.",
            )
    for name in ("mean", "std"):
        numbers = getattr(options, name) or (0,)
        for field in decoded:
            channels = pictures[field.key].channels
            if isinstance(field.kind, Image) and len(numbers) not in (1, channels):
                words = f"the images of {field.column!r} have {channels} channels"
                raise OptionError.of(name, numbers, f"{words}; give a number for each or for all.")
    return spec


def _stacked(maps: Sequence[np.ndarray]) -> np.ndarray:
    """Rows of different lengths as one array, with -1 behind the shorter ones."""
    stacked = np.full((len(maps), max(map(len, maps))), -1, np.int64)
    for row, classes in zip(stacked, maps, strict=True):
        row[: len(classes)] = classes
    return stacked


def _picture_for(
    stored: StoredDataset,
    field: Field,
    options: ReadOptions,
) -> Picture:
    """How to prepare an image, or a mask or boxes on it."""
    image: Field | None = field
    if isinstance(field.kind, Mask):
        image = image_of(field, stored.fields)
    elif not isinstance(field.kind, Image):
        image = primary_image(stored.fields)
    key = image.encoded_key if image else ""
    sides = stored.sides if key == stored.image_key else None
    return picture_of(stored.shape_of(key), options, sides, image.depth if image else 8)


def picture_of(
    shape: Shape,
    options: ReadOptions,
    sides: tuple[tuple[int, int], tuple[int, int]] | None = None,
    depth: int = 8,
) -> Picture:
    """How to prepare images of this shape and depth, with sides in these ranges."""
    height, width, channels = shape
    scale, shift = _scale_and_shift(options, 2**depth - 1)
    return Picture(
        channels=channels,
        stored_size=(height, width),
        sides=sides,
        size=options.size,
        resize=options.resize,
        antialias=options.antialias,
        augment=options.augment,
        dtype="uint16" if depth == 16 and options.dtype == "uint8" else options.dtype,
        scale=scale,
        shift=shift,
        depth=depth,
    )


def _scale_and_shift(
    options: ReadOptions,
    highest: int,
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """What makes pixels out of stored values up to the highest; see `Picture`."""
    if options.mean is None or options.std is None:
        low, high = options.value_range or (0, 1)
        return ((high - low) / highest,), (float(low),)
    mean, std = np.broadcast_arrays(options.mean, options.std)
    return tuple((1 / (highest * std)).tolist()), tuple((-mean / std).tolist())


def refuse_sizes(stored: StoredDataset, options: EpochOptions) -> ElementSpec:
    """What the elements of a dataset hold; batches of images that differ in size are refused.

    Raises:
        OptionError: they differ, or as `spec_of`.
        DatasetError: as `spec_of`.
    """
    spec = spec_of(stored, options)
    differ = any(None in spec.pictures[field.key].stored_size for field in spec.decoded)
    if differ and options.batch_size and not options.map_fn and options.image_size is None:
        raise OptionError.of(
            "batch_size",
            options.batch_size,
            f"the images of {stored.directory} differ in size and cannot share a batch; give a "
            f"size, such as {spelled('image_size', (224, 224))}.",
        )
    return spec


def needed_keys(
    field: Field,
    picture: Picture,
    image: Field | None,
) -> tuple[str, ...]:
    """The keys that a column's value is made from.

    Args:
        field: the column.
        picture: what its image becomes.
        image: the image that boxes are on.
    """
    if isinstance(field.kind, Boxes):
        sizes: tuple[str, ...] = ()
        if image is not None and needs_size(field, picture):
            sizes = image.size_keys[:2] or (image.encoded_key,)
        edges = field.edges if field.box_key is None else (field.box_key,)
        return (*edges, *filter(None, [field.label_key, field.masks_key]), *sizes)
    if isinstance(field.kind, FILES):
        sizes = field.size_keys[:2] if picture.size is not None else ()
        return (field.encoded_key, *sizes)
    if field.label_key is not None:
        return (field.label_key,)
    return tuple(feature.key for feature in field.features)


def needs_size(boxes: Field, picture: Picture) -> bool:
    """Whether boxes need the stored image's size, to be placed or turned into fractions."""
    return picture.size is not None or boxes.in_pixels or boxes.masks_key is not None


def stated_shape(
    image: Field,
    values: Values,
    xp: Any,
) -> Any:
    """The height and width of an image as its record states them; None if they are not parsed."""
    sides = [values[key] for key in image.size_keys[:2] if key in values]
    return as_whole(xp.stack(sides), xp) if sides else None


_CLASSES = (Label, Labels, Boxes, Mask)


def chosen_columns(stored: StoredDataset, options: ReadOptions) -> tuple[Fields, Fields]:
    """The input columns and the target columns.

    By default, inputs are the images; if there are none, the files; without these, all numbers,
    texts and bytes that are not targets.  Targets are labels, boxes, masks and the numbers that the
    schema marks as targets.

    Raises:
        OptionError: there is no such column.
        DatasetError: a label, boxes or a mask is not understood, and `targets` is not given.
    """
    refuse_empty(stored)
    if stored.unread and options.targets is None:
        raise DatasetError(unread_words(stored))
    fields = stored.fields
    images = of_kind(fields, Image)
    files = of_kind(fields, File)
    values = of_kind(fields, ValueKind)
    wanted = [field for field in values if isinstance(field.kind, Number) and field.kind.target]
    inputs = images or files or [field for field in values if field not in wanted]
    targets = [field for field in fields if isinstance(field.kind, _CLASSES) or field in wanted]
    if options.targets is not None:
        targets = _chosen(stored, "targets", options.targets)
        inputs = [field for field in inputs if field not in targets]
    if options.inputs is not None and not isinstance(options.inputs, str):
        inputs = _chosen(stored, "inputs", options.inputs)
    return tuple(inputs), tuple(targets)


def refuse_empty(stored: StoredDataset) -> None:
    """Refuse files of other tools without any record: we cannot know their columns."""
    if not stored.fields:
        raise DatasetError(
            "; ".join(stored.unread.values())
            or f"{stored.directory}: there is no record in any file, or none with a value."
            " Check the path."
        )


def unread_words(stored: StoredDataset) -> str:
    """What we do not understand in records of other tools, and how to read the rest."""
    targets = [field.column for field in of_kind(stored.fields, *_CLASSES)]
    others = [field.column for field in stored.fields if not isinstance(field.kind, Image)]
    others.sort(key=lambda column: column in stored.unread)
    name = (targets or others or ["…"])[0]
    return (
        f"{'; '.join(stored.unread.values())}. To read the other columns, name them, such as "
        f"`targets=[{name!r}]`; `inputs='all'` gives every key as it is stored."
    )


def _chosen(
    stored: StoredDataset,
    option: str,
    names: Sequence[str],
) -> list[Field]:
    fields = {field.column: field for field in stored.fields}
    for name in names:
        if name not in fields:
            raise OptionError.of(
                option,
                list(names),
                f"there is no column {name!r}; {did_you_mean(name, fields)}",
            )
    return [fields[name] for name in names]


def stored_corners(
    field: Field,
    values: Mapping[str, Any],
    xp: Any = np,
) -> Any:
    """Boxes in the unit of the record: float32 of [n, 4], ymin, xmin, ymax, xmax.

    Args:
        field: the column.
        values: of the record, by key.
        xp: the module of the arrays, `numpy` or `tensorflow`.

    Raises:
        ValueError: the four edges differ in number.
    """
    if field.box_key is not None:
        return xp.reshape(as_floats(values.get(field.box_key, ()), xp), (-1, 4))
    xmin, ymin, xmax, ymax = (as_floats(values.get(key, ()), xp) for key in field.edges)
    try:
        return xp.stack([ymin, xmin, ymax, xmax], -1)
    except ValueError as error:
        raise ValueError("its boxes do not have four sides each") from error


def corners_of(
    field: Field,
    values: Mapping[str, Any],
    shape: Any,
    xp: Any = np,
) -> Any:
    """Boxes as fractions of the stored image: float32 of [n, 4], ymin, xmin, ymax, xmax.

    Args:
        field: the column.
        values: of the record, by key.
        shape: height and width of the image, needed for boxes in pixels.
        xp: the module of the arrays, `numpy` or `tensorflow`.

    Raises:
        ValueError: the four edges differ in number.
    """
    corners = stored_corners(field, values, xp)
    return corners / xp.tile(as_floats(shape, xp), [2]) if field.in_pixels else corners
