"""What the keys of other tools' records mean: which columns of our schema they make.

This is the only place where that is decided.  The keys are those written by

- TensorFlow's ImageNet tools, and DeepLab's `datasets/build_data.py`;
- the TF Model Garden: `official/vision/data/create_coco_tf_record.py` and `tfrecord_lib.py`, read
  by `official/vision/dataloaders/tf_example_decoder.py` and `segmentation_input.py`;
- the Object Detection API: `research/object_detection/dataset_tools/create_*_tf_record.py`, read by
  `data_decoders/tf_example_decoder.py`;
- TensorFlow Datasets, whose `features.json` says more.  Its features become keys as in
  `tensorflow_datasets/core/example_parser.py` and `core/features/*.py`, as of version 4.9.10.

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

import re
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from tfrecorder.core.option import did_you_mean, spelled
from tfrecorder.errors import DatasetError
from tfrecorder.format.plan import Shape
from tfrecorder.options.read import NO_KEYS, NamedKeys
from tfrecorder.reading.first_records import Sample, box_unit, encoded_keys, mask_fault, unequal
from tfrecorder.schema.fields import Field, Fields
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
_OBJECT_LABEL = f"{_OBJECT.key}/class/label"
_OBJECT_TEXT = f"{_OBJECT.key}/class/text"
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
    _OBJECT_TEXT: "text",
    _OBJECT_MASK: "bytes",
}

#: Keys that make columns of labels, and of boxes and masks, with their usual kinds.
OF_LABELS = {LABEL: "int64", LABEL_COLUMN: "int64"}
OF_IMAGES = {**USUAL_KINDS, **dict.fromkeys(_MASKS, "bytes")}

#: Keys that are not understood, with the reason.
Unread = dict[str, str]

#: The names of classes, and how many there are; None if not known.
Vocabulary = tuple[tuple[str, ...] | None, int | None]


@dataclass(frozen=True)
class RecordKeys:
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

    def is_a(
        self,
        key: str,
        kinds: tuple[str, ...],
        shape: tuple[int | None, ...],
    ) -> bool:
        """Whether a key is there, with one of these kinds and this shape."""
        feature = self.features.get(key)
        return feature is not None and feature.kind in kinds and feature.shape == shape

    def vocabulary(self, key: str) -> Vocabulary:
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

    fields: Fields
    record: tuple[Feature, ...]
    unread: Mapping[str, str]


def meaning_of(keys: RecordKeys) -> Meaning:
    """The columns that some keys make.

    Raises:
        DatasetError: a key that the user names is not there.
    """
    for option, key in (("image", keys.named.image), ("label", keys.named.label)):
        if key not in (None, *keys.features):
            hint = did_you_mean(str(key), keys.features)
            raise DatasetError(f"{keys.where} has no key {key!r} for {spelled(option)}; {hint}")
    unread: Unread = dict(keys.faults)
    image = _image(keys, unread)
    made = labels = list(_labels(keys, unread))
    if image is not None:
        boxes = _boxes(keys, image.encoded_key, {field.column for field in labels}, unread)
        made = [image, *labels, *boxes, *_masks(keys, unread)]
    else:
        of_images = (*_OBJECT.edges, *keys.units, _ARRAY, *_MASKS)
        first = next((key for key in of_images if key in keys.features), None)
        if first is not None:
            unread.setdefault(first, "belongs to an image, and no key is known to hold one")
    taken = {feature.key for field in made for feature in field.features}
    values = [
        _value_column(feature, keys, unread)
        for key, feature in keys.features.items()
        if key not in taken
    ]
    fields = tuple(made + values)
    held = {feature.key: feature for field in fields for feature in field.features}
    record = tuple(held[key] for key in keys.features)
    in_words = {key: f"{keys.where}: {key} {fault}" for key, fault in unread.items()}
    return Meaning(fields, record, in_words)


def _image(keys: RecordKeys, unread: Unread) -> Field | None:
    """The column of the image; None if no key is known to hold it."""
    images = [key for key, feature in keys.features.items() if feature.kind == "image"]
    named = keys.named.image
    if named is None and keys.supervised and keys.supervised[0] in images:
        named = keys.supervised[0]
    usual = [key for key in (ENCODED, "image") if key in keys.features]
    only = images if len(images) == 1 else []
    key = named or next(iter([*usual, *only]), None)
    if key is not None and key not in unread:
        fault = _image_fault(keys, key)
        if fault:
            unread[key] = fault
    if key is None or key in unread:
        for other in images or encoded_keys(keys.samples):
            if other not in (key, *_MASKS, _OBJECT_MASK):
                words = "holds images; if it is the image to read, give"
                unread[other] = f"{words} {spelled('image', other)}"
        return None
    if not named:  # otherwise the metadata or the user say what an element is
        words = "is a further image, whose use is not known"
        unread.update({other: words for other in images if other != key})
    return Field(_COLUMNS.get(key, key), Image(), key, held=(Feature(key, "image"),))


def _image_fault(keys: RecordKeys, key: str) -> str:
    """Why a key does not hold one image per record, or ""; reading a record without one fails."""
    if not keys.samples:
        return "" if keys.is_a(key, ("image",), ()) else "is not one image in each record"
    if keys.features[key].kind not in ("bytes", "text"):
        return "holds numbers, not encoded images"
    of_pixels = {"image_height", "image_width", "image_channels"}
    if of_pixels <= keys.features.keys() and key not in encoded_keys(keys.samples):
        return (
            "holds pixels in base64, as tensorflow-recorder 2.0 wrote them; the page Migration "
            "turns them into images"
        )
    most = max(len(sample.get(key, ())) for sample in keys.samples)
    return f"holds {most} values in a record, not one image" if most > 1 else ""


def _labels(keys: RecordKeys, unread: Unread) -> Iterator[Field]:
    named = [keys.target] if keys.target else []
    usual = [key for key in (LABEL, LABEL_COLUMN) if key in keys.features][:1]
    stated = [
        key for key, feature in keys.features.items() if feature.kind == "label" and "/" not in key
    ]
    for key in named or usual or stated:
        if keys.is_a(key, ("label",), (None,)) and keys.vocabulary(key)[1] is not None:
            held: tuple[Feature, ...] = (keys.features[key],)
            yield Field(key, Labels(), key, *keys.vocabulary(key), held=held)
        elif fault := _label_fault(keys, key):
            is_number = keys.features[key].kind in ("int64", "float", "bool")
            if key not in named or (keys.named.label and not is_number):
                unread[key] = fault
        else:
            default = None if keys.is_a(key, ("int64", "label"), ()) else NO_LABEL
            held = (Feature(key, "label", (), default),)
            if key.startswith(_CLASS) and TEXT in keys.features:
                held = (*held, replace(keys.features[TEXT], kind="text"))
            yield Field(_COLUMNS.get(key, key), Label(), key, *keys.vocabulary(key), held=held)
    if named or LABEL in keys.features:
        return
    if TEXT in keys.features:
        unread[TEXT] = f"has the classes as text, without the integers of {LABEL}"
    for key in keys.features:
        if key.startswith(_CLASS) and keys.is_a(key, ("int64", "label"), ()):
            unread[key] = f"may be the class; if it is, give {spelled('label', key)}"


def _label_fault(keys: RecordKeys, key: str) -> str:
    """Why a key does not hold at most one class per record, or ""."""
    if key not in keys.features:
        return ""
    if (keys.named.features or {}).get(key, "").endswith("]"):
        return "is a list, not one integer"
    for sample in keys.samples:
        values = sample.get(key, ())
        if (isinstance(values, list) and values) or len(values) > 1:
            return f"is {reprlib.repr(values)}, not one integer"
    is_one = keys.samples or keys.features[key].shape == ()
    return "" if is_one and keys.features[key].kind in ("int64", "label") else "is not one integer"


def _masks(keys: RecordKeys, unread: Unread) -> Iterator[Field]:
    for key, feature in keys.features.items():
        if key not in _MASKS and (feature.kind, feature.shape) != ("mask", ()):
            continue
        if not keys.is_a(key, ("mask", "bytes", "text"), ()):
            unread[key] = "is not one mask in each record"
        elif fault := mask_fault(keys.samples, key):
            unread[key] = fault
        else:
            yield Field(_COLUMNS.get(key, key), Mask(), key, held=(Feature(key, "mask"),))


def _boxes(
    keys: RecordKeys,
    image: str,
    columns: set[str],
    unread: Unread,
) -> Iterator[Field]:
    """The only column of boxes, or none.

    Args:
        image: the key of the encoded image.
        columns: the names of the label columns.
    """
    label = "box_label" if LABEL_COLUMN in columns else LABEL_COLUMN
    edges = [key for key in _OBJECT.edges if key in keys.features]
    arrays = [key for key in keys.units if key not in keys.faults]
    if not arrays and keys.is_a(_ARRAY, ("float",), (None,)):
        arrays = [_ARRAY]
    if edges:
        yield from _boxes_by_edge(keys, image, label, unread)
    elif arrays:
        yield from _boxes_in_array(keys, arrays[0], label, unread)
    else:
        for key in (_OBJECT_LABEL, _OBJECT_TEXT, _OBJECT_MASK):
            if key in keys.features:
                unread[key] = "is of objects that have no boxes"
    # `Boxes(tfds_features=True)` repeats the edges under this key.
    others = [key for key in arrays if key != f"{_OBJECT.key}/bbox"] if edges else arrays[1:]
    for key in others:
        unread[key] = f"holds boxes next to those of {(edges or arrays)[0]}"


def _boxes_by_edge(
    keys: RecordKeys,
    image: str,
    label: str,
    unread: Unread,
) -> Iterator[Field]:
    edges = _OBJECT.edges
    unit = ""
    fault = unequal(keys.samples, edges)
    missing = [key for key in edges if key not in keys.features]
    present = next(key for key in edges if key in keys.features)
    if missing:
        fault = f"is present without {', '.join(missing)}"
    elif any(keys.features[key].kind not in ("float", "int64") for key in edges):
        fault = "holds something other than numbers"
    elif not fault:
        unit, fault = box_unit(keys.samples, edges, image)
    if fault:
        unread[present] = fault
        return
    held = tuple(replace(keys.features[key], shape=(None,)) for key in edges)
    classes = _of_objects(keys, _OBJECT_LABEL, present, unread)
    if classes:
        held += (Feature(_OBJECT_LABEL, "label", (None,)),)
        if _OBJECT_TEXT in keys.features:
            held += (Feature(_OBJECT_TEXT, "text", (None,)),)
    elif _OBJECT_TEXT in keys.features:
        unread[_OBJECT_TEXT] = f"has the classes as text, without the integers of {_OBJECT_LABEL}"
    if _of_objects(keys, _OBJECT_MASK, present, unread):
        held += (Feature(_OBJECT_MASK, "mask", (None,)),)
    kind = Boxes(label=label if classes else None, unit=unit)
    vocabulary = keys.vocabulary(_OBJECT_LABEL)
    yield Field(_OBJECT.column, kind, _OBJECT.key, *vocabulary, held=held)


def _of_objects(
    keys: RecordKeys,
    key: str,
    edge: str,
    unread: Unread,
) -> bool:
    """Whether a key is there, with one value for each box."""
    if key not in keys.features:
        return False
    kind = keys.features[key].kind
    fault = unequal(keys.samples, (edge, key))
    if key != _OBJECT_MASK:
        fault = fault if kind in ("int64", "label") else "holds no integers"
    elif kind not in ("bytes", "text", "mask"):
        fault = "holds numbers, not PNGs"
    elif not fault:
        fault = mask_fault(keys.samples, key)
    if fault:
        unread[key] = fault
    return not fault


def _boxes_in_array(
    keys: RecordKeys,
    key: str,
    label: str,
    unread: Unread,
) -> Iterator[Field]:
    feature = keys.features[key]
    if feature.shape == (None,):  # as seen in files without metadata
        feature = replace(feature, shape=(None, 4))
    prefix = key.rpartition("/")[0]
    near = [other for other in keys.features if prefix and other.startswith(f"{prefix}/")]
    labels = [other for other in near if keys.is_a(other, ("label",), (None,))]
    usual = f"{prefix}/label"
    if keys.is_a(usual, ("label", "int64"), (None,)):
        labels = [usual]
    held = [feature]
    kind = Boxes(label=None, unit=keys.units.get(key, "fraction"))
    vocabulary: Vocabulary = (None, 0)
    if len(labels) == 1:
        held.append(Feature(labels[0], "label", (None,)))
        kind = replace(kind, label=label)
        vocabulary = keys.vocabulary(labels[0])
    masks = [keys.features[other] for other in near if keys.is_a(other, ("mask",), (None,))]
    held += masks[:1]
    yield Field(prefix or key, kind, prefix or key, *vocabulary, held=tuple(held))


def _value_column(
    feature: Feature,
    keys: RecordKeys,
    unread: Unread,
) -> Field:
    """A column of one key, as stored."""
    if feature.kind == "mask" and feature.key not in unread:
        unread[feature.key] = "holds masks of objects that have no boxes"
    kinds = {"image": "bytes", "mask": "bytes", "label": "int64"}
    shape = (None,) if None in feature.shape else feature.shape
    held = Feature(feature.key, kinds.get(feature.kind, feature.kind), shape)
    kind: Kind = Bytes(shape=shape)
    if held.kind == "text":
        kind = Text(shape=shape)
    elif held.kind in ("float", "int64", "bool"):
        dtype = {"float": "float32"}.get(held.kind, held.kind)
        kind = Number(
            dtype=dtype,
            shape=shape,
            target=keys.target == feature.key,
        )
    is_labels = held.key == LABEL and held.kind == "int64"
    column = LABEL_COLUMN if is_labels else feature.key
    return Field(column, kind, feature.key, held=(held,))


#: The name of a feature's class, without its module.
_CLASS_NAME = re.compile(r".*\.(\w+)$")

#: With one of these words in its key, a one-channel image is a mask.
_MASK_KEY = re.compile(r"(^|[/_])(mask|segmentation)")

#: The unit of boxes by the format in which a feature stores them; we know no other formats.
_BOX_UNITS = {"REL_YXYX": "fraction", "YXYX": "pixel"}


@dataclass(frozen=True)
class TfdsKey:
    """What `features.json` says about one key.

    Attributes:
        feature: its kind is "image" for an image, "mask" for an image whose pixels are classes, and
            "label" for classes; for boxes "float" with the shape (4,) or (None, 4); "" if we do not
            know how it is stored.
        classes: how many there are; None if not known.
        shape: of an image.
        unit: of boxes.
        fault: why it cannot be read, or "".
    """

    feature: Feature
    classes: int | None = None
    shape: Shape = (None, None, 3)
    unit: str = ""
    fault: str = ""


def tfds_keys(document: Mapping[str, Any]) -> list[TfdsKey]:
    """All keys of a record, in order.

    Raises:
        LookupError, TypeError, ValueError: the document has another form.
    """
    return list(_keys_of_dict(document.get("featuresDict", {}).get("features", {}), "", 0))


def _keys_of_dict(
    forms: Mapping[str, Any],
    prefix: str,
    depth: int,
) -> Iterator[TfdsKey]:
    for key, form in forms.items():
        yield from _keys_of(form, f"{prefix}{key}", depth)


def _keys_of(
    form: Mapping[str, Any],
    key: str,
    depth: int,
) -> Iterator[TfdsKey]:
    """The keys of a feature.

    Args:
        depth: how many sequences it is nested in.
    """
    if "featuresDict" in form:
        yield from _keys_of_dict(form["featuresDict"].get("features", {}), f"{key}/", depth)
    elif "sequence" in form:
        inner = form["sequence"]["feature"]
        length = int(form["sequence"].get("length", -1))
        if depth or length < 0 or "featuresDict" in inner:
            yield from _keys_of(inner, key, depth + 1)
        else:
            for tfds_key in _keys_of(inner, key, depth):
                yield _keys_of_length(tfds_key, length)
    elif depth <= 1:  # lists of lists are left out
        tfds_key = _single_key(form, key)
        yield _keys_of_length(tfds_key, None) if depth else tfds_key


def _keys_of_length(tfds_key: TfdsKey, length: int | None) -> TfdsKey:
    """A list of this many values of a kind; for boxes, an array with four numbers in each row."""
    feature = tfds_key.feature
    shape: tuple[int | None, ...] = (length, *feature.shape)
    if None in shape and not tfds_key.unit:
        shape = (None,)  # as stored: one value after the other
    return replace(tfds_key, feature=replace(feature, shape=shape))


def _single_key(form: Mapping[str, Any], key: str) -> TfdsKey:
    match = _CLASS_NAME.match(form.get("pythonClassName", ""))
    name = match[1] if match else ""
    if name in ("Image", "LabeledImage"):
        return _tfds_image(form.get("image", {}), key, name == "LabeledImage")
    if name == "ClassLabel":
        count = int(form.get("classLabel", {}).get("numClasses", 0))
        return TfdsKey(Feature(key, "label"), count or None)
    if name == "Text":
        return TfdsKey(Feature(key, "text"))
    if name == "BBoxFeature":
        # Before 4.9.4 there was only one format, and the file did not name it.
        said = form.get("boundingBox", {"bboxFormat": "REL_YXYX"}).get("bboxFormat", "")
        boxes = TfdsKey(Feature(key, "float", (4,)), unit=_BOX_UNITS.get(said, "?"))
        words = f"holds boxes of the form {said or 'unknown'}, not REL_YXYX or YXYX"
        return boxes if said in _BOX_UNITS else replace(boxes, fault=words)
    if name in ("Scalar", "Tensor"):
        return _tensor_key(form.get("tensor", {}), key)
    return TfdsKey(Feature(key, ""), fault=f"is a TFDS feature of the kind {name}")


def _tfds_image(
    form: Mapping[str, Any],
    key: str,
    labeled: bool,
) -> TfdsKey:
    dtype = form.get("dtype", "uint8")
    sides = _shape_of(form) or (None, None, 3)
    height, width, channels = sides
    is_mask = labeled or (channels == 1 and _MASK_KEY.search(key))
    fault = "" if dtype == "uint8" else f"holds images of {dtype}; load decodes to 8 bits"
    feature = Feature(key, "mask" if is_mask else "image")
    return TfdsKey(feature, shape=(height, width, channels or 3), fault=fault)


def _tensor_key(form: Mapping[str, Any], key: str) -> TfdsKey:
    sides = _shape_of(form)
    if sides and form.get("encoding", "none") != "none":
        return TfdsKey(Feature(key, "bytes"))
    dtype = form.get("dtype", "")
    kinds = {"string": "text", "object": "text", "bool": "bool"}
    kind = kinds.get(dtype, "float" if "float" in dtype else "int64")
    shape = (None,) if None in sides or form.get("optional") else sides
    return TfdsKey(Feature(key, kind, shape))


def _shape_of(form: Mapping[str, Any]) -> tuple[int | None, ...]:
    """The shape of an array, with None where it differs."""
    sides = map(int, form.get("shape", {}).get("dimensions", ()))
    return tuple(None if side < 0 else side for side in sides)
