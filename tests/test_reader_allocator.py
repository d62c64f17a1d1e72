"""Memory of freed buffers stays at hand for the next ones, unless the user has decided."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from PIL import Image
from reading_cases import PHOTOS_CSV
from support import PHOTOS, run

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

#: Tells the C library what it does anyway; `load` leaves it alone then.
UNTOUCHED = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=7"}


def raw(folder: Path) -> Path:
    """36 records of 512x512 raw pixels: batches of 14 MB."""
    options = {"image_format": "raw", "image_size": (512, 512), "progress": False}
    tfrecorder.convert(PHOTOS_CSV, folder / "out", **options)
    return folder / "out"


def large(folder: Path) -> Path:
    """4 photographs of 9 megapixels and 3 MB."""
    images = folder / "images"
    images.mkdir()
    for number, path in enumerate(PHOTOS[:4]):
        with Image.open(path) as photo:
            large = photo.convert("RGB").resize((3600, 2500))
        grain = Image.effect_noise(large.size, 40).convert("RGB")
        Image.blend(large, grain, 0.3).save(images / f"{number}.jpg", quality=90)
    frame = pd.DataFrame({"split": "TRAIN", "image_uri": sorted(map(str, images.iterdir()))})
    tfrecorder.convert(frame, folder / "out", num_shards=1, progress=False)
    return folder / "out"


def page_faults(out: Path, **environment: str) -> int:
    done = run("-c", READ, out, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told")
@pytest.mark.parametrize("make", [raw, large], ids=["batches of pixels", "large records"])
def test_large_buffers_take_the_memory_of_those_before(
    make: Callable[[Path], Path], tmp_path: Path
) -> None:
    out = make(tmp_path)
    kept, untouched = page_faults(out), page_faults(out, **UNTOUCHED)
    assert kept < untouched / 2
