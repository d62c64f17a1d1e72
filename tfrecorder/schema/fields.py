"""The columns of a schema as keys of the record: what both writing and reading know of a dataset.

A `Field` is a column whose vocabulary is known.  With one image, label or mask, the keys are those
of TensorFlow's own tools; with several, each key starts with the name of its column.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from tfrecorder.errors import OptionError
from tfrecorder.schema import keys
from tfrecorder.schema.keys import Feature
from tfrecorder.schema.kinds import (
    FILES,
    Boxes,
    File,
    Image,
    Kind,
    Label,
    Labels,
    Mask,
    Number,
    Schema,
    ValueKind,
)
from tfrecorder.schema.schema_file import kind_of, plain_kind

_NUMBER_KINDS = {"float32": "float", "int64": "int64", "bool": "bool"}


#: With more classes than this, classes without names are not listed by their numbers.
MOST_NUMBERED_CLASSES = 1_000_000


#: Columns of a plan that name files in its spool start with this.
SPOOLED = "tfrecorder.spool/"


@dataclass(frozen=True)
class Field:
    """A column of the schema in a dataset.

    Attributes:
        column: its name.
        kind: what the schema says it holds.
        key: its only key in the record, or what all its keys start with.
        names: for a column with classes, the name of each integer from 0; None without names.
        num_classes: one more than the largest class; None if that is not known.
        gathered: for boxes, True if each was a separate row.
        integer: classes are integers in the source, whether they have names or not.
        held: what records of other tools hold of it; None means all that its kind makes.
    """

    column: str
    kind: Kind
    key: str
    names: tuple[str, ...] | None = None
    num_classes: int | None = 0
    gathered: bool = False
    integer: bool = False
    held: tuple[Feature, ...] | None = None

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """The name of each class by its integer; for classes without names, the number as text.

        None without classes, or if the numbers are spread so wide that nobody can have meant it.
        """
        if self.names is not None or not 0 < (self.num_classes or 0) <= MOST_NUMBERED_CLASSES:
            return self.names
        return tuple(map(str, range(self.num_classes or 0)))

    @cached_property
    def features(self) -> tuple[Feature, ...]:
        """The keys of the record that the column makes."""
        if self.held is not None:
            return self.held
        key = self.key
        kind = self.kind
        if isinstance(kind, FILES):
            encoded = "bytes" if isinstance(kind, File) else kind.word
            words = {"encoded": encoded, "format": "text", "filename": "text"}
            if isinstance(kind, Image):
                deep = ("depth",) if self.depth == 16 else ()
                words |= dict.fromkeys(("height", "width", "channels", *deep), "int64")
            return tuple(Feature(f"{key}/{name}", word) for name, word in words.items())
        if isinstance(kind, (Label, Labels)):
            shape = () if isinstance(kind, Label) else (None,)
            return Feature(f"{key}/label", "label", shape), Feature(f"{key}/text", "text", shape)
        if isinstance(kind, Boxes):
            # Whole boxes first, because boxes are counted by the last key: the class or an edge.
            made = {f"{key}/mask": "mask"} if kind.masks else {}
            made |= dict.fromkeys([*filter(None, [self.tfds_boxes_key]), *self.edges], "float")
            if kind.label is not None:
                made |= {f"{key}/class/label": "label", f"{key}/class/text": "text"}
            return tuple(Feature(name, word, (None,)) for name, word in made.items())
        if isinstance(kind, ValueKind):
            word = _NUMBER_KINDS[kind.dtype] if isinstance(kind, Number) else kind.word
            return (Feature(key, word, kind.shape),)
        raise TypeError(f"a column of kind {kind.word} makes no feature")

    @cached_property
    def edges(self) -> tuple[str, ...]:
        """For boxes, the keys of the left, upper, right and lower edge."""
        return tuple(f"{self.key}/bbox/{edge}" for edge in ("xmin", "ymin", "xmax", "ymax"))

    @cached_property
    def tfds_boxes_key(self) -> str | None:
        """The key of boxes in TFDS's form: ymin, xmin, ymax, xmax of each, one after the other.

        None for any other column, and for boxes that are stored only by their edges.
        """
        return f"{self.key}/bbox" if isinstance(self.kind, Boxes) and self.for_tfds else None

    @property
    def for_tfds(self) -> bool:
        """True if TFDS's own features describe its boxes or masks."""
        return isinstance(self.kind, (Boxes, Mask)) and self.kind.tfds_features

    @property
    def label_map(self) -> tuple[str, ...] | None:
        """The class names of boxes whose class 0 is the background; None for any other column."""
        reserved = isinstance(self.kind, Boxes) and self.kind.background_class
        return self.class_names if reserved else None

    @cached_property
    def box_key(self) -> str | None:
        """For boxes held under one key, as arrays of ymin, xmin, ymax, xmax: that key.

        None if each edge has a key, as in everything that this package writes.
        """
        if isinstance(self.kind, Boxes):
            for feature in self.held or ():
                if feature.shape[-1:] == (4,):
                    return feature.key
        return None

    @cached_property
    def in_pixels(self) -> bool:
        """True for boxes that the record holds in pixels; this package writes only fractions."""
        return self.held is not None and isinstance(self.kind, Boxes) and self.kind.unit == "pixel"

    @cached_property
    def masks_key(self) -> str | None:
        """For boxes with a mask for each object, the key of the masks; None if there are none."""
        return next(self._keys("mask"), None) if isinstance(self.kind, Boxes) else None

    @property
    def depth(self) -> int:
        """For an image, the bits of a channel; 8 for any other column."""
        return self.kind.depth if isinstance(self.kind, Image) else 8

    @cached_property
    def encoded_key(self) -> str:
        """For an image, a mask or a file, the key of its bytes."""
        return next(self._keys("image", "mask", "bytes"))

    @property
    def of_boxes(self) -> bool:
        """True for boxes, and for values of which each box has one."""
        is_value_of = isinstance(self.kind, ValueKind) and self.kind.of is not None
        return is_value_of or isinstance(self.kind, Boxes)

    @cached_property
    def uri_key(self) -> str:
        """For an image, a mask or a file, the key of its uri."""
        return f"{self.key}/filename"

    @cached_property
    def spool_key(self) -> str:
        """For such a column, the column of a plan with the file of each that came as bytes."""
        return f"{SPOOLED}{self.uri_key}"

    @cached_property
    def size_keys(self) -> tuple[str, ...]:
        """For an image, the keys of its height, width and channels; empty if there are none."""
        return tuple(self._keys("int64"))[:3]

    @cached_property
    def label_key(self) -> str | None:
        """The key of its classes; None if it has none."""
        return next(self._keys("label"), None)

    @property
    def text_key(self) -> str | None:
        """The key of its classes' texts; None if it has none."""
        return None if self.label_key is None else next(self._keys("text"), None)

    def _keys(self, *kinds: str) -> Iterator[str]:
        return (feature.key for feature in self.features if feature.kind in kinds)

    @property
    def is_unlabelled(self) -> bool:
        """True for a label without any class: each is -1, and its text empty."""
        return isinstance(self.kind, Label) and self.num_classes == 0


