"""The reject: an image that gets no record, and why.

At the stage "read", the codes are those of `storage.UnreadableError`.  The others belong to the
stage "check", or to "convert" if unsupported pixels are found while an image is written as PNG:

    empty               no bytes
    invalid             the schema's `validator` raised an exception
    not_an_image        not a known image format (an HTML error page, JSON, ...)
    unsupported         a sound image of a kind that TensorFlow or PNG cannot hold: SVG, raw
                        photographs, lossless or 12-bit JPEG, floating-point TIFF, ...
    truncated           the file ends too early
    damaged             the file contradicts itself, or the decoder gives up
    too_large           more than `max_pixels` or `max_bytes`, or more than TensorFlow decodes
    too_expensive       it would take far longer to decode than others of its size
    depth               an image of 8 bits where the schema declares 16
    suspect             check="strict" only: it decodes, but a decoder complains
    mask_size           a mask whose size differs from its image's
    mask_format         a mask that is a JPEG, whose pixels are not exact classes
    mask_channels       a mask with more than one 8-bit number per pixel
    box_outside         a box in pixels that reaches beyond its image
"""

from __future__ import annotations

import re


class Reject(Exception):
    """An image that gets no record.

    Attributes:
        stage: "read", "check" or "convert".
        code: a short reason in snake_case; those of this module are in its docstring.
        detail: the same in words; equal bytes give equal words, without paths, addresses or times.
    """

    def __init__(self, stage: str, code: str, detail: str) -> None:
        super().__init__(stage, code, detail)  # all three, so that it survives pickling
        self.stage = stage
        self.code = code
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.code}: {self.detail}"


def unsupported(what: str) -> Reject:
    """The Reject of a valid file whose type is not supported; `what` is e.g. "a PDF"."""
    return Reject("check", "unsupported", f"the file is {what}, which is not supported")


def words_of(error: BaseException) -> str:
    """An error's first line without the addresses that differ from run to run.

    Quotations are cut off: they are bytes of the file, which may be any file on the machine.
    """
    text = re.sub(r"<[^>]* at 0x[0-9a-f]+>", "the file", (str(error).splitlines() or [""])[0])
    unquoted = re.split(r"""\bb?['"]|['"]""", text)[0].rstrip(" :(,")
    return unquoted[:200] or type(error).__name__
