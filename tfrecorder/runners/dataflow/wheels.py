"""The wheels that are staged for the workers, for their platform, not this machine's.

Beam's stock image has everything that writing imports except this package itself, simplejpeg, the
strict check of JPEG files, pycocotools, which draws masks, and pillow-heif, which reads HEIC.  They
go with the job, so that workers need no internet access, and they are made here, so that nobody has
to build a package by hand.  Ours is made from the code that runs in this process, however it was
installed.  The others are rebuilt as their publishers built them, or downloaded.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from importlib.metadata import Distribution, PackagePath, distribution
from pathlib import Path

from tfrecorder import version
from tfrecorder.core.option import spelled
from tfrecorder.errors import RunnerError
from tfrecorder.version import __version__

#: Compute Engine's machine series with Arm cores.
_ARM = re.compile(r"(?:t2a|c4a|n4a)-")

#: Platforms of wheels that Beam's image (Debian, glibc 2.36) can use, for pip to choose from.
_PLATFORMS = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014")

#: The package that writing always imports and Beam's image has not.
_NEEDED = "simplejpeg"

#: The least that a wheel says about itself.  It declares no requirements: Beam's worker runs pip on
#: each wheel twice, and the second time it would look for them on the network.
_METADATA = f"Metadata-Version: 2.1\nName: tfrecorder\nVersion: {__version__}\n"
_WHEEL = "Wheel-Version: 1.0\nGenerator: tfrecorder\nRoot-Is-Purelib: true\nTag: py3-none-any\n"

#: Files that an installer adds to a package; they are not copied into a wheel.
_INSTALLERS = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")


def worker_machine(machine_type: str | None) -> str:
    """The processor of a Compute Engine machine type, as wheels name it.

    >>> worker_machine(None), worker_machine("n2-standard-4"), worker_machine("t2a-standard-4")
    ('x86_64', 'x86_64', 'aarch64')
    """
    return "aarch64" if _ARM.match(machine_type or "") else "x86_64"


def stage_wheels(
    folder: str,
    machine: str,
    given: Sequence[str] = (),
    extras: Sequence[str] = (),
) -> list[str]:
    """Put what the workers must install into a folder, in addition to what the user stages.

    Args:
        folder: where to put it.
        machine: of the workers, as `worker_machine` gives it.
        given: packages that the user stages; they replace ours of the same name.
        extras: packages of our extras that the workers need, installed here.

    Returns:
        The paths, for Beam's `extra_packages`.

    Raises:
        RunnerError: a package for the workers' platform could not be downloaded.
    """
    theirs = {os.path.basename(path).partition("-")[0] for path in given}
    names = [name for name in (_NEEDED, *extras) if name not in theirs]
    return [*(_wheel_of(name, folder, machine) for name in names), build_wheel(folder)]


def _wheel_of(
    name: str,
    folder: str,
    machine: str,
) -> str:
    """The wheel of a package that is installed here, for another platform if need be."""
    package = distribution(name)
    lines = (package.read_text("WHEEL") or "").splitlines()
    tags = [line.removeprefix("Tag:").strip() for line in lines if line.startswith("Tag:")]
    usable = [tag for tag in tags if "-manylinux" in tag and tag.endswith(machine)]
    if usable and package.files is not None:
        # Slim images drop files that nobody imports: a licence, even the list of files.
        with contextlib.suppress(FileNotFoundError):
            return _rebuild(package, package.files, usable[0], folder)
    return _download(name, package.version, folder, machine)


def _download(
    name: str,
    version: str,
    folder: str,
    machine: str,
) -> str:
    # The workers run the same Python as the launcher: Beam picks the image by it.
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    platforms = [flag for name in _PLATFORMS for flag in ("--platform", f"{name}_{machine}")]
    wanted = f"{name}=={version}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--no-deps"]
    command += ["--disable-pip-version-check", "--only-binary", ":all:", "--dest", folder]
    command += ["--implementation", "cp", "--python-version", python, *platforms, wanted]
    finished = subprocess.run(command, capture_output=True, text=True)
    if finished.returncode:
        reasons = finished.stderr.strip().splitlines() or ["pip gave no reason"]
        raise RunnerError(
            f"the workers need {wanted} for Python {python} on Linux {machine}, which pip could "
            f"not download: {reasons[-1]} Download it where there is a network, with `pip download "
            f"--no-deps --only-binary :all: --python-version {python} --platform "
            f"manylinux2014_{machine} {wanted}`, and give its path as "
            f"{spelled('runner_options', {'extra_package': 'FILE'})}."
        )
    [file] = [file for file in os.listdir(folder) if file.startswith(f"{name}-")]
    return os.path.join(folder, file)


def build_wheel(folder: str) -> str:
    """Write a wheel of this package, as installed here, into a folder, and return its path."""
    root = Path(version.__file__).parent  # version.py is at the top of the package
    files = {
        f"{root.name}/{path.relative_to(root).as_posix()}": path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.suffix != ".pyc" and "__pycache__" not in path.parts
    }
    info = f"tfrecorder-{__version__}.dist-info"
    files[f"{info}/METADATA"] = _METADATA.encode()
    files[f"{info}/WHEEL"] = _WHEEL.encode()
    return _write(os.path.join(folder, f"tfrecorder-{__version__}-py3-none-any.whl"), info, files)


def _rebuild(
    package: Distribution,
    files: Sequence[PackagePath],
    tag: str,
    folder: str,
) -> str:
    """Rebuild the wheel that an installed package came from, and return its path.

    Raises:
        FileNotFoundError: some of its files are missing.
    """
    # Scripts are outside the folder of packages, and each installer makes them again.
    inside = [path for path in files if path.parts[0] != ".." and path.suffix != ".pyc"]
    info = next(path.parts[0] for path in inside if path.parts[0].endswith(".dist-info"))
    contents = {
        path.as_posix(): Path(str(package.locate_file(path))).read_bytes()
        for path in inside
        if not (path.parts[0] == info and path.name in _INSTALLERS)
    }
    return _write(
        os.path.join(folder, f"{package.name.replace('-', '_')}-{package.version}-{tag}.whl"),
        info,
        contents,
    )


def _write(
    path: str,
    info: str,
    files: Mapping[str, bytes],
) -> str:
    lines = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, data in files.items():
            _add(wheel, name, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            lines.append(f"{name},sha256={digest},{len(data)}\n")
        record = f"{info}/RECORD"
        _add(wheel, record, "".join([*lines, f"{record},,\n"]).encode())
    return path


def _add(
    wheel: zipfile.ZipFile,
    name: str,
    data: bytes,
) -> None:
    info = zipfile.ZipInfo(name)  # of one time, so that the same files give the same bytes
    info.external_attr = 0o100644 << 16  # a plain file that all may read
    wheel.writestr(info, data, zipfile.ZIP_DEFLATED)
