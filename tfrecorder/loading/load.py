"""`load`: what it takes and gives; TensorFlow is imported when it is called."""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

from tfrecorder.errors import missing_explained
from tfrecorder.loading.options import LoadOptions
from tfrecorder.options.keywords import Datasets, LoadKeywords, Unpack
from tfrecorder.options.option import takes

if TYPE_CHECKING:
    import tensorflow as tf


@overload
def load(
    directory: Datasets,
    split: str,
    **options: Unpack[LoadKeywords],
) -> tf.data.Dataset: ...


@overload
def load(
    directory: Datasets,
    split: None = None,
    **options: Unpack[LoadKeywords],
) -> dict[str, tf.data.Dataset]: ...


@takes(LoadKeywords, LoadOptions)
def load(
    directory: Datasets,
    split: str | None = None,
    **options: Unpack[LoadKeywords],
) -> tf.data.Dataset | dict[str, tf.data.Dataset]:
    """A dataset directory as tf.data, ready for `model.fit`.

    Args:
        directory: what `convert` wrote; a TFDS directory; or TFRecord files, as a folder, a file or
            a pattern ("in/train-*"). Local, or anything that TensorFlow reads, such as gs://.
            Or several, as for `tfrecorder.Records`.
        split: "TRAIN", "VALIDATION" or "TEST", in any usual spelling; None gives a dict of all.
        **options: what an element holds, and how records become batches.

    Returns:
        A dataset of `(image, label)`: `image` uint8 of [height, width, channels] unless options
        say otherwise, `label` int64, -1 if there is none; with `batch_size` both have a leading
        batch axis.  If records of other tools have no label, boxes or mask, a dataset of images
        only.  `len(dataset)` is the number of elements: of batches if there is a `batch_size`.  It
        raises a TypeError where the number of records is not known: with `follow`, and for files
        without metadata that are compressed or not on a disk.

    Raises:
        OptionError: an option's name or value is wrong.
        DatasetError: the directory is not a whole dataset, or has no such split; or records of
            other tools hold an image, a label, boxes or a mask that we do not understand.

    Example:
        >>> train = tfrecorder.load("out", "TRAIN", batch_size=64,
        ...                         image_size=(224, 224))  # doctest: +SKIP
        >>> model.fit(train, epochs=5)  # doctest: +SKIP
    """
    return loaded(directory, split, LoadOptions.of(options))


def loaded(
    directory: Datasets,
    split: str | None,
    options: LoadOptions,
) -> tf.data.Dataset | dict[str, tf.data.Dataset]:
    """`load`, with its options made."""
    with missing_explained():
        from tfrecorder.loading.pipeline import read_dataset
    return read_dataset(directory, split, options)
