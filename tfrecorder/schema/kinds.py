"""The kinds of columns, and the schema that names a kind for each column.

Each setting of a kind is checked when it is made: a check gives a remedy, or None.
"""

from __future__ import annotations

import dataclasses
import itertools
import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tfrecorder.core.option import (
    OneOf,
    Size,
    Whole,
    class_names,
    faults_of,
    name_of_dtype,
    option,
    parse_size,
)
from tfrecorder.errors import OptionError
from tfrecorder.schema.keys import BACKGROUND, BOX_COLUMNS

DTYPES = ("float32", "int64", "bool")

UNITS = ("fraction", "pixel")

#: The largest file that a record may be asked to hold: TensorFlow parses records below 2 GiB.
MOST_BYTES = 2**30

#: From here on, a finite number rounds to no float32.
BEYOND_FLOAT32 = 2.0**128 - 2.0**103

#: Sizes of the axes of a value: () is a single value, (None,) a list of any length.
Shape = tuple[int | None, ...]


def _check_name(value: Any) -> str | None:
    return None if value is None or isinstance(value, str) else "give the name of a column."


def _check_label(value: Any) -> str | None:
    is_label = isinstance(value, (str, int)) and not isinstance(value, bool)
    return None if is_label else "give text or an integer."


def _check_columns(columns: Any) -> str | None:
    is_list = isinstance(columns, Sequence) and not isinstance(columns, str)
    if not is_list or not all(isinstance(name, str) for name in columns):
        return "give a list of columns."
    return None if columns else "give at least one."


def _check_edges(columns: Any) -> str | None:
    if fault := _check_columns(columns):
        return fault
    words = "give 4: the columns of the left, upper, right and lower edge."
    return None if len(columns) == len(BOX_COLUMNS) else words


def _check_shape(shape: Any) -> str | None:
    is_list = isinstance(shape, Sequence) and not isinstance(shape, str)
    if is_list and (tuple(shape) == (None,) or not any(map(Whole(1), shape))):
        return None
    return (
        "give () for one value, (None,) for a list of any length, or the sizes of an array, such "
        "as (3,) or (4, 4)."
    )


def _check_max_bytes(size: Any) -> str | None:
    if fault := Size((1, "1 byte"), "100MB")(size):
        return fault
    return None if parse_size(size) <= MOST_BYTES else "give at most 1GiB, which a record can hold."


def _check_depth(depth: Any) -> str | None:
    return None if depth in (8, 16) else "give 8 or 16, the bits of a channel."


def _check_validator(value: Any) -> str | None:
    is_one = callable(value) or isinstance(value, str)
    return None if is_one else "give a function of bytes that raises an error for an unusable file."


def _check_dtype(value: Any) -> str | None:
    if name_of_dtype(value) == "float64":
        return (
            "records of TensorFlow have no float64; give 'float32', 'int64' for whole numbers up "
            "to 64 bits, or Text() to keep all digits."
        )
    return OneOf(*DTYPES)(name_of_dtype(value))


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


def _sides(shape: Sequence[int | None]) -> Shape:
    return tuple(None if side is None else operator.index(side) for side in shape)


def _texts(names: Collection[Any]) -> tuple[str, ...]:
    return tuple(map(str, names))


class Kind:
    """What a column holds; see the classes below."""

    word: ClassVar[str]

    def __post_init__(self) -> None:
        for name, remedy in faults_of(self):
            value = getattr(self, name)
            raise OptionError(f"{type(self).__name__}({name}={value!r}): {remedy}")

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in settings(self).items())
        return f"{type(self).__name__}({given})"


@dataclass(
    frozen=True,
    kw_only=True,
    repr=False,
)
class Split(Kind):
    """The split of each row, in any usual spelling; rows without one are assigned 80/10/10.

    Attributes:
        required: if False, a source may lack the column: then all rows are assigned.
    """

    required: bool = option(True)
    word = "split"


