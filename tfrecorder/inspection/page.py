"""The page: one HTML file that needs no network, no script and no other file."""

from __future__ import annotations

import os

from tfrecorder.display.tables import counted
from tfrecorder.format import layout
from tfrecorder.inspection.findings import find
from tfrecorder.inspection.gather import NEAR_CONSTANT, SHOWN_GROUPS, Gathered
from tfrecorder.inspection.rendering import render
from tfrecorder.inspection.sections import class_table, image_plots, section_titles, shown_by_split
from tfrecorder.version import __version__

#: The first line of every page; a file that does not start with it is not ours, and is not
#: replaced.
MARK = "<!doctype html><!-- tfrecorder preview -->\n"

#: How many images that cannot be shown are listed with their reasons.
_SHOWN_FAULTS = 20

#: Pictures of a split that are visible without a click.
_AT_ONCE = 8


def render_page(gathered: Gathered) -> str:
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
        findings=find(gathered),
        sections=sections,
        classes=class_table(gathered) if "labels" in sections else None,
        plotted=list(usable),
        plots=image_plots(usable) if usable else [],
        unshown=[view for view in gathered.all_seen if not view.width],
        at_once=_AT_ONCE,
        shown_faults=_SHOWN_FAULTS,
        shown_groups=SHOWN_GROUPS,
        near_constant=NEAR_CONSTANT,
        rejects_file=layout.REJECTS,
        suspects_file=layout.SUSPECTS,
    )
    return f"{MARK}{body}\n"


def _name(directory: str) -> str:
    return os.path.basename(os.path.normpath(directory)) or directory


def looked_at(gathered: Gathered) -> str:
    """A sentence that says how many records the page is made from."""
    seen, records = len(gathered.all_seen), gathered.info.records or 0
    if seen == records:
        return f"Pictures, sizes and brightness cover all {counted(records, 'record')}."
    each = ", ".join(
        f"{len(of_split):,} of {gathered.info.splits[split].records or 0:,} in {split}"
        for split, of_split in gathered.seen.items()
    )
    return (
        f"Sampled: pictures, sizes and brightness cover {counted(seen, 'record')}, drawn at "
        f"random from {records:,} (seed {gathered.seed}): {each}."
    )
