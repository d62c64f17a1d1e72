"""A dataset directory as tf.data pipelines that keep the accelerator busy."""

from __future__ import annotations

import dataclasses
import itertools
import os
import secrets
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfrecorder import storage
from tfrecorder.errors import DatasetError, OptionError
from tfrecorder.loading.batching import HostEpoch, batched, host_epoch
from tfrecorder.loading.cache_files import cache_path
from tfrecorder.loading.options import LoadOptions, caches_pixels
from tfrecorder.loading.order import (
    OpenedShards,
    cycle_of,
    exact_numbers,
    random_draws,
    read_exact,
    read_records,
    read_slices,
    shuffle,
    shuffle_records,
    slices,
)
from tfrecorder.loading.parsing import parser
from tfrecorder.loading.python_side import PythonSide
from tfrecorder.options.keywords import Datasets
from tfrecorder.options.ranks import Rank, say_divided
from tfrecorder.options.read import parallel_calls, prefetched
from tfrecorder.reading.dataset import ShardFile, StoredDataset
from tfrecorder.reading.element_spec import ElementSpec, picture_of, refuse_sizes, spec_of
from tfrecorder.reading.growth import GrowingDataset, of_any_size
from tfrecorder.reading.open import open_dataset
from tfrecorder.reading.order import derive_seed
from tfrecorder.reading.record_set import RecordSet, open_members, record_set

#: Paths, the commit's note, files read at a time, records in the shuffle buffer, a seed.
_FORM = (
    tf.TensorSpec([None], tf.string),
    tf.TensorSpec([], tf.string),
    tf.TensorSpec([], tf.int64),
    tf.TensorSpec([], tf.int64),
    tf.TensorSpec([], tf.int64),
)

#: What TensorFlow combines a shuffle's seed with if no global seed is set.
_GRAPH_SEED = 87654321


def read_followed(
    growing: GrowingDataset,
    split: str,
    shuffled: bool,
    options: LoadOptions,
    side: PythonSide,
) -> tf.data.Dataset:
    """The serialized records of a split: everything committed when an iteration begins.

    A Python generator yields one list of files per epoch; the rest is the same graph as for any
    other dataset.
    """
    epochs = itertools.count()
    opened = OpenedShards(growing.directory, (), side)

    def look() -> Iterator[tuple[Any, ...]]:
        stored = growing.look()
        shards = stored.splits[split]
        opened.by_path |= {shard.path: shard for shard in shards}
        paths = [run.path for run in slices(shards, None)]
        cycle = cycle_of(len(paths))
        epoch = next(epochs)
        if not shuffled:
            yield paths, stored.note, cycle, 0, 0
            return
        seed = secrets.randbits(32) if options.seed is None else int(options.seed)
        random = np.random.default_rng(derive_seed(seed, epoch, "shards"))
        paths = [paths[place] for place in random.permutation(len(paths))]
        seed = derive_seed(seed, epoch, "records")
        yield paths, stored.note, cycle, _held(shards, options), seed

    def read(
        paths: tf.Tensor,
        note: tf.Tensor,
        cycle: tf.Tensor,
        held: tf.Tensor,
        seed: tf.Tensor,
    ) -> Any:
        files = tf.data.Dataset.from_tensor_slices((paths,))
        records = read_slices(files, cycle if shuffled else None, options, opened, note)
        if not shuffled:
            return records
        # Only for this function's graph.  With a global seed of 0, TensorFlow compares our seed
        # with 0 before it is known, and fails.
        tf.compat.v1.set_random_seed(_GRAPH_SEED)
        return records.shuffle(held, seed=seed, reshuffle_each_iteration=False)

    return side.generate(look, _FORM).flat_map(read)


def _held(shards: Sequence[ShardFile], options: LoadOptions) -> int:
    """How many records the shuffle buffer holds.

    It follows from the shards of this epoch alone, so that an epoch has the same order whenever the
    dataset was opened.
    """
    records = sum(shard.records or 0 for shard in shards)
    mean_bytes = sum(shard.bytes for shard in shards) / max(records, 1)
    return shuffle_records(mean_bytes, records, options)


def refuse_unread(path: str) -> None:
    """Refuse a dataset that TensorFlow cannot read, before anything is read.

    Raises:
        DatasetError: TensorFlow has no file system for the path's scheme, or is not told whom to
            bill.
    """
    scheme = storage.scheme(path)
    readable = sorted(name for name in tf.io.gfile.get_registered_schemes() if name)
    if scheme and scheme not in readable:
        raise DatasetError(
            f"{path}: TensorFlow has no reader of {scheme}://, only of {', '.join(readable)}. "
            "Read with Records or batches, copy the directory to a local disk or to gs://, mount "
            "the bucket as a folder, or install and import tensorflow-io, which adds s3 and az."
        )
    project = storage.access().user_project
    if scheme == "gs" and project is not None:
        try:
            tf.io.gfile.exists(path)
        except tf.errors.OpError as error:
            words = f"{path} cannot be read by TensorFlow: {error.message}"
            # In this it differs from all other readers.  Source:
            # https://cloud.google.com/storage/docs/xml-api/reference-headers#xgooguserproject
            if "no user project" in error.message:
                words = (
                    f"{path} cannot be read: the reader of this bucket pays for it. Before Python "
                    f"starts, set {storage.USER_PROJECT}={project}, the Google Cloud project to "
                    "bill, and for TensorFlow "
                    f"GCS_ADDITIONAL_REQUEST_HEADER=x-goog-user-project:{project} too."
                )
            raise DatasetError(words) from error


