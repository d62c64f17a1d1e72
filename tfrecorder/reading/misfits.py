"""Sound records of other tools that are not as the first ones, or the metadata, made us expect.

What they hold beyond it would be left out without a word, or cut to what was expected.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tfrecorder.errors import DatasetError
from tfrecorder.format import layout
from tfrecorder.format.example import Values, parse_example
from tfrecorder.reading.dataset import StoredDataset
from tfrecorder.reading.dataset_files import records_in
from tfrecorder.reading.element_spec import ElementSpec
from tfrecorder.reading.first_records import kind_of, unequal
from tfrecorder.reading.foreign_keys import OF_IMAGES, OF_LABELS
from tfrecorder.schema.fields import Field, class_field, of_kind
from tfrecorder.schema.keys import Feature
from tfrecorder.schema.kinds import Boxes, Image

#: Up to this number, float32 holds every whole one.
_EXACT = 2**24

#: What a record has for numbers of the kinds of features; all others are bytes.
KINDS_STORED = {"int64": "int64", "label": "int64", "bool": "int64", "float": "float"}

_OTHERS = "Read other columns, by `inputs` and `targets`."
_WITHOUT = "Write the files again without this record."


@dataclass(frozen=True)
class Expected:
    """What each record must hold, and must not.

    Attributes:
        stored: the dataset.
        features: those that are read.
        absent: keys that must have no values, with their usual kinds; None for all keys that none
            of the first records has.
        alike: keys with a value for each box.
        takes_whole: whole numbers may stand for others, where float32 holds them exactly.
    """

    stored: StoredDataset
    features: Sequence[Feature]
    absent: Mapping[str, str] | None
    alike: tuple[str, ...] = ()
    takes_whole: bool = False

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
        if fault := next(self._faults(values), None):
            told = self.stored.looked or f"its {layout.FEATURES}"
            raise DatasetError(f"{place} is not as {told}: {fault}")
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

    def _faults(self, values: Mapping[str, Values]) -> Iterator[str]:
        """What is wrong with a record, with the remedy, in words."""
        for key, found in values.items():
            if len(found) and not self.is_expected([key]):
                may_repeat = "?" if key in OF_LABELS and len(found) == 1 else "[]"
                yield f"it holds {key!r}, and they do not. {_say(key, kind_of(found), may_repeat)}"
        for feature in self.features:
            key = feature.key
            found = values.get(key, [])
            kind = KINDS_STORED.get(feature.kind, "bytes")
            stored = kind_of(found) if len(found) else kind
            takes = self.takes_whole and kind == "float" and _is_exact(found)
            if stored != kind and not takes:
                remedy = _OTHERS if "bytes" in (stored, kind) else self._leave(key)
                yield f"it holds {stored} under {key!r}, not {kind}. {remedy}"
            count = math.prod(side or 1 for side in feature.shape)
            fits = len(found) == count or (not len(found) and feature.default is not None)
            if None in feature.shape:
                fits = len(found) % count == 0
            if not fits:
                remedy = _say(key, feature.kind, "[]" if len(found) else "?")
                if feature.kind in ("image", "mask") or not self.stored.looked:
                    remedy = _WITHOUT
                yield f"it holds {len(found):,} values of {key!r}, not {count}. {remedy}"
        if fault := unequal([values], self.alike):
            yield f"{self.alike[0]} {fault}. {_WITHOUT}"

    def _leave(self, key: str) -> str:
        """The remedy where some numbers of a key are whole, and others are not."""
        both = f"features={{{key!r}: 'float'}}"
        if self.takes_whole:
            return f"Give `{both}`."
        return f"{_OTHERS} `to_frame(…, {both})` takes both."


def expected_of(stored: StoredDataset, spec: ElementSpec) -> Expected | None:
    """What a record must hold for its element to be whole; None if this package wrote it."""
    if stored.form == "tfrecorder" and not stored.looked:
        return None
    options = spec.options
    absent: Mapping[str, str] | None = {}
    has_image = bool(of_kind(spec.inputs, Image))
    if stored.looked and (options.is_whole or (options.inputs is None and not has_image)):
        absent = None
    elif stored.looked and options.targets is None:
        usual = OF_IMAGES if class_field(stored.fields) else OF_IMAGES | OF_LABELS
        absent = {key: kind for key, kind in usual.items() if key not in stored.seen}
    boxes = spec.boxes if spec.has_boxes else None
    return Expected(stored, spec.parsed, absent, _alike(boxes))


def expected_in_frame(stored: StoredDataset) -> Expected | None:
    """What a record must hold for its row to be whole; None if this package wrote it."""
    if stored.form == "tfrecorder" and not stored.looked:
        return None
    boxes = next(iter(of_kind(stored.fields, Boxes)), None)
    return Expected(
        stored,
        stored.record,
        absent=None if stored.looked else {},
        alike=_alike(boxes),
        takes_whole=True,
    )


def _alike(boxes: Field | None) -> tuple[str, ...]:
    """The keys with a value for each box."""
    if boxes is None or boxes.box_key is not None:
        return ()
    return (*boxes.edges, *filter(None, [boxes.label_key, boxes.masks_key]))


def _is_exact(numbers: Values) -> bool:
    """Whether float32 holds all of these integers."""
    return isinstance(numbers, np.ndarray) and bool(np.all(np.abs(numbers) <= _EXACT))


def _say(
    key: str,
    kind: str,
    may_repeat: str,
) -> str:
    """The remedy that says what a key holds."""
    kind = KINDS_STORED.get(kind, kind)
    return f"To read it, give `features={{{key!r}: {kind + may_repeat!r}}}`."
