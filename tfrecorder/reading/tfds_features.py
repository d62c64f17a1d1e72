"""`features.json` of TensorFlow Datasets: the keys of its records, and what each one is.

Features become keys as in `tensorflow_datasets/core/example_parser.py` and `core/features/*.py`,
as of version 4.9.10.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tfrecorder.format.plan import Shape
from tfrecorder.schema.keys import Feature

#: The name of a feature's class, without its module.
_CLASS = re.compile(r".*\.(\w+)$")

#: With one of these words in its key, a one-channel image is a mask.
_MASK = re.compile(r"(^|[/_])(mask|segmentation)")

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
    return list(_of_dict(document.get("featuresDict", {}).get("features", {}), "", 0))


def _of_dict(forms: Mapping[str, Any], prefix: str, depth: int) -> Iterator[TfdsKey]:
    for key, form in forms.items():
        yield from _of(form, f"{prefix}{key}", depth)


def _of(form: Mapping[str, Any], key: str, depth: int) -> Iterator[TfdsKey]:
    """The keys of a feature.

    Args:
        depth: how many sequences it is nested in.
    """
    if "featuresDict" in form:
        yield from _of_dict(form["featuresDict"].get("features", {}), f"{key}/", depth)
    elif "sequence" in form:
        inner = form["sequence"]["feature"]
        length = int(form["sequence"].get("length", -1))
        if depth or length < 0 or "featuresDict" in inner:
            yield from _of(inner, key, depth + 1)
        else:
            for tfds_key in _of(inner, key, depth):
                yield _of_length(tfds_key, length)
    elif depth <= 1:  # lists of lists are left out
        tfds_key = _single(form, key)
        yield _of_length(tfds_key, None) if depth else tfds_key


def _of_length(tfds_key: TfdsKey, length: int | None) -> TfdsKey:
    """A list of this many values of a kind; for boxes, an array with four numbers in each row."""
    feature = tfds_key.feature
    shape: tuple[int | None, ...] = (length, *feature.shape)
    if None in shape and not tfds_key.unit:
        shape = (None,)  # as stored: one value after the other
    return replace(tfds_key, feature=replace(feature, shape=shape))


def _single(form: Mapping[str, Any], key: str) -> TfdsKey:
    match = _CLASS.match(form.get("pythonClassName", ""))
    name = match[1] if match else ""
    if name in ("Image", "LabeledImage"):
        return _image(form.get("image", {}), key, name == "LabeledImage")
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
        return _tensor(form.get("tensor", {}), key)
    return TfdsKey(Feature(key, ""), fault=f"is a TFDS feature of the kind {name}")


def _image(form: Mapping[str, Any], key: str, labeled: bool) -> TfdsKey:
    dtype = form.get("dtype", "uint8")
    sides = _sides(form) or (None, None, 3)
    height, width, channels = sides
    is_mask = labeled or (channels == 1 and _MASK.search(key))
    fault = "" if dtype == "uint8" else f"holds images of {dtype}; load decodes to 8 bits"
    feature = Feature(key, "mask" if is_mask else "image")
    return TfdsKey(feature, shape=(height, width, channels or 3), fault=fault)


def _tensor(form: Mapping[str, Any], key: str) -> TfdsKey:
    sides = _sides(form)
    if sides and form.get("encoding", "none") != "none":
        return TfdsKey(Feature(key, "bytes"))
    dtype = form.get("dtype", "")
    kinds = {"string": "text", "object": "text", "bool": "bool"}
    kind = kinds.get(dtype, "float" if "float" in dtype else "int64")
    shape = (None,) if None in sides or form.get("optional") else sides
    return TfdsKey(Feature(key, kind, shape))


def _sides(form: Mapping[str, Any]) -> tuple[int | None, ...]:
    """The shape of an array, with None where it differs."""
    sides = map(int, form.get("shape", {}).get("dimensions", ()))
    return tuple(None if side < 0 else side for side in sides)
