"""Uris: their schemes, and the paths they stand for.

A path without a scheme is local.
"""

from __future__ import annotations

import os
import re
from urllib.parse import unquote

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


#: Schemes of images that are read by plain GETs; nothing else is.
WEB = ("http", "https")


def scheme(uri: str) -> str:
    """The storage scheme of a uri, in lower case; "" for a local path.

    >>> scheme("gs://bucket/a.jpg"), scheme("a.jpg"), scheme("file:///a.jpg")
    ('gs', '', '')
    """
    match = _SCHEME.match(uri)
    name = match[1].lower() if match else ""
    return "" if name == "file" else name


def resolve(uri: str, base: str) -> str:
    """A uri as a path to open; a relative one is relative to the folder `base`.

    >>> resolve("a.jpg", "gs://bucket/photos"), resolve("file:///a%20b.jpg", "x")
    ('gs://bucket/photos/a.jpg', '/a b.jpg')
    """
    match = _SCHEME.match(uri)
    if match is None:
        return os.path.join(base, uri)
    if match[1].lower() == "file":  # RFC 8089: anything but a letter or digit may be escaped
        return unquote(uri[match.end() :].removeprefix("localhost"))
    return uri


def given_path(path: str | os.PathLike[str]) -> str:
    """A path as a user gives it; "~" at its start becomes the home folder, as in a shell.

    >>> given_path("~x/a.csv"), given_path("~/a.csv").startswith("~")
    ('~x/a.csv', False)
    """
    text = os.fspath(path)
    return os.path.expanduser(text) if text == "~" or text.startswith("~/") else text


def backslash_hint(path: str) -> str:
    """What to add to a message about a missing file whose path is written as on Windows, or ""."""
    return "; write / between folders, not \\, and no drive" if "\\" in path else ""


def absolute(path: str) -> str:
    """An absolute local path, unaffected by later changes of directory; a uri as it is."""
    match = _SCHEME.match(path)
    if match is None or not scheme(path):
        return os.path.abspath(resolve(path, ""))
    # "gs://" keeps one "/", or it would be a local folder "gs:" or a bucket named like a file.
    return path[: match.end()] + (path[match.end() :].rstrip("/") or "/")


def parent(path: str) -> str:
    """The folder of an absolute path."""
    return path.rpartition("/")[0] if scheme(path) else os.path.dirname(path)


def is_local(path: str) -> bool:
    return not scheme(path)


def is_web(path: str) -> bool:
    return scheme(path) in WEB
