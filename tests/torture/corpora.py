"""Images that others collected to test decoders: what is accepted, why not, and with which pixels.

Debian's source packages bring them, as apt-get has them from its registry: Pillow's own test
images (with bmpsuite), libpng's (with PngSuite) and libjpeg-turbo's.  Without apt-get there is
nothing to do.  Each file is a row of one conversion; each record's pixels, as TensorFlow decodes
what was stored, are compared with Pillow's of the original file; each reject's reason is put to
the decoders that are not ours.
"""

from __future__ import annotations

import collections
import io
import shutil
import subprocess
import sys
import tarfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from support import records, rejects

from torture.counts import Count, demand, lost_rows
from torture.judging import Refused, contradiction

#: Debian's source packages, and the folders of each that hold images.
PACKAGES = {
    "pillow": ("Tests/images",),
    "libpng1.6": ("contrib/pngsuite", "contrib/testpngs"),
    "libjpeg-turbo": ("testimages",),
}

#: File names that end so are images of a format that we take.
SUFFIXES = ("png", "jpg", "jpeg", "bmp", "dib", "gif", "tif", "tiff", "webp", "pgm", "ppm", "pbm")

#: In grey levels: decoders of JPEG may round differently.
MOST_APART = 2


def collect(folder: Path) -> list[Count]:
    """Convert every corpus, and judge what came of it."""
    folder.mkdir(parents=True, exist_ok=True)
    if shutil.which("apt-get") is None:
        return [Count("corpora: no apt-get here", 0, 0, 0)]
    images = _bring(folder)
    counts = []
    for name, paths in images.items():
        counts += _convert(name, paths, folder / f"out-{name}")
    return counts


def _bring(folder: Path) -> dict[str, list[Path]]:
    """The images of each package, unpacked below a folder."""
    _download(folder)
    found = {}
    for name, parts in PACKAGES.items():
        archive = next(folder.glob(f"{name}_*.orig.tar.*"))
        with tarfile.open(archive) as tar:
            tar.extractall(folder / name, filter="data")
        root = next((folder / name).iterdir())
        found[name] = sorted(
            path
            for part in parts
            for path in (root / part).rglob("*")
            if path.is_file() and path.suffix[1:].lower() in SUFFIXES
        )
        demand(found[name], f"{archive} holds no images in {', '.join(parts)}")
    return found


def _download(folder: Path) -> None:
    """The packages' sources, from the machine's own registry; the system stays as it is."""
    sources, lists, cache = folder / "sources", folder / "lists", folder / "cache"
    for made in (sources, lists / "partial", cache / "archives" / "partial"):
        made.mkdir(parents=True)
    for path in Path("/etc/apt/sources.list.d").glob("*.sources"):
        words = path.read_text().replace("Types: deb\n", "Types: deb-src\n")
        (sources / path.name).write_text(words)
    for path in (Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*.list")):
        if path.exists():
            lines = [f"deb-src{line[3:]}\n" for line in path.open() if line.startswith("deb ")]
            (sources / path.name).with_suffix(".list").write_text("".join(lines))
    settings = {
        "Dir::Etc::SourceList": "/dev/null",
        "Dir::Etc::SourceParts": str(sources),
        "Dir::State::Lists": str(lists),
        "Dir::Cache": str(cache),
    }
    apt = [
        "apt-get",
        "-qq",
        "-oAPT::Sandbox::User=root",
        *(f"-o{name}={value}" for name, value in settings.items()),
    ]
    subprocess.run([*apt, "update"], check=True, cwd=folder)
    for name in PACKAGES:
        # Debian's own changes may be gone from a mirror; the original archive is what counts.
        subprocess.run([*apt, "source", "--download-only", name], check=False, cwd=folder)


def _convert(name: str, paths: list[Path], out: Path) -> list[Count]:
    """A conversion of all files of a corpus, a line of the table for each format."""
    import pandas as pd

    import tfrecorder

    rows = pd.DataFrame({"image_uri": [str(path) for path in paths]})
    tfrecorder.convert(rows, out, max_reject_fraction=1.0, progress=False)
    demand(tfrecorder.verify(out).ok, f"{name}: verify finds faults in {out}")
    lost = lost_rows(out, len(paths))
    reasons = collections.defaultdict(collections.Counter)
    for reject in rejects(out).itertuples():
        path, code = paths[int(reject.row)], reject.reason.partition(":")[0]
        refused = Refused(reject.stage, code, reject.reason)
        words = contradiction((path.read_bytes(), refused))
        demand(not words, f"{path}: rejected as {reject.reason!r}, but {words}")
        reasons[_kind(path)][code] += 1
    accepted, equal = collections.Counter[str](), collections.Counter[str]()
    for record in records(out):
        path = paths[int(record["image/source_id"])]
        accepted[_kind(path)] += 1
        apart = _apart(path, record)
        equal[_kind(path)] += apart is not None and apart <= MOST_APART
        if apart is None or apart > MOST_APART:
            print(f"{name}: {path.name}: pixels differ by {apart}", file=sys.stderr)
    kinds = collections.Counter(map(_kind, paths))
    return [
        Count(
            f"{name}, {kind}",
            1,
            count,
            lost if kind == min(kinds) else 0,
            f"{accepted[kind]} accepted, {equal[kind]} with Pillow's pixels"
            + "".join(f"; {number} {code}" for code, number in reasons[kind].most_common()),
        )
        for kind, count in sorted(kinds.items())
    ]


def _kind(path: Path) -> str:
    return {"jpeg": "jpg", "tiff": "tif", "dib": "bmp"}.get(
        path.suffix[1:].lower(), path.suffix[1:].lower()
    )


def _apart(path: Path, record: dict[str, Any]) -> int | None:
    """The largest difference of a record's pixels from Pillow's.

    None where the shapes differ, or Pillow refuses the file.
    """
    import tensorflow as tf

    data, channels = record["image/encoded"], int(record["image/channels"])
    wanted = channels if channels != 2 else 0  # grey with alpha, as it is
    if record["image/format"] in (b"jpeg", "jpeg"):
        ours = tf.io.decode_jpeg(data, channels, dct_method="INTEGER_ACCURATE").numpy()
    else:
        ours = tf.io.decode_image(data, wanted, expand_animations=False).numpy()
    try:
        theirs = _by_pillow(path.read_bytes(), channels)
    except (OSError, SyntaxError, ValueError):
        return None
    # Pillow turns a TIFF by its orientation; we keep pixels as they are stored.
    turns = _turned(theirs) if _kind(path) == "tif" else [theirs]
    apart = [int(np.abs(ours.astype(int) - one).max()) for one in turns if one.shape == ours.shape]
    return min(apart, default=None)


def _turned(pixels: np.ndarray) -> list[np.ndarray]:
    """An image as it lies in each of the eight orientations."""
    quarters = [np.rot90(pixels, turns) for turns in range(4)]
    return quarters + [one[:, ::-1] for one in quarters]


def _by_pillow(data: bytes, channels: int) -> np.ndarray:
    """Pixels of the first picture of a file, of 16 bits the upper 8."""
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        image: Any = Image.open(io.BytesIO(data))
        image.load()
    if image.mode.startswith("I"):
        pixels = np.asarray(image).astype(np.int64) >> 8
    else:
        pixels = np.asarray(image.convert({1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}[channels]))
    return pixels.reshape(*pixels.shape[:2], -1)
