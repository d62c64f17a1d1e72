"""The pages of the documentation as tests see them: their code blocks, headings and links.

A fenced block of python or sh is run, unless the line before it says why not:

    <!-- not run: needs a Dask cluster -->

or which packages it needs, without which it is passed over; it runs in its own process:

    <!-- needs nvidia.dali -->

A block of text after it is compared with what it printed, if the line before the text says so; `…`
stands for anything; so is a comment behind a `print`, up to a colon:

    <!-- prints -->

What a reader has already, and the page need not show, stands in a comment that the tests run, as
Python, before the block that follows it:

    <!-- setup
    model = small_model()
    -->
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
#: Every page with code that a user may copy.
PAGES = {
    str(path.relative_to(ROOT)): path
    for path in (ROOT / "README.md", *sorted(DOCS.rglob("*.md")), ROOT / "samples/README.md")
}

_FENCE = re.compile(r"^(\s*)```(.*)$")
_NOT_RUN = re.compile(r"^\s*<!-- not run: (.+) -->$")
_NEEDS = re.compile(r"^\s*<!-- needs ([\w. ]+) -->$")
_SETUP = re.compile(r"^\s*<!-- setup$")
_PRINTS = "<!-- prints -->"


class _Loader(yaml.SafeLoader):
    """Reads mkdocs.yml, whose tags that name Python objects mean nothing here."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


def site() -> dict[str, Any]:
    """The configuration of the site."""
    return yaml.load((ROOT / "mkdocs.yml").read_text(), _Loader)


@dataclass(frozen=True)
class Block:
    """One code block of a page.

    Attributes:
        line: of its first line of code, from 1.
        language: as the fence names it; "setup" for the code of a comment.
        code: without the indentation of a list.
        not_run: why it is not run, or None.
        needs: the packages that it imports and that may not be installed.
        is_printed: it is what the block before it printed.
    """

    line: int
    language: str
    code: str
    not_run: str | None
    needs: tuple[str, ...] = ()
    is_printed: bool = False


def fits(shown: str, printed: str) -> bool:
    """Whether what a page shows was printed."""
    pattern = ".*".join(map(re.escape, shown.split("…")))
    return re.fullmatch(pattern, printed, re.DOTALL) is not None


def blocks(page: Path) -> Iterator[Block]:
    """The code blocks of a page, in order."""
    lines = page.read_text().splitlines()
    number = 0
    while number < len(lines):
        end, language = None, ""
        if fence := _FENCE.match(lines[number]):
            end, language = f"{fence[1]}```", fence[2].strip()
        elif _SETUP.match(lines[number]):
            end, language = "-->", "setup"
        if end is None:
            number += 1
            continue
        last = lines.index(end, number + 1)
        indent = len(end) - len(end.lstrip())
        code = "\n".join(line[indent:] for line in lines[number + 1 : last])
        above = lines[number - 1] if number else ""
        reason, needs = _NOT_RUN.match(above), _NEEDS.match(above)
        packages = tuple(needs[1].split()) if needs else ()
        printed = above.strip() == _PRINTS
        yield Block(number + 2, language, code, reason and reason[1], packages, printed)
        number = last + 1


def without_code(page: Path) -> str:
    """A page without its code blocks."""
    return re.sub(r"^\s*```.*?^\s*```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def prose(page: Path) -> str:
    """A page without its code blocks and comments."""
    return re.sub(r"<!--.*?-->", "", without_code(page), flags=re.DOTALL)


def links(page: Path) -> list[str]:
    """The targets of the links and pictures of a page."""
    text = re.sub(r"`[^`]*`", "", prose(page))
    return re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|href)="([^"]+)"', text)


def anchors(page: Path) -> set[str]:
    """What a link may name of a page: its headings, as Markdown makes anchors of them."""
    found = set()
    for heading in re.findall(r"^#+ (.+)$", prose(page), flags=re.MULTILINE):
        words = re.sub(r"[^\w\- ]", "", heading.lower()).strip()
        found.add(re.sub(r"[\s-]+", "-", words))
    return found
