"""What has to be worked out before a page's sections can show it: class counts, and plots."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tfrecorder.inspection import plots
from tfrecorder.inspection.gather import Gathered
from tfrecorder.inspection.record_values import RecordView

#: Beyond the first number the most frequent classes come first; beyond the second, the rest are
#: left out.
MANY_CLASSES = 30
SHOWN_CLASSES = 2000


@dataclass(frozen=True)
class ClassCount:
    """Records of one class in one split.

    Attributes:
        split, count: which split, and how many records.
        share: its share of the split's records, 0 to 1.
        width: the length of its bar, 0 to 1; the largest share in all classes and splits gets 1.
    """

    split: str
    count: int
    share: float
    width: float


@dataclass(frozen=True)
class ClassRow:
    """One class.

    Attributes:
        name, total: the class, and its records in all splits.
        counts: its records by split.
    """

    name: str
    total: int
    counts: Sequence[ClassCount]


@dataclass(frozen=True)
class ClassTable:
    """Records by class and split.

    Attributes:
        splits: the columns.
        totals: the records of each split.
        rows: one for each class.
        by_total: whether the most frequent come first; otherwise they are in their own order.
        classes: how many classes there are; more than the rows if the rarest are left out.
    """

    splits: Sequence[str]
    totals: Sequence[int]
    rows: Sequence[ClassRow]
    by_total: bool
    classes: int


def section_titles(gathered: Gathered) -> dict[str, str]:
    """The sections that have something to show, in the order of the page; each has a template."""
    own = gathered.rejects is not None and gathered.suspects is not None
    titles = {
        "splits": "Splits",
        "labels": "Labels" if gathered.class_totals else None,
        "records": "Records",
        "images": "Images",
        "duplicates": "Duplicates and leakage",
        "rejects": "Rejects" if own else None,
        "options": "Options of the conversion" if gathered.info.options else None,
    }
    return {key: title for key, title in titles.items() if title}


def class_table(gathered: Gathered) -> ClassTable:
    """The classes; if there are many, the most frequent first."""
    totals = gathered.class_totals
    by_total = len(totals) > MANY_CLASSES
    names = sorted(totals, key=lambda name: -totals[name]) if by_total else list(totals)
    counts = gathered.class_counts
    records = {split: sum(in_split.values()) for split, in_split in counts.items()}
    most = max(
        (count / records[of] for of in counts for count in counts[of].values() if count), default=1
    )

    def counted(name: str) -> list[ClassCount]:
        in_splits = [(split, in_split.get(name, 0)) for split, in_split in counts.items()]
        shares = [count / (records[split] or 1) for split, count in in_splits]
        return [
            ClassCount(split, count, share, share / most)
            for (split, count), share in zip(in_splits, shares, strict=True)
        ]

    return ClassTable(
        splits=list(counts),
        totals=list(records.values()),
        rows=[ClassRow(name, totals[name], counted(name)) for name in names[:SHOWN_CLASSES]],
        by_total=by_total,
        classes=len(names),
    )


def shown_by_split(gathered: Gathered) -> dict[str, list[RecordView]]:
    """The decoded records whose image can be shown, for each split that has any."""
    usable: dict[str, list[RecordView]] = {}
    for view in gathered.usable:
        usable.setdefault(view.split, []).append(view)
    return usable


def image_plots(seen: Mapping[str, Sequence[RecordView]]) -> list[plots.Plot]:
    """Sizes, aspect ratio and grey levels of each split's images."""

    def series(value: Callable[[RecordView], float]) -> plots.Series:
        return {split: [value(view) for view in views] for split, views in seen.items()}

    sizes = {split: [(view.width, view.height) for view in views] for split, views in seen.items()}
    shorter = series(lambda view: min(view.width, view.height))
    aspects = series(lambda view: view.width / view.height)
    kilobytes = series(lambda view: view.size / 1000)
    brightness = series(lambda view: view.brightness)
    contrast = series(lambda view: view.contrast)
    whole = "{:.0f}".format
    return [
        plots.scatter(sizes, "Size: height by width, in pixels"),
        plots.histogram(shorter, "{:,.0f}".format, "Shorter side in pixels"),
        plots.histogram(aspects, "{:.3g}".format, "Aspect: width ÷ height"),
        plots.histogram(kilobytes, "{:,.4g}".format, "File size in kB"),
        plots.histogram(brightness, whole, "Brightness: mean grey level", (0, 255)),
        plots.histogram(contrast, whole, "Contrast: deviation of grey levels", (0, 128)),
    ]
