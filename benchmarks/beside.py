"""What a change costs: the same work by the package as it is and as it was in another commit.

    beside.py REVISION [--data DIR] [--rounds N] [--quick] [--cases NAME;NAME]

The old package is unpacked from git and put on PYTHONPATH; Python, other packages, images and this
program are the same.  The two take turns.  Each case runs once before it is timed, and reads the
dataset that its own package wrote.
"""

from __future__ import annotations

import dataclasses
import io
import os
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import data as shared
import harness
from harness import HERE, Bar, Case, Numbers, Result, Timed

#: A case of the new package may take this share more CPU seconds than the old one's.
CPU_BAR = 1.05

PLAN_ROWS = 200_000


def convert(source: str, out: str, **options: Any) -> Timed:
    """A whole conversion."""
    import tfrecorder

    def run() -> Numbers:
        return {"images": tfrecorder.convert(source, out, progress=False, **options).records}

    return run


def read(source: str, kept: str, writing: dict[str, Any], epochs: int = 1, **options: Any) -> Timed:
    """Epochs of `tfrecorder.load` over what this package wrote."""
    directory = _written(source, kept, **writing)
    import tfrecorder

    dataset = tfrecorder.load(directory, "TRAIN", batch_size=64, **options)

    def run() -> Numbers:
        return {"batches": sum(1 for _ in range(epochs) for _ in dataset)}

    return run


def batches(source: str, kept: str, epochs: int = 1, **options: Any) -> Timed:
    """Epochs of `tfrecorder.batches` over what this package wrote."""
    directory = _written(source, kept)
    import tfrecorder

    loader = tfrecorder.batches(directory, "TRAIN", batch_size=64, **options)

    def run() -> Numbers:
        return {"batches": sum(1 for _ in range(epochs) for _ in loader)}

    return run


def verify(source: str, kept: str) -> Timed:
    """`tfrecorder.verify` of what this package wrote."""
    directory = _written(source, kept)
    import tfrecorder

    def run() -> Numbers:
        assert tfrecorder.verify(directory).ok
        return {}

    return run


def validate(rows: int) -> Timed:
    """The checks of a table of many rows, without its images."""
    import pandas as pd

    import tfrecorder

    uris = [f"gs://bucket/pictures/{number:08d}.jpg" for number in range(rows)]
    labels = [f"class {number % 1000}" for number in range(rows)]
    frame = pd.DataFrame({"image_uri": uris, "label": labels})

    def run() -> Numbers:
        tfrecorder.validate(frame)
        return {"rows": rows}

    return run


def _written(source: str, kept: str, **options: Any) -> str:
    """The dataset of a CSV, written once by the package that runs."""
    import tfrecorder

    if not os.path.exists(os.path.join(kept, "dataset_info.json")):
        tfrecorder.convert(source, kept, progress=False, **options)
    return kept


def make_cases(data: Path, images: int) -> list[Case]:
    """The cases, without a package; `both` runs each with the old one and the new one."""
    source = str(shared.listed(shared.photographs(data, images), images))
    here, kept = {"source": source}, f"{data}/beside-PACKAGE"
    photos = {**here, "kept": f"{kept}/photographs-{images}", "writing": {}}
    by_number = {key: value for key, value in photos.items() if key != "writing"}
    pixels: dict[str, Any] = {"image_size": (128, 128), "image_format": "raw"}
    raw = {**here, "kept": f"{kept}/raw-{images}", "writing": pixels}
    return [
        Case("write, header", "beside:convert", {**here, "check": "header"}, True),
        Case("write, decode", "beside:convert", {**here, "check": "decode"}, True),
        Case("read, 224", "beside:read", {**photos, "image_size": 224}),
        Case("read, plain", "beside:read", {**photos, "image_size": 224, "antialias": False}),
        Case("read, undecoded", "beside:read", {**photos, "decode": False, "epochs": 20}),
        Case("read, raw", "beside:read", {**raw, "epochs": 20}),
        Case("batches, 224", "beside:batches", {**by_number, "image_size": 224}),
        Case(
            "batches, augment", "beside:batches", {**by_number, "image_size": 224, "augment": True}
        ),
        Case("verify", "beside:verify", {**here, "kept": photos["kept"]}),
        Case("validate", "beside:validate", {"rows": PLAN_ROWS}),
        *(
            Case(f"bucket, {kind}", "bucket:measure", {**here, "kind": kind, "images": images})
            for kind in ("our GET", "header", "decode")
        ),
    ]


def both(case: Case, old: Path) -> list[Case]:
    """A case by the old package and by the one of this working tree."""
    return [
        dataclasses.replace(
            case,
            name=f"{case.name}: {name}",
            arguments={
                key: value.replace("-PACKAGE", f"-{folder.name}") if key == "kept" else value
                for key, value in case.arguments.items()
            },
            environment={"PYTHONPATH": str(folder)},
            # A bucket's server ends with its work.
            rehearse=not case.prepare.startswith("bucket:"),
        )
        for name, folder in (("old", old), ("new", HERE.parent))
    ]


def package_of(revision: str, data: Path) -> Path:
    """A folder with the package as it was in a commit."""
    git = ["git", "-C", str(HERE.parent)]
    commit = subprocess.check_output([*git, "rev-parse", "--short", revision], text=True).strip()
    folder = data / f"package-{commit}"
    if not folder.exists():
        packed = subprocess.check_output([*git, "archive", commit, "tfrecorder"])
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(folder, filter="data")
    return folder


def compared(results: Sequence[Result]) -> tuple[list[list[str]], list[Bar]]:
    """For each case, how much more the new package takes: the table, and the bars by CPU."""
    by_name = {result.case.name: result for result in results}
    rows, bars = [["new / old", "CPU", "seconds", "memory"]], []
    for name in dict.fromkeys(name.rpartition(": ")[0] for name in by_name):
        old, new = by_name[f"{name}: old"], by_name[f"{name}: new"]
        ratios = {key: new.median(key) / old.median(key) for key in ("cpu", "seconds", "peak_mb")}
        rows.append([name, *(f"{ratio:.3f}" for ratio in ratios.values())])
        bars.append(Bar(f"{name}, CPU new / old", ratios["cpu"], CPU_BAR, at_least=False))
    return rows, bars


def main(arguments: Sequence[str] | None = None) -> bool:
    parser = harness.parser(__doc__)
    parser.add_argument("revision", help="the commit to compare with")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="few images")
    parser.add_argument("--cases", help="only these, parted by ;")
    chosen = parser.parse_args(arguments)
    data = chosen.data.resolve()
    old = package_of(chosen.revision, data)
    cases = make_cases(data, 500 if chosen.quick else 2000)
    names = chosen.cases.split(";") if chosen.cases else [case.name for case in cases]
    if unknown := set(names).difference(case.name for case in cases):
        parser.error(f"--cases: {sorted(unknown)} are none of {[case.name for case in cases]}")
    todo = [one for case in cases if case.name in names for one in both(case, old)]
    results = harness.run_rounds(todo, chosen.rounds, data)
    print(harness.table(results, ["seconds", "cpu", "others", "peak_mb"]))
    rows, bars = compared(results)
    return harness.report("beside", results, {"new / old": rows}, bars)


if __name__ == "__main__":
    raise SystemExit(0 if main() else 1)
