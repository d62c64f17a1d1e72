"""Beam's stock worker image, as near as this machine comes to it without a container.

The distributions of this environment that are in the image too, by links, with the image's own
pandas; and nothing else, above all no TensorFlow, no simplejpeg and no tfrecorder.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

LIST = Path(__file__).parent / "stock_image.txt"

#: The image's own version where ours is another one, of which the workers would notice.
_OTHER_VERSIONS = ("pandas",)


def stock_distributions() -> dict[str, str]:
    """The image's distributions by their normalised names, with their versions."""
    lines = [line.strip() for line in LIST.read_text().splitlines() if not line.startswith("#")]
    pairs = [line.split("==") for line in lines]
    return {normal(name): version for name, version in pairs}


def normal(name: str) -> str:
    return re.sub("[-_.]+", "-", name).lower()


def make_image(folder: Path) -> Path:
    """The image's packages in a folder, which is used again where it stands already."""
    wanted = {"apache-beam", *stock_distributions()} - {*_OTHER_VERSIONS}
    linked = [one for one in importlib.metadata.distributions() if normal(one.name) in wanted]
    others = [f"{name}=={stock_distributions()[name]}" for name in _OTHER_VERSIONS]
    # Links lead into this environment: another one, or other versions in it, is another image.
    content = sorted(f"{one.name} {one.version} {one.locate_file('')}" for one in linked)
    digest = hashlib.sha256("\n".join([sys.version, *content, *others]).encode()).hexdigest()
    image = folder / digest[:16]
    if image.exists():
        return image
    growing = folder / f"growing-{os.getpid()}"
    _install(others, growing)
    for one in linked:
        _link(one, growing)
    growing.rename(image)
    return image


def _install(requirements: list[str], target: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"]
    command += ["--disable-pip-version-check", "--target", str(target), *requirements]
    subprocess.run(command, check=True, capture_output=True, text=True)


def _link(found: importlib.metadata.Distribution, target: Path) -> None:
    """Link each file of a distribution: folders of several of them must not be one another's."""
    for file in found.files or ():
        source = Path(str(found.locate_file(file)))
        if ".." in file.parts or not source.is_file():
            continue  # scripts, and what was removed since
        link = target / str(file)
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.exists():
            link.symlink_to(source.resolve())


def start(image: Path, folder: Path) -> Path:
    """A fresh environment with what the image holds; its Python."""
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    [packages] = folder.glob("lib/python*/site-packages")
    (packages / "image.pth").write_text(f"{image}\n")
    return folder / "bin" / "python"
