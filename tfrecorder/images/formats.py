"""Which image format a file has, by its first bytes."""

from __future__ import annotations

import re

from tfrecorder.images.rejects import Reject, unsupported

# The first bytes of images that we read, of images that we do not, and of what people list by
# mistake.  Left out: formats that Pillow reads by running another program (EPS).
_READ = {
    "jpeg": rb"\xff\xd8\xff",
    "png": rb"\x89PNG\r\n\x1a\n",
    # With the size of one of its headers, because a text may begin with BM.
    "bmp": rb"BM.{12}[\x0c\x28\x34\x38\x40\x6c\x7c]\0\0\0",
    "gif": rb"GIF8[79]a",
    "webp": rb"RIFF....WEBP",
    "tiff": rb"II\*\0|MM\0\*|II\+\0|MM\0\+",
    "ppm": rb"P[1-6][\s#]",
    "avif": rb"....ftypavi[fs]",
    "heic": rb"....ftyp(?:hei|hev|mif1|msf1)",
    "ico": rb"\0\0[\1]\0[^\0]\0",
    # Without a signature: no palette or one, the kind, and the bits of a pixel.
    "tga": rb".(?:\0[\2\3\x0a\x0b]\0{5}.{8}[\x08\x10\x18\x20]"
    rb"|\x01[\x01\x09]....[\x0f\x10\x18\x20].{8}\x08)[\0-\x3f]",
}
_UNSUPPORTED = {
    "a camera's raw photograph (CR3)": rb"....ftypcrx ",
    "a camera's raw photograph": rb"FUJIFILMCCD-RAW|IIU\0|IIR[OS]|MMOR",
    "a JPEG 2000 image": rb"\0\0\0\x0cjP  |\xff\x4f\xff\x51",
    "a JPEG XL image": rb"\0\0\0\x0cJXL |\xff\x0a",
    "a JPEG XR image": rb"II\xbc\x01",
    "a Radiance HDR image": rb"#\?(?:RADIANCE|RGBE)\n",
    "an OpenEXR image": rb"\x76\x2f\x31\x01",
    "a PFM image of floating-point samples": rb"P[Ff]\n",
    "a PAM image": rb"P7\n",
    "an MNG animation": rb"\x8a[MJ]NG\r\n\x1a\n",
    "a DDS texture": rb"DDS \x7c",
    "a QOI image": rb"qoif",
    "a FITS image": rb"SIMPLE  =",
    "a cursor": rb"\0\0[\2]\0",
    "a Photoshop file": rb"8BPS",
    "a GIMP file": rb"gimp xcf",
    "PostScript": rb"%!PS|\xc5\xd0\xd3\xc6",
    "a PDF": rb"%PDF",
    "an SVG drawing": rb"(?:\xef\xbb\xbf)?\s*<(?=.{,1000}<svg|svg)",
}
_NO_IMAGES = {
    "HTML or XML": rb"(?:\xef\xbb\xbf)?\s*<",
    "JSON": rb"\s*[{\[]",
    "a zip file": rb"PK\x03\x04",
    "a gzip file": rb"\x1f\x8b",
}
_MAGIC = _READ | _UNSUPPORTED | _NO_IMAGES
_SNIFF = re.compile(b"|".join(b"(%s)" % magic for magic in _MAGIC.values()), re.DOTALL)
_KINDS = tuple(_MAGIC)


def sniff(data: bytes) -> str:
    """The format of a file: "jpeg", "png", "bmp", "gif", "webp", "tiff", "ppm", "avif",
    "heic", "ico" or "tga".

    Raises:
        Reject: no bytes, not an image, or an image in a format that is not read here.
    """
    if not data:
        raise Reject("check", "empty", "the file has no bytes")
    match = _SNIFF.match(data)
    kind = _KINDS[match.lastindex - 1] if match and match.lastindex else None
    if kind in _READ:
        return kind
    if kind in _UNSUPPORTED:
        raise unsupported(kind)
    # Never show the bytes themselves: a table could name any file on the machine.
    detail = f"the file is {kind}" if kind else "it begins like no image format that is known"
    raise Reject("check", "not_an_image", detail)


#: The endings of files that are called otherwise than their format.
_ENDINGS = {"jpeg": ".jpg", "tiff": ".tif"}

#: How many bytes of a file are read to see its format.
_HEAD = 4096


def ending_of(data: bytes) -> str:
    """The usual ending of the name of an image file; "" for what is no image that is read here.

    >>> ending_of(b"GIF89a"), ending_of(b"")
    ('.gif', '')
    """
    try:
        kind = sniff(data[:_HEAD])
    except Reject:
        return ""
    return _ENDINGS.get(kind, f".{kind}")
