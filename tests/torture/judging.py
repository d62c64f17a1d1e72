"""The two judges of an image file, each made to run in its own process.

`check` is the writing side: `check_image` at both levels that promise something, with the time and
the memory it took; it loads no TensorFlow.  `decode` is the reading side: every way in which the
reader decodes.  `contradiction` says where a reject's reason is not true, by decoders that are
not ours.

The inner law: one file is checked, and decoded, without a conversion around it.
"""

from __future__ import annotations

import functools
import io
import resource
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tfrecorder.images.check import check_image
from tfrecorder.images.header import Reject

LEVELS = ("decode", "strict")

#: Pixels that an image of these tests may have, so that memory shows what exceeds it.
MAX_PIXELS = 2**20

CODES = frozenset(
    ("empty", "not_an_image", "truncated", "damaged", "too_large", "too_expensive", "suspect")
    + ("unsupported",)
)

_PILLOW = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF", "PPM", "AVIF")


@dataclass(frozen=True)
class Accepted:
    """What `check_image` gave."""

    data: bytes
    format: str
    shape: tuple[int, int, int]
    warning: str | None
    code: str = "accepted"


@dataclass(frozen=True)
class Refused:
    """What `check_image` raised."""

    stage: str
    code: str
    words: str


@dataclass(frozen=True)
class Verdict:
    """Both levels, the seconds of the slower one, and the process's peak memory so far, in KiB."""

    outcomes: dict[str, Accepted | Refused]
    seconds: float
    peak: int


def judge(data: bytes, level: str = "decode", **limits: int) -> Accepted | Refused:
    """What the check of a file at a level makes of it."""
    try:
        checked = check_image(data, level, **limits)
    except Reject as reject:
        return Refused(reject.stage, reject.code, str(reject))
    shape = (checked.height, checked.width, checked.channels)
    return Accepted(checked.data, checked.format, shape, checked.warning)


def check(data: bytes) -> Verdict:
    """What the writing side makes of a file with at most `MAX_PIXELS`."""
    outcomes: dict[str, Accepted | Refused] = {}
    slowest = 0.0
    for level in LEVELS:
        began = time.perf_counter()
        outcomes[level] = judge(data, level, max_pixels=MAX_PIXELS)
        slowest = max(slowest, time.perf_counter() - began)
    return Verdict(outcomes, slowest, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def decode(question: tuple[bytes, int]) -> dict[str, tuple[int, ...] | str]:
    """Every way in which the reader decodes a file: the shape it gives, or the words of its error.

    Args:
        question: the file, and its channels as they were recorded.
    """
    data, channels = question
    wanted = channels if channels in (1, 3, 4) else 3
    answers: dict[str, tuple[int, ...] | str] = {}
    for name, way in {**_plain(), **_as_the_reader(wanted)}.items():
        answers[name] = _shape_or_words(way, data)
    return answers


def _shape_or_words(way: Callable[[bytes], Any], data: bytes) -> tuple[int, ...] | str:
    import tensorflow as tf

    try:
        return tuple(map(int, way(data).shape))
    except (tf.errors.InvalidArgumentError, tf.errors.UnimplementedError) as error:
        return str(error.message).splitlines()[0][:200]
    except UnicodeDecodeError:  # the words hold the file's first bytes
        return "refused, in words that are not Unicode"


@functools.cache
def _plain() -> dict[str, Callable[[bytes], Any]]:
    """TensorFlow's own operations, asked for the channels that are there."""
    import tensorflow as tf

    return {
        "decode_image": functools.partial(tf.io.decode_image, expand_animations=False),
        "decode_jpeg": functools.partial(tf.io.decode_jpeg, dct_method="INTEGER_ACCURATE"),
    }


@functools.cache
def _as_the_reader(channels: int) -> dict[str, Callable[[bytes], Any]]:
    """The reader's graph: whole, at a smaller scale, and a random part."""
    import tensorflow as tf

    from tfrecorder.images.geometry import Picture
    from tfrecorder.loading.decoding import decode as run

    def graph(size: tuple[int, int] | None, augment: bool) -> Callable[[bytes], Any]:
        picture = Picture(
            channels=channels,
            stored_size=(None, None),
            sides=None,
            size=size,
            resize="stretch",
            antialias=True,
            augment=augment,
            dtype="uint8",
        )
        drawn = tf.constant([0.4, 1.1, 0.3, 0.6, 0.2]) if augment else None
        signature = [tf.TensorSpec([], tf.string)]
        return tf.function(lambda data: run(data, None, picture, drawn), input_signature=signature)

    return {
        "reader": graph(None, False),
        "reader at 16 x 16": graph((16, 16), False),
        "reader's random part": graph((16, 16), True),
    }


#: Words of the reasons for which we refuse what Pillow decodes; docs/design/decisions.md says why.
ON_PURPOSE = ("run lengths", "as text", "of other than 8 bits", "compression 6", "Group 4")


def contradiction(question: tuple[bytes, Refused]) -> str:
    """Why a reject's reason is not true, in the eyes of TensorFlow and Pillow; "" where it is.

    Args:
        question: the file, and what `check_image` made of it.
    """
    data, refused = question
    if refused.code not in CODES:
        return f"there is no code {refused.code!r}"
    kept = data.startswith((b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"))
    if refused.code == "empty":
        return f"it has {len(data)} bytes" if data else ""
    if refused.code == "not_an_image":
        return "Pillow opens it" if _opened(data) else ""
    if refused.code == "too_large":
        size = _opened(data)
        fits = size is not None and size[0] * size[1] <= MAX_PIXELS
        return f"it has {size} pixels" if fits else ""
    if refused.code == "suspect":
        return ""  # the law compares it with the level below
    if refused.code == "unsupported" and any(words in refused.words for words in ON_PURPOSE):
        return ""
    if kept:
        words = decode((data, 0))["decode_image"]
        return "" if isinstance(words, str) else "TensorFlow decodes it"
    if (refused.stage, refused.code) == ("convert", "unsupported"):
        return "" if _mode(data).startswith(("F", "I")) else "its pixels are whole and small"
    return "Pillow decodes it" if _mode(data) else ""


def _opened(data: bytes) -> tuple[int, int] | None:
    """(width, height) by Pillow, None where it knows no format of ours."""
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return Image.open(io.BytesIO(data), formats=_PILLOW).size
        except Image.DecompressionBombError:
            return 2**31, 2**31
        except Exception:  # hostile bytes may raise anything
            return None


def _mode(data: bytes) -> str:
    """The mode of the pixels that Pillow decodes; "" where it does not."""
    from PIL import Image

    size = _opened(data)
    if size is None or size[0] * size[1] > MAX_PIXELS:
        return ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            image = Image.open(io.BytesIO(data), formats=_PILLOW)
            image.load()
            return image.mode
        except Exception:  # as above
            return ""
