"""The sections of a page: each a key, a title and a body; None where there is nothing to show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tfrecorder.dataset import layout
from tfrecorder.inspection import plots
from tfrecorder.inspection.figures import group, sheet
from tfrecorder.inspection.gather import NEAR_CONSTANT, SHOWN_GROUPS, Gathered, Seen
from tfrecorder.inspection.markup import Html, data_text, element, join, readable_bytes
from tfrecorder.inspection.plots import of_split

Section = tuple[str, str, Html]

#: Classes shown at once, and those that a click shows.
SHOWN_CLASSES = 30
MORE_CLASSES = 2000


def splits_section(gathered: Gathered) -> Section:
    """Records, shards and bytes of each split."""
    info = gathered.info
    total = info.records or 1
    rows = []
    for name, split in info.splits.items():
        records = split.records or 0
        key = element("span", class_=f"key {of_split(name)}")
        cells = [
            f"{records:,}",
            f"{records / total:.1%}",
            f"{split.shards:,}",
            readable_bytes(split.bytes),
        ]
        rows.append([join(key, name), *cells])
    head = ["split", "records", "share", "shards", "bytes"]
    return "splits", "Splits", table(head, rows, numbers=4)


def records_section(gathered: Gathered) -> Section:
    """A contact sheet of each split."""
    parts: list[Html] = []
    for split, shown in gathered.sheet.items():
        records = gathered.info.splits[split].records or 0
        words = f"{len(shown):,} of {records:,}" if len(shown) < records else f"all {records:,}"
        parts.append(element("h3", f"{split} ", element("span", words, class_="quiet")))
        parts.append(sheet(shown) if shown else element("p", "No records.", class_="quiet"))
    note = "Drawn at random. Sizes are width × height, as stored; rows are those of the source."
    return "records", "Records", join(element("p", note, class_="note"), *parts)


def labels_section(gathered: Gathered) -> Section | None:
    """Records by class and split."""
    counts = gathered.class_counts
    totals: dict[str, int] = {}
    if gathered.counted:
        totals = dict.fromkeys(gathered.info.class_names or (), 0)
    for in_split in counts.values():
        for name, count in in_split.items():
            totals[name] = totals.get(name, 0) + count
    if not totals:
        return None
    names = list(totals)
    if len(names) > SHOWN_CLASSES:
        names.sort(key=lambda name: -totals[name])
    of = "all records" if gathered.counted else "the records looked at"
    words = f"Counts are of {of}; bars show the share of a class in its split."
    if len(names) <= SHOWN_CLASSES:
        return "labels", "Labels", join(_note(words), _classes(names, counts))
    words += f" The {SHOWN_CLASSES} most frequent of {len(names):,} classes come first."
    rest = names[SHOWN_CLASSES : SHOWN_CLASSES + MORE_CLASSES]
    left_out = len(names) - SHOWN_CLASSES - len(rest)
    more = element(
        "details",
        element("summary", f"The next {len(rest):,} classes"),
        _classes(rest, counts),
        element("p", f"and {left_out:,} more", class_="quiet") if left_out else None,
    )
    return "labels", "Labels", join(_note(words), _classes(names[:SHOWN_CLASSES], counts), more)


def _classes(names: Sequence[str], counts: Mapping[str, Mapping[str, int]]) -> Html:
    totals = {split: sum(in_split.values()) for split, in_split in counts.items()}
    most = max(
        count / totals[split] for split, in_split in counts.items() for count in in_split.values()
    )
    rows = []
    for name in names:
        cells = [
            element("td", *_counted(split, counts[split].get(name, 0), totals[split], most))
            for split in counts
        ]
        rows.append(element("tr", element("th", data_text(name, 80), scope="row"), *cells))
    head = [element("th", word, scope="col") for word in ("class", *counts)]
    body = element("tbody", *rows)
    whole = element("table", element("thead", element("tr", *head)), body, class_="classes wide")
    return element("div", whole, class_="scroll")


def _counted(split: str, count: int, total: int, most: float) -> tuple[Html, ...]:
    share = count / total if total else 0
    width = f"width:{100 * share / most:.1f}%"
    if not count:
        return (element("span", "0", class_="quiet"),)
    words = element("span", f"{count:,} ", element("span", f"{share:.1%}", class_="note"))
    return words, element("span", class_=f"bar {of_split(split)}", style=width)


def images_section(gathered: Gathered) -> Section:
    """Sizes, aspect and brightness of the images looked at, and those that stand out."""
    usable = gathered.usable
    unshown = [seen for seen in gathered.all_seen if not seen.width]
    parts = [_note(f"Of the {len(gathered.all_seen):,} images looked at. " + _formats(gathered))]
    if usable:
        by_split: dict[str, list[Seen]] = {}
        for seen in usable:
            by_split.setdefault(seen.split, []).append(seen)
        parts += [plots.legend(list(by_split)), _plots(by_split)]
        for title, shown in (("Darkest", gathered.darkest), ("Brightest", gathered.brightest)):
            parts += [element("h3", title), sheet(shown, small=True)]
    if gathered.constants:
        words = f"{gathered.constants:,}, grey levels varying by less than {NEAR_CONSTANT:g} of 255"
        title = element("h3", "Near-constant ", element("span", words, class_="quiet"))
        parts += [title, sheet(gathered.constant, small=True)]
    if unshown:
        rows: list[list[str]] = [
            [one.split, f"{one.number:,}", data_text(one.fault)] for one in unshown[:20]
        ]
        title = element("h3", f"Not shown: {len(unshown):,}")
        parts += [title, table(["split", "record", "reason"], rows)]
    return "images", "Images", join(*parts)


def _formats(gathered: Gathered) -> str:
    formats = gathered.info.formats
    shown = ", ".join(f"{count:,} {name}" for name, count in formats.items())
    return f"Formats of all: {shown}." if shown else ""


def _plots(by_split: Mapping[str, Sequence[Seen]]) -> Html:
    def series(value: str) -> plots.Series:
        return {split: [getattr(one, value) for one in some] for split, some in by_split.items()}

    sizes = {split: [(one.width, one.height) for one in some] for split, some in by_split.items()}
    aspects = {split: [w / h for w, h in some] for split, some in sizes.items()}
    kilobytes = {split: [size / 1000 for size in some] for split, some in series("bytes").items()}
    drawn = [
        plots.scatter(sizes, "Size: height by width, in pixels"),
        plots.histogram(aspects, "{:.3g}".format, "Aspect: width ÷ height"),
        plots.histogram(kilobytes, "{:,.4g}".format, "File size in kB"),
        plots.histogram(
            series("brightness"), "{:.0f}".format, "Brightness: mean grey level", (0, 255)
        ),
        plots.histogram(
            series("contrast"), "{:.0f}".format, "Contrast: deviation of grey levels", (0, 128)
        ),
    ]
    return element("div", *drawn, class_="plots")


def duplicates_section(gathered: Gathered) -> Section:
    """Images with several records: across splits, and within one."""
    duplicates = gathered.duplicates
    compared = sum(duplicates.compared.values())
    if duplicates.complete:
        words = f"All {compared:,} records were compared"
    else:
        each = ", ".join(
            f"{count:,} of {gathered.info.splits[split].records or 0:,} in {split}"
            for split, count in duplicates.compared.items()
        )
        words = (
            f"Sampled: within the time given, {compared:,} of {duplicates.records:,} records were "
            f"compared ({each})"
        )
    parts = [_note(f"{words}, by a hash of the image's bytes: a resized copy is another image.")]
    kinds = (
        ("In more than one split", duplicates.leaks),
        ("More than once in one split", duplicates.repeats),
    )
    for title, found in kinds:
        if not found:
            continue
        shown = found[:SHOWN_GROUPS]
        count = f"{len(found):,} {'image' if len(found) == 1 else 'images'}"
        if len(shown) < len(found):
            count += f", {len(shown):,} shown"
        parts.append(element("h3", f"{title} ", element("span", count, class_="quiet")))
        groups = [
            group(one, gathered.pictures[one.copies[0].split, one.copies[0].number])
            for one in shown
        ]
        parts.append(element("div", *groups, class_="groups"))
    if not duplicates.groups:
        parts.append(element("p", "No image is there twice."))
    return "duplicates", "Duplicates and leakage", join(*parts)


def rejects_section(gathered: Gathered) -> Section | None:
    """Rows without a record, and records with a decoder's warning."""
    if gathered.rejects is None or gathered.suspects is None:
        return None
    info = gathered.info
    if not info.rejects and not info.suspects:
        return "rejects", "Rejects", element("p", "Every row of the source is a record.")
    parts = []
    if info.rejects:
        reasons = [[data_text(why), f"{count:,}"] for why, count in info.rejects.items()]
        parts += [element("h3", "By reason"), table(["stage/reason", "rows"], reasons, numbers=1)]
        parts.append(_rows(gathered.rejects, sum(info.rejects.values()), layout.REJECTS))
    if info.suspects:
        parts.append(_rows(gathered.suspects, info.suspects, layout.SUSPECTS))
    return "rejects", "Rejects", join(*parts)


