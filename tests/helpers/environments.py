"""Pythons with some of the packages: fresh environments, and this one with some of them hidden."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from support import start

from helpers.doc_pages import ROOT

#: Python's own way to find modules, but for some packages.
_HIDING = """
import sys
from importlib.machinery import PathFinder

class Hiding:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        hidden = name.partition(".")[0] in {hidden!r}
        return None if hidden else PathFinder.find_spec(name, path, target)

    @staticmethod
    def find_distributions(*args, **kwargs):
        return PathFinder.find_distributions(*args, **kwargs)

    @staticmethod
    def invalidate_caches():
        PathFinder.invalidate_caches()

sys.meta_path = [Hiding if one is PathFinder else one for one in sys.meta_path]
"""


class Environment:
    """A Python with some of the packages, in the folder of the test that runs."""

    def __init__(self, python: Path | str, **variables: str) -> None:
        self._python = str(python)
        self._variables = {"TF_CPP_MIN_LOG_LEVEL": "3", **variables}

    def run(self, *arguments: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self._python, *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": "", **self._variables},
            capture_output=True,
            text=True,
            timeout=300,
        )

    def starts(self, code: str) -> subprocess.Popen[str]:
        """A process that runs some lines after `import tfrecorder`, and can be interrupted."""
        variables = {**os.environ, "PYTHONPATH": "", **self._variables}
        return start(f"import tfrecorder\n{code}", env=variables)

    def does(self, code: str) -> None:
        """Run some lines after `import tfrecorder`."""
        done = self.run("-c", f"import tfrecorder\n{code}")
        assert done.returncode == 0, done.stdout + done.stderr

    def command(self, *words: Any) -> str:
        """What a command that goes well prints."""
        done = self.run("-m", "tfrecorder", *words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def refuses(self, *words: Any) -> str:
        """The one line that a command ends with."""
        done = self.run("-m", "tfrecorder", *words)
        assert done.returncode == 1, done.stdout + done.stderr
        assert done.stdout == ""
        (line,) = done.stderr.splitlines()
        return line


def without(folder: Path, *hidden: str) -> Environment:
    """This Python with some packages hidden.

    Args:
        folder: an empty one, for what hides them.
    """
    (folder / "sitecustomize.py").write_text(_HIDING.format(hidden=hidden))
    return Environment(sys.executable, PYTHONPATH=f"{folder}{os.pathsep}{ROOT}")
