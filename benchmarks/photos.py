"""Brings real photographs to a folder: Debian wallpaper packages, unpacked, not installed.

    photos.py [--data DIR]          makes DIR/photos

Only those with texture: drawings and gradients make no realistic JPEG.  Needs apt-get and
dpkg-deb; elsewhere put a dozen photographs of your own into DIR/photos.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import harness

PACKAGES = ("mate-backgrounds", "lomiri-wallpapers-16.04")
NAMES = (
    "Blinds",
    "Dragonfly_by_Bolly",
    "Dune",
    "GreenMeadow",
    "Picture_0B_by_freespace",
    "Picture_1A_by_freespace",
    "RainDrops",
    "Wood",
    "aitzgorri_by_Aitzol_Berasategi",
    "friends_by_Aitzol_Berasategi",
    "life_by_Aitzol_Berasategi",
    "picosdeeuropa_by_Aitzol_Berasategi",
    "sunset_by_Aitzol_Berasategi",
)


def bring_photos(folder: Path) -> int:
    """Fill a folder with the photographs, unless it has some; how many it holds then."""
    folder.mkdir(parents=True, exist_ok=True)
    if not any(folder.iterdir()):
        with tempfile.TemporaryDirectory() as scratch:
            # An old package list may do; only the download itself must not fail.
            subprocess.run(["apt-get", "update"], stdout=subprocess.DEVNULL, check=False)
            subprocess.run(["apt-get", "download", *PACKAGES], cwd=scratch, check=True)
            for package in Path(scratch).glob("*.deb"):
                subprocess.run(["dpkg-deb", "-x", package, f"{scratch}/all"], check=True)
            for path in Path(scratch, "all").rglob("*.jpg"):
                if path.stem in NAMES and not path.is_symlink():
                    shutil.copy(path, folder / path.name)
    return len(list(folder.iterdir()))


if __name__ == "__main__":
    parser = harness.parser(__doc__)
    print(bring_photos(parser.parse_args().data / "photos"), "photographs")
