"""A conversion and then `load`, with all options checked first."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tfrecorder import storage
from tfrecorder.conversion.convert import convert
from tfrecorder.errors import OptionError, refuse_missing
from tfrecorder.loading.options import LoadOptions
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.options.option import names_of
from tfrecorder.output.path import output_path
from tfrecorder.schema.splits import SPELLINGS, SPLITS

if TYPE_CHECKING:
    import pandas as pd
    import tensorflow as tf
    from datasets import Dataset, DatasetDict


def convert_and_load(
    source: pd.DataFrame | Dataset | DatasetDict | str | os.PathLike[str],
    output_dir: str | os.PathLike[str],
    *,
    load_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> tf.data.Dataset | dict[str, tf.data.Dataset]:
    """Write a table of images as a TFRecord dataset, and load it.

    The same as `tfrecorder.convert(source, output_dir, **options)` and then
    `tfrecorder.load(output_dir, **load_options)`, except that all options are checked before
    anything is written.  For rejects, see `tfrecorder.info(output_dir)` and rejects.csv.  To read
    the finished dataset again, call `tfrecorder.load`.

    Args:
        source: as for `tfrecorder.convert`.
        output_dir: as for `tfrecorder.convert`, where `tfrecorder.load` can read it.
        load_options: options of `tfrecorder.load`, such as {"split": "TRAIN"}; see
            `tfrecorder.LoadOptions`.
        **options: options of the conversion; see `tfrecorder.ConvertOptions`.  The call waits for a
            Dataflow job to end.

    Returns:
        What `load` returns: a dict of all splits, or one of them if load_options has a split.

    Raises:
        OptionError: an option's name or value is wrong.
        DatasetError: the dataset has no such split, or load cannot read where output_dir is.
        TfrecorderError: what `tfrecorder.convert` raises.

    Example:
        >>> train = tfrecorder.convert_and_load(
        ...     "flowers.csv", "out", num_shards=8,
        ...     load_options={"split": "TRAIN", "batch_size": 64, "image_size": 224},
        ... )  # doctest: +SKIP
    """
    reading = _checked_load_options(load_options)
    refuse_missing("tensorflow")
    of_load = {
        name: f"it is an option of load: give it as `load_options={{{name!r}: …}}`"
        for name in set(names_of(LoadOptions)).difference(names_of(ConvertOptions))
    }
    if options.get("wait", True) is not True:
        words = "the dataset must be written before it can be loaded; leave it out."
        raise OptionError.of("wait", options["wait"], words)
    options["wait"] = True
    path = output_path(output_dir, ConvertOptions.of(options, of_load))
    if not storage.is_local(path):
        from tfrecorder.loading.remote import files_of

        files_of(path)  # before spending hours on what load cannot read

    convert(source, output_dir, **options)
    from tfrecorder.loading.load import load

    return load(path, **reading)


def _checked_load_options(given: Mapping[str, Any] | None) -> dict[str, Any]:
    if given is not None and not isinstance(given, Mapping):
        words = "give a dict, such as `load_options={'split': 'TRAIN', 'batch_size': 64}`."
        raise OptionError.of("load_options", given, words)
    chosen = dict(given or {})
    split = chosen.get("split")
    if split is not None and SPELLINGS.get(str(split).strip().lower()) not in SPLITS:
        words = f"{split!r} is not a split; there are {', '.join(SPLITS)}."
        raise OptionError.of("load_options", chosen, words)
    others = {name: value for name, value in chosen.items() if name != "split"}
    of_conversion = {
        name: f"it is an option of the conversion: give it as `{name}=…`"
        for name in set(names_of(ConvertOptions)).difference(names_of(LoadOptions))
    }
    try:
        LoadOptions.of(others, of_conversion)
    except OptionError as error:
        raise OptionError(f"load_options: {error}") from None
    return chosen
