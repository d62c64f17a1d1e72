"""Runs on your project or machine what its authors could not, and writes a report without names.

    python samples/field_trial/run.py                                     # this machine alone
    python samples/field_trial/run.py --gs gs://my-bucket --s3 s3://my-bucket
    python samples/field_trial/run.py --gs gs://my-bucket --project my-project --only dataflow

Parts, each with what it needs:

    epoch      an epoch of training on all GPUs of this machine, or on its CPU      PyTorch
    kill       SIGKILL in the middle of a conversion; the same call again           -
    gs, s3     images to a bucket, converted there, verified, read, compared        --gs, --s3
    kill-gs, kill-s3    as kill, with the dataset in the bucket                     --gs, --s3
    dataflow   as gs, but Dataflow converts                                         --gs --project

Whatever it needs is made of the bundled photographs.  What it wrote to a bucket is removed.  The
exit code is 1 if a part failed.  docs/field-trial.md says what it costs.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import conversions
import pandas as pd
import report
from conversions import Steps
from epoch import epoch

#: Rows of the parts with a bucket, but for Dataflow's.
BUCKET_ROWS = 10_000

#: What each part needs of the arguments.
PARTS = {
    "epoch": (),
    "kill": (),
    "gs": ("gs",),
    "kill-gs": ("gs",),
    "s3": ("s3",),
    "kill-s3": ("s3",),
    "dataflow": ("gs", "project"),
}


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument("--gs", metavar="gs://BUCKET", help="where to write on Cloud Storage")
    found.add_argument("--s3", metavar="s3://BUCKET", help="where to write on S3")
    found.add_argument("--project", help="of Google Cloud; it is billed")
    found.add_argument("--region", default="us-central1", help="of Dataflow (%(default)s)")
    found.add_argument(
        "--only", nargs="+", choices=PARTS, help="these parts; else all that have what they need"
    )
    found.add_argument(
        "--rows",
        type=int,
        default=100_000,
        help=f"images (%(default)s); of parts with a bucket but Dataflow at most {BUCKET_ROWS}",
    )
    found.add_argument(
        "--photos", type=Path, help="a folder of ten or more photographs, to cut images of 500x375"
    )
    found.add_argument(
        "--machine-type", default="n2-standard-4", help="whose name ends in its cores (%(default)s)"
    )
    found.add_argument(
        "--runner-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="of Dataflow, as service_account_email=…; may be repeated",
    )
    found.add_argument("--processes", type=int, help="of the epoch; one a GPU, two without GPUs")
    found.add_argument("--batch-size", type=int, default=64, help="of a process (%(default)s)")
    found.add_argument("--image-size", type=int, default=112, help="in pixels (%(default)s)")
    for figure, (option, _) in report.PAID.items():
        words = f"your price of one of {figure}, for the costs"
        found.add_argument(f"--{option}", type=float, dest=figure, metavar="PRICE", help=words)
    found.add_argument("--keep", action="store_true", help="leave in the buckets what was written")
    found.add_argument("--folder", type=Path, help="of this machine, for 3 GB of temporary files")
    found.add_argument("--report", type=Path, default=Path("field-trial.json"))
    return found


def missing(part: str, chosen: argparse.Namespace) -> str:
    """What a part needs and does not have; "" if it can run."""
    needed = [f"--{one}" for one in PARTS[part] if getattr(chosen, one) is None]
    if part == "epoch" and importlib.util.find_spec("torch") is None:
        needed.append("PyTorch")
    return " and ".join(needed)


def bucket_of(part: str, chosen: argparse.Namespace) -> str:
    """The bucket, with what was given after it, that a part writes to; "" for this machine."""
    return (getattr(chosen, PARTS[part][0]) if PARTS[part] else "").rstrip("/")


def rows_of(part: str, chosen: argparse.Namespace) -> int:
    """How many images a part converts."""
    is_small = PARTS[part] and part != "dataflow"
    return min(chosen.rows, BUCKET_ROWS) if is_small else chosen.rows


def steps_of(part: str, chosen: argparse.Namespace, folder: Path, name: str) -> Steps:
    """The steps of one part, which run as they are asked for."""
    images = folder / "images"
    table = pd.read_csv(images / "data.csv", nrows=rows_of(part, chosen))
    whole, place = folder / f"whole-{len(table)}", f"{bucket_of(part, chosen)}/{name}"
    if part == "epoch":
        return epoch(conversions.convert_here(table, whole), folder / "epoch", chosen)
    if part.startswith("kill"):
        out = str(folder / "killed") if part == "kill" else f"{place}/killed"
        return conversions.kill(table, whole, out)
    return conversions.round_trip(table, images, place, chosen if part == "dataflow" else None)


def outcome_of(steps: Callable[[], Steps]) -> dict[str, Any]:
    """What a part measured, and whether it failed: with an error, or by a figure that is not 0."""
    found: dict[str, Any] = {"outcome": "ran"}
    try:
        for step, figures in steps():
            print(f"  {step}: {json.dumps(figures)}", flush=True)
            found[step] = figures
            wrong = {key: figures[key] for key in conversions.FAULTS if figures.get(key)}
            if wrong:
                raise AssertionError(f"{step}: these must be 0: {wrong}")
    except Exception as error:  # of whatever kind: it is told, and the other parts go on
        traceback.print_exc()
        found |= {"outcome": "failed", "error": f"{type(error).__name__}: {error}"[:2000]}
    return found


def main(arguments: list[str]) -> int:
    chosen = parser().parse_args(arguments)
    needs = {part: missing(part, chosen) for part in PARTS}
    for part in chosen.only or ():
        if needs[part]:
            parser().error(f"--only {part} needs {needs[part]}")
    for option in ("gs", "s3"):
        if not (getattr(chosen, option) or f"{option}://").startswith(f"{option}://"):
            parser().error(f"--{option} {getattr(chosen, option)} does not start with {option}://")
    asked = [part for part in PARTS if (part in chosen.only if chosen.only else not needs[part])]
    name, begun = f"tfrecorder-trial-{time.strftime('%Y%m%d-%H%M%S')}", time.perf_counter()
    with tempfile.TemporaryDirectory(dir=chosen.folder) as temporary:
        folder = Path(temporary)
        folders = (folder, conversions.ROOT, chosen.report.parent, chosen.photos or folder)
        names = report.names(chosen, *folders)
        rows = max(rows_of(part, chosen) for part in asked)
        print(f"{rows:,} images are made", flush=True)
        table = conversions.photographs(folder / "images", rows, chosen.photos)
        sizes = [Path(uri).stat().st_size for uri in table["image_uri"]]
        parts: dict[str, Any] = {}
        try:
            for part, needed in needs.items():
                if part in asked:
                    print(part, flush=True)
                    parts[part] = outcome_of(lambda part=part: steps_of(part, chosen, folder, name))
                else:
                    why = f"it needs {needed}" if needed else "it was not in --only"
                    parts[part] = {"outcome": "not run", "reason": why}
        finally:
            buckets = sorted({bucket_of(part, chosen) for part in parts if part in asked} - {""})
            if not chosen.keep:
                parts["removal"] = outcome_of(lambda: conversions.removal(buckets, name))
    here = {"machine_hours": (time.perf_counter() - begun) / 3600}
    prices = {figure: getattr(chosen, figure) for figure in report.PAID}
    written = {
        "month": time.strftime("%Y-%m"),
        "versions": report.versions(),
        "machine": report.machine(),
        "region": chosen.region if "dataflow" in asked else None,
        "images": {"made": rows, "mean_kb": round(sum(sizes) / len(sizes) / 1e3, 2)},
        "parts": parts,
        "costs": report.costs({**parts, "machine": {"all": here}}, prices),
    }
    written = report.without_names(written, names)
    if left := report.names_in(written, names):
        raise SystemExit(f"no report is written, because it would name {', '.join(left)}")
    chosen.report.write_text(json.dumps(written, indent=2) + "\n")
    failed = [part for part, found in parts.items() if found["outcome"] == "failed"]
    print(f"{chosen.report}: {', '.join(failed) or 'nothing'} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
