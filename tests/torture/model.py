"""What a dataset should hold after each operation: a plain dict, which is the model of its life."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

#: Images that tables name; the last one is no image, and gives a reject.
IMAGES = 14
BROKEN = IMAGES - 1


@dataclasses.dataclass(frozen=True)
class State:
    """What a dataset holds.

    Attributes:
        records: by the image's name, (label, split, bytes of the image).
        rejects: names of images that gave no record.
        gone: names of images that were removed, and stay out.
        classes: names in the order of their integers.
        numbered: the names of each split's records by number, as far as that is known; records that
            are not in it follow them.
        position: how far the stream was read.
        sizes: how many records of each split each generation had that `at=` names.
    """

    records: Mapping[str, tuple[str, str, bytes]] = dataclasses.field(default_factory=dict)
    rejects: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()
    classes: tuple[str, ...] = ()
    numbered: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    position: int = 0
    sizes: Mapping[int, Mapping[str, int]] = dataclasses.field(default_factory=dict)

    def added(
        self, table: pd.DataFrame, images: Mapping[str, bytes], readmit: bool = False
    ) -> State:
        """With the rows of a table that are not there yet, nor were removed."""
        known = self.records.keys() | self.rejects | (set() if readmit else self.gone)
        is_new = [name not in known for name in map(name_of, table["image_uri"])]
        new = table[np.array(is_new, bool)]
        records, rejects = dict(self.records), set(self.rejects)
        for row in new.itertuples():
            if (name := name_of(row.image_uri)).endswith(f"/{BROKEN}.png"):
                rejects.add(name)
            else:
                records[name] = (str(row.label), str(row.split), images[name])
        return dataclasses.replace(
            self,
            records=records,
            rejects=frozenset(rejects),
            gone=self.gone - records.keys() - rejects,
            classes=(*self.classes, *sorted({*new["label"]} - {*self.classes})),
        )

    def updated(self, table: pd.DataFrame, missing: str) -> State:
        """With the labels and splits of a table, and perhaps without what it has not."""
        rows = {name_of(row.image_uri): row for row in table.itertuples()}
        records = {
            name: (str(rows[name].label), str(rows[name].split), of[2]) if name in rows else of
            for name, of in self.records.items()
            if name in rows or missing == "keep"
        }
        rejects = {name for name in self.rejects if name in rows or missing == "keep"}
        labels = {rows[name].label for name in {*records, *rejects} & rows.keys()}
        classes = (*self.classes, *sorted(labels - {*self.classes}))
        after = dataclasses.replace(
            self, records=records, rejects=frozenset(rejects), classes=classes
        )
        moved = any(records[name][1] != self.records[name][1] for name in records)
        if moved or len(records) < len(self.records) or rejects != self.rejects:
            return dataclasses.replace(after, numbered={}, sizes={})
        return after

    def without(self, names: Collection[str]) -> State:
        """Without some records, which do not come back."""
        records = {name: of for name, of in self.records.items() if name not in names}
        gone = self.gone | {*names}
        return dataclasses.replace(self, records=records, gone=gone, numbered={}, sizes={})

    @property
    def split_sizes(self) -> dict[str, int]:
        return dict(Counter(split for _, split, _ in self.records.values()))


#: The kind of what can be taken back, and what the dataset was before it.
Earlier = list[tuple[str, State]]


def name_of(cell: Any) -> str:
    """The name of an image, by its uri or with its bytes."""
    return str(cell["path"] if isinstance(cell, dict) else cell)
