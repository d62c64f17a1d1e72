"""Memory: the peak of the whole process tree must not grow with the number of images.

    memory.py [--data DIR] [--rounds N] [--quick]

The same conversion, `check="decode"`, at 5,000 and 50,000 photographs of 500x375.  The 50,000
are hard links to the 5,000 under names of their own: as many rows, reads, checks and records as of
distinct files, without 4 GB of disk.
"""

from __future__ import annotations

import data
import harness
import writing
from harness import Bar, Case

SIZES = (5000, 50_000)
QUICK_SIZES = (1000, 10_000)
GROWTH_BAR = 1.2


def main(arguments: list[str] | None = None) -> bool:
    parser = harness.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="a fifth of the images")
    chosen = parser.parse_args(arguments)
    small, large = QUICK_SIZES if chosen.quick else SIZES
    sources = {
        small: data.listed(data.photographs(chosen.data, small), small),
        large: data.linked(chosen.data, large, small),
    }
    harness.warm([uri for _, uri, _ in writing.read_rows(str(sources[small]))])
    cases = [
        Case(f"decode {size}", "writing:convert", {"source": str(path), "check": "decode"}, True)
        for size, path in sources.items()
    ]
    results = harness.run_rounds(cases, chosen.rounds, chosen.data)
    print(harness.table(results, ["images", "seconds", "cpu", "base_mb", "peak_mb", "bytes_out"]))
    few, many = (result.median("peak_mb") for result in results)
    name = f"peak memory of a conversion, {large:,} / {small:,} images"
    return harness.report("memory", results, bars=[Bar(name, many / few, GROWTH_BAR, False)])


if __name__ == "__main__":
    raise SystemExit(0 if main() else 1)
