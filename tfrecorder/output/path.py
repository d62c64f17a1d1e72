"""The dataset directory of a conversion, by what the user gave."""

from __future__ import annotations

import os

from tfrecorder import storage
from tfrecorder.errors import OptionError
from tfrecorder.format import layout
from tfrecorder.options.convert import DEFAULT_VERSION, ConvertOptions


def output_path(output_dir: str | os.PathLike[str], options: ConvertOptions) -> str:
    """The dataset directory: the only one that later steps know.

    Args:
        output_dir: as the user gave it.
        options: with a name, the dataset is below it, where TFDS looks.

    Raises:
        OptionError: a dataset cannot be written there.
    """
    if not isinstance(output_dir, (str, os.PathLike)) or not os.fspath(output_dir):
        raise OptionError.of("output_dir", output_dir, "give the path of a directory.")
    path = storage.given_path(output_dir)
    refusal = storage.refusal(storage.scheme(path))
    if refusal is not None:
        words = f"a dataset cannot be written to {storage.scheme(path)}://: {refusal}."
        raise OptionError.of("output_dir", path, words)
    storage.check_locale(path)
    if not path.isprintable():  # a NUL, or bytes that are not Unicode
        raise OptionError.of("output_dir", path, "give a path of printable characters.")
    if options.name is not None:
        path = layout.tfds_directory(path, options.name, options.version or DEFAULT_VERSION)
    return path
