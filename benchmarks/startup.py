"""Start-up: `import tfrecorder` and `--help` beside `import pandas`; 8 images beside Beam alone.

    startup.py [--rounds N] [--quick]

Whole processes, from fork to exit, interleaved, medians; the first round, which fills the page
cache and writes the byte code, does not count.
"""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

import data
import harness
from harness import Bar, Case, Numbers, Result

#: CPU seconds of the first, in those of the second, at most.
BARS = (
    ("import pandas, tfrecorder", "import pandas", 1.05),
    ("tfrecorder --help", "import pandas", 1.25),
    ("convert 8 images", "an empty pipeline", 1.12),
)

NO_BYTE_CODE = "PYTHONDONTWRITEBYTECODE"

EMPTY = """
import pandas, apache_beam
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
pipeline = apache_beam.Pipeline(FnApiRunner())
pipeline | apache_beam.Create([0])
pipeline.run().wait_until_finish()
"""

CONVERT = """
import sys, tempfile, tfrecorder
with tempfile.TemporaryDirectory() as out:
    tfrecorder.convert(sys.argv[1], out, progress=False)
"""


def commands(source: str) -> dict[str, list[str]]:
    """What to run, by name."""
    script = shutil.which("tfrecorder", path=os.path.dirname(sys.executable))
    command = [script] if script else [sys.executable, "-m", "tfrecorder"]
    return {
        "python": [sys.executable, "-c", "pass"],
        "import pandas": [sys.executable, "-c", "import pandas"],
        "import pandas, tfrecorder": [sys.executable, "-c", "import pandas, tfrecorder"],
        "tfrecorder --help": [*command, "--help"],
        "tfrecorder convert --help": [*command, "convert", "--help"],
        "an empty pipeline": [sys.executable, "-c", EMPTY],
        "convert 8 images": [sys.executable, "-c", CONVERT, source],
    }


#: Byte code is written, as it is where people work.
_ENVIRONMENT = {name: value for name, value in os.environ.items() if name != NO_BYTE_CODE}


def run(command: Sequence[str]) -> Numbers:
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, env=_ENVIRONMENT, capture_output=True)
    seconds, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": seconds, "cpu": cpu}


def main(arguments: list[str] | None = None) -> bool:
    parser = harness.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--quick", action="store_true", help="5 rounds")
    chosen = parser.parse_args(arguments)
    todo = commands(str(data.listed(data.photographs(chosen.data, 8), 8)))
    results = {name: Result(Case(name, " ".join(words))) for name, words in todo.items()}
    for number in range((min(5, chosen.rounds) if chosen.quick else chosen.rounds) + 1):
        for name, words in todo.items():
            numbers = run(words)
            if number:
                results[name].rounds.append(numbers)
    print(harness.table(list(results.values()), ["seconds", "cpu"]) + "\n")
    bars = []
    for name, beside, bound in BARS:
        # Each round's own ratio: the machine's mood is then the same on both sides.
        pairs = zip(results[name].rounds, results[beside].rounds, strict=True)
        ratio = statistics.median(ours["cpu"] / theirs["cpu"] for ours, theirs in pairs)
        bars.append(Bar(f"CPU, {name} / {beside}", ratio, bound, at_least=False))
    return harness.report("startup", list(results.values()), bars=bars)


if __name__ == "__main__":
    raise SystemExit(0 if main() else 1)