@dataclass(
    frozen=True,
    kw_only=True,
    repr=False,
)
class Image(Kind):
    """The uri of an image.

    Attributes:
        depth: bits of a channel, 8 or 16.  With 16, PNG and TIFF of 16 bits are kept whole, readers
            give uint16, and an image of 8 bits is a reject.
    """

    depth: int = option(8, _check_depth, normal=int)
    word = "image"


@dataclass(
    frozen=True,
    kw_only=True,
    repr=False,
)
class Mask(Kind):
    """The uri of a PNG of the image's size, whose pixels are the classes of the image's pixels.

    Attributes:
        of: the column of the image; None if there is only one.
        upright: as of `Boxes`; None follows the mask's own size where that tells.
        tfds_features: if True, TFDS draws the classes in colours, and its as_supervised gives the
            image and its mask if the dataset has no classes.
    """

    of: str | None = option(None, _check_name)
    upright: bool | None = option(None)
    tfds_features: bool = option(False)
    word = "mask"


@dataclass(
    frozen=True,
    kw_only=True,
    repr=False,
)
class Label(Kind):
    """One class per row, text or integer.

    Attributes:
        names: all class names in the order of their integers; None takes the sorted ones found.
        default: the label of rows where it is missing; None makes that an error.
        required: if False, a source may lack the column, and any row its label, which is -1 then,
            with an empty text.
    """

    names: tuple[str, ...] | None = option(None, class_names, normal=_texts)
    default: str | int | None = option(None, _check_label)
    required: bool = option(True)
    word = "label"


@dataclass(
    frozen=True,
    kw_only=True,
    repr=False,
)
class Labels(Kind):
    """Any number of classes per row, from one vocabulary.

    Attributes:
        names: all class names in the order of their integers; None takes the sorted ones found.
        columns: the columns that hold one label each, empty if a row has fewer; None takes the
            column of this name, whose values are lists, or texts with a separator.
        separator: the text between two labels.
    """

    names: tuple[str, ...] | None = option(None, class_names, normal=_texts)
    columns: tuple[str, ...] | None = option(None, _check_columns, normal=tuple)
    separator: str | None = None
    word = "labels"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.separator is not None and (not isinstance(self.separator, str) or self.columns):
            raise OptionError(
                f"Labels(separator={self.separator!r}): give text such as '|', and no columns."
            )


@dataclass(
    frozen=True,
    kw_only=True,
    repr=False,
)
class Boxes(Kind):
    """Boxes around the objects of an image: one row per box, or one row per image with lists.

    Attributes:
        columns: the columns of the left, upper, right and lower edge.
        label: the column of the boxes' classes; None if they have none.
        unit: "fraction" of the image's width and height, or "pixel".
        names: all class names in the order of their integers; None takes the sorted ones found.
        background_class: if True, class 0 is "background", which no box has: the others count
            from 1.
        masks: the column of the pixels of each object, as COCO states them: polygons, in the unit
            of the edges, or RLE, or their JSON.  The record holds a PNG of each, drawn with
            pycocotools.
        upright: True if edges and masks are of the image as one sees it, turned by its EXIF
            orientation; False if of its pixels as they are stored; None follows the sizes that a
            source states, and YOLO's trainers, who turn images, and means False elsewhere.
        tfds_features: if True, records also hold each box as one value, TFDS's BBoxFeature.
    """

    columns: tuple[str, ...] = option(BOX_COLUMNS, _check_edges, normal=tuple)
    label: str | None = option("label", _check_name)
    unit: str = option("fraction", OneOf(*UNITS))
    names: tuple[str, ...] | None = option(None, class_names, normal=_texts)
    background_class: bool = option(False)
    masks: str | None = option(None, _check_name)
    upright: bool | None = option(None)
    tfds_features: bool = option(False)
    word = "boxes"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.background_class:
            _reserve_background(self)


