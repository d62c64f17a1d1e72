"""What lies there instead of a file that is missing: a name like it, or the same name elsewhere."""

from __future__ import annotations

import contextlib
import itertools
import os
from pathlib import Path
from typing import NamedTuple

from tfrecorder.core.option import spelled
from tfrecorder.core.text import composed
from tfrecorder.storage import files
from tfrecorder.storage.store import UnreadableError
from tfrecorder.storage.uris import (
    absolute,
    backslash_hint,
    is_local,
    is_web,
    look_of,
    parent,
    scheme,
    stem_of,
)

#: How a file that git-lfs did not fetch begins.
#: Source: https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md
LFS_POINTER = b"version https://git-lfs.github.com/spec/"

#: The most bytes that such a file has.
_POINTER_BYTES = 1024

#: What such a file is, and the remedy.
LFS_WORDS = "a pointer of Git LFS; `git lfs pull` brings the file itself"

#: The most folders that are listed: on a disk, and on a store.
_LISTINGS = 64
_REMOTE_LISTINGS = 4

#: The most files among which one of the same name is looked for.
_SEARCHED = 100_000

#: In what a name differs, in words.
_WORDS = {
    "ending": "{!r} is there, with another ending",
    "case": "{!r} is there, in other upper and lower case",
    "form": "{!a} is there, in another Unicode form",
    "slashes": "{!r} is there: write / between folders, not \\",
    "blanks": "{!r} is there, without the blanks",
    "place": "{!r} has the same name",
    "link": "it is a link to {!r}, which is not there",
}


class Near(NamedTuple):
    """What lies there instead of a missing file.

    Attributes:
        path: of it; where a link leads that leads nowhere.
        differs: in what the missing name differs from it: a key of `_WORDS`.
        shown: the path as a message shows it.
    """

    path: str
    differs: str
    shown: str

    def __str__(self) -> str:
        return _WORDS[self.differs].format(self.shown)


class Beside:
    """Looks for what lies there instead of missing files; lists each folder once, and not many.

    Args:
        base: the folder below which a file may lie elsewhere, if it is on a disk; "" for none.
        endings: in lower case, of those files that may be meant by the name of another.
    """

    def __init__(
        self,
        base: str,
        endings: tuple[str, ...],
    ) -> None:
        self.base = base
        self._endings = endings
        self._listed: dict[str, dict[str, list[str]]] = {}
        self._below: dict[str, list[str]] | None = None

    def near(self, path: str) -> Near | None:
        """What lies there instead of the file that this path names; None if nothing is like it."""
        if is_web(path):
            return None
        if is_local(path) and os.path.islink(path):
            target = os.readlink(path)
            return Near(target, "link", target)
        plain = path.replace("\\", "/")
        differs = "ending"
        found = self._like(plain)
        if not found:
            differs = "place"
            found = self._elsewhere(plain)
        elif found == plain:
            differs = "slashes"
        elif found.replace(" ", "") == plain.replace(" ", ""):
            differs = "blanks"
        elif composed(found) == composed(plain):
            differs = "form"
        elif look_of(found) == look_of(plain):
            differs = "case"
        if found in ("", path):  # it may have come meanwhile
            return None
        return Near(found, differs, found.removeprefix(f"{self.base}/") if self.base else found)

    def hint(
        self,
        path: str,
        code: str = "not_found",
    ) -> str:
        """What to add to the message of an `UnreadableError` of this code, or ""."""
        if code == "private_host":
            return f"; {spelled('private_hosts', True)} allows it"
        near = self.near(path) if code == "not_found" else None
        return f"; {near}" if near else backslash_hint(path)

    def _like(self, path: str) -> str:
        """A path that is there and like this one, in its folders too; "" if none is."""
        folder = parent(path)
        most = _LISTINGS if is_local(path) else _REMOTE_LISTINGS
        is_enough = folder not in self._listed and len(self._listed) >= most
        if is_enough or folder in ("", path, f"{scheme(path)}:/"):
            return ""
        names = self._names_in(folder)
        if not names:
            folder = self._like(folder)
            names = self._names_in(folder) if folder else {}
        name = path.rpartition("/")[2]
        stems = (f"{look_of(stem)}." for stem in (name, stem_of(name)))
        found = next(filter(None, map(names.get, (look_of(name), *stems))), None)
        if found is None:
            return ""
        best = min(found, key=lambda other: (other != name, composed(other) != composed(name)))
        return f"{folder.rstrip('/')}/{best}"

    def _names_in(self, folder: str) -> dict[str, list[str]]:
        """The names in a folder by what makes them alike; by their stems too, with a "." after."""
        if folder not in self._listed:
            names = self._listed[folder] = dict[str, list[str]]()
            # What is missing is told without it.
            with contextlib.suppress(UnreadableError, ValueError):
                for name in files.names(folder):
                    names.setdefault(look_of(name), []).append(name)
                    if name.lower().endswith(self._endings):
                        names.setdefault(f"{look_of(stem_of(name))}.", []).append(name)
        return self._listed[folder]

    def _elsewhere(self, path: str) -> str:
        """The file, had the base been a folder above it; or else the file of this name below the
        base, of several that in the same folders; or "".
        """
        if not self.base or not is_local(self.base) or not is_local(path):
            return ""
        below = path.removeprefix(f"{self.base}/")
        for above in Path(self.base).parents:
            if below != path and os.path.isfile(above / below):
                return str(above / below)
        if self._below is None:
            self._below = {}
            every = ((where, name) for where, _, names in os.walk(self.base) for name in names)
            for where, name in itertools.islice(every, _SEARCHED):
                self._below.setdefault(look_of(name), []).append(f"{where}/{name}")
        *folders, name = path.split("/")
        same = self._below.get(look_of(name), [])
        end = f"/{name}"
        while len(same) > 1 and folders:
            end = f"/{folders.pop()}{end}"
            same = [one for one in same if one.endswith(end)]
        return same[0] if len(same) == 1 else ""


def is_lfs_pointer(path: str) -> bool:
    """True for a file on a disk that is there, but was not fetched by git-lfs."""
    is_small = is_local(path) and 0 < (files.size_or_none(path) or 0) <= _POINTER_BYTES
    return is_small and files.read_bytes(path).startswith(LFS_POINTER)


def hint_beside(path: str) -> str:
    """What to add to a message that there is nothing at a path that a user gave, or ""."""
    return Beside("", ("",)).hint(absolute(path)) if is_local(path) else backslash_hint(path)
