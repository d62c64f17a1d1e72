"""Start-up: what `import tfrecorder` adds to `import pandas`, and `tfrecorder --help`.

    startup.py [--rounds N] [--quick]

Whole processes, from fork to exit, interleaved, medians; the first round, which fills the page
cache and writes the byte code, does not count.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import harness
from harness import Bar, Case, Numbers, Result

IMPORT_BAR = 0.2
HELP_BAR = 1.0


def commands() -> dict[str, list[str]]:
    """What to run, by name."""
    script = shutil.which("tfrecorder", path=os.path.dirname(sys.executable))
    command = [script] if script else [sys.executable, "-m", "tfrecorder"]
    return {
        "python": [sys.executable, "-c", "pass"],
        "import pandas": [sys.executable, "-c", "import pandas"],
        "import pandas, tfrecorder": [sys.executable, "-c", "import pandas, tfrecorder"],
        "tfrecorder --help": [*command, "--help"],
        "tfrecorder convert --help": [*command, "convert", "--help"],
    }


def run(command: Sequence[str]) -> Numbers:
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    seconds, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": seconds, "cpu": cpu}


def main(arguments: list[str] | None = None) -> bool:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, help="not needed here; taken for run.py's sake")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--quick", action="store_true", help="5 rounds")
    chosen = parser.parse_args(arguments)
    results = {name: Result(Case(name, " ".join(words))) for name, words in commands().items()}
    for number in range((min(5, chosen.rounds) if chosen.quick else chosen.rounds) + 1):
        for name, words in commands().items():
            numbers = run(words)
            if number:
                results[name].rounds.append(numbers)
    print(harness.table(list(results.values()), ["seconds", "cpu"]) + "\n")
    # Each round's own difference: the machine's mood is then the same on both sides.
    added = Result(Case("added", ""))
    for ours, theirs in zip(
        results["import pandas, tfrecorder"].rounds, results["import pandas"].rounds, strict=True
    ):
        added.rounds.append({key: ours[key] - theirs[key] for key in ("seconds", "cpu")})
    bars = [
        Bar(
            "seconds that import tfrecorder adds to import pandas",
            added.median("seconds"),
            IMPORT_BAR,
            at_least=False,
        ),
        Bar(
            "seconds of tfrecorder --help",
            results["tfrecorder --help"].median("seconds"),
            HELP_BAR,
            at_least=False,
        ),
    ]
    return harness.report("startup", list(results.values()), bars=bars)


if __name__ == "__main__":
    raise SystemExit(0 if main() else 1)
