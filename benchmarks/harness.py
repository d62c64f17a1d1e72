"""Measures cases: each in its own fresh process, in interleaved rounds, medians of all.

    cases = [Case("by hand", "writing:by_hand", {"source": "data.csv"}, writes=True), ...]
    results = run_rounds(cases, rounds=5)
    print(table(results, ["seconds", "cpu", "peak_mb"]))
    met = report("writing", results, bars=[Bar("seconds", 2.1, 3, at_least=False)])

A case names a function of a module in this folder.  The function imports what it needs, prepares
what is not to be timed, and returns the function that is timed; that one returns a dict of
numbers (images, bytes_in, bytes_out, a checksum, ...), which are kept next to the measured ones:

    seconds     wall clock of the timed function alone: no imports, no interpreter start
    cpu         user + system seconds of the process and of its children, in the same time
    base_mb     memory of the process before the timed function: interpreter and imports
    others      cores that other programs kept busy meanwhile: what disturbs `seconds`
    peak_mb     largest memory of the whole process tree (one process: its RSS; several: the sum of
                their PSS, which counts a shared page once)
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

HERE = Path(__file__).resolve().parent
DATA = HERE / "data"
RESULTS = HERE / "results"

#: A look at the process tree may cost this share of one core.
SAMPLING_SHARE = 0.03
SAMPLING_SECONDS = 0.02

#: Written and deleted before a case that writes is timed; see `_touch_memory`.
TOUCHED_BYTES = 800_000_000

PACKAGES = (
    *("tfrecorder", "apache-beam", "tensorflow", "tensorflow-datasets", "simplejpeg", "pillow"),
    *("numpy", "pandas", "pyarrow", "google-crc32c", "protobuf"),
)

#: Read at a time while a file is brought into the page cache.
WARM_BYTES = 1 << 24

Numbers = dict[str, Any]
Timed = Callable[[], Numbers]


@dataclass(frozen=True)
class Case:
    """One thing to measure.

    Attributes:
        name: as the table shows it.
        prepare: "module:function" of this folder; see the module's docstring.
        arguments: of that function; must survive JSON.
        writes: give it a fresh directory as the argument `out`, removed afterwards.
        requires: packages to import; the case is skipped with a word where one is missing.
        environment: variables set for its process.
        rehearse: run it once in its process before it is timed; what it wrote is removed between.
    """

    name: str
    prepare: str
    arguments: dict[str, Any] = field(default_factory=dict)
    writes: bool = False
    requires: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    rehearse: bool = False


@dataclass
class Result:
    """All rounds of one case; `skipped` says why there are none."""

    case: Case
    rounds: list[Numbers] = field(default_factory=list)
    skipped: str | None = None

    def median(self, key: str) -> float:
        """The median of a number over the rounds; NaN where no round has it."""
        values = [one[key] for one in self.rounds if isinstance(one.get(key), (int, float))]
        return statistics.median(values) if values else float("nan")


def fixed_words(seconds: float) -> str:
    """The fixed seconds of a slope, for a table: below zero they are the noise of the rounds."""
    return f"{seconds:.2f}" if seconds >= 0.005 else "≈ 0"


def parser(doc: str | None) -> argparse.ArgumentParser:
    """The command line of a benchmark: its docstring's first line, and where the data go."""
    made = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    made.add_argument("--data", type=Path, default=DATA, help="of images and outputs")
    return made


def run_rounds(cases: Sequence[Case], rounds: int, work: Path = DATA) -> list[Result]:
    """Measure all cases `rounds` times, one after the other, every second round backwards.

    Args:
        work: where fresh output directories are made: the disk that is written to.

    Raises:
        RuntimeError: a case failed; its last words are in the message.
    """
    results = [Result(case, skipped=_missing(case)) for case in cases]
    todo = [result for result in results if result.skipped is None]
    for number in range(rounds):
        for result in todo if number % 2 == 0 else reversed(todo):
            numbers = run_once(result.case, work)
            result.rounds.append(numbers)
            _say(
                f"round {number + 1}/{rounds}  {result.case.name}: {numbers['seconds']:.2f} s, "
                f"{numbers['cpu']:.2f} s CPU, {numbers['peak_mb']:.0f} MB, "
                f"others {numbers['others']:.2f} cores"
            )
    return results


