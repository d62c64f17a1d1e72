"""The report of a field trial: what machine it was, what it cost, and no names in it."""

from __future__ import annotations

import argparse
import contextlib
import getpass
import importlib.metadata
import os
import platform
import re
import socket
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import tfrecorder

PACKAGES = ("apache-beam", "google-cloud-storage", "numpy", "obstore", "pandas", "pillow")
PACKAGES += ("pyarrow", "simplejpeg", "tensorflow", "torch")

#: What is paid for, by the name of the figure that a part reports: the option with its price, and
#: where the amount comes from.
PAID = {
    "core_hours": ("core-hour", "Dataflow's own measure TotalVcpuTime"),
    "gib_hours": ("gib-hour", "Dataflow's own measure TotalMemoryUsage"),
    "thousand_writes": ("thousand-writes", "objects that were written, counted; no retries"),
    "thousand_reads": ("thousand-reads", "objects that were read whole, counted; no listings"),
    "gb_out": ("gb-out", "bytes that this machine read from a bucket; free within a region"),
    "machine_hours": ("machine-hour", "time of the whole trial on this machine"),
}

#: Variables of the environment that may say who somebody is, by the beginnings of their names.
_VARIABLES = ("AWS_", "AZURE_", "CLOUDSDK_", "GCLOUD_", "GOOGLE_", "GS_")

#: What may be a name, in an error of a service: replaced whoever it belongs to.
_PATTERNS = {
    "<uri>": r"\b[a-z][a-z0-9+.-]*://[^\s'\"<>]+",
    "<account>": r"[\w.+-]+@[\w-]+\.[\w.-]+",
    "<path>": r"(?<![\w.<])/(?:[^\s/'\"<>:,;]+/)+[^\s'\"<>:,;]*",
    "<address>": r"\b\d{1,3}(?:\.\d{1,3}){3}\b",
    "<id>": r"\b(?=\S*\d)[\w+=-]{24,}|\b\d{9,}\b",
}

#: Shorter names are looked for as whole words: a user `ml` is not in `html`.
_WHOLE_WORDS = 6


def names(chosen: argparse.Namespace, *folders: Path) -> tuple[str, ...]:
    """All that must not be in the report, the longest first.

    Args:
        chosen: the arguments of the trial.
        folders: of this machine, in which the trial works.
    """
    found = {*_parts(chosen.project or ""), *_parts(chosen.gs or ""), *_parts(chosen.s3 or "")}
    for words in chosen.runner_option:
        found.update(_parts(words.partition("=")[2]))
    for variable, value in os.environ.items():
        if variable.startswith(_VARIABLES):
            found.update(_parts(value))
    for path in (Path.home(), Path.cwd(), *folders):
        found.update((str(path), str(path.resolve())))
    found.update((socket.gethostname(), platform.node(), Path.home().name))
    with contextlib.suppress(KeyError, OSError):  # a container may have no user of this number
        found.add(getpass.getuser())
    words = {name for name in found if re.search("[A-Za-z]", name) and len(name) > 1}
    return tuple(sorted(words - {"true", "false", "localhost"}, key=lambda one: (-len(one), one)))


def _parts(value: str) -> Iterator[str]:
    """A uri, account or path, and each name in it."""
    yield value.rstrip("/")
    yield from re.split(r"\w+://|[/:@,=]", value)


def without_names(value: Any, names: Iterable[str]) -> Any:
    """A value of JSON with all names in its texts replaced; its keys are the trial's own words."""
    if isinstance(value, dict):
        return {key: without_names(one, names) for key, one in value.items()}
    if isinstance(value, list):
        return [without_names(one, names) for one in value]
    if not isinstance(value, str):
        return value
    for words, pattern in _PATTERNS.items():
        value = re.sub(pattern, words, value)
    for name in names:
        value = _pattern(name).sub("<name>", value)
    return value


def names_in(value: Any, names: Iterable[str]) -> list[str]:
    """Which names are in the texts of a value of JSON: the proof that a report has none."""
    texts = "\n".join(_texts(value))
    return [name for name in names if _pattern(name).search(texts)]


def _pattern(name: str) -> re.Pattern[str]:
    edges = ("(?<![A-Za-z0-9])", "(?![A-Za-z0-9])") if len(name) < _WHOLE_WORDS else ("", "")
    return re.compile(re.escape(name).join(edges), re.IGNORECASE)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _texts(one)
    elif isinstance(value, str):
        yield value


def machine() -> dict[str, Any]:
    """What kind of machine this is."""
    processor = platform.processor()
    with contextlib.suppress(OSError):
        models = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
        processor = models[1] if models else processor
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": processor,
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
    }


def versions() -> dict[str, str | None]:
    """What the trial ran with; None is not installed."""
    found: dict[str, str | None] = {"tfrecorder": tfrecorder.__version__}
    found["python"] = platform.python_version()
    for package in PACKAGES:
        found[package] = None
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        found["commit"] = subprocess.run(
            command, check=True, capture_output=True, text=True
        ).stdout.strip()
    return found


def costs(parts: Mapping[str, Any], prices: Mapping[str, float | None]) -> dict[str, Any]:
    """What the parts took of each thing that is paid for, and its cost where a price was given.

    Args:
        parts: steps by part, figures by step.
        prices: by the names of `PAID`, in any currency; None is not known.
    """
    rows = []
    for figure, (option, source) in PAID.items():
        taken = sum(step.get(figure, 0) for part in parts.values() for step in _steps(part))
        if taken:
            price = prices[figure]
            cost = None if price is None else round(taken * price, 4)
            rows.append({"of": figure, "amount": round(taken, 4), "estimated_from": source})
            rows[-1] |= {"option": f"--{option}", "price": price, "cost": cost}
    return {
        "each": rows,
        "sum_of_what_has_a_price": round(sum(row["cost"] or 0 for row in rows), 4),
    }


def _steps(part: Any) -> list[Mapping[str, Any]]:
    return [step for step in part.values() if isinstance(step, dict)]
