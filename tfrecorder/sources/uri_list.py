"""Uris that a call names, or a text file of them."""

from __future__ import annotations

import os
from collections.abc import Iterable

from tfrecorder import storage
from tfrecorder.errors import OptionError
from tfrecorder.options.keywords import Path


def uri_list(option: str, given: Iterable[str] | Path | None) -> list[str]:
    """The uris that an option names, or the lines of the file whose path it is, each once.

    Signatures are left out, as they are from the records.

    Raises:
        OptionError: the file cannot be read, or what is given are no uris.
    """
    if isinstance(given, (str, os.PathLike)):
        path = storage.given_path(given)
        try:
            text = storage.read_bytes(path).decode("utf-8-sig")
        except (storage.UnreadableError, UnicodeDecodeError) as error:
            raise OptionError.of(option, path, f"it cannot be read: {error}.") from error
        # Not splitlines: a uri may hold U+2028 and others that it takes for the end of a line.
        given = filter(None, text.replace("\r\n", "\n").split("\n"))
    uris = list(() if given is None else given)  # a Series has no truth value
    wrong = [uri for uri in uris if not isinstance(uri, str)]
    if wrong:
        raise OptionError.of(option, wrong[0], "this is no uri; give texts, or a file's path.")
    return list(dict.fromkeys(map(storage.unsigned, uris)))
