"""The parts of a conversion and of reading done alone, on the same bytes: what each must cost.

As many processes as cores do each part, so that the cores are as busy as in a conversion and no
thread waits for another.  Each step first reads its file, so that its bytes are as near to the core
as they are in a conversion; what the step itself costs is the difference to `read`.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import harness
import writing
from harness import Numbers, Timed

#: Files that a process is given at a time.
TASK_FILES = 16


def of_files(source: str, step: str, times: int, out: str | None = None) -> Timed:
    """One step of a conversion for each image of a CSV.

    Args:
        step: a name of `STEPS`, or "write".
        times: how often, one pass after the other: a process knows its CPU time in hundredths of a
            second, which many a step does not take.
        out: a new folder for what is written.
    """
    _prepare()
    pool = multiprocessing.get_context("fork").Pool(harness.cores())
    work = partial(_work, step, out)

    def run() -> Numbers:
        paths = [uri for _, uri, _ in writing.read_rows(source)]
        if out is not None:
            os.makedirs(out)
        tasks = [paths[at : at + TASK_FILES] for at in range(0, len(paths), TASK_FILES)]
        size = sum(pool.imap_unordered(work, tasks * times))
        return {"images": len(paths) * times, "bytes_in": size}

    return run


def _prepare() -> None:
    """Import what the steps need before the processes are forked."""
    import google_crc32c
    import simplejpeg

    import tfrecorder.images.jpeg
    import tfrecorder.writing.rows

    del google_crc32c, simplejpeg, tfrecorder


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, os.fstat(descriptor).st_size + 1)
    finally:
        os.close(descriptor)


def _work(step: str, out: str | None, paths: Sequence[str]) -> int:
    if step == "write":
        assert out is not None
        return _write(paths, out)
    act, size = STEPS[step](), 0
    for path in paths:
        encoded = _read(path)
        act(encoded)
        size += len(encoded)
    return size


def _write(paths: Sequence[str], out: str) -> int:
    """Append the files to one that this process keeps to itself, as a shard is written."""
    from tfrecorder import storage

    size = 0
    with open(os.path.join(out, str(os.getpid())), "ab", buffering=0) as file:
        for path in paths:
            encoded = _read(path)
            storage.write_all(file, encoded)
            size += len(encoded)
    return size


# What is done to the bytes of a file: each function imports what it needs, and returns the act.

Act = Callable[[bytes], Any]


def _only_read() -> Act:
    return len


def _header() -> Act:
    from tfrecorder.images import jpeg

    return lambda encoded: jpeg.read_header(encoded, None)


def _check() -> Act:
    """The call that the strict check consists of, without a line of ours."""
    import simplejpeg

    return lambda encoded: simplejpeg.decode_jpeg(encoded, "GRAY", True, True, 1, 1)


def _crc() -> Act:
    import google_crc32c

    return google_crc32c.value


def _encode() -> Act:
    """The record of an image, without the checksum around it."""
    from tfrecorder.format.example import encode_parts
    from tfrecorder.schema import keys

    row = {
        keys.HEIGHT: 375,
        keys.WIDTH: 500,
        keys.FILENAME: "train/class_1/0001/0001234.jpg",
        keys.SOURCE_ID: "1234",
        keys.LABEL: 1,
        keys.TEXT: "class_1",
    }

    def act(encoded: bytes) -> object:
        return encode_parts({**row, keys.ENCODED: encoded})

    return act


def _decode() -> Act:
    """All pixels, by the libjpeg-turbo of simplejpeg and the inverse DCT that `load` asks for."""
    import simplejpeg

    return partial(simplejpeg.decode_jpeg, colorspace="RGB", fastdct=False, fastupsample=False)


def _decode_and_box() -> Act:
    """Pixels to 224x224, each the mean of its area, by Pillow."""
    from PIL import Image

    decode = _decode()
    box = Image.Resampling.BOX
    return lambda encoded: Image.fromarray(decode(encoded)).resize((224, 224), box)


STEPS: dict[str, Callable[[], Act]] = {
    "read": _only_read,
    "check": _check,
    "header": _header,
    "CRC": _crc,
    "encode": _encode,
    "decode": _decode,
    "decode, box": _decode_and_box,
}


# ---------------------------------------------------------------------------------------------
# Of reading, in TensorFlow's threads.


def of_records(directory: str, kernels: str, size: int, batch: int) -> Timed:
    """Some kernels of `load`, alone, over the images of TRAIN that are held in memory.

    Args:
        kernels: "none", "decode", "resize", which decodes too, or "batch", which also copies the
            pixels into batches.
    """
    import tensorflow as tf

    from tfrecorder.loading.load import load

    encoded = [image for image, _ in load(directory, "TRAIN", decode=False).as_numpy_iterator()]

    def work(image: Any) -> Any:
        if kernels == "none":
            return tf.cast(tf.strings.length(image), tf.uint8)
        pixels = tf.io.decode_jpeg(image, channels=3, dct_method="INTEGER_ACCURATE")
        if kernels == "decode":
            return pixels[0, 0, 0]
        small = tf.raw_ops.ResizeArea(images=pixels[None], size=(size, size))[0]
        small = tf.cast(small + 0.5, tf.uint8)
        return small if kernels == "batch" else small[0, 0, 0]

    options = tf.data.Options()
    options.autotune.enabled = False
    images = tf.data.Dataset.from_tensor_slices(encoded)
    batches = images.map(work, harness.cores(), deterministic=False).batch(batch)
    batches = batches.with_options(options)

    def run() -> Numbers:
        count = sum(len(one) for one in batches)
        return {"images": count, "bytes_in": sum(map(len, encoded))}

    return run
