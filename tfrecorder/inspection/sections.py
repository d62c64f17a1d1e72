"""What has to be worked out before a page's sections can show it: class counts, and plots."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tfrecorder.inspection import plots
from tfrecorder.inspection.gather import Gathered
from tfrecorder.inspection.record_values import RecordView

#: Beyond the first number the most frequent classes come first; beyond the second, the rest are
#: left out.
MANY_CLASSES = 30
SHOWN_CLASSES = 2000


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


def class_table(gathered: Gathered) -> dict[str, Any]:
    """Records by class and split: what the section shows beyond the counts.

    `names` are the classes that are shown; if there are many, `by_total` is true and the most
    frequent come first.  `records` are those of each split, `most` is the largest share of a class
    in a split, 0 to 1.
    """
    totals = gathered.class_totals
    by_total = len(totals) > MANY_CLASSES
    names = sorted(totals, key=lambda name: -totals[name]) if by_total else list(totals)
    counts = gathered.class_counts
    records = {split: sum(in_split.values()) for split, in_split in counts.items()}
    shares = [count / records[of] for of in counts for count in counts[of].values() if count]
    most = max(shares, default=1)
    shown = names[:SHOWN_CLASSES]
    return {
        "names": shown,
        "by_total": by_total,
        "records": records,
        "totals": totals,
        "most": most,
    }


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

    shorter = series(lambda view: min(view.width, view.height))
    longer = series(lambda view: max(view.width, view.height))
    aspects = series(lambda view: view.width / view.height)
    kilobytes = series(lambda view: view.size / 1000)
    brightness = series(lambda view: view.brightness)
    contrast = series(lambda view: view.contrast)
    whole = "{:.0f}".format
    return [
        plots.histogram(shorter, "{:,.0f}".format, "Shorter side in pixels"),
        plots.histogram(longer, "{:,.0f}".format, "Longer side in pixels"),
        plots.histogram(aspects, "{:.3g}".format, "Aspect: width ÷ height"),
        plots.histogram(kilobytes, "{:,.4g}".format, "File size in kB"),
        plots.histogram(brightness, whole, "Brightness: mean grey level", (0, 255)),
        plots.histogram(contrast, whole, "Contrast: deviation of grey levels", (0, 128)),
    ]
