"""The reject: an image that gets no record, and why.

At the stage "read", the codes are those of `storage.UnreadableError`.  The others, all of stage
"check" but the last:

    empty               no bytes
    not_an_image        no known image format (an HTML error page, HEIC, SVG, ...)
    truncated           the file ends too early
    damaged             the file contradicts itself, or the decoder gives up
    too_large           more than `max_pixels`, or more than TensorFlow decodes
    unsupported_jpeg    a coding that TensorFlow cannot read: lossless, 12 bits, 2 components, ...
    suspect             verify="strict" only: it decodes, but a decoder complains
    mask_size           a mask of another size than its image
    mask_format         a mask that is a JPEG, whose pixels are no exact classes
    mask_channels       a mask with more than one number of 8 bits a pixel
    box_outside         a box in pixels that is beyond its image
    unsupported_pixels  (stage "convert") floats or wide integers, which PNG cannot hold
"""

from __future__ import annotations


class Reject(Exception):
    """An image that gets no record.

    Attributes:
        stage: "read", "check" or "convert".
        code: a short reason in snake_case; those of this module are in its docstring.
        detail: the same in words; equal for equal bytes, without paths, addresses or times.
    """

    def __init__(self, stage: str, code: str, detail: str) -> None:
        super().__init__(stage, code, detail)  # all three, so that it survives pickling
        self.stage, self.code, self.detail = stage, code, detail

    def __str__(self) -> str:
        return f"{self.code}: {self.detail}"
