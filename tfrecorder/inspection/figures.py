"""Pictures of records on a page: contact sheets, rows of examples, groups of duplicates."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from tfrecorder.inspection.duplicates import Copy, Group
from tfrecorder.inspection.facts import Box
from tfrecorder.inspection.gather import Shown
from tfrecorder.inspection.markup import Html, data_text, element, join
from tfrecorder.inspection.pictures import PALETTE

NO_LABEL = "no label"


def sheet(shown: Sequence[Shown], small: bool = False) -> Html:
    """Pictures in a grid, with what belongs to each."""
    figures = [_figure(one, small) for one in shown]
    return element("div", *figures, class_="sheet small" if small else "sheet")


def _figure(one: Shown, small: bool) -> Html:
    size = f"{one.width:,} × {one.height:,}" if one.width else ""
    row = f"row {one.row}" if one.row else f"record {one.number:,}"
    # A line may break between the two, but in neither.
    first = one.split if small else size
    place = [element("span", f"{first} ·", class_="whole"), " "] if first else []
    place.append(element("span", row, class_="whole"))
    named = one.filename and not small
    # Where the labels are those of the boxes, the colours of the boxes name them.
    told = bool(one.boxes) and {box.name for box in one.boxes} == set(one.labels)
    caption = element(
        "figcaption",
        None if told else element("span", _labels(one.labels)),
        _objects(one.boxes),
        element("span", *place, class_="quiet"),
        element("span", data_text(_last(one.filename)), class_="quiet file", title=one.filename)
        if named
        else None,
        element("span", data_text(one.fault), class_="fault") if one.fault else None,
    )
    return element("figure", element("div", picture(one), class_="frame"), caption)


def _last(uri: str) -> str:
    """A uri without its folders."""
    return uri.rstrip("/").rpartition("/")[2] or uri


def picture(one: Shown) -> Html:
    """The picture alone, with its boxes over it."""
    if not one.jpeg:
        return element("div", "cannot be shown", class_="missing")
    width, height = one.thumb
    data = base64.b64encode(one.jpeg).decode("ascii")
    image = element(
        "img",
        src=f"data:image/jpeg;base64,{data}",
        alt=description(one),
        width=width,
        height=height,
        decoding="async",
    )
    style = f"--ratio:{one.width / one.height:.4g}"
    return element("div", image, _drawn(one.boxes), class_="picture", style=style)


def description(one: Shown) -> str:
    """A picture in words, for those who do not see it."""
    names = [box.name or "object" for box in one.boxes]
    objects = f"; {len(names)} boxes: {', '.join(names)}" if names else ""
    mask = "; with its mask" if one.masked else ""
    return f"{one.split} record {one.number}: {', '.join(one.labels) or NO_LABEL}{objects}{mask}"


def _drawn(boxes: Sequence[Box]) -> Html | None:
    """Boxes over a picture, each with a dark edge so that it shows on any pixels."""
    if not boxes:
        return None
    colours = _colours(boxes)
    rectangles = [
        _rectangle(box, colour, width, opacity)
        for box in boxes
        for colour, width, opacity in (("#000", 3.5, 0.5), (colours[box.name], 2.0, 1.0))
    ]
    return element(
        "svg", *rectangles, viewBox="0 0 1 1", preserveAspectRatio="none", aria_hidden="true"
    )


def _rectangle(box: Box, colour: str, width: float, opacity: float) -> Html:
    return element(
        "rect",
        x=box.xmin,
        y=box.ymin,
        width=max(box.xmax - box.xmin, 0.0),
        height=max(box.ymax - box.ymin, 0.0),
        stroke=colour,
        stroke_width=width,
        stroke_opacity=opacity,
    )


def _colours(boxes: Sequence[Box]) -> dict[str, str]:
    """A colour for each class of objects of a picture."""
    names = sorted({box.name for box in boxes})
    return {
        name: "#{:02x}{:02x}{:02x}".format(*PALETTE[place % len(PALETTE)])
        for place, name in enumerate(names)
    }


def _objects(boxes: Sequence[Box]) -> Html | None:
    """Which colour is which class of objects."""
    keys = [
        element("span", element("i", style=f"background:{colour}"), data_text(name or "object"))
        for name, colour in _colours(boxes).items()
    ]
    return element("span", *keys, class_="objects") if keys else None


def _labels(labels: Sequence[str]) -> Html:
    if not labels:
        return element("span", NO_LABEL, class_="quiet")
    parts = [part for label in labels for part in (", ", data_text(label))]
    return join(*parts[1:])


def group(found: Group, shown: Shown) -> Html:
    """One image that is there more than once."""
    counts = ", ".join(f"{split} × {count:,}" for split, count in found.counts.items())
    labels = [element("strong", counts)]
    if len(found.labels) > 1:
        labels.append(element("span", " · different labels", class_="warned"))
    lines = [element("li", *_copy(copy)) for copy in found.copies]
    if found.records > len(found.copies):
        lines.append(element("li", f"and {found.records - len(found.copies):,} more"))
    words = element("div", *labels, element("ul", *lines))
    return element("div", element("div", picture(shown), class_="frame"), words, class_="group")


def _copy(copy: Copy) -> list[str]:
    row = f"row {copy.row}" if copy.row else f"record {copy.number:,}"
    parts = [f"{copy.split} {row}: ", _labels(copy.labels)]
    if copy.filename:
        parts += [" · ", data_text(copy.filename)]
    return parts
