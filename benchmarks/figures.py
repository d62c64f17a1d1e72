"""Writes what the benchmarks measured into the pages that have figures.

    figures.py [--results DIR] [--check]

A page says where a table goes:

    <!-- figures: reading/readers -->
    (the table; what was here before is replaced)
    <!-- end of figures -->

`reading/readers` is the table `readers` in results/reading.json, and `bars` and `machine` are made
of all the files.  All must be measured at one commit, without changes.  A
table whose benchmark was not run stays as it is.
`--check` writes nothing and says which pages differ.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
PAGES = tuple(HERE.parent / "docs" / page for page in ("performance.md", "design/results.md"))

MARKED = re.compile(r"(<!-- figures: (?P<name>[^>]+?) -->\n)(.*?)(<!-- end of figures -->)", re.S)

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


def _number(value: float) -> str:
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.2f}" if value >= 1 else f"{value:.3g}"


def filled(text: str, records: Records) -> str:
    """A page with its figures.

    Raises:
        SystemExit: the page names a table that was not measured.
    """
    of_all = {"bars": bars, "machine": machine}

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
