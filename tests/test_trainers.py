"""PyTorch and Grain read datasets: each in its own process, without TensorFlow and Beam.

Where torch or Grain is not installed, what needs it is skipped.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from reading_cases import convert_photos
from support import skip_without

#: torch warns of a tensor that shares memory which may not be written.
_UNWRITABLE = ("-W", "error:The given NumPy array is not writable")
CASES = Path(__file__).parent / "trainers"


@pytest.mark.slow
@pytest.mark.parametrize("package", ["torch", "grain"])
def test_a_trainer_reads_without_tensorflow(package: str, tmp_path: Path) -> None:
    skip_without(package)
    out = convert_photos(tmp_path / "out")
    options = ["-p", "no:cacheprovider", f"--basetemp={tmp_path / 'cases'}", *_UNWRITABLE]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", *options, CASES / f"{package}_cases.py"],
        env={**os.environ, "TFRECORDER_DATASET": out},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