#: Used if nothing better is known.
_DECODED_TO_ENCODED = 8
_USUAL_RECORD_BYTES = 100_000


def record_bytes(stored: StoredDataset, split: str) -> float:
    """The mean size of a record."""
    records = stored.records(split)
    return stored.bytes(split) / records if records else _USUAL_RECORD_BYTES


def image_bytes(
    stored: StoredDataset,
    split: str,
    options: LoadOptions,
) -> float:
    """The approximate size of a record's images as `load` gives them."""
    if not options.decode:
        return record_bytes(stored, split)
    height, width = options.size or stored.image_shape[:2]
    if height is None or width is None:
        return record_bytes(stored, split) * _DECODED_TO_ENCODED
    dtype = picture_of(stored.image_shape, options, depth=stored.depth).dtype
    return height * width * stored.image_shape[2] * tf.as_dtype(dtype).size


def decoding_bytes(
    stored: StoredDataset,
    split: str,
    options: LoadOptions,
) -> float:
    """About how much the largest image takes while it is decoded and resized."""
    if not options.decode or stored.sides is None:
        return image_bytes(stored, split, options)
    (_, shorter), (_, longer) = stored.sides
    return shorter * longer * stored.image_shape[2] * stored.depth // 8


def element_bytes(
    stored: StoredDataset,
    split: str,
    options: LoadOptions,
) -> float:
    """The approximate size of an element of the dataset: a batch, or one record's images."""
    return image_bytes(stored, split, options) * (options.batch_size or 1)


#: Records up to this mean size are parsed and decoded a batch at a time: below it, tf.data's
#: overhead per element costs more than the parallelism gains.
SMALL_RECORD_BYTES = 16 * 2**10


def read_dataset(
    directory: Datasets,
    split: str | None,
    chosen: LoadOptions,
) -> tf.data.Dataset | dict[str, tf.data.Dataset]:
    """What `load` returns."""
    if (rank := chosen.rank).world > 1:
        chosen = dataclasses.replace(chosen, shard=rank[:2])
    if chosen.is_by_number or not isinstance(directory, (str, os.PathLike)):
        return _read_by_number(directory, split, chosen, rank)
    refuse_unread(storage.given_path(directory))
    growing = GrowingDataset(directory, chosen) if chosen.follow else None
    stored = growing.look() if growing else open_dataset(directory, chosen.at, chosen.keys)
    if split is not None:
        return _load_split(stored, stored.split(split), chosen, rank, growing=growing)
    loaded = {}
    for name in stored.splits:
        loaded[name] = _load_split(stored, name, chosen, rank, growing=growing)
    return loaded


def _read_by_number(
    directory: Datasets,
    split: str | None,
    options: LoadOptions,
    rank: Rank,
) -> tf.data.Dataset | dict[str, tf.data.Dataset]:
    """What `load` returns where records are read by number, in the order of `batches`."""
    for name in ("follow", "cache"):
        value = getattr(options, name)
        if value:
            raise OptionError.of(
                name,
                value,
                "it reads one dataset, and does not choose; `tfrecorder.batches` can follow one "
                "with `where`.",
            )
    members, shares = open_members(directory, options)

    def load_split(name: str) -> tf.data.Dataset:
        records = record_set(
            members,
            name,
            options,
            shares,
            balance=options.balance,
            epoch_size=options.epoch_size,
        )
        return _load_split(records.stored, records.split, options, rank, records)

    if split is not None:
        return load_split(split)
    loaded = {}
    for name in members[0].splits:
        if all(name in other.splits for other in members):
            loaded[name] = load_split(name)
    return loaded


def _load_split(
    stored: StoredDataset,
    split: str,
    options: LoadOptions,
    rank: Rank,
    chosen: RecordSet | None = None,
    growing: GrowingDataset | None = None,
) -> tf.data.Dataset:
    spec = refuse_sizes(stored, options)
    side = PythonSide()
    host = None
    if growing:
        spec = spec_of(of_any_size(stored, options), options)
    else:
        host = _of_host(stored, split, options, chosen)
    dataset = _decoded(
        stored,
        split,
        spec,
        host=host,
        options=options,
        chosen=chosen,
        growing=growing,
        side=side,
    )
    if host:
        say_divided(rank, host.share.records)
        left = tf.data.experimental.assert_cardinality(len(host.sizes) - options.step)
        dataset = dataset.apply(left)
    ahead = prefetched(element_bytes(stored, split, options), options.budget)
    return side.belong_to(dataset.prefetch(ahead).with_options(_tf_options(split, options)))


