"""PyTorch and Grain read datasets: each in its own process, without TensorFlow and Beam.

Where torch or Grain is not installed, what needs it is skipped.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.reading_cases import convert_photos
from support import TESTS, skip_without

#: torch warns of a tensor that shares memory which may not be written.
_UNWRITABLE = ("-W", "error:The given NumPy array is not writable")
CASES = TESTS / "services" / "trainers"


@pytest.mark.slow
@pytest.mark.parametrize("cases", ["torch", "worker", "grain"])
def test_a_trainer_reads_without_tensorflow(cases: str, tmp_path: Path) -> None:
    skip_without("torch" if cases == "worker" else cases)
    pass_cases(cases, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["tensorflow", "torch", "jax"])
def test_keras_takes_a_dataset_on_each_backend(backend: str, tmp_path: Path) -> None:
    skip_without("keras", backend)
    pass_cases("keras", tmp_path, KERAS_BACKEND=backend, TF_CPP_MIN_LOG_LEVEL="2")


@pytest.mark.slow
@pytest.mark.parametrize("trainer", ["pytorch_lightning", "accelerate"])
def test_a_trainer_reads_each_loop_from_its_beginning(trainer: str, tmp_path: Path) -> None:
    skip_without("torch", trainer)
    pass_cases(trainer.removeprefix("pytorch_"), tmp_path)


@pytest.mark.slow
def test_a_run_goes_on_with_threads_or_any_number_of_workers(tmp_path: Path) -> None:
    skip_without("torch")
    pass_cases("worker", tmp_path, "-k", "goes_on_with_any_number", TFRECORDER_EXAMPLES="3")


def pass_cases(name: str, tmp_path: Path, *chosen: str, **environment: str) -> None:
    out = convert_photos(tmp_path / "out")
    options = ["-p", "no:cacheprovider", f"--basetemp={tmp_path / 'cases'}", *_UNWRITABLE, *chosen]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", *options, CASES / f"{name}_cases.py"],
        env={**os.environ, "TFRECORDER_DATASET": out, **environment},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
