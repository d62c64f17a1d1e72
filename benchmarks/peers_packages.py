"""The packages that tfrecorder is compared with: what is installed, and how a case is run."""

from __future__ import annotations

import contextlib
import importlib.metadata
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import harness
from harness import Case, Result
from writing import read_rows

PACKAGES = (
    *("array-record", "datasets", "grain", "h5py", "litdata", "mosaicml-streaming", "torch"),
    *("tensorflow-datasets", "torchvision", "webdataset"),
)


def versions() -> dict[str, str]:
    """Of those that are installed."""
    found = {}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def quiet(data: Path) -> dict[str, str]:
    """Variables that keep them from asking the network, and their caches in `data`."""
    return {
        "LITDATA_DISABLE_VERSION_CHECK": "1",
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(data / "huggingface"),
        "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    }


def folders(source: Path, count: int, data: Path) -> Path:
    """The photographs of a CSV as split/label/file: hard links."""
    out = data / f"folders-{source.stem}"
    done = out / "done"
    if not done.exists():
        shutil.rmtree(out, ignore_errors=True)
        for split, path, label in read_rows(str(source)):
            target = out / "images" / split.lower() / label / Path(path).name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.hardlink_to(Path(path).resolve())
        done.touch()
    found = sum(1 for _ in (out / "images").rglob("*.jpg"))
    assert found == count, f"{out} has {found} photographs, not {count}"
    return out / "images"


def once(case: Case, data: Path) -> tuple[dict[str, Any], str | None]:
    """Run a case once: its numbers, or why there are none."""
    try:
        [result] = harness.run_rounds([case], 1, data)
    except RuntimeError as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        return {}, f"it fails here: {lines[-1].strip()[:200]}"
    return (result.rounds[0], None) if result.skipped is None else ({}, result.skipped)


def measured(
    cases: Sequence[Case], skipped: dict[str, str], rounds: int, data: Path
) -> list[Result]:
    """All cases in their order: measured, or skipped with the reason."""
    done = harness.run_rounds([case for case in cases if case.name not in skipped], rounds, data)
    by_name = {result.case.name: result for result in done}
    for result in done:
        for one in result.rounds:
            one["images/s"] = one["images"] / one["seconds"]
            one["images/CPU s"] = one["images"] / one["cpu"]
            one["CPU s/1000"] = one["cpu"] / one["images"] * 1000
    return [by_name.get(case.name) or Result(case, skipped=skipped[case.name]) for case in cases]
