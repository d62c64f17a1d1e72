"""The pictures of a page: numbered, so that links enlarge them, and filtered by radio buttons.

A style sheet does both.  What it selects by are numbers: a name of the data may hold anything.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tfrecorder.display.tables import counted
from tfrecorder.inspection.findings import Remark
from tfrecorder.inspection.gather import Gathered
from tfrecorder.inspection.masks import colour_of, is_void
from tfrecorder.inspection.record_values import Box, RecordView
from tfrecorder.inspection.sheets import Sighting

#: So many classes, the most frequent, can be chosen, and have their colour in the legend.
MOST_CHOICES = 30


@dataclass(frozen=True)
class Choice:
    """One thing to filter pictures by.

    Attributes:
        key: its class in the style sheet.
        words: what it is.
    """

    key: str
    words: str


@dataclass(frozen=True)
class Tile:
    """A picture on the page, of a record or of one of its objects.

    Attributes:
        number: of all pictures of the page.
        before, after: the numbers of those next to it; 0 for none.
        keys: what it is filtered by.
        view: the record.
        jpeg: the picture; empty if there is none.
        size: its width and height.
        ratio: of width and height.
        boxes: to draw over it.
        label: of the object; "" for a record.
        like: the class that it seems to be instead; "" for none.
    """

    number: int
    before: int
    after: int
    keys: str
    view: RecordView
    jpeg: bytes
    size: tuple[int, int]
    ratio: float
    boxes: Sequence[Box]
    label: str
    like: str

    @property
    def description(self) -> str:
        """It in words, for those who cannot see it."""
        names = [box.name or "object" for box in self.boxes]
        objects = f"; {counted(len(names), 'box')}: {', '.join(names)}" if names else ""
        mask = "; with its mask" if self.view.levels else ""
        labels = self.label or ", ".join(self.view.labels) or "no label"
        return f"{self.view.split} record {self.view.number}: {labels}{objects}{mask}"


class Tiles:
    """Numbers the pictures of a page.

    Attributes:
        choices: what to filter by, by title.
        is_partial: there are more classes than can be chosen.
        colours: those of the boxes, by class, the most frequent first.
        levels: the values of masks, each with its colour ("" for none, "void" for stripes) and its
            share of the pixels; None where that is not known.
    """

    def __init__(self, gathered: Gathered, findings: Sequence[Remark]) -> None:
        totals = gathered.class_totals
        classes = sorted((name for name in totals if totals[name]), key=lambda name: -totals[name])
        self.is_partial = len(classes) > MOST_CHOICES
        shown = sorted(classes[:MOST_CHOICES])
        self._classes = {name: f"c{number}" for number, name in enumerate(shown)}
        self._splits = {name: f"s{number}" for number, name in enumerate(gathered.info.splits)}
        kinds = dict.fromkeys(remark.kind for remark in findings if remark.places)
        self._kinds = {name: f"f{number}" for number, name in enumerate(kinds)}
        self._found: dict[tuple[str, int], set[str]] = {}
        for remark in findings:
            for place in remark.places:
                self._found.setdefault(place, set()).add(self._kinds[remark.kind])
        groups = {"Class": self._classes, "Split": self._splits, "Finding": self._kinds}
        self.choices: dict[str, list[Choice]] = {}
        for title, keys in groups.items():
            if len(keys) > (title != "Finding"):
                self.choices[title] = [Choice(key, name) for name, key in keys.items()]
        boxes = [box for view in gathered.all_seen for box in view.boxes]
        frequent = Counter((box.name or "object", box.colour) for box in boxes)
        self.colours = dict(pair for pair, _ in frequent.most_common(MOST_CHOICES))
        self.levels = [*_levels(gathered.levels)][:MOST_CHOICES]
        self._count = itertools.count(1)

    def of(self, shown: Sequence[RecordView | Sighting]) -> list[Tile]:
        """Some pictures that stand next to each other."""
        numbers = [next(self._count) for _ in shown]
        befores = [0, *numbers]
        afters = [*numbers[1:], 0]
        return list(map(self._tile, shown, numbers, befores, afters))

    def _tile(
        self,
        one: RecordView | Sighting,
        number: int,
        before: int,
        after: int,
    ) -> Tile:
        if isinstance(one, Sighting):
            view = one.view
            jpeg, *size = one.tile
            boxes: Sequence[Box] = ()
            label, like = one.label, one.like
            names: Sequence[str] = [label]
        else:
            view = one
            jpeg, *size = one.jpeg, *(one.thumb if one.jpeg else (1, 1))
            boxes = one.boxes
            label = like = ""
            names = one.labels
        width, height = size
        keys = [self._classes[name] for name in names if name in self._classes]
        keys += [self._splits[view.split], *sorted(self._found.get(view.place, ()))]
        ratio = view.width / view.height if view is one and view.height else width / height
        return Tile(
            number=number,
            before=before,
            after=after,
            keys=" ".join(keys),
            view=view,
            jpeg=jpeg,
            size=(width, height),
            ratio=ratio,
            boxes=boxes,
            label=label,
            like=like,
        )


def _levels(levels: Mapping[int, float | None]) -> Iterator[tuple[int, str, float | None]]:
    for value, share in levels.items():
        colour = "#{:02x}{:02x}{:02x}".format(*colour_of(value)) if value else ""
        yield value, "void" if is_void(value, levels) else colour, share
