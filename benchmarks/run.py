"""Runs all benchmarks, one after the other, and says which bars are met.

    run.py [--data DIR] [--rounds N] [--quick] [NAME ...]

The first run makes the data: about 10 minutes and 10 GB for the full sizes, and
room for 8 GB more that each benchmark removes again.  `figures.py` writes what was measured
into the pages, and `plots.py` draws it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent

#: Each with the options of its published figures.
COMMANDS = (
    *("startup", "planning", "planning --scale", "planning --classes", "exactness"),
    *("writing --rehearse", "memory", "growth", "appending", "correcting", "reading", "raw"),
    *("by_number", "gil", "step", "bucket", "where_time_goes", "cost"),
    *("peers_writing --rehearse", "peers_reading", "landscape", "choosing"),
)

#: These compare with packages that `make bench-peers` installs, and run only if they are named.
PEERS = ("peers_writing", "peers_reading", "landscape", "choosing")

#: These measure once: what they measure is steady, or takes too long.
WITHOUT_ROUNDS = ("exactness", "choosing", "planning --scale", "planning --classes")


def main() -> int:
    names = list(dict.fromkeys(command.split()[0] for command in COMMANDS))
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"of {', '.join(names)}; all but peers_* if none")
    parser.add_argument("--data", help="where images and outputs go")
    parser.add_argument("--rounds", help="of each benchmark that has rounds")
    parser.add_argument("--quick", action="store_true", help="small sizes, few rounds")
    chosen = parser.parse_args()
    if unknown := set(chosen.names).difference(names):
        parser.error(f"{', '.join(sorted(unknown))}: there are {', '.join(names)}")
    wanted = chosen.names or [name for name in names if name not in PEERS]
    shared = ["--quick"] if chosen.quick else []
    shared += ["--data", chosen.data] if chosen.data else []
    missed = []
    for command in COMMANDS:
        name, *options = command.split()
        if name not in wanted:
            continue
        print(f"\n== {command} ==\n", flush=True)
        if chosen.rounds and command not in WITHOUT_ROUNDS:
            options += ["--rounds", chosen.rounds]
        if subprocess.call([sys.executable, str(HERE / f"{name}.py"), *options, *shared]):
            missed.append(command)
    print(f"\nbars missed in: {', '.join(missed)}" if missed else "\nall bars met")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