def _rows(rows: Sequence[Sequence[str]], total: int, file: str) -> Html:
    count = f"{len(rows):,} of {total:,}" if len(rows) < total else f"{total:,}"
    words = "Rows without a record" if file == layout.REJECTS else "Decoded with a warning"
    head = ["row", "image", *(["stage"] if file == layout.REJECTS else []), "reason"]
    title = element("h3", f"{words} ", element("span", f"{count}, see {file}", class_="quiet"))
    cells: list[list[str]] = [[data_text(cell) for cell in row] for row in rows]
    return join(title, table(head, cells))


def options_section(gathered: Gathered) -> Section | None:
    """How the dataset was converted."""
    options = gathered.info.options
    if not options:
        return None
    rows: list[list[str]] = [
        [name, data_text(str(value))] for name, value in options.items() if value is not None
    ]
    return "options", "Options of the conversion", table(["option", "value"], rows)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], numbers: int = 0) -> Html:
    """A table of text; the last columns, as many as `numbers`, are numbers."""
    kinds = ["text"] * (len(head) - numbers) + ["number"] * numbers
    columns = list(zip(head, kinds, strict=True))
    header = [element("th", word, scope="col", class_=kind) for word, kind in columns]
    body = [
        element(
            "tr",
            *(element("td", cell, class_=kind) for cell, kind in zip(row, kinds, strict=True)),
        )
        for row in rows
    ]
    whole = element("table", element("thead", element("tr", *header)), element("tbody", *body))
    return element("div", whole, class_="scroll")


def _note(words: str) -> Html:
    return element("p", words, class_="note")
