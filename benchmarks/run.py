"""Runs all benchmarks, one after the other, and says which bars are met.

    run.py [--data DIR] [--quick] [NAME ...]

The first run makes the data: about 5 minutes and 2 GB for the full sizes, and
room for 5 GB more that each benchmark removes again.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
from pathlib import Path

import harness

NAMES = (
    *("startup", "planning", "exactness", "writing", "memory", "growth", "appending"),
    *("reading", "raw", "by_number", "bucket", "where_time_goes", "cost"),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"of {', '.join(NAMES)}; all by default")
    parser.add_argument("--data", type=Path, default=harness.DATA)
    parser.add_argument("--quick", action="store_true", help="small sizes, few rounds")
    chosen = parser.parse_args()
    missed = []
    for name in chosen.names or NAMES:
        if importlib.util.find_spec(name) is None:
            raise SystemExit(f"there is no benchmark {name!r}; there are {', '.join(NAMES)}")
        print(f"\n== {name} ==\n")
        module = importlib.import_module(name)
        quick = ["--quick"] if chosen.quick else []
        if module.main(["--data", str(chosen.data), *quick]) is False:
            missed.append(name)
    print(f"\nbars missed in: {', '.join(missed)}" if missed else "\nall bars met")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
