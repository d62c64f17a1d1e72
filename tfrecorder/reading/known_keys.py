"""What the keys of other tools' records mean: which columns of our schema they make.

This is the only place where that is decided.  The keys are those written by

- TensorFlow's ImageNet tools, and DeepLab's `datasets/build_data.py`;
- the TF Model Garden: `official/vision/data/create_coco_tf_record.py` and `tfrecord_lib.py`, read
  by `official/vision/dataloaders/tf_example_decoder.py` and `segmentation_input.py`;
- the Object Detection API: `research/object_detection/dataset_tools/create_*_tf_record.py`, read by
  `data_decoders/tf_example_decoder.py`;
- TensorFlow Datasets, whose `features.json` says more (`tfds_features.py`).

| column | keys |
|---|---|
| image | `image/encoded`, else `image`, else the only image |
| label | `image/class/label` with `image/class/text`, else `label`, else all classes |
| boxes | `image/object/bbox/{xmin,ymin,xmax,ymax}` with `image/object/class/{label,text}` and
  `image/object/mask`; else an array of ymin, xmin, ymax, xmax, as `objects/bbox`, with the classes
  and masks next to it |
| mask | `image/segmentation/class/encoded`, `image/panoptic/{category,instance}_mask`, and images
  of one channel that are named as masks |

The user may name the keys of the image and of the label, which then come first.

All other keys are columns with their values.  A key that looks like an image, a label, boxes or a
mask but is not understood is such a column too, and `unread` says why; a reader gives it only if
asked to.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tfrecorder.core.checks import nearest
from tfrecorder.errors import DatasetError
from tfrecorder.options.read import NO_KEYS, NamedKeys
from tfrecorder.reading.first_records import Sample, box_unit, encoded_keys, mask_fault, unequal
from tfrecorder.schema.fields import Field
from tfrecorder.schema.keys import (
    ENCODED,
    LABEL,
    LABEL_COLUMN,
    NO_LABEL,
    TEXT,
    URI_COLUMN,
    Feature,
)
from tfrecorder.schema.kinds import Boxes, Bytes, Image, Kind, Label, Labels, Mask, Number, Text

_OBJECT = Field("boxes", Boxes(), "image/object")
_OBJECT_LABEL, _OBJECT_TEXT = f"{_OBJECT.key}/class/label", f"{_OBJECT.key}/class/text"
_OBJECT_MASK = f"{_OBJECT.key}/mask"
_MASK = "image/segmentation/class/encoded"

#: Keys whose PNGs hold the class, or the object's number, of each pixel of an image.
_MASKS = (
    _MASK,
    "image/panoptic/category_mask",
    "image/panoptic/instance_mask",
    "segmentation_mask",
    "segmentation_label",
)

#: What the keys of a record's class start with.
_CLASS = "image/class/"

#: Column names that are shorter than the key.
_COLUMNS = {ENCODED: URI_COLUMN, LABEL: LABEL_COLUMN, _MASK: "mask_uri"}

#: The boxes in TFDS's records if there is no `features.json`.
_ARRAY = "objects/bbox"

#: The kinds of keys whose lists are empty in all the records we looked at.
USUAL_KINDS = {
    **dict.fromkeys((*_OBJECT.edges, _ARRAY), "float"),
    **dict.fromkeys((_OBJECT_LABEL, "objects/label"), "int64"),
    **{_OBJECT_TEXT: "text", _OBJECT_MASK: "bytes"},
}

#: Keys that are not understood, with the reason.
Unread = dict[str, str]


@dataclass(frozen=True)
class Found:
    """The keys of some records, and what else is known about them.

    Attributes:
        where: the file we looked at, for messages.
        features: the keys with their types.  "image", "mask" and "label" are known only from
            metadata.
        samples: some records; none if metadata say what they hold.
        faults: keys that cannot be read, with the reason.
        classes: the number of classes of each key that has classes.
        units: "fraction" or "pixel" for each array of boxes.
        supervised: the keys of input and target, if metadata name them.
        named: the keys that the user names.
        names: a key with classes -> their names; None if they are not known.
    """

    where: str
    features: Mapping[str, Feature]
    samples: Sequence[Sample] = ()
    faults: Mapping[str, str] = field(default_factory=dict)
    classes: Mapping[str, int | None] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    supervised: tuple[str, str] | None = None
    named: NamedKeys = NO_KEYS
    names: Callable[[str], tuple[str, ...] | None] = lambda key: None

    def is_a(self, key: str, kinds: tuple[str, ...], shape: tuple[int | None, ...]) -> bool:
        """Whether a key is there, with one of these kinds and this shape."""
        one = self.features.get(key)
        return one is not None and one.kind in kinds and one.shape == shape

    def vocabulary(self, key: str) -> tuple[tuple[str, ...] | None, int | None]:
        """The names of a key's classes, and how many there are; None if not known."""
        names = self.names(key)
        return names, self.classes.get(key) if names is None else len(names)

    @property
    def target(self) -> str | None:
        """The key of the label, if the user or the metadata name it."""
        return self.named.label or (self.supervised[1] if self.supervised else None)


