"""Memory of freed buffers stays at hand for the next ones, unless the user has decided."""

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
train = tfrecorder.load(sys.argv[1], "TRAIN", batch_size=18, shuffle=False, image_size=(512, 512))
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        for batch in train: pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(faults())
"""

#: Asks the C library for what it does anyway; `load` leaves it alone then.
UNTOUCHED = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=7"}


def raw(folder: Path) -> Path:
    """36 records of 512x512 raw pixels: batches of 14 MB."""
    options = {"image_format": "raw", "image_size": (512, 512), "progress": False}
    tfrecorder.convert(PHOTOS_CSV, folder / "out", **options)
    return folder / "out"


def page_faults(out: Path, **environment: str) -> int:
    done = run("-c", READ, out, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has this setting")
def test_batches_of_raw_pixels_take_the_memory_of_those_before(tmp_path: Path) -> None:
    out = raw(tmp_path)
    kept, untouched = page_faults(out), page_faults(out, **UNTOUCHED)
    assert kept < untouched / 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "decode", "set_once"), [("keep", True, 0), ("keep", False, 1), ("raw", True, 1)]
)
def test_the_allocator_is_left_alone_where_images_are_decoded(
    tmp_path: Path, form: str, decode: bool, set_once: int
) -> None:
    options = {"image_format": form, "image_size": (32, 32), "progress": False}
    tfrecorder.convert(PHOTOS_CSV, tmp_path / "out", **options)
    load = f"tfrecorder.load(sys.argv[1], decode={decode})"
    words = f"keep_freed_memory as it; {load}; print(it.cache_info().currsize)"
    code = f"import sys, tfrecorder; from tfrecorder.loading.allocator import {words}"
    done = run("-c", code, tmp_path / "out")
    assert (done.returncode, done.stdout.strip()) == (0, str(set_once)), done.stderr
