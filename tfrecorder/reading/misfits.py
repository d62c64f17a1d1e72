"""Sound records of other tools that are not as the first ones, or the metadata, made us expect.

What they hold beyond it would be left out without a word, or cut to what was expected.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tfrecorder.core.option import spelled
from tfrecorder.errors import DatasetError
from tfrecorder.format import layout
from tfrecorder.format.example import Values, parse_example
from tfrecorder.reading.dataset import StoredDataset
from tfrecorder.reading.dataset_files import records_in
from tfrecorder.reading.element_spec import ElementSpec
from tfrecorder.reading.first_records import kind_of, unequal
from tfrecorder.reading.foreign_keys import OF_IMAGES, OF_LABELS
from tfrecorder.schema.fields import class_field, of_kind
from tfrecorder.schema.keys import Feature
from tfrecorder.schema.kinds import Boxes, Image

#: Up to this number, float32 holds every whole one.
_EXACT = 2**24

#: What a record has for numbers of the kinds of features; all others are bytes.
KINDS_STORED = {"int64": "int64", "label": "int64", "bool": "int64", "float": "float"}

_OTHERWISE = "Read other columns, by `inputs` and `targets`, or write the file without the record."


@dataclass(frozen=True)
class Expected:
    """What each record must hold, and must not.

    Attributes:
        stored: the dataset.
        features: those that are read.
        absent: keys that must have no values, with their usual kinds; None for all keys that none
            of the first records has.
        alike: keys with a value for each box.
        in_frame: whole numbers may stand for others, where float32 holds them exactly.
    """

    stored: StoredDataset
    features: Sequence[Feature]
    absent: Mapping[str, str] | None
    alike: tuple[str, ...] = ()
    in_frame: bool = False

    def values(
        self,
        data: bytes,
        path: str,
        number: int,
    ) -> dict[str, Values]:
        """The values of a record by key.

        Args:
            data: the record.
            path: of its file.
            number: in the file, from 0.

        Raises:
            DatasetError: it is no tf.train.Example, or does not hold what is expected.
        """
        place = f"{path}: record {number:,}"
        try:
            values = parse_example(data)
        except ValueError as error:
            raise DatasetError(f"{place} is {error}. Only files of these are read.") from error
        for fault, forms in self._faults(values):
            told = self.stored.looked or f"its {layout.FEATURES}"
            remedy = _OTHERWISE
            if forms and self.stored.looked:
                remedy = f"To read it, give {spelled('features', forms)}."
            raise DatasetError(f"{place} is not as {told}: {fault}. {remedy}")
        return values

    def refuse_first(self, split: str) -> None:
        """Raise the error of the first record of a split that has one."""
        for shard in self.stored.splits[split]:
            for number, data in enumerate(records_in(shard)):
                self.values(data, shard.path, number)

    def refuse(
        self,
        data: bytes,
        split: str,
        number: int,
    ) -> None:
        """Raise the error of a record, by its number in the split, if it has one."""
        for shard in self.stored.splits[split]:
            if number < (shard.records or 0):
                self.values(data, shard.path, number)
                return
            number -= shard.records or 0

    def is_expected(self, keys: Collection[str]) -> bool:
        """Whether a record with these keys may pass without a closer look."""
        if self.absent is None:
            return self.stored.seen.issuperset(keys)
        return self.absent.keys().isdisjoint(keys)

    def _faults(self, values: Mapping[str, Values]) -> Iterator[tuple[str, dict[str, str]]]:
        """What is wrong with a record, and which forms of its keys are right, if any are."""
        more = {}
        for key, found in values.items():
            if len(found) and not self.is_expected([key]):
                is_label = key in OF_LABELS and len(found) == 1
                more[key] = kind_of(found) + ("?" if is_label else "[]")
        if more:
            yield f"it holds {', '.join(map(repr, more))}, and they do not", more
        for feature in self.features:
            key = feature.key
            found = values.get(key, [])
            kind = KINDS_STORED.get(feature.kind, "bytes")
            stored = kind_of(found) if len(found) else kind
            count = math.prod(side or 1 for side in feature.shape)
            fits = len(found) == count or (not len(found) and feature.default is not None)
            if None in feature.shape:
                fits = len(found) % count == 0
            if stored != kind and not (self.in_frame and _is_exact(found, kind)):
                forms = {key: "float"} if self.in_frame and stored == "float" else {}
                yield f"it holds {stored} under {key!r}, not {kind}", forms
            elif not fits:
                form = feature.kind.replace("label", "int64") + ("[]" if len(found) else "?")
                forms = {} if feature.kind in ("image", "mask") else {key: form}
                yield f"it holds {len(found):,} values of {key!r}, not {count}", forms
        if fault := unequal([values], self.alike):
            yield f"{self.alike[0]} {fault}", {}


def expected_of(stored: StoredDataset, spec: ElementSpec | None = None) -> Expected | None:
    """What a record must hold for its element to be whole, or, without `spec`, its row of a frame.

    None if this package wrote it.
    """
    if stored.form == "tfrecorder" and not stored.looked:
        return None
    features = stored.record
    boxes = next(iter(of_kind(stored.fields, Boxes)), None)
    absent: dict[str, str] | None = None if stored.looked else {}
    if spec is not None:
        features = spec.parsed
        boxes = spec.boxes if spec.has_boxes else None
        options = spec.options
        has_all = options.is_whole or (options.inputs is None and not of_kind(spec.inputs, Image))
        if not has_all:
            usual = OF_IMAGES if class_field(stored.fields) else OF_IMAGES | OF_LABELS
            watched = usual if stored.looked and options.targets is None else {}
            absent = {key: kind for key, kind in watched.items() if key not in stored.seen}
    alike: tuple[str, ...] = ()
    if boxes is not None and boxes.box_key is None:
        alike = (*boxes.edges, *filter(None, [boxes.label_key, boxes.masks_key]))
    return Expected(stored, features, absent, alike, in_frame=spec is None)


def _is_exact(numbers: Values, kind: str) -> bool:
    """Whether these can be numbers of this kind without a change."""
    is_whole = kind == "float" and isinstance(numbers, np.ndarray)
    return is_whole and bool(np.all(np.abs(numbers) <= _EXACT))