class Meaning(NamedTuple):
    """What the records hold.

    Attributes:
        fields: the columns.
        record: every key.
        unread: keys of labels, boxes and masks that we do not understand, with a sentence on each.
    """

    fields: tuple[Field, ...]
    record: tuple[Feature, ...]
    unread: Mapping[str, str]


def meaning_of(found: Found) -> Meaning:
    """The columns that some keys make.

    Raises:
        DatasetError: a key that the user names is not there.
    """
    for option, key in found.named._asdict().items():
        if key not in (None, *found.features):
            near = nearest(str(key), found.features) or reprlib.repr([*found.features])
            raise DatasetError(f"{option}={key!r}: {found.where} has no such key; there is {near}.")
    unread: Unread = dict(found.faults)
    image = _image(found, unread)
    made = labels = list(_labels(found, unread))
    if image is not None:
        boxes = _boxes(found, image.encoded_key, {one.column for one in labels}, unread)
        made = [image, *labels, *boxes, *_masks(found, unread)]
    else:
        of_images = (*_OBJECT.edges, *found.units, _ARRAY, *_MASKS)
        for key in [key for key in of_images if key in found.features][:1]:
            unread.setdefault(key, "belongs to an image, and no key is known to hold one")
    taken = {one.key for of_column in made for one in of_column.features}
    values = [_value(one, found, unread) for key, one in found.features.items() if key not in taken]
    fields = tuple(made + values)
    held = {one.key: one for of_column in fields for one in of_column.features}
    record = tuple(held[key] for key in found.features)
    return Meaning(fields, record, {key: f"{found.where}: {key} {unread[key]}" for key in unread})


def _image(found: Found, unread: Unread) -> Field | None:
    """The column of the image; None if no key is known to hold it."""
    images = [key for key, one in found.features.items() if one.kind == "image"]
    stated = [one for one in (found.supervised or ())[:1] if one in images]
    named = [found.named.image] if found.named.image else stated
    usual = [key for key in (ENCODED, "image") if key in found.features]
    key = next(iter([*named, *usual, *(images if len(images) == 1 else [])]), None)
    fault = "" if key is None else found.faults.get(key) or _image_fault(found, key)
    if key is None or fault:
        unread.update({key: fault} if key else {})
        for other in images or encoded_keys(found.samples):
            if other not in (key, *_MASKS, _OBJECT_MASK):
                unread[other] = f"holds images; if it is the image to read, give image={other!r}"
        return None
    if not named:  # otherwise the metadata or the user say what an element is
        words = "is a further image, whose use is not known"
        unread.update({other: words for other in images if other != key})
    return Field(_COLUMNS.get(key, key), Image(), key, held=(Feature(key, "image"),))