#: The columns of a table or of a dataset.
Fields = tuple[Field, ...]


def fields_of(schema: Schema) -> Fields:
    """The columns of a schema that make features, with their keys; vocabularies not known yet.

    Raises:
        OptionError: two columns would make the same key.
    """
    images = schema.of(Image)
    masks = schema.of(Mask)
    classes = schema.of(Label, Labels)
    made = []
    for name, kind in schema.fields:
        if isinstance(kind, Image):
            key = "image" if len(images) == 1 else _stem(name)
        elif isinstance(kind, Mask):
            alone = len(masks) == 1 and len(images) == 1
            key = "image/segmentation/class" if alone else _stem(name)
        elif isinstance(kind, (Label, Labels)):
            alone = len(classes) == 1 and len(images) == 1
            key = "image/class" if alone else name
        elif isinstance(kind, File):
            key = _stem(name)
        elif isinstance(kind, Boxes):
            key = "image/object"
        elif isinstance(kind, ValueKind):
            key = f"image/object/{name}" if kind.of else name
        else:
            continue
        made.append(Field(name, kind, key))
    counts = Counter(feature.key for feature in record_features(made))
    for key, count in counts.items():
        if count > 1 or not key:
            raise OptionError.of(
                "schema",
                ...,
                f"two columns would both make the feature {key!r}; rename one of them.",
            )
    return tuple(made)