def run_once(case: Case, work: Path = DATA) -> Numbers:
    """Measure a case once, in a fresh process."""
    arguments = dict(case.arguments)
    work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix="run-", dir=work, ignore_cleanup_errors=True
    ) as scratch:
        if case.writes:
            arguments["out"] = os.path.join(scratch, "out")
        answer, log = Path(scratch, "answer.json"), Path(scratch, "log.txt")
        command = [sys.executable, str(HERE / "harness.py"), case.prepare, json.dumps(arguments)]
        touched = os.path.join(scratch, "touched") if case.writes else ""
        command += [str(answer), touched, "rehearse" if case.rehearse else ""]
        environment = {"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ, **case.environment}
        with open(log, "wb") as words:
            process = subprocess.Popen(command, stdout=words, stderr=words, env=environment)
            peak = _watch(process)
        if process.returncode or not answer.exists():
            last = log.read_text(errors="replace")[-3000:]
            raise RuntimeError(f"{case.name} ended with {process.returncode}:\n{last}")
        numbers = json.loads(answer.read_text())
        numbers["peak_mb"] = max(peak, numbers.pop("own_peak_mb"))
        if case.writes:
            shutil.rmtree(arguments["out"], ignore_errors=True)
    return numbers


def _missing(case: Case) -> str | None:
    missing = [name for name in case.requires if importlib.util.find_spec(name) is None]
    if not missing:
        return None
    _say(f"{case.name}: skipped, {', '.join(missing)} is not installed")
    return f"{', '.join(missing)} is not installed"


def _watch(process: subprocess.Popen[bytes]) -> float:
    """Wait for a process; the largest memory of its tree meanwhile, in MB."""
    peak = 0.0
    try:
        root = psutil.Process(process.pid)
        while process.poll() is None:
            started = time.perf_counter()
            peak = max(peak, _tree_mb(root))
            # Looking takes longer the more processes the machine has: look less often then.
            pause = (time.perf_counter() - started) / SAMPLING_SHARE
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=max(SAMPLING_SECONDS, pause))
    except psutil.NoSuchProcess:
        process.wait()
    except BaseException:
        process.kill()
        raise
    return peak


def _tree_mb(root: psutil.Process) -> float:
    try:
        children = root.children(recursive=True)
        if not children:
            return root.memory_info().rss / 1e6
    except psutil.NoSuchProcess:
        return 0.0
    total = 0.0
    for one in (root, *children):
        with contextlib.suppress(psutil.Error):  # it ended meanwhile
            total += one.memory_full_info().pss / 1e6
    return total


# ---------------------------------------------------------------------------------------------
# Inside the process of a case.


def _run_case(
    prepare: str, arguments: dict[str, Any], answer: str, touched: str, rehearse: bool
) -> None:
    module, function = prepare.split(":")
    timed: Timed = getattr(importlib.import_module(module), function)(**arguments)
    if rehearse:
        timed()
        _remove(arguments.get("out"))
    elif touched:
        _touch_memory(touched)
    base = psutil.Process().memory_info().rss / 1e6
    busy, cpu = _busy_seconds(), _CpuClock()
    started = time.perf_counter()
    numbers = timed()
    seconds = time.perf_counter() - started
    own = cpu.read()
    measured = {
        "seconds": seconds,
        "cpu": own,
        "others": max(0.0, _busy_seconds() - busy - own) / seconds,
        "base_mb": base,
        "own_peak_mb": _own_peak_mb(),
    }
    Path(answer).write_text(json.dumps({**measured, **numbers}))
    sys.stdout.flush()
    # Worker processes of a loader would outlive it, with gigabytes of memory.
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            child.kill()
    # Without the interpreter's farewell: threads of TensorFlow or Beam may hold it up.
    os._exit(0)


def _remove(path: str | None) -> None:
    if path and os.path.isdir(path):
        shutil.rmtree(path)
    elif path:
        os.remove(path)


def _touch_memory(path: str) -> None:
    """Fill and free the memory that the output's page cache will take.

    A virtual machine gives free memory back to its host, and gets it again page by page, at three
    times the cost of writing into it.  Whoever writes after a pause would pay for that, and whoever
    writes after another would not.
    """
    block = bytes(1 << 20)
    with open(path, "wb", buffering=0) as file:
        for _ in range(TOUCHED_BYTES >> 20):
            file.write(block)
    os.remove(path)


def _busy_seconds() -> float:
    """CPU seconds of the whole machine since it started, the host's theft included."""
    times = psutil.cpu_times()
    return times.user + times.system + times.nice + getattr(times, "steal", 0.0)


