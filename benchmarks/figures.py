"""Writes what the benchmarks measured into README.md and the pages that have figures.

    figures.py [--results DIR] [--check]

A page says where a table goes:

    <!-- figures: reading/readers -->
    (the table; what was here before is replaced)
    <!-- end of figures -->

`reading/readers` is the table `readers` in results/reading.json, and `bars`, `machine` and
`summary` are made of all the files.  All must be measured at one commit, without changes.  A
table whose benchmark was not run stays as it is.
`--check` writes nothing and says which pages differ.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
PAGES = tuple(
    HERE.parent / page for page in ("README.md", "docs/performance.md", "docs/design/results.md")
)

MARKED = re.compile(r"(<!-- figures: (?P<name>[^>]+?) -->\n)(.*?)(<!-- end of figures -->)", re.S)

#: How many of a ranking the README names.
RANKED = 7

#: By the benchmark's name, what harness.report wrote.
Records = Mapping[str, dict[str, Any]]


def read(folder: Path) -> Records:
    """All results of a folder.

    Raises:
        SystemExit: they are of several commits, or of code that is in none.
    """
    paths = sorted(folder.glob("*.json"))
    records = {path.stem: json.loads(path.read_text()) for path in paths}
    commits = {name: record["commit"] for name, record in records.items()}
    if len(set(commits.values())) != 1 or any("+" in commit for commit in commits.values()):
        lines = "\n".join(f"  {name}: {commit}" for name, commit in commits.items())
        raise SystemExit(f"{folder}: not all of one commit; measure again:\n{lines}")
    return records


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """Rows as a table; what is ours is bold."""
    head, *body = rows
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join([_emphasised(line[0]), *line[1:]]) + " |" for line in lines)


def _emphasised(name: str) -> str:
    ours = " / " not in name and name.startswith(("tfrecorder", "load", "check="))
    return f"**{name}**" if ours else name


def bars(records: Records) -> str:
    """Every bar of every benchmark: asked, measured, met, command."""
    rows = [["what", "asked", "measured", "met", "command"]]
    for record in records.values():
        for bar in record["bars"]:
            sign = "≥" if bar["at_least"] else "≤"
            met = "yes" if bar["met"] else "**no**"
            rows.append([bar["name"], f"{sign} {_number(bar['bound'])}", _number(bar["value"])])
            rows[-1] += [met, f"`{record['command']}`"]
    return markdown(rows)


def machine(records: Records) -> str:
    """One sentence: where, when, of which commit and with which packages all was measured."""
    some = next(iter(records.values()))
    days = sorted({record["when"][:10] for record in records.values()})
    versions = some["versions"]
    packages = ("apache-beam", "tensorflow", "pillow", "simplejpeg", "numpy")
    named = ", ".join(f"{name} {versions[name]}" for name in packages if name in versions)
    return (
        f"Commit {some['commit']}, {' and '.join(days)}, {some['machine']['cores']} virtual cores "
        f"({some['machine']['cpu']}), Python {versions['python']}, {named}."
    )


def summary(records: Records) -> str:
    """The few figures that the README shows."""
    rows = [["", "", "measured by"]]
    for words, name, said in (
        ("convert, every image checked", "writing-rehearsed", _checked),
        ("convert, headers read: images/s", "peers_writing-rehearsed", _ranked("by the slope", 1)),
        (
            "read, decode and resize to 224×224 free of aliasing: images per CPU second",
            "peers_reading",
            _ranked("antialiased", 1),
        ),
        ("small pictures as raw pixels: images/s", "raw", _small),
        ("validate and plan 1,000,000 rows", "planning", _planned),
    ):
        if name in records:
            rows.append([words, said(records[name]), f"`{records[name]['command']}`"])
    return markdown(rows)


def _checked(record: dict[str, Any]) -> str:
    table = _by_name(record["tables"]["by the slope"])
    share = next(bar["value"] for bar in record["bars"] if "bare check" in bar["name"])
    rate = table['check="decode"'][0]
    return f"{rate} images/s, {share:.2f} of the rate of the check alone"


def _ranked(title: str, column: int) -> Callable[[dict[str, Any]], str]:
    """The first of a table, in its order, which is from the best to the worst."""

    def said(record: dict[str, Any]) -> str:
        rows = record["tables"][title][1 : RANKED + 1]
        return "; ".join(f"{_emphasised(row[0])} {row[column]}" for row in rows)

    return said


def _small(record: dict[str, Any]) -> str:
    rows = [row for row in record["tables"]["readers"][1:] if row[0].startswith(("128", "hdf5"))]
    rows.sort(key=lambda row: -float(row[1].replace(",", "")))
    return "; ".join(f"{row[0].removeprefix('128x128 ')} {row[1]}" for row in rows)


def _planned(record: dict[str, Any]) -> str:
    seconds, memory = (record["bars"][at]["value"] for at in (0, 1))
    return f"{seconds:.1f} s, {memory:,.0f} MB"


def _by_name(rows: Sequence[Sequence[str]]) -> dict[str, list[str]]:
    return {row[0]: list(row[1:]) for row in rows[1:]}


def _number(value: float) -> str:
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.2f}" if value >= 1 else f"{value:.3g}"


def filled(text: str, records: Records) -> str:
    """A page with its figures.

    Raises:
        SystemExit: the page names a table that was not measured.
    """
    of_all = {"bars": bars, "machine": machine, "summary": summary}

    def figures(found: re.Match[str]) -> str:
        name = found["name"]
        if name in of_all:
            made = of_all[name](records)
        else:
            benchmark, _, table = name.partition("/")
            if benchmark not in records:
                print(f"{name}: not measured, and left as it is")
                return found[0]
            record = records[benchmark]
            if table not in record["tables"]:
                raise SystemExit(f"{name}: {benchmark} has the tables {list(record['tables'])}")
            made = f"`{record['command']}`:\n\n{markdown(record['tables'][table])}"
        return f"{found[1]}{made}\n{found[4]}"

    return MARKED.sub(figures, text)


def main(arguments: Sequence[str] | None = None) -> bool:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if pages differ")
    chosen = parser.parse_args(arguments)
    records = read(chosen.results)
    same = True
    for page in PAGES:
        before = page.read_text()
        after = filled(before, records)
        same = same and after == before
        if after != before and not chosen.check:
            page.write_text(after)
        words = "as measured" if after == before else "differs" if chosen.check else "written"
        print(f"{page.name}: {words}")
    return same or not chosen.check


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
