"""Beam's stock worker image, as near as this machine comes to it without a container.

The distributions of this environment that are in the image too, by links, and those of which the
image has another version (pandas), installed; and nothing else, above all no TensorFlow, no
simplejpeg and no tfrecorder.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

#: What the image has of Beam.  Some tools are in it besides, of which we use none.
#: Source: https://github.com/apache/beam, sdks/python/container/run_generate_requirements.sh
BEAM = "apache-beam[gcp,dataframe]"


def stock_distributions() -> dict[str, SpecifierSet]:
    """What the image holds by normalised names, with the versions it may have.

    By what the installed Beam says that it requires.  Beam's own list of the image
    (sdks/python/container/py3*/base_image_requirements.txt) is not in its wheel.
    """
    found: dict[str, SpecifierSet] = {}
    seen, todo = set[str](), [Requirement(BEAM)]
    while todo:
        one = todo.pop()
        name = normal(one.name)
        found[name] = found.get(name, SpecifierSet()) & one.specifier
        if str(one) not in seen:
            seen.add(str(one))
            todo += _required(one)
    return found


def _required(one: Requirement) -> Iterator[Requirement]:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # nor is it imported here
        for words in importlib.metadata.requires(one.name) or ():
            needed = Requirement(words)
            extras = ("", *one.extras)
            if needed.marker is None or any(needed.marker.evaluate({"extra": e}) for e in extras):
                yield needed


def normal(name: str) -> str:
    return re.sub("[-_.]+", "-", name).lower()


def make_image(folder: Path) -> Path:
    """The image's packages in a folder, which is used again where it stands already."""
    stock = stock_distributions()
    ours = [one for one in importlib.metadata.distributions() if normal(one.name) in stock]
    linked = [one for one in ours if stock[normal(one.name)].contains(one.version, True)]
    others = sorted(f"{one.name}{stock[normal(one.name)]}" for one in ours if one not in linked)
    # Links lead into this environment: another one, or other versions in it, is another image.
    content = sorted(f"{one.name} {one.version} {one.locate_file('')}" for one in linked)
    digest = hashlib.sha256("\n".join([sys.version, *content, *others]).encode()).hexdigest()
    image = folder / digest[:16]
    if image.exists():
        return image
    growing = folder / f"growing-{os.getpid()}"
    if others:
        _install(others, growing)
    for one in linked:
        _link(one, growing)
    try:
        growing.rename(image)
    except OSError:  # another process of the tests may have been quicker
        if not image.exists():
            raise
        shutil.rmtree(growing)
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