@dataclass(
    frozen=True,
    kw_only=True,
    repr=False,
)
class ValueKind(Kind):
    """A value, or an array of them, as in the column.

    Attributes:
        shape: () is one value, (None,) a list of any length, (3,) or (4, 4) an array of that shape.
        default: the value of rows where it is missing; None makes that an error.
        of: the column of boxes that have one value each, a list in each row, or a value where each
            box is a row; None for a value of the row itself.
    """

    shape: Shape = option((), _check_shape, normal=_sides)
    default: Any = option(None, lambda value: None, normal=_as_tuples)
    of: str | None = option(None, _check_name)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.of is not None:
            object.__setattr__(self, "shape", (None,))


@dataclass(
    frozen=True,
    kw_only=True,
    repr=False,
)
class Number(ValueKind):
    """A number, or an array of numbers.

    Attributes:
        dtype: "float32", "int64" or "bool".  float32 holds 7 digits; records have no float64.
        shape: () is one value, (None,) a list of any length, (3,) or (4, 4) an array of that shape.
        default: the value of rows where it is missing; None makes that an error.
        of: the column of boxes that have one value each, such as an area; None for a value of the
            row itself.
        target: True if it is what a model learns to predict, such as a steering angle.
    """

    dtype: str = option("float32", _check_dtype, normal=name_of_dtype)
    target: bool = option(False)
    word = "number"


@dataclass(
    frozen=True,
    kw_only=True,
    repr=False,
)
class Text(ValueKind):
    """A text, or an array of texts; `shape`, `default` and `of` are as of `Number`."""

    word = "text"


@dataclass(
    frozen=True,
    kw_only=True,
    repr=False,
)
class Bytes(ValueKind):
    """Bytes, or an array of bytes, which only a frame can hold; otherwise like `Text`."""

    word = "bytes"


@dataclass(
    frozen=True,
    kw_only=True,
    repr=False,
)
class File(Kind):
    """The uri of a file of any kind, such as a sound or a PDF: its bytes are the value.

    Attributes:
        max_bytes: a larger file is a reject; a number, or text such as "100MB".
        validator: a function of the file's bytes that raises an exception for an unusable file,
            which becomes a reject.  Datasets and schema files hold only its name, which nothing
            imports.

    >>> File(max_bytes="100MB").max_bytes
    100000000
    """

    max_bytes: int | str = option(2**28, _check_max_bytes, normal=parse_size)
    validator: Callable[[bytes], Any] | str | None = option(
        None,
        _check_validator,
        normal=lambda value: value,
    )
    word = "file"


#: The kinds whose cells are files.
FILES = (Image, Mask, File)


@dataclass(
    frozen=True,
    kw_only=True,
    repr=False,
)
class Ignore(Kind):
    """A column that is left out without being reported."""

    word = "ignore"


KINDS: dict[str, type[Kind]] = {
    kind.word: kind
    for kind in (Split, Image, Mask, Label, Labels, Boxes, Number, Text, Bytes, File, Ignore)
}


@dataclass(
    frozen=True,
    init=False,
    repr=False,
)
class Schema:
    """What each column of a source holds; columns that are not named are left out and reported.

    Attributes:
        fields: (column, kind) pairs, in the order given.

    Raises:
        OptionError: a value is not a kind, or two kinds do not fit together.

    >>> schema = Schema(split=Split(), image_uri=Image(), age=Number(), label=Label())
    >>> schema.columns["age"].dtype
    'float32'
    """

    fields: tuple[tuple[str, Kind], ...]

    def __init__(
        self,
        columns: Mapping[str, Kind] | None = None,
        /,
        **more: Kind,
    ) -> None:
        """Kinds by column, as keywords, or as a dict if names are not Python identifiers."""
        named = {**(columns or {}), **more}
        object.__setattr__(self, "fields", tuple(named.items()))
        for fault in _faults(self):
            raise OptionError.of("schema", ..., fault)

    @property
    def columns(self) -> dict[str, Kind]:
        """The kind of each column."""
        return dict(self.fields)

    def of(self, *kinds: type[Any]) -> list[str]:
        """The columns of some kinds."""
        return [name for name, kind in self.fields if isinstance(kind, kinds)]

    def source_columns(self) -> list[str]:
        """The columns of the source that the schema needs, each once."""
        kept = (columns_of(*field) for field in self.fields if not isinstance(field[1], Ignore))
        return list(dict.fromkeys(itertools.chain.from_iterable(kept)))

    def __repr__(self) -> str:
        return f"Schema({', '.join(f'{name}={kind}' for name, kind in self.fields)})"


