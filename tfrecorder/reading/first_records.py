"""The first records of files without metadata, and what they show.

A COCO script leaves out the keys of boxes if an image has none, and a test split often has no
classes.  So one record is not enough, and we read the first few of each file and the last one.
"""

from __future__ import annotations

import codecs
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tfrecorder import storage
from tfrecorder.core.option import spelled
from tfrecorder.display.tables import counted
from tfrecorder.errors import DatasetError
from tfrecorder.format.example import Values, parse_features
from tfrecorder.format.tfrecord import check_frame, data_of, records_of
from tfrecorder.images.header import ending_of
from tfrecorder.images.pixels import shape_of
from tfrecorder.options.read import FEATURE_FORM
from tfrecorder.reading.dataset import ShardFile
from tfrecorder.reading.dataset_files import open_shard
from tfrecorder.schema.keys import HEIGHT, WIDTH, Feature

#: How many files to look at, spread evenly, and how many first records of one of a few files; we
#: stop earlier once the records of a file exceed this many bytes.
_FILES = 1000
_RECORDS = 8
_BYTES = 2**24

#: Bytes of a long value that are kept.
_BEGINNING = 2**16

#: The largest box edge that we take as a fraction: some tools round to more than 1.
_LARGEST_FRACTION = 1.5

#: How far a box in pixels may extend beyond its image, as a fraction of the image's side.
_BEYOND = 0.01

#: The endings of images that no text begins like.
_IMAGES = (".jpg", ".png", ".gif")

#: The offsets of bit depth and colour type in a PNG.
_DEPTH = 24
_COLOUR = 25

#: One of the first records of a file: its values by key.
Sample = dict[str, Values]


@dataclass(frozen=True)
class FirstLook:
    """Records from which the columns of files without metadata are concluded.

    Attributes:
        samples: the records.
        where: the first of their files.
        words: which records they are.
    """

    samples: Sequence[Sample]
    where: str
    words: str