def _own_peak_mb() -> float:
    """The largest RSS of this process: exact, where sampling may miss a short peak."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e6
    return 0.0


class _CpuClock:
    """CPU seconds of this process tree since it was made; children that still run included."""

    def __init__(self) -> None:
        self._start = self._now()

    def read(self) -> float:
        return self._now() - self._start

    @staticmethod
    def _now() -> float:
        # `os.times` counts in steps of 10 ms, which is much where a batch takes 30.
        total = time.process_time() + sum(os.times()[2:4])
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                times = child.cpu_times()
                total += times.user + times.system
        return total


# ---------------------------------------------------------------------------------------------
# What is shown and kept.


def table(results: Sequence[Result], keys: Sequence[str]) -> str:
    """Medians as text: a line a case, a column a key."""
    rows = [["case", *keys]]
    for result in results:
        if result.skipped is not None:
            rows.append([result.case.name, f"skipped: {result.skipped}"])
        else:
            rows.append([result.case.name, *(_shown(result.median(key)) for key in keys)])
    return columns(rows)


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Rows of text, aligned: the first column to the left, the others to the right."""
    full = [row for row in rows if len(row) == len(rows[0])]
    widths = [max(len(row[at]) for row in full) for at in range(len(rows[0]))]
    widths[0] = max(len(row[0]) for row in rows)
    return "\n".join(
        "  ".join(
            cell.ljust(width) if at == 0 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=False))
        ).rstrip()
        for row in rows
    )


def _shown(value: float) -> str:
    if value != value:
        return "-"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


@dataclass(frozen=True)
class Bar:
    """A number that a benchmark must reach: at least `bound`, or at most."""

    name: str
    value: float
    bound: float
    at_least: bool

    @property
    def met(self) -> bool:
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    def __str__(self) -> str:
        sign = ">=" if self.at_least else "<="
        verdict = "PASS" if self.met else "MISS"
        return f"{verdict}  {self.name}: {self.value:.3f} (bar {sign} {self.bound:g})"


#: Rows of text, a table each, by title; the first row of each is the header.
Tables = Mapping[str, Sequence[Sequence[str]]]


def report(
    name: str,
    results: Sequence[Result],
    tables: Tables | None = None,
    bars: Sequence[Bar] = (),
    **more: Any,
) -> bool:
    """Print what came out and write it to results/NAME.json; whether all bars are met.

    The file holds every round, the tables and bars as they are printed, the machine, the versions
    and the commit.  figures.py and plots.py make the pages' tables and plots of it.
    """
    for rows in (tables or {}).values():
        print("\n" + columns(rows))
    print("\n" + "\n".join(str(bar) for bar in bars))
    record = {
        "benchmark": name,
        "command": _command(),
        "when": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": _commit(),
        "machine": machine(),
        "versions": versions(),
        "tables": tables or {},
        "bars": [{**asdict(bar), "met": bar.met} for bar in bars],
        **more,
        "cases": [
            {**asdict(result.case), "skipped": result.skipped, "rounds": result.rounds}
            for result in results
        ],
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(record, indent=1, default=str))
    _say(f"written: {os.path.relpath(path)}")
    return all(bar.met for bar in bars)


def _command() -> str:
    """The command line, without where the data are."""
    words = [Path(sys.argv[0]).name, *sys.argv[1:]]
    if "--data" in words:
        at = words.index("--data")
        del words[at : at + 2]
    return " ".join(word for word in words if not word.startswith("--data="))


def _commit() -> str:
    """The commit that was measured, with a plus where the package differs from it."""
    git = ["git", "-C", str(HERE.parent)]
    try:
        short = subprocess.check_output([*git, "rev-parse", "--short", "HEAD"], text=True).strip()
        changed = subprocess.call([*git, "diff", "--quiet", "HEAD", "--", "tfrecorder"]) != 0
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return short + "+" * changed


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    model = platform.processor()
    if os.path.exists("/proc/cpuinfo"):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(
            (line.split(": ")[1] for line in lines if line.startswith("model name")), model
        )
    return {
        "cpu": model,
        "cores": cores(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "system": platform.platform(),
        "load": os.getloadavg()[0],
    }


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def warm(paths: Sequence[str]) -> int:
    """Read files, so that every case finds them in the page cache; their bytes."""
    total = 0
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            while part := file.read(WARM_BYTES):
                total += len(part)
    return total


_said = threading.Lock()


def _say(words: str) -> None:
    with _said:
        print(words, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    _prepare, _arguments, _answer, _touched, _rehearse = sys.argv[1:]
    _run_case(_prepare, json.loads(_arguments), _answer, _touched, bool(_rehearse))
