"""Memory of freed batches stays at hand for the next ones, unless the user has decided."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest
from reading_cases import PHOTOS_CSV
from support import run

import tfrecorder

READ = """
import resource, sys, tfrecorder
train = tfrecorder.load(sys.argv[1], "TRAIN", batch_size=18, shuffle=False)
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        for batch in train: pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(faults())
"""

#: What the C library does of its own.
UNTOUCHED = {"MALLOC_TRIM_THRESHOLD_": str(2**17)}


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """36 records of 512x512 raw pixels: batches of 14 MB."""
    out = tmp_path_factory.mktemp("raw") / "out"
    options = {"image_format": "raw", "image_size": (512, 512), "progress": False}
    tfrecorder.convert(PHOTOS_CSV, out, **options)
    return out


def page_faults(out: Path, **environment: str) -> int:
    done = run("-c", READ, out, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told")
def test_batches_of_pixels_take_the_memory_of_those_before(raw: Path) -> None:
    assert page_faults(raw) < page_faults(raw, **UNTOUCHED) / 2