def take_samples(
    splits: Mapping[str, Sequence[ShardFile]],
    lasts: Mapping[str, int],
) -> FirstLook:
    """The first records of each file and its last one.

    Args:
        splits: the files.
        lasts: the byte where the last record begins, of the files in which it can be read alone.

    Raises:
        DatasetError: a file is damaged, or holds no tf.train.Example.
    """
    files = []
    every = [shard for shards in splits.values() for shard in shards if shard.records != 0]
    most = _FILES // len(splits)
    for shards in splits.values():
        filled = [shard for shard in shards if shard.records != 0]
        together = min(_RECORDS, 1 + 4 * _RECORDS // max(1, len(filled)))
        for shard in filled[:: -(-len(filled) // most) or 1]:
            files.append((shard, together, lasts.get(shard.path)))
    path = files[0][0].path if files else ""
    taken = storage.each(lambda file: _some_records(*file), files, path)
    samples = list(itertools.chain(*taken))
    words = f"the {counted(len(samples), 'record')} that were looked at, in {len(files):,} of "
    words += counted(len(every), "file")
    if len(lasts) < len(every):
        words += " (on a bucket and in packed files only the first ones)"
    return FirstLook(samples, path, words if samples else "")


def _some_records(
    shard: ShardFile,
    together: int,
    last: int | None,
) -> list[Sample]:
    """The first records of a file, and the one that begins at the byte `last`."""
    samples = []
    size = 0
    try:
        with open_shard(shard) as file:
            for data in itertools.islice(records_of(file, shard.compression), together):
                samples.append(_sample(shard, data))
                size += len(data)
                if size > _BYTES:
                    break
            if last is not None and shard.records != len(samples):
                file.seek(last)
                framed = file.read(shard.bytes - last)
                check_frame(framed)
                samples.append(_sample(shard, data_of(framed)))
    except ValueError as error:
        raise DatasetError(f"{shard.path} is damaged: {error}. Copy it again.") from error
    return samples


def _sample(shard: ShardFile, data: bytes) -> Sample:
    """The values of a record; of long bytes the beginning, which tells what they are."""
    try:
        return parse_features(data, None, lambda value: bytes(value[:_BEGINNING]))
    except ValueError as error:
        raise DatasetError(
            f"{shard.path} holds a record that is {error}. Only files of these are read."
        ) from error


def stated_features(forms: Mapping[str, str]) -> Iterator[tuple[str, Feature]]:
    """The keys of the option `features`."""
    for key, form in forms.items():
        kind, at_most, length = FEATURE_FORM.fullmatch(form).groups()  # type: ignore[union-attr]
        shape: tuple[int | None, ...] = ()
        if at_most or length is not None:
            shape = (int(length),) if length else (None,)
        yield key, Feature(key, kind, shape)


def features_of(
    samples: Sequence[Sample], usual_kinds: Mapping[str, str]
) -> tuple[dict[str, Feature], dict[str, str]]:
    """The keys of some records with their types, and what is wrong with any of them, in words.

    A key has the shape () if every record holds one value of it.  Numbers of which every record
    holds as many have that shape, such as (16,), unless they belong to boxes.  All other keys are
    lists.

    Args:
        usual_kinds: the kinds of keys whose lists are empty in all records, because an empty list
            has no type; other such keys are left out.
    """
    keys = dict.fromkeys(key for sample in samples for key in sample)
    of_boxes = {key.rpartition("/")[0] for key in usual_kinds}
    features = {}
    faults = {}
    for key in keys:
        values = [sample[key] for sample in samples if len(sample.get(key, ()))]
        kinds = sorted({kind_of(stored) for stored in values})
        if len(kinds) > 1:
            faults[key] = f"holds {' in some records and '.join(kinds)} in others"
            if "bytes" in kinds:  # no column can hold both
                continue
            remedy = spelled("features", {key: "float"})
            faults[key] += f" ({remedy} reads all that is not under it)"
        if kinds:
            counts = {len(sample.get(key, ())) for sample in samples}
            kind = kinds[0]
            shape: tuple[int | None, ...] = () if counts == {1} else (None,)
            if kind == "bytes":
                kind = _text_or_bytes(values)
            elif shape and key.rpartition("/")[0] not in of_boxes:
                shape = (*counts,) if len(counts) == 1 < len(samples) else shape
            features[key] = Feature(key, kind, shape)
        elif key in usual_kinds:
            features[key] = Feature(key, usual_kinds[key], (None,))
    return features, faults


def kind_of(values: Values) -> str:
    """Of the values of a key: "bytes", "int64" or "float"."""
    if isinstance(values, list):
        return "bytes"
    return "int64" if values.dtype == np.int64 else "float"


def _text_or_bytes(values: Iterable[Values]) -> str:
    try:
        for texts in values:
            for value in texts:
                codecs.getincrementaldecoder("utf-8")().decode(value)  # it may be cut off
    except UnicodeDecodeError:
        return "bytes"
    return "text"


def encoded_keys(samples: Sequence[Sample]) -> list[str]:
    """The keys with a value that begins as an encoded image does, sorted."""
    return sorted(
        {
            key
            for sample in samples
            for key, data in sample.items()
            if isinstance(data, list) and data and ending_of(data[0]) in _IMAGES
        }
    )


def unequal(samples: Sequence[Mapping[str, Values]], keys: Sequence[str]) -> str:
    """What is wrong with keys that should hold the same number of values, or ""."""
    for sample in samples:
        counts = {key: len(sample.get(key, ())) for key in keys}
        if len(set(counts.values())) > 1:
            listed = ", ".join(f"{count} of {key}" for key, count in counts.items())
            return f"does not match the others: a record has {listed}"
    return ""


def box_unit(
    samples: Sequence[Sample],
    edges: Sequence[str],
    image: str,
) -> tuple[str, str]:
    """The unit of boxes, "fraction" or "pixel", and what is wrong with it, or "".

    Args:
        edges: the keys of the left, upper, right and lower edge.
        image: the key of the encoded image.
    """
    boxed = []
    for sample in samples:
        if all(len(sample.get(key, ())) for key in edges):
            boxed.append(sample)
    every = [np.asarray(sample[key]) for sample in boxed for key in edges]
    are_small = all(edge.max() <= _LARGEST_FRACTION for edge in every)
    if are_small and (not every or any(edge.dtype != np.int64 for edge in every)):
        return "fraction", ""
    faults = (_pixel_fault(sample, edges, image) for sample in boxed)
    return "pixel", next(filter(None, faults), "")


def _pixel_fault(
    sample: Sample,
    edges: Sequence[str],
    image: str,
) -> str:
    """Why boxes in pixels do not fit their image, or "": without its size they mean nothing."""
    data = sample.get(image)
    if not isinstance(data, list) or not data:
        return ""
    try:
        size = shape_of(data[0])
    except ValueError:
        return ""
    height, width = size
    stated = []
    for key in (HEIGHT, WIDTH):
        values = sample.get(key)
        if isinstance(values, np.ndarray) and len(values):
            stated.append(int(values[0]))
    if len(stated) == 2 and tuple(stated) != size:
        return (
            f"is in pixels, of an image of {stated[1]} x {stated[0]} as the record says, but the "
            f"image has {width} x {height}"
        )
    for key, side, name in ((edges[2], width, "width"), (edges[3], height, "height")):
        farthest = float(np.max(sample[key]))
        if farthest > side * (1 + _BEYOND):
            return (
                f"is in pixels, and a box reaches to {farthest:g}, beyond the image's "
                f"{name} of {side}"
            )
    return ""


def mask_fault(samples: Sequence[Sample], key: str) -> str:
    """What is wrong with masks, or "" if each is a PNG that decodes to exactly the drawn values.

    Decoders turn a palette into colours, and 2, 4 or 16 bits into other numbers.
    """
    for sample in samples:
        values = sample.get(key, [])
        if not isinstance(values, list):
            return "holds numbers, not PNGs"
        for data in values:
            if ending_of(data) != ".png" or len(data) <= _COLOUR:
                return "holds something other than PNGs"
            if data[_COLOUR] != 0 or data[_DEPTH] not in (1, 8):
                return "holds PNGs with a palette, of colours, or of other than 1 or 8 bits a pixel"
    return ""