def _of_host(
    stored: StoredDataset,
    split: str,
    options: LoadOptions,
    chosen: RecordSet | None,
) -> HostEpoch | None:
    """What this host reads of an epoch; None if that is not known before."""
    if chosen:
        return host_epoch(split, chosen.size, options, by_number=True)
    records = stored.records(split)
    if records is not None:
        return host_epoch(split, records, options, by_number=False)
    if options.rank.world > 1:
        raise DatasetError(
            f"`shard={options.shard!r}`: {stored.uncounted()} Or give each host its own pattern of "
            "files, and `shard=(0, 1)`."
        )
    return None


def _decoded(
    stored: StoredDataset,
    split: str,
    spec: ElementSpec,
    *,
    host: HostEpoch | None,
    options: LoadOptions,
    chosen: RecordSet | None,
    growing: GrowingDataset | None,
    side: PythonSide,
) -> tf.data.Dataset:
    """The elements, in order or shuffled, and batched if asked for."""
    shuffled = options.shuffles(split)
    by_batch = _decodes_batches(spec, stored, split, options)
    under_way = element_bytes if by_batch else decoding_bytes
    parallel: dict[str, Any] = {
        "num_parallel_calls": parallel_calls(under_way(stored, split, options), options.budget),
        "deterministic": options.is_deterministic(split),
    }
    cache_pixels = caches_pixels(options)
    if growing:
        dataset = read_followed(growing, split, shuffled, options, side)
    elif chosen is not None and host:
        dataset = exact_numbers(chosen, host.share, options, side)
    else:
        # A cache needs a fixed order, so with one the shards are read in order.
        part = options.shard if options.rank.world > 1 else None
        runs = slices(stored.splits[split], part)
        opened = OpenedShards(stored.directory, stored.splits[split], side)
        is_mixed = shuffled and not options.cache
        dataset = read_records(runs, is_mixed, options, opened, stored.note)
    if cache_pixels:
        dataset = dataset.map(parser(spec, stored, split, side, batch=False), **parallel)
    if options.cache:
        dataset = dataset.cache(cache_path(stored, split, options, side))
    if shuffled and chosen is None and not growing:
        of_one = record_bytes(stored, split)
        if cache_pixels:
            of_one = image_bytes(stored, split, options)
        held = shuffle_records(of_one, host.records if host else None, options)
        dataset = shuffle(dataset, held, "records", options)
    if options.augment and chosen is None:
        dataset = tf.data.Dataset.zip(dataset, {"drawn": random_draws(options)})
    if options.step:  # before decoding: skipped records are only read
        skipped = options.step * (options.batch_size or 1)
        if host:
            skipped = sum(host.sizes[: options.step])
        dataset = dataset.skip(skipped)
    if chosen is not None:
        dataset = read_exact(chosen, dataset, side)
    if by_batch:
        dataset = batched(dataset, host, options)
        # In order; otherwise the short last batch could come first.
        in_order = {**parallel, "deterministic": True}
        return dataset.map(parser(spec, stored, split, side, batch=True), **in_order)
    if not cache_pixels:
        dataset = dataset.map(parser(spec, stored, split, side, batch=False), **parallel)
    if options.map_fn is not None:
        dataset = dataset.map(options.map_fn, **parallel)
    if options.batch_size is not None:
        dataset = batched(dataset, host, options, is_ragged=bool(spec.ragged))
    return dataset


def _decodes_batches(
    spec: ElementSpec,
    stored: StoredDataset,
    split: str,
    options: LoadOptions,
) -> bool:
    if options.batch_size is None or options.map_fn is not None or caches_pixels(options):
        return False
    if spec.ragged or spec.has_boxes:  # placed and padded one record at a time
        return False
    return spec.is_raw or record_bytes(stored, split) <= SMALL_RECORD_BYTES


def _tf_options(split: str, options: LoadOptions) -> tf.data.Options:
    chosen = tf.data.Options()
    chosen.deterministic = options.is_deterministic(split)
    # Autotune's thread sleeps for up to a minute, and in every other epoch it does not notice that
    # its iterator was dropped: the next epoch would wait for it.
    chosen.autotune.enabled = False
    # The graph may call Python, but what that answers is no state of an iterator: it can be saved.
    chosen.experimental_external_state_policy = tf.data.experimental.ExternalStatePolicy.IGNORE
    policies = tf.data.experimental.AutoShardPolicy
    if options.rank.world > 1:
        # tf.distribute would divide what is one process's share already.
        chosen.experimental_distribute.auto_shard_policy = policies.OFF
    elif options.augment or options.follow:
        # By file, tf.distribute would split the records and their random seeds differently, and
        # with `follow` it would split the list of files.
        chosen.experimental_distribute.auto_shard_policy = policies.DATA
    return chosen