def _image_fault(found: Found, key: str) -> str:
    """Why a key does not hold one image per record, or ""; reading a record without one fails."""
    if not found.samples:
        return "" if found.is_a(key, ("image",), ()) else "is not one image in each record"
    if found.features[key].kind not in ("bytes", "text"):
        return "holds numbers, not encoded images"
    most = max(len(one.values.get(key, ())) for one in found.samples)
    return f"holds {most} values in a record, not one image" if most > 1 else ""


def _labels(found: Found, unread: Unread) -> Iterator[Field]:
    named = list(filter(None, [found.target]))
    usual = [key for key in (LABEL, LABEL_COLUMN) if key in found.features][:1]
    known = [key for key, one in found.features.items() if one.kind == "label" and "/" not in key]
    for key in named or usual or known:
        if found.is_a(key, ("label",), (None,)) and found.vocabulary(key)[1] is not None:
            held: tuple[Feature, ...] = (found.features[key],)
            yield Field(key, Labels(), key, *found.vocabulary(key), held=held)
        elif fault := _label_fault(found, key):
            is_number = found.features[key].kind in ("int64", "float", "bool")
            if key not in named or (found.named.label and not is_number):
                unread[key] = fault
        else:
            default = None if found.is_a(key, ("int64", "label"), ()) else NO_LABEL
            held = (Feature(key, "label", (), default),)
            if key.startswith(_CLASS) and TEXT in found.features:
                held = (*held, replace(found.features[TEXT], kind="text"))
            yield Field(_COLUMNS.get(key, key), Label(), key, *found.vocabulary(key), held=held)
    if named or LABEL in found.features:
        return
    if TEXT in found.features:
        unread[TEXT] = f"has the classes as text, without the integers of {LABEL}"
    for key in found.features:
        if key.startswith(_CLASS) and found.is_a(key, ("int64", "label"), ()):
            unread[key] = f"may be the class; if it is, give label={key!r}"


def _label_fault(found: Found, key: str) -> str:
    """Why a key does not hold at most one class per record, or ""."""
    if key not in found.features:
        return ""
    for one in found.samples:
        values = one.values.get(key, ())
        if (isinstance(values, list) and values) or len(values) > 1:
            return f"is {reprlib.repr(values)}, not one integer"
    is_one = found.samples or found.features[key].shape == ()
    return "" if is_one and found.features[key].kind in ("int64", "label") else "is not one integer"


def _masks(found: Found, unread: Unread) -> Iterator[Field]:
    for key, one in found.features.items():
        if key not in _MASKS and (one.kind, one.shape) != ("mask", ()):
            continue
        if not found.is_a(key, ("mask", "bytes", "text"), ()):
            unread[key] = "is not one mask in each record"
        elif fault := mask_fault(found.samples, key):
            unread[key] = fault
        else:
            yield Field(_COLUMNS.get(key, key), Mask(), key, held=(Feature(key, "mask"),))


def _boxes(found: Found, image: str, columns: set[str], unread: Unread) -> Iterator[Field]:
    """The only column of boxes, or none.

    Args:
        image: the key of the encoded image.
        columns: the names of the label columns.
    """
    label = "box_label" if LABEL_COLUMN in columns else LABEL_COLUMN
    edges = [key for key in _OBJECT.edges if key in found.features]
    arrays = [key for key in found.units if key not in found.faults]
    if not arrays and found.is_a(_ARRAY, ("float",), (None,)):
        arrays = [_ARRAY]
    if edges:
        yield from _boxes_by_edge(found, image, label, unread)
    elif arrays:
        yield from _boxes_in_array(found, arrays[0], label, unread)
    else:
        for key in (_OBJECT_LABEL, _OBJECT_TEXT, _OBJECT_MASK):
            if key in found.features:
                unread[key] = "is of objects that have no boxes"
    # `convert(tfds_features=True)` repeats the edges under this key.
    others = [key for key in arrays if key != f"{_OBJECT.key}/bbox"] if edges else arrays[1:]
    for key in others:
        unread[key] = f"holds boxes next to those of {(edges or arrays)[0]}"