def columns_of(name: str, kind: Kind) -> tuple[str, ...]:
    """The columns of the source that make a column of the schema."""
    if isinstance(kind, Labels):
        return kind.columns or (name,)
    if isinstance(kind, Boxes):
        return (*kind.columns, *filter(None, [kind.label, kind.masks]))
    return (name,)


def _faults(schema: Schema) -> Iterator[str]:
    """What is wrong with a schema; what comes after a fault is not to be relied on."""
    for name, kind in schema.fields:
        if isinstance(kind, type) and issubclass(kind, Kind):
            yield f"{name}={kind.__name__}: write {kind.__name__}()."
        if not isinstance(name, str) or not isinstance(kind, Kind):
            kinds = ", ".join(kind.__name__ for kind in KINDS.values())
            yield f"{name!r}={kind!r}: give one of the kinds {kinds}."
    for cls in (Split, Boxes):
        several = schema.of(cls)
        if len(several) > 1:
            yield f"{several} are all {cls.__name__}(); there can be only one."
    if not schema.of(*FILES, Label, Labels, Boxes, Number, Text, Bytes):
        yield "no column makes a feature; name at least one, such as Image()."
    images = schema.of(Image)
    for name in schema.of(Boxes):
        if len(images) != 1:
            yield f"{name}=Boxes() needs one Image(); there are {len(images)}."
    for name, kind in schema.fields:
        if isinstance(kind, ValueKind) and kind.of not in (None, *schema.of(Boxes)):
            yield (
                f"{name}={kind}: there is no Boxes() column of that name; there are "
                f"{schema.of(Boxes)}."
            )
        if not isinstance(kind, Mask):
            continue
        if kind.of is None and len(images) != 1:
            yield (f"{name}=Mask() of which image? There are {len(images)}: {images}; give of='…'.")
        if kind.of is not None and kind.of not in images:
            yield (
                f"{name}=Mask(of={kind.of!r}): there is no such Image() column; there are {images}."
            )
    taken: dict[str, str] = {}
    for name, kind in schema.fields:
        for column in columns_of(name, kind):
            if column in taken:
                yield (f"column {column!r} is needed for {taken[column]!r} and for {name!r}.")
            taken[column] = name


def _reserve_background(boxes: Boxes) -> None:
    """Put the background's name first in a kind that has names."""
    if boxes.label is None:
        raise OptionError(
            "`background_class=True`: these boxes have no classes; give Boxes the column of their "
            "classes, as `Boxes(label=…)`, or leave `background_class` out."
        )
    if boxes.names is None or boxes.names[0] == BACKGROUND:
        return
    if BACKGROUND in boxes.names:
        raise OptionError(
            f"`background_class=True`: {BACKGROUND!r} is reserved for class 0, but it is among the "
            f"class names: {list(boxes.names)}. Leave it out there, or put it first."
        )
    object.__setattr__(boxes, "names", (BACKGROUND, *boxes.names))


def settings(kind: Kind) -> dict[str, Any]:
    """The settings of a kind that are not its defaults."""
    return {
        item.name: getattr(kind, item.name)
        for item in dataclasses.fields(kind)  # type: ignore[arg-type]
        if getattr(kind, item.name) != item.default
    }


#: For sources whose columns do not call for another schema.
DEFAULT_SCHEMA = Schema(
    split=Split(required=False),
    image_uri=Image(),
    label=Label(required=False),
)
