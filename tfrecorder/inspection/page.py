"""The page: one HTML file that needs no network, no script and no other file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tfrecorder.display.tables import counted
from tfrecorder.format import layout
from tfrecorder.inspection.findings import Remark
from tfrecorder.inspection.gather import SHOWN_GROUPS, Gathered
from tfrecorder.inspection.plots import Format, Plot, histogram
from tfrecorder.inspection.record_values import RecordView
from tfrecorder.inspection.rendering import render
from tfrecorder.version import __version__

#: The first line of every page; a file that does not start with it is not ours, and is not
#: replaced.
MARK = "<!doctype html><!-- tfrecorder preview -->\n"

#: How many images that cannot be shown are listed with their reasons.
_SHOWN_FAULTS = 20

#: Pictures of a split that are visible without a click.
_AT_ONCE = 8


#: Beyond the first number the most frequent classes come first; beyond the second, the rest are
#: left out.
MANY_CLASSES = 30
SHOWN_CLASSES = 2000

#: The title of each plot, its value, how one is written at its axis, and the axis's range.
_PLOTS: Sequence[tuple[str, Callable[[RecordView], float], Format, tuple[float, float] | None]] = (
    ("Shorter side in pixels", lambda view: min(view.width, view.height), "{:,.0f}".format, None),
    ("Longer side in pixels", lambda view: max(view.width, view.height), "{:,.0f}".format, None),
    ("Aspect: width ÷ height", lambda view: view.width / view.height, "{:.3g}".format, None),
    ("File size in kB", lambda view: view.size / 1000, "{:,.4g}".format, None),
    ("Brightness: mean grey level", lambda view: view.brightness, "{:.0f}".format, (0, 255)),
    ("Contrast: deviation of grey levels", lambda view: view.contrast, "{:.0f}".format, (0, 128)),
)


def render_page(gathered: Gathered, findings: Sequence[Remark]) -> str:
    """The whole page; `templates/page.html.jinja` lays it out."""
    sections = section_titles(gathered)
    usable = shown_by_split(gathered)
    body = render(
        "page.html.jinja",
        version=__version__,
        name=_name(gathered.info.directory),
        gathered=gathered,
        info=gathered.info,
        sampling=looked_at(gathered),
        findings=findings,
        sections=sections,
        classes=class_table(gathered) if "labels" in sections else None,
        plotted=list(usable),
        plots=image_plots(usable) if usable else [],
        unshown=gathered.unshown,
        at_once=_AT_ONCE,
        shown_faults=_SHOWN_FAULTS,
        shown_groups=SHOWN_GROUPS,
        rejects_file=layout.REJECTS,
        suspects_file=layout.SUSPECTS,
    )
    return f"{MARK}{body}\n"


def section_titles(gathered: Gathered) -> dict[str, str]:
    """The sections that have something to show, in the order of the page; each has a template."""
    own = gathered.rejects is not None and gathered.suspects is not None
    titles = {
        "splits": "Splits",
        "labels": "Labels" if gathered.class_totals else None,
        "records": "Records",
        "images": "Images" if gathered.usable or gathered.unshown else None,
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


def image_plots(seen: Mapping[str, Sequence[RecordView]]) -> list[Plot]:
    """Sizes, aspect ratio and grey levels of each split's images."""
    return [
        histogram(
            {split: list(map(value, views)) for split, views in seen.items()}, form, title, span
        )
        for title, value, form, span in _PLOTS
    ]


def _name(directory: str) -> str:
    return os.path.basename(os.path.normpath(directory)) or directory


def looked_at(gathered: Gathered) -> str:
    """A sentence that says how many records the page is made from."""
    seen = len(gathered.all_seen)
    records = gathered.info.records or 0
    if seen == records:
        return f"Pictures and plots cover all {counted(records, 'record')}."
    each = ", ".join(
        f"{len(of_split):,} of {gathered.info.splits[split].records or 0:,} in {split}"
        for split, of_split in gathered.seen.items()
    )
    return (
        f"Sampled: pictures and plots cover {counted(seen, 'record')}, drawn at random "
        f"from {records:,} (seed {gathered.seed}): {each}."
    )
