"""What an image may be: levels of checking, the most pixels, ways to resize, and formats."""

from __future__ import annotations

VERIFY_LEVELS = ("decode", "strict", "header", "none")
RESIZES = ("stretch", "crop", "pad", "fit")
FORMATS = ("keep", "jpeg", "png", "raw")

#: Pillow's own warning level.  A grey level of it is 85 MiB, RGB 256 MiB; TensorFlow's decoders
#: end at 2**29 bytes.
DEFAULT_MAX_PIXELS = 89_478_485
