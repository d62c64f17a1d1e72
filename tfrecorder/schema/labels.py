"""Class names: the vocabulary that turns labels into integers, and its files for other tools."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from tfrecorder.core.text import composed

#: What TFDS would not read back of a name: its outer white space, and line breaks.
_LOST = re.compile(r"\A\s+|(?<!\s)\s+\Z|[\n\r]")


#: What the eye does not see in a name: selectors of a glyph's form; others are of the category Cf.
_SELECTORS = re.compile("[\ufe00-\ufe0f]")


def plain_name(name: str) -> str:
    r"""A name without what people overlook in it: case, white space, and what is not seen.

    >>> plain_name("Cafe\u0301\u200b "), plain_name("STRASSE") == plain_name("Stra\xdfe")
    ('caf\xe9', True)
    """
    if not name.isascii():
        seen = (char for char in name if unicodedata.category(char) != "Cf")
        name = unicodedata.normalize("NFC", _SELECTORS.sub("", "".join(seen)))
    return " ".join(name.split()).casefold()


def build_vocabulary(labels: Iterable[str]) -> tuple[str, ...]:
    """The distinct labels in order of their Unicode code points; their positions are the integers.

    >>> build_vocabulary(["rose", "daisy", "rose"])
    ('daisy', 'rose')
    """
    return tuple(sorted(set(labels)))


def in_one_form(labels: pd.Series, known: Sequence[str]) -> pd.Series:
    """Labels of which those that differ in Unicode's form alone are spelled in one way.

    Args:
        known: names that stay as they are; labels that look like one of them are spelled as it is,
            others in the form NFC if that is among them.
    """
    try:
        distinct = [label for label in labels.unique() if isinstance(label, str)]
    except TypeError:  # a list, which another rule names
        return labels
    odd = sorted({label for label in distinct if not label.isascii()}.difference(known))
    if not odd:
        return labels
    spelled = {composed(name): name for name in reversed(known)}
    for label in sorted(odd, key=lambda label: label != composed(label)):
        spelled.setdefault(composed(label), label)
    other = {label: spelled[composed(label)] for label in odd}
    if all(label == name for label, name in other.items()):
        return labels
    made = [other.get(label, label) for label in labels]
    return pd.Series(
        made,
        labels.index,
        object,
        labels.name,
    )


def number_labels(
    column: pd.Series,
    given: tuple[str, ...] | None,
    existing: tuple[str, ...] = (),
) -> tuple[np.ndarray, np.ndarray | pd.Series, tuple[str, ...] | None]:
    """Integers and texts of checked labels, and the class names if there are any.

    Args:
        column: holds int64, or texts.
        given: all class names in the order of their integers; None takes those of the column.
        existing: the class names that a dataset already has; others get the next integers.
    """
    if column.dtype == np.int64:
        numbers = column.to_numpy(dtype=np.int64)
        lookup, inverse = np.unique(numbers, return_inverse=True)
        texts = [str(number) if given is None else given[number] for number in lookup]
        return numbers, np.array(texts, dtype=object)[inverse], given
    codes, uniques = pd.factorize(column)
    distinct = uniques.tolist()  # taken one by one, texts in Arrow are five times as slow
    names = given or (*existing, *build_vocabulary(set(distinct).difference(existing)))
    number_of = {name: number for number, name in enumerate(names)}
    numbers = np.array([number_of[label] for label in distinct], dtype=np.int64)[codes]
    return numbers, column, names


def needs_escape(name: str) -> bool:
    """True if TFDS, which strips lines and drops blank ones, would not read the name back."""
    return not name or bool(_LOST.search(name))


def to_labels_file(names: Sequence[str]) -> str:
    r"""Class names as TFDS's labels file: one per line, in the order of the integers.

    Names that would not survive have their outer white space and line breaks written as `\uXXXX`;
    if there is such a name, backslashes are doubled in all names, so that no two names become one.

    >>> to_labels_file(["a b", " c"])
    'a b\n\\u0020c\n'
    """
    escape = any(needs_escape(name) for name in names)
    lines = [_escape(name) if escape else name for name in names]
    return "".join(f"{line}\n" for line in lines)


def _escape(name: str) -> str:
    doubled = name.replace("\\", "\\\\")
    return _LOST.sub(lambda lost: "".join(map(_code, lost[0])), doubled) or "\\"


def _code(character: str) -> str:
    return f"\\u{ord(character):04x}"


def to_label_map_pbtxt(names: Sequence[str]) -> str:
    """Class names but for the first, as the Object Detection API's `StringIntLabelMap`.

    >>> print(to_label_map_pbtxt(["background", "cat"]), end="")
    item {
      id: 1
      name: "cat"
    }
    """
    items = list(enumerate(map(_in_quotes, names)))[1:]
    return "".join(f"item {{\n  id: {number}\n  name: {name}\n}}\n" for number, name in items)


def _in_quotes(name: str) -> str:
    """A text as protocol buffers' text form writes it."""
    escaped = re.sub(r'["\\]', r"\\\g<0>", name)
    return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda match: f"\\{ord(match[0]):03o}", escaped) + '"'
