"""The page: one HTML file that needs no network, no script and no other file."""

from __future__ import annotations

import os

from tfrecorder.inspection.findings import Finding, find
from tfrecorder.inspection.gather import Gathered
from tfrecorder.inspection.markup import Html, data_text, element, join, readable_bytes
from tfrecorder.inspection.sections import (
    duplicates_section,
    images_section,
    labels_section,
    options_section,
    records_section,
    rejects_section,
    splits_section,
)
from tfrecorder.inspection.style import STYLE
from tfrecorder.version import __version__

#: The first line of every page: a file that begins otherwise is not ours to replace.
MARK = "<!doctype html><!-- tfrecorder preview -->\n"

#: Nothing is fetched and nothing runs, whatever a data set holds.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def render(gathered: Gathered) -> str:
    """The whole page."""
    name = _name(gathered.info.directory)
    sections = [
        records_section(gathered),
        splits_section(gathered),
        labels_section(gathered),
        images_section(gathered),
        duplicates_section(gathered),
        rejects_section(gathered),
        options_section(gathered),
    ]
    present = [(key, title, body) for key, title, body in filter(None, sections)]
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="generator", content=f"tfrecorder {__version__}"),
        element("link", rel="icon", href="data:,"),
        element("title", f"{name}: preview"),
        Html(f"<style>{STYLE}</style>"),
    )
    main = [
        element(
            "section",
            element("h2", title, id=f"{key}-title"),
            body,
            id=key,
            aria_labelledby=f"{key}-title",
        )
        for key, title, body in present
    ]
    body = element(
        "body",
        _header(gathered, name),
        _navigation([(key, title) for key, title, _ in present]),
        element("main", _findings(find(gathered)), *main),
        element("footer", _made(gathered)),
    )
    return f"{MARK}{element('html', head, body, lang='en')}\n"


def _name(directory: str) -> str:
    return os.path.basename(os.path.normpath(directory)) or directory


def _header(gathered: Gathered, name: str) -> Html:
    info = gathered.info
    facts = [
        ("records", f"{info.records or 0:,}"),
        ("shards", f"{sum(split.shards for split in info.splits.values()):,}"),
        ("bytes", readable_bytes(info.bytes)),
    ]
    if info.num_classes:
        facts.insert(1, ("classes", f"{info.num_classes:,}"))
    if info.form == "tfrecorder":
        facts.append(("rejected rows", f"{sum(info.rejects.values()):,}"))
    return element(
        "header",
        element("div", "tfrecorder preview", class_="over"),
        element("h1", data_text(name)),
        element("div", data_text(info.directory), class_="path quiet")
        if info.directory != name
        else None,
        element(
            "dl",
            *(element("div", element("dt", key), element("dd", value)) for key, value in facts),
            class_="facts",
        ),
        element("p", looked_at(gathered), class_="note"),
    )


def looked_at(gathered: Gathered) -> str:
    """How many records the page is made from, in a sentence."""
    seen, records = len(gathered.all_seen), gathered.info.records or 0
    if seen == records:
        return f"Pictures, sizes and brightness are of all {records:,} records."
    each = ", ".join(
        f"{len(of_split):,} of {gathered.info.splits[split].records or 0:,} in {split}"
        for split, of_split in gathered.seen.items()
    )
    return (
        f"Sampled: pictures, sizes and brightness are of {seen:,} records, drawn at random from "
        f"{records:,} (seed {gathered.seed}): {each}."
    )


def _navigation(sections: list[tuple[str, str]]) -> Html:
    links = [
        element("li", element("a", title, href=f"#{key}"))
        for key, title in [("findings", "Findings"), *sections]
    ]
    return element("nav", element("ul", *links), aria_label="Sections")


def _findings(findings: list[Finding]) -> Html:
    lines = []
    for one in findings:
        mark, spoken = ("!", "Warning: ") if one.warning else ("✓", "All well: ")
        lines.append(
            element(
                "li",
                element("span", mark, class_="mark", role="img", aria_label=spoken),
                element(
                    "span",
                    f"{one.words} ",
                    element("a", "Show", href=f"#{one.section}", aria_label=f"Show {one.section}")
                    if one.warning
                    else None,
                ),
                class_="warn" if one.warning else None,
            )
        )
    title = element("h2", "Findings", id="findings-title")
    return element(
        "section",
        title,
        element("ul", *lines, class_="findings"),
        id="findings",
        aria_labelledby="findings-title",
    )


def _made(gathered: Gathered) -> Html:
    return join(
        f"Made by tfrecorder {__version__}. The page holds all it shows: it loads nothing, runs "
        "no script, and may be passed on as one file.",
    )