def _boxes_by_edge(found: Found, image: str, label: str, unread: Unread) -> Iterator[Field]:
    edges = _OBJECT.edges
    missing = [key for key in edges if key not in found.features]
    there = next(key for key in edges if key in found.features)
    if missing:
        unread[there] = f"is present without {', '.join(missing)}"
        return
    if any(found.features[key].kind not in ("float", "int64") for key in edges):
        unread[there] = "holds something other than numbers"
        return
    if fault := unequal(found.samples, edges):
        unread[there] = fault
        return
    unit, fault = box_unit(found.samples, edges, image)
    if fault:
        unread[there] = fault
        return
    held = tuple(replace(found.features[key], shape=(None,)) for key in edges)
    classes = _of_objects(found, _OBJECT_LABEL, there, unread)
    if classes:
        held += (Feature(_OBJECT_LABEL, "label", (None,)),)
        if _OBJECT_TEXT in found.features:
            held += (Feature(_OBJECT_TEXT, "text", (None,)),)
    elif _OBJECT_TEXT in found.features:
        unread[_OBJECT_TEXT] = f"has the classes as text, without the integers of {_OBJECT_LABEL}"
    if _of_objects(found, _OBJECT_MASK, there, unread):
        if fault := mask_fault(found.samples, _OBJECT_MASK):
            unread[_OBJECT_MASK] = fault
        else:
            held += (Feature(_OBJECT_MASK, "mask", (None,)),)
    kind = Boxes(label=label if classes else None, unit=unit)
    vocabulary = found.vocabulary(_OBJECT_LABEL)
    yield Field(_OBJECT.column, kind, _OBJECT.key, *vocabulary, held=held)


def _of_objects(found: Found, key: str, edge: str, unread: Unread) -> bool:
    """Whether a key is there, with one value for each box."""
    if key not in found.features:
        return False
    kinds = ("int64", "label") if key == _OBJECT_LABEL else ("bytes", "text", "mask")
    fault = unequal(found.samples, (edge, key))
    if found.features[key].kind not in kinds:
        words = "numbers, not PNGs" if key == _OBJECT_MASK else "no integers"
        fault = f"holds {words}"
    if fault:
        unread[key] = fault
    return not fault


def _boxes_in_array(found: Found, key: str, label: str, unread: Unread) -> Iterator[Field]:
    one = found.features[key]
    if one.shape == (None,):  # as seen in files without metadata
        one = replace(one, shape=(None, 4))
    prefix = key.rpartition("/")[0]
    near = [other for other in found.features if prefix and other.startswith(f"{prefix}/")]
    labels = [other for other in near if found.is_a(other, ("label",), (None,))]
    usual = f"{prefix}/label"
    if found.is_a(usual, ("label", "int64"), (None,)):
        labels = [usual]
    masks = [other for other in near if found.is_a(other, ("mask",), (None,))]
    held = (
        one,
        *(Feature(other, "label", (None,)) for other in labels if len(labels) == 1),
        *(found.features[other] for other in masks[:1]),
    )
    kind = Boxes(label=label if len(labels) == 1 else None, unit=found.units.get(key, "fraction"))
    vocabulary = found.vocabulary(labels[0]) if len(labels) == 1 else (None, 0)
    yield Field(prefix or key, kind, prefix or key, *vocabulary, held=held)


def _value(one: Feature, found: Found, unread: Unread) -> Field:
    """A column of one key, as stored."""
    if one.kind == "mask" and one.key not in unread:
        unread[one.key] = "holds masks of objects that have no boxes"
    kinds = {"image": "bytes", "mask": "bytes", "label": "int64"}
    shape = (None,) if None in one.shape else one.shape
    held = Feature(one.key, kinds.get(one.kind, one.kind), shape)
    kind: Kind = Bytes(shape=shape)
    if held.kind == "text":
        kind = Text(shape=shape)
    elif held.kind in ("float", "int64", "bool"):
        dtype = {"float": "float32"}.get(held.kind, held.kind)
        kind = Number(dtype=dtype, shape=shape, target=found.target == one.key)
    return Field(one.key, kind, one.key, held=(held,))
