"""A conversion on a real Dask cluster: a scheduler and two workers, each a process of its own."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from helpers.clusters import answers, convert_and_kill, free_port, running, slow_frame
from helpers.public_types import ConversionResult
from support import CSV, error_of, public_files, run, wait_for

import tfrecorder
from tfrecorder.errors import RejectedError

pytestmark = pytest.mark.engines

SHARDS = 6


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[dict[str, str], list[subprocess.Popen[bytes]]]]:
    """The options that lead to a cluster of two workers, and these."""
    port = free_port()
    address = f"tcp://127.0.0.1:{port}"
    alone = ("--no-dashboard",)
    with contextlib.ExitStack() as stack:
        place = ("--host", "127.0.0.1", "--port", str(port))
        stack.enter_context(running("distributed.cli.dask_scheduler", *place, *alone))
        wait_for(lambda: answers(port))
        small = ("--nthreads", "1", "--no-nanny", *alone)
        workers = [
            stack.enter_context(running("distributed.cli.dask_worker", address, *small))
            for _ in range(2)
        ]
        wait_for(lambda: workers_of(address) == 2)
        yield {"dask_client_address": address}, workers


def workers_of(address: str) -> int:
    from distributed import Client

    with Client(address) as client:
        return len(client.scheduler_info()["workers"])


@pytest.fixture(scope="module")
def options(cluster) -> dict[str, str]:
    return cluster[0]


@pytest.mark.slow
def test_the_files_are_those_of_a_local_conversion(options, dataset: Path) -> None:
    shards = {"TRAIN": 3, "VALIDATION": 2, "TEST": 1}
    result = tfrecorder.convert(
        CSV, "out", runner="daskrunner", runner_options=options, num_shards=shards
    )
    assert result.records == 52
    assert public_files("out") == public_files(dataset)


@pytest.mark.slow
def test_what_stopped_a_worker_is_the_error_of_the_call(options, frame: pd.DataFrame) -> None:
    frame.loc[3, "image_uri"] = "nowhere.jpg"
    message = error_of(
        RejectedError, frame, runner="DaskRunner", runner_options=options, max_reject_fraction=0
    )
    assert message.startswith("1 of 52 rows (1.9%) were rejected, more than")


@pytest.mark.slow
def test_it_runs_in_a_notebook_too(options: dict[str, str], tmp_path: Path) -> None:
    """Beam's own DaskRunner refuses to."""
    import nbformat
    from nbclient import NotebookClient

    call = f"tfrecorder.convert({str(CSV)!r}, 'out', runner='DaskRunner', progress=False, "
    cell = f"import tfrecorder; {call} runner_options={options!r})"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)])
    where = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=60, kernel_name="python3", resources=where).execute()
    (result,) = notebook.cells[0].outputs
    assert "52 records in out" in result.data["text/html"]


@pytest.mark.slow
def test_a_worker_killed_in_the_middle_of_a_shard_costs_nothing(cluster, tmp_path: Path) -> None:
    """The last one that needs both workers."""
    options, workers = cluster
    frame = slow_frame(tmp_path / "images", SHARDS)
    same = {"num_shards": SHARDS, "shuffle": False}
    hit, result = convert_and_kill(
        lambda: [worker.pid for worker in workers],
        2,
        frame,
        runner="DaskRunner",
        runner_options=options,
        **same,
    )
    assert sorted(worker.poll() is None for worker in workers) == [False, True]
    assert isinstance(result, ConversionResult), result
    assert result.records == len(frame)
    done = json.loads(Path("out/_tfrecorder/commits/00000.json").read_bytes())["done"]
    records = {one["shard"]: one["records"] for one in done}
    assert hit in records
    assert set(records.values()) == {len(frame) / SHARDS}
    tfrecorder.convert(frame, "local", **same)
    assert public_files("out") == public_files("local")


@pytest.mark.slow
def test_without_the_package_one_line_says_what_to_install() -> None:
    code = f"""
import sys

class NoDask:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("dask", "distributed"):
            raise ImportError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, NoDask())
sys.argv = ["tfrecorder", "convert", {str(CSV)!r}, "out", "--runner", "DaskRunner"]
import runpy; runpy.run_module('tfrecorder', run_name='__main__')
"""
    ended = run("-c", code)
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert line.startswith("error: --runner DaskRunner: it cannot be loaded")
    assert 'pip install "tfrecorder-images[dask]"' in line
    assert not Path("out").exists()
