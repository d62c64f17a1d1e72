"""What an image may be: levels of checking, the most pixels, ways to resize, and formats."""

from __future__ import annotations

CHECKS = ("decode", "strict", "header")
RESIZES = ("stretch", "crop", "pad", "fit")
FORMATS = ("keep", "jpeg", "png", "raw")

#: Pillow's own warning level.  That is 85 MiB in grey and 256 MiB in RGB; TensorFlow's decoders
#: stop at 2**29 bytes.
DEFAULT_MAX_PIXELS = 89_478_485
