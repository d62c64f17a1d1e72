"""Text as its file has it: strictly decoded, the scalars of YAML as written, and what looks equal.

Bytes that are decoded with replacement make one class of several, and a typed parser makes False of
a class called `no`: both damage names without a word.
"""

from __future__ import annotations

import codecs
import json
import re
import unicodedata
from collections.abc import Iterator
from typing import Any

#: The marks that a text may begin with, and the encoding that each stands for.
_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",  # which begins as the next one does
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
    b"<\0?\0": "utf-16-le",  # XML without a mark
    b"\0<\0?": "utf-16-be",
}

_DECLARED = re.compile(rb"\s*<\?xml[^>]*?\sencoding\s*=\s*[\"']([\w.:-]+)")

#: The largest YAML that is read, in characters (21,841 classes take 600,000), and its most levels.
_LONGEST_YAML = 4_000_000
_MOST_LEVELS = 20


class NotTextError(ValueError):
    """Bytes that are not of their encoding; it names the line and the byte."""


def encoding_of(start: bytes, declared: str = "utf-8") -> str:
    """The encoding of a text that begins so: what a mark says, else the declared one."""
    return next((name for mark, name in _MARKS.items() if start.startswith(mark)), declared)


def decoded(data: bytes, declared: str = "utf-8") -> str:
    """The text that some bytes are: of the encoding of their mark, else of the declared one.

    Raises:
        NotTextError: they are not.

    >>> decoded(b"caf\\xc3\\xa9"), decoded(b"caf\\xe9", "latin-1")
    ('café', 'café')
    """
    encoding = encoding_of(data, declared)
    try:
        return data.decode(encoding)
    except LookupError:
        raise NotTextError(f"line 1: there is no encoding {encoding!r}") from None
    except UnicodeError as error:
        start = getattr(error, "start", 0)
        line = data.count(b"\n", 0, start) + 1
        place = start - data.rfind(b"\n", 0, start)
        name = encoding.removesuffix("-sig").upper()
        raise NotTextError(
            f"line {line}: byte {place}, 0x{data[start]:02x}, is not {name}; save the file as UTF-8"
        ) from error


def decoded_xml(data: bytes) -> str:
    """The text of an XML file, which may declare its encoding.

    Raises:
        NotTextError: it is of another one.
    """
    match = _DECLARED.match(data)
    declared = match[1].decode() if match else "utf-8"
    # What can be read as ASCII up to here has one byte a character, whatever it says.
    is_wide = match is not None and re.match(r"utf-?(16|32)|ucs", declared, re.IGNORECASE)
    return decoded(data, "utf-8" if is_wide else declared)


def composed(text: str) -> str:
    """What texts that look the same have in common: Unicode's form NFC.

    >>> composed("cafe\\u0301") == "café"
    True
    """
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def read_json(text: str | bytes, **hooks: Any) -> Any:
    """The value of a stranger's JSON, as `json.loads` gives it.

    Raises:
        ValueError: it is not JSON, or too deep.
    """
    try:
        return json.loads(text, **hooks)
    except RecursionError:
        raise ValueError("its lists or objects are nested too deeply") from None


class Plain(str):
    """A scalar of YAML without quotes, as it is written."""

    __slots__ = ()


def read_yaml(text: str) -> Any:
    """The value of YAML: mappings, lists and scalars, each of which is text as it is written.

    Raises:
        ValueError: it is not sound, is too large or too deep, has an alias, or a key twice.
    """
    import yaml

    if len(text) > _LONGEST_YAML:
        raise ValueError(f"it has more than {_LONGEST_YAML:,} characters")
    try:
        events = yaml.parse(text, Loader=yaml.SafeLoader)
        values = list(_yaml_values(events, _MOST_LEVELS))
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error
    if len(values) > 1:
        raise ValueError("it holds several documents")
    return values[0] if values else None


def _yaml_values(events: Iterator[Any], levels: int) -> Iterator[Any]:
    """The values up to the end of a list, a mapping or the file."""
    for event in events:
        name = type(event).__name__
        if name in ("SequenceEndEvent", "MappingEndEvent"):
            return
        if name.startswith(("Stream", "Document")):
            continue
        where = f"line {event.start_mark.line + 1}"
        if name == "AliasEvent":
            raise ValueError(f"{where}: the alias *{event.anchor} is not read; write it out")
        if event.tag not in (None, "!", "tag:yaml.org,2002:str"):
            raise ValueError(f"{where}: the tag {event.tag} is not read; leave it out")
        if name == "ScalarEvent":
            yield Plain(event.value) if event.implicit[0] else str(event.value)
            continue
        if not levels:
            raise ValueError(f"{where}: more than {_MOST_LEVELS} levels")
        values = list(_yaml_values(events, levels - 1))
        yield values if name == "SequenceStartEvent" else _mapping(values, where)


def _mapping(values: list[Any], where: str) -> dict[str, Any]:
    """A mapping whose keys and values are given by turns."""
    mapping = {}
    for key, value in zip(values[0::2], values[1::2], strict=True):
        if not isinstance(key, str):
            raise ValueError(f"{where}: a key is not a text")
        if key in mapping:
            raise ValueError(f"{where}: the key {str(key)!r} is there twice in one mapping")
        mapping[str(key)] = value
    return mapping


def typed(value: Any) -> Any:
    """A value of `read_yaml` with the types that YAML gives to scalars without quotes.

    >>> typed([Plain("1.5"), "1.5", Plain("null")])
    [1.5, '1.5', None]
    """
    if isinstance(value, dict):
        return {key: typed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [*map(typed, value)]
    if not isinstance(value, Plain):
        return value
    import yaml

    try:
        return yaml.safe_load(value)
    except (ValueError, yaml.YAMLError):  # such as a date that no calendar has
        return str(value)


def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object's values by name; `json` alone would keep the last of one name."""
    line = dict(pairs)
    if len(line) < len(pairs):
        raise ValueError(f"a name is there twice among {[name for name, _ in pairs]}")
    return line
