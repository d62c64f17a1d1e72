"""The dataset directory of a conversion, by what the user gave."""

from __future__ import annotations

import os

from tfrecorder import storage
from tfrecorder.errors import OptionError
from tfrecorder.format import layout
from tfrecorder.options.convert import ConvertOptions


def given_directory(name: str, directory: object) -> str:
    """The path of a directory as the user gave it; raises an OptionError if it is none."""
    if not isinstance(directory, (str, os.PathLike)) or not os.fspath(directory):
        raise OptionError.of(name, directory, "give the path of a directory.")
    return storage.given_path(directory)


def output_path(
    output_dir: str | os.PathLike[str], options: ConvertOptions, argument: str = "output_dir"
) -> str:
    """The dataset directory: the only one that later steps know.

    Args:
        output_dir: as the user gave it.
        options: with a name, the dataset is below it, where TFDS looks.
        argument: what the caller calls it, for messages.

    Raises:
        OptionError: a dataset cannot be written there.
    """
    path = given_directory(argument, output_dir)
    refusal = storage.refusal(storage.scheme(path))
    if refusal is not None:
        raise OptionError.of(
            argument,
            storage.unsigned(path),
            f"a dataset cannot be written to {storage.scheme(path)}://: {refusal}.",
        )
    storage.check_locale(path)
    if not path.isprintable():  # a NUL, or bytes that are not Unicode
        raise OptionError.of(argument, path, "give a path of printable characters.")
    if options.name is not None:
        path = layout.tfds_directory(path, *options.name.split(":"))
    return path
