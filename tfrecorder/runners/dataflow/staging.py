"""What is staged for the workers: two wheels, for their platform, not this machine's.

Beam's stock image has everything that writing imports except this package itself and simplejpeg,
the strict check of JPEG files.  Both go with the job, so that workers need no internet access.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import Distribution, distribution

from tfrecorder.errors import RunnerError
from tfrecorder.runners.dataflow.wheel import build_wheel, rebuild_wheel, wheel_tags

#: Compute Engine's machine series with Arm cores.
_ARM = re.compile(r"(?:t2a|c4a|n4a)-")

#: Platforms of wheels that Beam's image (Debian, glibc 2.36) can use, for pip to choose from.
_PLATFORMS = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014")

_SIMPLEJPEG = "simplejpeg"


def worker_machine(machine_type: str | None) -> str:
    """The processor of a Compute Engine machine type, as wheels name it.

    >>> worker_machine(None), worker_machine("n2-standard-4"), worker_machine("t2a-standard-4")
    ('x86_64', 'x86_64', 'aarch64')
    """
    return "aarch64" if _ARM.match(machine_type or "") else "x86_64"


def stage_wheels(folder: str, machine: str, given: Sequence[str] = ()) -> list[str]:
    """Put what the workers must install into a folder, in addition to what the user stages.

    Args:
        folder: where to put it.
        machine: of the workers, as `worker_machine` gives it.
        given: packages that the user stages; a simplejpeg among them replaces ours.

    Returns:
        The paths, for Beam's `extra_packages`.

    Raises:
        RunnerError: no simplejpeg for the workers' platform could be downloaded.
    """
    if any(os.path.basename(path).startswith(f"{_SIMPLEJPEG}-") for path in given):
        return [build_wheel(folder)]
    return [_simplejpeg(folder, machine), build_wheel(folder)]


def _simplejpeg(folder: str, machine: str) -> str:
    """The wheel of the simplejpeg that is installed here, for another platform if need be."""
    found = distribution(_SIMPLEJPEG)
    if _fits(found, machine):
        # Slim images drop files that nobody imports: a licence, even the list of files.
        with contextlib.suppress(FileNotFoundError):
            return rebuild_wheel(found, folder)
    return _download(found.version, folder, machine)


def _fits(found: Distribution, machine: str) -> bool:
    """True if what is installed here, from a manylinux wheel, also runs on the workers."""
    platforms = [tag.split("-")[2] for tag in wheel_tags(found)]
    return any(name.startswith("manylinux") and name.endswith(machine) for name in platforms)


def _download(version: str, folder: str, machine: str) -> str:
    # The workers run the same Python as the launcher: Beam picks the image by it.
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    platforms = [word for name in _PLATFORMS for word in ("--platform", f"{name}_{machine}")]
    wanted = f"{_SIMPLEJPEG}=={version}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--no-deps"]
    command += ["--disable-pip-version-check", "--only-binary", ":all:", "--dest", folder]
    command += ["--implementation", "cp", "--python-version", python, *platforms, wanted]
    finished = subprocess.run(command, capture_output=True, text=True)
    if finished.returncode:
        words = finished.stderr.strip().splitlines() or ["pip gave no reason"]
        raise RunnerError(
            f"the workers need {wanted} for Python {python} on Linux {machine}, which pip could "
            f"not download: {words[-1]} Download it where there is a network, with `pip download "
            f"--no-deps --only-binary :all: --python-version {python} --platform "
            f"manylinux2014_{machine} {wanted}`, and give its path as the runner option "
            "extra_package."
        )
    [name] = [name for name in os.listdir(folder) if name.startswith(f"{_SIMPLEJPEG}-")]
    return os.path.join(folder, name)
