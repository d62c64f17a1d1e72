"""Images that occur more than once in a dataset, also resized, encoded again or cut at the borders.

What the tables of shards know of each image names the pairs that may be copies; the images of these
alone are read and compared.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pyarrow as pa

from tfrecorder.core.checks import flag_or_none
from tfrecorder.display.bars import Stage, is_shown, record_bar
from tfrecorder.display.tables import counted
from tfrecorder.display.warning import warn
from tfrecorder.errors import DatasetError
from tfrecorder.format.plan_columns import SourceOf, source_of
from tfrecorder.images.close_hashes import bits_between, close_pairs, most_bits
from tfrecorder.images.likeness import ALIKE, likeness, picture_of
from tfrecorder.inspection.record_values import image_of
from tfrecorder.options.option import require
from tfrecorder.reading.dataset import StoredDataset
from tfrecorder.reading.stored_records import open_stored, read_numbered
from tfrecorder.reading.table import record_rows, table_of
from tfrecorder.schema.fields import primary_image

#: How far the mean of the grey levels may differ between copies, and how many times larger one
#: deviation may be, in hundredths of a level.  Below the least deviation there is nothing to see.
_MEANS, _DEVIATIONS, _LEAST = 1000, 1.3, 100

#: If the pairs that may be copies have more images than this, or this share of all, some are
#: compared first.  If fewer than half of these are copies, all images look alike.
_MANY, _SHARE, _SOME = 1000, 0.01, 200

#: The columns of `duplicates`; those of the dataset stand between the first and the last.
_GROUP, _DISTANCE = "group", "distance"


def duplicates(
    directory: str | os.PathLike[str], at: int | None = None, progress: bool | None = None
) -> pd.DataFrame:
    """The images that occur more than once in a dataset, byte for byte or nearly.

    A near copy was resized, encoded again, or lost up to 3 % at its borders.  The conversion notes
    what each JPEG looks like; of PNG and other formats, and with `check="header"`, it does so with
    `fingerprints=True`.  Only images that may be copies are read.

    Args:
        directory: a dataset written by this package.
        at: the last generation to read; None is the newest.
        progress: show a bar; by default only in a terminal or a notebook.

    Returns:
        A row for each image of a group of copies, the largest groups first: `group` from 0, then
        `split`, `image_uri`, `label` and the other columns of the dataset, and `distance`: in how
        many of 63 bits its looks differ from the first image of its group.  `tfrecorder.remove`
        takes some of these rows.

    Raises:
        DatasetError: it was not written by this package, or a record is damaged.

    Example:
        >>> found = tfrecorder.duplicates("out")  # doctest: +SKIP
        >>> tfrecorder.remove("out", found[found["group"].duplicated()])  # doctest: +SKIP
    """
    require(flag_or_none, progress=progress)
    stored = open_stored(directory, at)
    with record_bar(is_shown(progress)) as stage:
        copies = find_near_copies(stored, stage)
    frames = []
    for split, rows in copies.groupby("split", sort=False):
        table = table_of(stored, str(split)).iloc[rows["number"]]
        frames.append(table.set_axis(rows.index))
    table = pd.concat(frames or [table_of(stored, next(iter(stored.splits))).iloc[:0]])
    table.insert(0, _GROUP, copies[_GROUP])
    table[_DISTANCE] = copies[_DISTANCE]
    return table.sort_index()


def find_near_copies(stored: StoredDataset, stage: Stage) -> pd.DataFrame:
    """The records whose images occur more than once.

    Returns:
        A row for each, by group: `split`, `number`, `group`, `distance`.

    Raises:
        DatasetError: nobody noted what its images look like, or a record is damaged.
    """
    looks = _looks_of(stored)
    same = looks["bytes"].notna() & looks.duplicated(["bytes", "crc32c"], keep=False)
    first = looks[same].groupby(["bytes", "crc32c"])["place"].transform("min")
    pairs = np.stack([first, looks["place"][same]], 1)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    is_known = looks["hash"].notna()
    if unknown := int((~is_known).sum()):
        warn(
            f"{stored.directory}: {counted(unknown, 'image was', 'images were')} not decoded when "
            "converted, so near copies of them are not found; convert with `fingerprints=True`."
        )
    alone = looks[is_known & ~looks["place"].isin(pairs[:, 1])]
    near = _confirmed(stored, looks, _candidates(alone[alone["deviation"] >= _LEAST]), stage)
    return _in_groups(looks, np.concatenate([pairs, near]))


def _looks_of(stored: StoredDataset) -> pd.DataFrame:
    """What is known of the looks of all images: `SourceOf`, and `split`, `number`, `place`."""
    image, tables = primary_image(stored.fields), []
    for split in stored.splits if image else ():
        names = list(source_of(image))
        rows = record_rows(stored, split, [], names)
        if rows is None:
            raise DatasetError(
                f"{stored.directory}: its tables do not say what its images look like; only a "
                "dataset that this version converted has that. `tfrecorder.preview` finds images "
                "that are the same byte for byte."
            )
        rows = rows.select(names).rename_columns(SourceOf._fields)
        frame = rows.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)
        tables.append(frame.assign(split=split, number=np.arange(len(frame))))
    if not tables:
        raise DatasetError(f"{stored.directory} has no column of images.")
    looks = pd.concat(tables, ignore_index=True)
    return looks.assign(place=np.arange(len(looks)))


def _candidates(looks: pd.DataFrame) -> np.ndarray:
    """Pairs of images that may be copies, as far as their looks say, the closest first."""
    hashes, at = np.unique(looks["hash"].to_numpy(np.uint64), return_inverse=True)
    most = most_bits(hashes)
    if most < 0:
        return np.empty((0, 2), np.int64)
    pairs, apart = close_pairs(hashes, most)
    # The first image of each hash stands for the others, which are compared with it.
    first = np.full(len(hashes), len(at))
    np.minimum.at(first, at, np.arange(len(at)))
    others = np.flatnonzero(first[at] != np.arange(len(at)))
    pairs = np.concatenate([np.stack([first[at[others]], others], 1), first[pairs]])
    apart = np.concatenate([np.zeros(len(others)), apart])
    means, deviations = (looks[name].to_numpy(float)[pairs] for name in ("mean", "deviation"))
    alike = np.abs(means[:, 0] - means[:, 1]) <= _MEANS
    alike &= deviations.max(1) <= _DEVIATIONS * deviations.min(1)
    order = np.argsort(apart[alike], kind="stable")
    return looks["place"].to_numpy()[np.sort(pairs[alike][order], axis=1)]


def _confirmed(
    stored: StoredDataset, looks: pd.DataFrame, pairs: np.ndarray, stage: Stage
) -> np.ndarray:
    """Those of some pairs whose images are copies."""
    if len(np.unique(pairs)) > max(_MANY, _SHARE * len(looks)):
        some = pairs[np.random.RandomState(0).permutation(len(pairs))[:_SOME]]
        if 2 * len(_alike(stored, looks, some, stage)) < len(some):
            warn(
                f"{stored.directory}: its images look so much alike that near copies cannot be "
                "told from others; only copies byte for byte were looked for."
            )
            return pairs[:0]
    return _alike(stored, looks, pairs, stage)


def _alike(
    stored: StoredDataset, looks: pd.DataFrame, pairs: np.ndarray, stage: Stage
) -> np.ndarray:
    places = np.unique(pairs)
    advance = stage("comparing images", len(places))
    pictures: dict[int, np.ndarray] = {}
    for split, rows in looks.loc[places].groupby("split", sort=False):
        records = read_numbered(stored, str(split), rows["number"])
        for place, record in zip(rows["place"], records, strict=True):
            advance(1)
            picture = picture_of(image_of(record.features, stored))
            if picture is not None:
                pictures[place] = picture
    is_alike = [
        one in pictures and other in pictures and likeness(pictures[one], pictures[other]) >= ALIKE
        for one, other in pairs.tolist()
    ]
    return pairs[np.array(is_alike, bool)]


def _in_groups(looks: pd.DataFrame, pairs: np.ndarray) -> pd.DataFrame:
    """The images of all pairs, those that hang together in one group, the largest first."""
    parent: dict[int, int] = {}

    def first_of(place: int) -> int:
        while (above := parent.get(place, place)) != place:
            parent[place] = place = parent.get(above, above)
        return place

    for one, other in pairs.tolist():
        low, high = sorted((first_of(one), first_of(other)))
        parent[high] = low
    places: Sequence[int] = np.unique(pairs).tolist()
    first = pd.Series([first_of(place) for place in places], places, dtype=np.int64)
    copies = looks.loc[places, ["split", "number"]]
    sizes = first.map(first.value_counts())
    order = pd.DataFrame({"size": -sizes, "first": first}).sort_values(["size", "first"])
    copies = copies.loc[order.index]
    copies[_GROUP] = pd.factorize(order["first"])[0]
    hashes = [
        looks["hash"].reindex(of).fillna(0).to_numpy(np.uint64)
        for of in (order.index, order["first"])
    ]
    copies[_DISTANCE] = bits_between(*hashes).astype(np.int64)
    return copies.reset_index(drop=True)
