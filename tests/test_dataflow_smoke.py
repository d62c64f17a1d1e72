"""The script that compares a conversion on Dataflow with one here; against the loopback service."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from dataflow.endpoint import Dataflow
from gcs.control import Gcs
from support import CSV, run

pytest_plugins = ["gcs.fixtures", "dataflow.fixtures"]

SCRIPT = Path(__file__).parent.parent / "scripts" / "dataflow_smoke.py"


@pytest.mark.slow
def test_it_says_what_it_takes() -> None:
    done = run(SCRIPT, "--help")
    assert done.returncode == 0, done.stderr
    for option in ("--project", "--bucket", "--region", "--keep", "--runner-option"):
        assert option in done.stdout
    assert "--project" in run(SCRIPT).stderr


@pytest.fixture
def lines(bucket: Gcs) -> str:
    """The bundled photographs as lines `uri,label`."""
    rows = [line.split(",") for line in CSV.read_text().splitlines()[1:]]
    told = "".join(f"gs://bkt/data/{uri},{label}\n" for _, uri, label in rows)
    bucket.put("gs://bkt/flowers.csv", told.encode())
    return "gs://bkt/flowers.csv"


@pytest.mark.slow
def test_it_compares_prints_and_cleans_up(bucket: Gcs, dataflow: Dataflow, lines: str) -> None:
    bucket.create_bucket("mine")
    given = [f"dataflow_endpoint={dataflow.url}", "no_auth=true"]
    options = [part for one in given for part in ("--runner-option", one)]
    command = [SCRIPT, "--project", "loopback", "--bucket", "mine", "--source", lines, *options]
    whole = [sys.executable, *map(str, command), "--rows", "40"]
    done = subprocess.run(whole, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    for words in (
        f"40 images of {lines} to gs://mine/tfrecorder-smoke-",
        "DONE after",
        "machines at most: 2 of 4 cores",
        "core hours: 2.000; GiB hours of memory: 8.000",
        "about 0.140 $",
        "files that differ from a local conversion: none; verify: True",
    ):
        assert words in done.stdout, done.stdout
    assert bucket.names("gs://mine/") == []
