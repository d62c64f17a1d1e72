"""Uris: their schemes, the paths they stand for, and their signatures.

A path without a scheme is local.

Who has a signed uri may read the file, so a signature is kept in memory alone.  What names the
image everywhere else is the uri without it, which stays the same when it is signed again.
"""

from __future__ import annotations

import os
import re
from urllib.parse import unquote

from tfrecorder.core.text import composed
from tfrecorder.storage.connections import access

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")

#: A scheme whose slashes were lost, of which pathlib leaves one.  Nobody's folder is called so.
_CUT = r"^(gs|s3|s3a|az|abfs|abfss|hdfs|https?|file):/([^/]|$)"

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


def mended(uri: str) -> str:
    """A uri with the slashes after its scheme, of which pathlib leaves one; a path as it is.

    >>> mended("gs:/bucket/a.jpg"), mended("file:/a.jpg"), mended("a/gs:/b")
    ('gs://bucket/a.jpg', 'file:///a.jpg', 'a/gs:/b')
    """
    if re.match(_CUT, uri, re.IGNORECASE) is None:
        return uri
    kind, _, path = uri.partition(":")
    return f"{kind}://{path if kind.lower() == 'file' else path.removeprefix('/')}"


def relative(path: str) -> str:
    """A path below a folder as a uri, which a folder called as a scheme does not make another.

    >>> relative("a/b.jpg"), relative("file:/b.jpg")
    ('a/b.jpg', './file:/b.jpg')
    """
    return path if mended(path) == path else f"./{path}"


def given_path(path: str | os.PathLike[str]) -> str:
    """A path as a user gives it; "~" at its start becomes the home folder, as in a shell.

    >>> given_path("~x/a.csv"), given_path("~/a.csv").startswith("~")
    ('~x/a.csv', False)
    >>> import pathlib
    >>> given_path(pathlib.Path("gs://bucket/out"))
    'gs://bucket/out'
    """
    text = mended(os.fspath(path))
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


def stem_of(path: str) -> str:
    """A path without the folders and the ending.

    >>> stem_of("train/a cat.v2.jpg")
    'a cat.v2'
    """
    name = path.rpartition("/")[2]
    return name.rpartition(".")[0] or name


def look_of(name: str) -> str:
    """What names have in common that differ in case, in Unicode's form or in blanks around them."""
    return composed(name).casefold().strip()


def is_local(path: str) -> bool:
    return not scheme(path)


def is_web(path: str) -> bool:
    return scheme(path) in WEB


#: What every uri has that `put_aside` changes, as a regular expression.
CHANGED = rf"(?is)^\s*https?://.*[?&](amp;)?(x-amz-|x-goog-|sig=|signature=)|{_CUT}"

#: Each parameter with a signature; those of which one stands beside it if it is one of Azure's, or
#: of a CDN and the older ones of Amazon and Google; and the others that go with it then.
#: Sources: https://learn.microsoft.com/rest/api/storageservices/create-user-delegation-sas and
#: https://docs.aws.amazon.com/AmazonCloudFront/latest/DeveloperGuide/private-content-signed-urls.html
_FORMS = (
    (
        "sig",
        "se si",
        "sv ss srt sp st sip spr sr sdd ses skoid sktid skt ske sks skv skdutid sduoid",
    ),
    ("sig", "se si", "saoid suoid scid rscc rscd rsce rscl rsct"),
    ("signature", "expires policy key-pair-id keyname", "hash-algorithm urlprefix"),
    ("signature", "awsaccesskeyid googleaccessid ossaccesskeyid", "expires"),
)


def unsigned(uri: str) -> str:
    """A uri on the web without the parameters of a signature; any other as it is.

    >>> unsigned("https://h/a?id=7&X-Amz-Date=1&X-Amz-Signature=2"), unsigned("https://h/a?sig=7")
    ('https://h/a?id=7', 'https://h/a?sig=7')
    """
    whole, mark, fragment = uri.partition("#")
    place, _, query = whole.partition("?")
    if not (query and is_web(uri.lstrip())):
        return uri
    parts = query.split("&")  # of which an "&" that comes from HTML leaves "amp;" behind
    named = [(part.partition("=")[0].lower().removeprefix("amp;"), part) for part in parts]
    names = {name for name, _ in named}
    gone = {name for name in names if name.startswith(("x-amz-", "x-goog-"))}
    for name, beside, others in _FORMS:
        if name in names and not names.isdisjoint(beside.split()):
            gone |= {name, *beside.split(), *others.split()}
    kept = "&".join(part for name, part in named if name not in gone)
    return f"{place}{'?' if kept else ''}{kept}{mark}{fragment}"


def put_aside(path: str | os.PathLike[str]) -> str:
    """`unsigned` and `mended`; within a block of `accessing`, the signature is read with."""
    uri = mended(os.fspath(path))
    plain = unsigned(uri)
    if plain != uri:
        access().signed[plain] = uri
    return plain
