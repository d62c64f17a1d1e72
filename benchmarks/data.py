"""The data sets that the benchmarks share, made on first use in a --data directory."""

from __future__ import annotations

from pathlib import Path

import make_images
import photos


def photographs(data: Path, count: int) -> Path:
    """A folder of at least `count` photographs of about 500x375, 88 KB."""
    folder = data / "photographs"
    if _have(folder) < count:
        photos.bring_photos(data / "photos")
        make_images.main([str(folder), str(count), "--photos", str(data / "photos")])
    return folder


def linked(data: Path, count: int, distinct: int) -> Path:
    """The CSV of `count` images under names of their own: hard links to `distinct` photographs."""
    folder = data / f"linked-{count}"
    if _have(folder) < count:
        make_images.link_copies(photographs(data, distinct), distinct, count, folder)
    return folder / "data.csv"


def synthetic(data: Path, count: int) -> Path:
    """A folder of at least `count` small synthetic images, about 0.7 KB each."""
    folder = data / "synthetic"
    if _have(folder) < count:
        make_images.main([str(folder), str(count), "--synthetic"])
    return folder


def linked_synthetic(data: Path, count: int, distinct: int) -> Path:
    """As `linked`, of small synthetic images: a million take 150 MB of disk, for their folders."""
    folder = data / f"linked-synthetic-{count}"
    if _have(folder) < count:
        make_images.link_copies(synthetic(data, distinct), distinct, count, folder)
    return folder / "data.csv"


def listed(folder: Path, count: int) -> Path:
    """The CSV of the first `count` images of a folder."""
    path = folder / f"data-{count}.csv"
    make_images.write_csv(path, folder, count)
    return path


def _have(folder: Path) -> int:
    path = folder / "data.csv"
    return sum(1 for _ in open(path)) - 1 if path.exists() else 0
