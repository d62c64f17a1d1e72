"""What training does not see of an image that is kept: each by a word, with its remedy."""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterable, Mapping, Sequence

from tfrecorder.display.tables import counted

#: By word: what such images are, what becomes of them, and the remedy.
REDUCED = {
    "depth": "of more than 8 bits a channel, read as 8: `Image(depth=16)` in the schema keeps all "
    "of a PNG or TIFF, and rejects images of 8 bits",
    "frames": "of several frames or pages, of which the first is stored: to keep more, give each "
    "as a file",
    "alpha": "with transparency, which is not read, as other images have none: flatten them first, "
    "or give all images four channels",
    "cmyk": "in CMYK, turned into RGB without its profile: convert them to sRGB first",
    "profile": "with a colour profile other than sRGB, which training does not apply: convert "
    "them to sRGB first",
}

#: The primaries of sRGB in a profile: X, Y and Z of red, green and blue under the light D50.
_SRGB = {
    b"rXYZ": (0.436, 0.222, 0.014),
    b"gXYZ": (0.385, 0.717, 0.097),
    b"bXYZ": (0.143, 0.061, 0.714),
}
_ROUNDING = 0.004


def reduced_of(counts: Mapping[str, int], shapes: Iterable[Sequence[int | None]]) -> dict[str, int]:
    """The counts of a dataset, without transparency if it is read, as all images have it.

    Args:
        shapes: (height, width, channels) of the images of each column.
    """
    is_read = all(channels == 4 for *_, channels in shapes)
    return {word: count for word, count in counts.items() if not (is_read and word == "alpha")}


def reduced_in_words(counts: Mapping[str, int]) -> dict[str, str]:
    """A sentence on each kind of image of which something is not seen, by its word.

    >>> reduced_in_words({"cmyk": 2})
    {'cmyk': '2 images in CMYK, turned into RGB without its profile: convert them to sRGB first'}
    """
    return {
        word: f"{counted(counts[word], 'image')} {words}"
        for word, words in REDUCED.items()
        if counts.get(word)
    }


@functools.lru_cache(maxsize=64)
def is_srgb(profile: bytes) -> bool:
    """Whether the colours of an ICC profile, or of its beginning, are those of sRGB.

    Source: ICC.1:2022, 7.3 (the table of tags) and 10.31 (XYZ).
    """
    try:
        (count,) = struct.unpack_from(">I", profile, 128)
        tags = (struct.unpack_from(">4sII", profile, 132 + 12 * at) for at in range(min(count, 99)))
        places = {name: place for name, place, _ in tags}
        for name, primary in _SRGB.items():
            stored = struct.unpack_from(">3i", profile, places[name] + 8)
            pairs = zip(stored, primary, strict=True)
            if any(abs(value / 65536 - wanted) > _ROUNDING for value, wanted in pairs):
                return False
    except (struct.error, KeyError):
        return False
    return True