def _stem(column: str) -> str:
    """What the keys of one of several images start with: left_uri makes left/encoded."""
    return column.removesuffix("_uri") or column


def record_features(fields: Iterable[Field]) -> tuple[Feature, ...]:
    """Every key of the record, in the order they are listed."""
    made = [feature for field in fields for feature in field.features]
    return (*made, Feature(keys.SOURCE_ID, "text"))


def of_kind(fields: Iterable[Field], *wanted: type[Kind]) -> list[Field]:
    """Those of some columns that are of one of these kinds."""
    return [field for field in fields if isinstance(field.kind, wanted)]


def primary_image(fields: Iterable[Field]) -> Field | None:
    """The image that sizes and suspects refer to: the first; None without images."""
    return next(iter(of_kind(fields, Image)), None)


def primary_file(fields: Sequence[Field]) -> Field | None:
    """The file that rejects refer to: the first image, or else the first file; None without."""
    return primary_image(fields) or next(iter(of_kind(fields, File)), None)


def file_fields(fields: Iterable[Field]) -> list[Field]:
    """The columns whose cells are files."""
    return of_kind(fields, *FILES)


def image_fields(fields: Iterable[Field]) -> list[Field]:
    """The columns whose cells are files, but for masks."""
    return of_kind(fields, Image, File)


def with_validators(
    fields: Sequence[Field], validators: Mapping[str, Callable[[bytes], Any]] | None = None
) -> Fields:
    """Columns with the functions that check their files, of which JSON has only the names.

    Args:
        validators: by column, as `validators_of` gives them; None leaves all out.
    """

    def replaced(field: Field) -> Field:
        if not isinstance(field.kind, File):
            return field
        own = None if validators is None else validators.get(field.column, field.kind.validator)
        return replace(field, kind=replace(field.kind, validator=own))

    return tuple(map(replaced, fields))


def validators_of(fields: Iterable[Field]) -> dict[str, Callable[[bytes], Any]]:
    """The functions that check files, by column."""
    made = {field.column: getattr(field.kind, "validator", None) for field in fields}
    return {column: check for column, check in made.items() if callable(check)}


def class_field(fields: Iterable[Field]) -> Field | None:
    """The only column with classes; None if there are several, or none."""
    classes = [field for field in fields if field.label_key is not None]
    return classes[0] if len(classes) == 1 else None


def image_of(mask: Field, fields: Sequence[Field]) -> Field:
    """The image that a mask, or masks of objects, belong to."""
    images = of_kind(fields, Image)
    return next(f for f in images if getattr(mask.kind, "of", None) in (None, f.column))


def to_json(fields: Sequence[Field]) -> list[dict[str, Any]]:
    """Fields as JSON values."""
    stored = ("column", "key", "names", "num_classes", "gathered", "integer")
    return [
        {"kind": plain_kind(field.kind), **{name: getattr(field, name) for name in stored}}
        for field in fields
    ]


def from_json(fields: Sequence[dict[str, Any]]) -> Fields:
    """The fields that `to_json` wrote.

    Raises:
        OptionError, KeyError, TypeError: the values are not fields.
    """
    return tuple(
        Field(
            **{
                **field,
                "kind": kind_of(field["column"], field["kind"]),
                "names": None if field["names"] is None else tuple(field["names"]),
            }
        )
        for field in fields
    )
