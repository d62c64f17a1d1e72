"""Local folders that files were read from: if one is gone now, a disk went away.

An unmounted disk answers "no such file", as if its files had never existed, and often leaves an
empty folder in its place.  A missing image is a problem of its row; a missing disk is not.
"""

from __future__ import annotations

import os


class FoldersRead:
    """The folders that one conversion has seen, and all folders above them.

    Args:
        folder: one that existed when the conversion was planned.
    """

    def __init__(self, folder: str | None = None) -> None:
        self._known: set[str] = set()
        if folder is not None:
            self.add(folder)

    def add(self, folder: str) -> None:
        """Add a folder: a file was just read from it."""
        while folder not in self._known:  # nearly always it is
            self._known.add(folder)
            folder = os.path.dirname(folder)

    def vanished(self, path: str) -> str | None:
        """The folder above a missing file that existed before and is gone or empty now.

        None if there is no such folder: then only the file is missing.
        """
        folder = os.path.dirname(path)
        while folder not in self._known:
            above = os.path.dirname(folder)
            if above == folder:
                return None
            folder = above
        return None if _holds_anything(folder) else folder


def _holds_anything(folder: str) -> bool:
    try:
        with os.scandir(folder or ".") as entries:
            return next(entries, None) is not None
    except OSError:
        return False
