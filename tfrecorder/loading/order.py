"""The order in which a split's records are read: which part of which shard, and how shuffled.

Either shards are interleaved and records shuffled on their way; or the exact order of `batches` is
kept, and records are read by number.

Whether the shards that TensorFlow reads are those that were opened is asked in its graph.  Python
is called only if the dataset has changed since.  A call for every shard would hang a script that
ends while threads of TensorFlow read: at its exit they wait for the interpreter for ever.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfrecorder import storage
from tfrecorder.core.arrays import balanced_part
from tfrecorder.core.option import is_whole
from tfrecorder.format import layout
from tfrecorder.format.tfrecord import data_of
from tfrecorder.images.geometry import DRAWS, crop_draws
from tfrecorder.loading.options import LoadOptions
from tfrecorder.loading.python_side import PythonSide
from tfrecorder.options.ranks import cores_of_rank, seed_of
from tfrecorder.reading.dataset import ShardFile
from tfrecorder.reading.dataset_files import change_of
from tfrecorder.reading.order import derive_seed, draws
from tfrecorder.reading.position import Share
from tfrecorder.reading.record_set import RecordSet

#: Shards to read at the same time: at most this many, and at most this share of all.  If all were
#: read at once, a record would come at nearly the same time in each epoch.
CYCLE = 8
CYCLE_SHARE = 0.25

#: A shuffle buffer is limited by both of these and by its share of the memory budget.  Records are
#: already shuffled when they are written, so a larger buffer gains nothing.  It would also have to
#: be filled before the first batch, while nothing is decoded.
MAX_SHUFFLE_RECORDS = 2048
MAX_SHUFFLE_BYTES = 256 * 2**20
SHUFFLE_SHARE = 0.25

#: How many records to draw for at a time.
_DRAWS_AT_ONCE = 256

#: How many numbers to compute at a time.
_NUMBERS_AT_ONCE = 4096

#: About the most bytes of records that one call from TensorFlow's graph into Python reads.
_CALL_BYTES = 2**22


class OpenedShards:
    """Shards of a dataset as they were when it was opened.

    Args:
        directory: of the dataset.
        shards: those that are read.
        side: of the dataset, in Python.
    """

    def __init__(
        self,
        directory: str,
        shards: Iterable[ShardFile],
        side: PythonSide,
    ) -> None:
        self._is_local = storage.is_local(directory)
        self._side = side
        self.by_path = {shard.path: shard for shard in shards}

    def checked(
        self,
        path: tf.Tensor,
        open_file: Callable[[tf.Tensor], tf.data.Dataset],
        note: Any,
    ) -> tf.data.Dataset:
        """The records of a shard; reading it fails if it is not the one that was opened.

        The beginning is checked in the function that opens the shard.  On a disk that is enough: an
        open file stays what it is.  From a bucket, TensorFlow reads ranges by name, so the end is
        checked too, by a dataset with a function of its own.  It takes about 5 ms of CPU a shard.

        Args:
            open_file: the records at a path.
            note: the commit note of the dataset when it was opened, a text or a tensor.
        """

        def none(path: tf.Tensor) -> tf.data.Dataset:
            count = self._unless_noted(note, path, True)
            return tf.data.Dataset.from_tensors("").take(tf.cast(count, tf.int64))

        with tf.control_dependencies([self._unless_noted(note, path, False)]):
            records = open_file(tf.identity(path))
        if self._is_local:
            return records
        return records.concatenate(tf.data.Dataset.from_tensors(path).flat_map(none))

    def _unless_noted(
        self,
        note: tf.Tensor | str,
        path: tf.Tensor,
        is_ended: bool,
    ) -> tf.Tensor:
        """False; or the graph fails, as the commit has another note and the shard has changed."""
        pattern = tf.strings.join(['(?s).*"', note, '".*'])

        # From the path, since TensorFlow would read a file that it knows before only once.
        commit = tf.strings.regex_replace(path, "[^/]*$", layout.COMMIT)
        same = tf.strings.regex_full_match(tf.io.read_file(commit), pattern)
        return self._side.ask_unless(same, self._refuse_changed, [path, is_ended], tf.bool)

    def _refuse_changed(
        self,
        path: bytes,
        is_ended: bool,
    ) -> bool:
        change = change_of(self.by_path[path.decode()], may_be_gone=bool(is_ended))
        if change is not None:
            raise change
        return False


class Slice(NamedTuple):
    """A run of records in one shard: `take` of them after the first `skip`; -1 takes all.

    `compression` is of the whole file, as TensorFlow names it.
    """

    path: str
    skip: int = 0
    take: int = -1
    compression: str = ""


def slices(shards: Sequence[ShardFile], part: tuple[int, int] | None) -> list[Slice]:
    """The runs of records that one host reads; all hosts together read each record once.

    Args:
        shards: of a split; their `records` must be known if there is a `part`.
        part: (index, count) of the host; None for all records.

    >>> [(run.path, run.skip, run.take)
    ...  for run in slices([ShardFile("a", 4, 0), ShardFile("b", 4, 0)], (1, 3))]
    [('a', 2, 2), ('b', 0, 1)]
    """
    if part is None:
        return [
            Slice(shard.path, compression=shard.compression)
            for shard in shards
            if shard.records != 0
        ]
    first, end = balanced_part(sum(shard.records or 0 for shard in shards), *part)
    runs = []
    begin = 0
    for shard in shards:
        skip = max(first - begin, 0)
        take = min(end - begin, shard.records or 0) - skip
        if take > 0:
            runs.append(Slice(shard.path, skip, take))
        begin += shard.records or 0
    return runs


def shuffle_records(
    element_bytes: float,
    records: int | None,
    options: LoadOptions,
) -> int:
    """How many records the shuffle buffer holds.

    Args:
        element_bytes: the mean size of what is held.
        records: of the split, or None if not known.
        options: of the load; if `shuffle` is a number, that is the result.
    """
    if options.shuffle is not None and is_whole(options.shuffle):
        return int(options.shuffle)
    most_bytes = min(MAX_SHUFFLE_BYTES, options.budget * SHUFFLE_SHARE)
    most = max(1, int(most_bytes / max(element_bytes, 1.0)))
    return min(most, MAX_SHUFFLE_RECORDS, records or MAX_SHUFFLE_RECORDS)


def read_records(
    runs: Sequence[Slice],
    shuffled: bool,
    options: LoadOptions,
    opened: OpenedShards,
    note: str,
) -> tf.data.Dataset:
    """The serialized records of some shards; if `shuffled`, in random shard order, interleaved."""
    columns = []
    for at, dtype in enumerate((tf.string, tf.int64, tf.int64, tf.string)):
        columns.append(tf.constant([run[at] for run in runs], dtype))
    files = tf.data.Dataset.from_tensor_slices(tuple(columns))
    if shuffled:
        files = shuffle(files, len(runs), "shards", options)
    cycle = cycle_of(len(runs)) if shuffled else None
    return read_slices(files, cycle, options, opened, note)


def cycle_of(runs: int) -> int:
    """How many of this many shards are read at the same time."""
    return max(1, min(CYCLE, int(runs * CYCLE_SHARE)))


def read_slices(
    files: tf.data.Dataset,
    cycle: int | tf.Tensor | None,
    options: LoadOptions,
    opened: OpenedShards,
    note: tf.Tensor | str,
) -> tf.data.Dataset:
    """The serialized records of slices, in the order of the slices.

    Args:
        files: the path of each; then, if they are not all whole and plain, skip, take and
            compression.
        cycle: how many slices are read at the same time, interleaved; None reads one by one.
        note: the commit note of the dataset when it was opened; empty for other tools' files, which
            nothing here replaces and which are not checked.
    """

    def read_slice(
        path: tf.Tensor,
        skip: tf.Tensor | int = 0,
        take: tf.Tensor | int = -1,
        compression: tf.Tensor | str = "",
    ) -> tf.data.Dataset:
        def open_file(path: tf.Tensor) -> tf.data.Dataset:
            return tf.data.TFRecordDataset(path, compression).skip(skip).take(take)

        is_foreign = isinstance(note, str) and not note
        return open_file(path) if is_foreign else opened.checked(path, open_file, note)

    if cycle is None:
        return files.flat_map(read_slice)
    in_order = options.seed is not None  # which only shuffled records need
    return files.interleave(
        read_slice,
        cycle_length=cycle,
        num_parallel_calls=cycle,
        deterministic=in_order,
    )


def shuffle(
    dataset: tf.data.Dataset,
    buffer: int,
    purpose: str,
    options: LoadOptions,
) -> tf.data.Dataset:
    """Shuffle differently in each iteration, or always as in `options.epoch` if that is given."""
    return dataset.shuffle(
        max(buffer, 1),
        seed=_seed_for(purpose, options),
        reshuffle_each_iteration=options.epoch is None,
    )


def _seed_for(purpose: str, options: LoadOptions) -> int | None:
    if options.seed is None:
        return None
    return derive_seed(options.seed, options.epoch or 0, purpose)


def random_draws(options: LoadOptions) -> tf.data.Dataset:
    """An endless dataset of what `augment` draws for a record, float32 of [DRAWS]."""
    own = _seed_for("augment", options)
    seeds = tf.data.Dataset.random(seed=own, rerandomize_each_iteration=options.epoch is None)

    def draw(seed: tf.Tensor) -> tf.Tensor:
        return crop_draws(tf.random.stateless_uniform([_DRAWS_AT_ONCE, DRAWS], seed), tf)

    return seeds.batch(2, drop_remainder=True).map(draw).unbatch()


def exact_numbers(
    records: RecordSet,
    share: Share,
    options: LoadOptions,
    side: PythonSide,
) -> tf.data.Dataset:
    """The numbers of this host's records, in the order of one epoch, and what goes with each.

    With `augment` that is what is "drawn" for it, the same as in `batches`; and where classes of
    several datasets differ, the "member" of them that it is from.  Each iteration is the next
    epoch, or always `options.epoch` if that is given.

    Returns:
        Pairs of an int64 and a dict.
    """
    seed = seed_of(options.seed, share.world)
    mode = records.mode(options.shuffle)
    epochs = itertools.count()
    of_host = [share.places(start) for start in share.starts(0)]
    extras = {}
    if options.augment:
        extras["drawn"] = tf.TensorSpec([None, DRAWS], tf.float32)
    if records.stored.class_maps:
        extras["member"] = tf.TensorSpec([None], tf.int64)

    def one_epoch() -> Iterator[Any]:
        epoch = next(epochs) if options.epoch is None else options.epoch
        order = records.order(mode, seed, epoch)
        places = itertools.chain.from_iterable(of_host)
        while some := list(itertools.islice(places, _NUMBERS_AT_ONCE)):
            wanted = order.numbers(np.array(some))
            values = {}
            if "drawn" in extras:
                values["drawn"] = draws(seed, epoch, wanted)
            if "member" in extras:
                values["member"] = records.members_of(wanted)
            yield wanted, values

    signature: Any = tf.TensorSpec([None], tf.int64), extras
    return side.generate(one_epoch, signature).unbatch()


def read_exact(
    records: RecordSet,
    numbered: tf.data.Dataset,
    side: PythonSide,
) -> tf.data.Dataset:
    """The serialized records of these numbers, in the same order, several per call.

    Args:
        records: what the numbers count.
        numbered: pairs of a number and what goes with its record, as `exact_numbers` gives them.
        side: of the dataset, in Python.
    """
    reader = records.reader()
    stored = records.stored
    split = records.split
    mean = stored.bytes(split) // (stored.records(split) or 1)
    together = max(1, min(64, _CALL_BYTES // max(1, mean)))

    def of_numbers(wanted: np.ndarray) -> np.ndarray:
        return np.array(reader.read(wanted.tolist(), lambda framed, _: data_of(framed)), object)

    def in_graph(wanted: tf.Tensor, extras: dict[str, tf.Tensor]) -> tuple[tf.Tensor, Any]:
        serialized = side.call(of_numbers, [wanted], tf.string)
        serialized.set_shape([None])
        return serialized, extras

    calls = numbered.batch(together).map(
        in_graph,
        num_parallel_calls=cores_of_rank(),
        deterministic=True,
    )
    return calls.unbatch()
