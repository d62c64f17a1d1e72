"""Wheels made from installed files: what a Dataflow worker installs on top of Beam's stock image.

Both are made here, so that nobody has to build a package by hand.  Ours is made from the code that
runs in this process, however it was installed.  Another package's is rebuilt as its publisher
built it.
"""

from __future__ import annotations

import base64
import hashlib
import os
import zipfile
from collections.abc import Mapping
from importlib.metadata import Distribution
from pathlib import Path

from tfrecorder import version
from tfrecorder.version import __version__

#: The least that a wheel says about itself.  It declares no requirements: Beam's worker runs pip on
#: each wheel twice, and the second time it would look for them on the network.
_METADATA = f"Metadata-Version: 2.1\nName: tfrecorder\nVersion: {__version__}\n"
_WHEEL = "Wheel-Version: 1.0\nGenerator: tfrecorder\nRoot-Is-Purelib: true\nTag: py3-none-any\n"

#: Files that an installer adds to a package; they are not copied into a wheel.
_INSTALLERS = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")

#: The time of every file in a wheel, so that the same files give the same bytes.
_TIME = (1980, 1, 1, 0, 0, 0)


def build_wheel(folder: str) -> str:
    """Write a wheel of this package, as installed here, into a folder, and return its path."""
    package = Path(version.__file__).parent  # version.py is at the top of the package
    files = {
        f"{package.name}/{path.relative_to(package).as_posix()}": path.read_bytes()
        for path in sorted(package.rglob("*"))
        if path.is_file() and path.suffix != ".pyc" and "__pycache__" not in path.parts
    }
    info = f"tfrecorder-{__version__}.dist-info"
    files[f"{info}/METADATA"] = _METADATA.encode()
    files[f"{info}/WHEEL"] = _WHEEL.encode()
    return _write(os.path.join(folder, f"tfrecorder-{__version__}-py3-none-any.whl"), info, files)


def rebuild_wheel(found: Distribution, folder: str) -> str:
    """Rebuild the wheel that an installed package came from, and return its path.

    Raises:
        FileNotFoundError: some of its files are missing, or it was not installed from a wheel.
    """
    tags = wheel_tags(found)
    if not tags or found.files is None:
        raise FileNotFoundError(f"{found.name} was not installed from a wheel")
    # Scripts are outside the folder of packages, and each installer makes them again.
    inside = [path for path in found.files if path.parts[0] != ".." and path.suffix != ".pyc"]
    info = next(path.parts[0] for path in inside if path.parts[0].endswith(".dist-info"))
    files = {
        path.as_posix(): Path(str(found.locate_file(path))).read_bytes()
        for path in inside
        if not (path.parts[0] == info and path.name in _INSTALLERS)
    }
    # Every Python, ABI and platform that it was built for: "py2.py3-none-any" is two tags.
    kinds = zip(*(tag.split("-") for tag in tags), strict=True)
    built_for = "-".join(".".join(sorted(set(kind))) for kind in kinds)
    name = f"{found.name.replace('-', '_')}-{found.version}-{built_for}.whl"
    return _write(os.path.join(folder, name), info, files)


def wheel_tags(found: Distribution) -> list[str]:
    """What an installed package was built for, such as "cp311-cp311-manylinux2014_x86_64"."""
    lines = (found.read_text("WHEEL") or "").splitlines()
    return [line.removeprefix("Tag:").strip() for line in lines if line.startswith("Tag:")]


def _write(path: str, info: str, files: Mapping[str, bytes]) -> str:
    lines = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, data in files.items():
            _add(wheel, name, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            lines.append(f"{name},sha256={digest},{len(data)}\n")
        record = f"{info}/RECORD"
        _add(wheel, record, "".join([*lines, f"{record},,\n"]).encode())
    return path


def _add(wheel: zipfile.ZipFile, name: str, data: bytes) -> None:
    one = zipfile.ZipInfo(name, _TIME)
    one.external_attr = 0o100644 << 16  # a plain file that all may read
    one.compress_type = zipfile.ZIP_DEFLATED
    wheel.writestr(one, data)
