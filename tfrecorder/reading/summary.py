"""`info`: what a dataset directory holds, to print and to look at in a notebook."""

from __future__ import annotations

import html
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tfrecorder import layout, storage
from tfrecorder.errors import DatasetError
from tfrecorder.reading.dataset import StoredDataset, open_dataset, parse_json
from tfrecorder.reading.files import local_files
from tfrecorder.tables import text_table


@dataclass(frozen=True)
class SplitInfo:
    """One split.

    Attributes:
        records: in it; None where that is not known without reading everything.
        shards: files.
        bytes: of the files.
    """

    records: int | None
    shards: int
    bytes: int


@dataclass(frozen=True)
class DatasetInfo:
    """A dataset directory.

    Attributes:
        directory: as it was given.
        form: "tfrecorder", "tfds" or "files".
        splits: by name, TRAIN first.
        class_names: by integer; None where the labels are integers, missing or not known.
        num_classes: None where it is not known; 0 without labels.
        image_shape: (height, width, channels) of every image, None where images differ.
        features: the kind of each key of a record: image, text, int64, float or label.
        formats: records by image format; empty where it is not known.
        rejects: rows without a record, by "stage/code".
        suspects: records whose image decodes, but with a decoder's warning.
        options: of the conversion, by name; empty for directories from elsewhere.
        statistics: of a dataset with a stated schema, by column and split: count, min, max, mean
            and std of numbers, the most frequent values of others.
    """

    directory: str
    form: str
    splits: Mapping[str, SplitInfo]
    class_names: tuple[str, ...] | None
    num_classes: int | None
    image_shape: tuple[int | None, int | None, int]
    features: Mapping[str, str]
    formats: Mapping[str, int] = field(default_factory=dict)
    rejects: Mapping[str, int] = field(default_factory=dict)
    suspects: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    statistics: Mapping[str, Any] = field(default_factory=dict)

    @property
    def records(self) -> int | None:
        """Of all splits together."""
        counts = [split.records for split in self.splits.values()]
        return None if None in counts else sum(count or 0 for count in counts)

    @property
    def bytes(self) -> int:
        return sum(split.bytes for split in self.splits.values())

    def __str__(self) -> str:
        lines = text_table(self._table())
        notes = [f"{name}: {value}" for name, value in self._notes()]
        return "\n".join([self.directory, "", *lines, "", *notes])

    def _repr_html_(self) -> str:
        head, *body = self._table()
        header = "".join(f"<th>{html.escape(name)}</th>" for name in head)
        rows = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
            for row in body
        )
        notes = "".join(
            f"<li>{html.escape(name)}: {html.escape(value)}</li>" for name, value in self._notes()
        )
        return (
            f"<p>{html.escape(self.directory)}</p>"
            f"<table><thead><tr>{header}</tr></thead><tbody>{rows}</tbody></table><ul>{notes}</ul>"
        )

    def _table(self) -> list[list[str]]:
        table = [["split", "records", "shards", "bytes"]]
        for name, split in self.splits.items():
            records = "?" if split.records is None else f"{split.records:,}"
            table.append([name, records, f"{split.shards:,}", f"{split.bytes:,}"])
        return table

    def _notes(self) -> list[tuple[str, str]]:
        sides = ["any" if side is None else str(side) for side in self.image_shape]
        notes = [("images", " x ".join(sides) + " (height x width x channels)")]
        if self.formats:
            notes.append(("formats", _counts(self.formats)))
        if self.class_names is not None:
            shown = ", ".join(map(repr, self.class_names[:8]))
            more = len(self.class_names) - 8
            tail = f", … {more} more" if more > 0 else ""
            notes.append(("classes", f"{len(self.class_names)}: {shown}{tail}"))
        elif self.num_classes is not None:
            number = f"{self.num_classes} without names" if self.num_classes else "no labels"
            notes.append(("classes", number))
        notes.append(("features", ", ".join(self.features)))
        if self.rejects:
            where = os.path.join(self.directory, layout.REJECTS)
            notes.append(("rejects", f"{_counts(self.rejects)}; see {where}"))
        if self.suspects:
            where = os.path.join(self.directory, layout.SUSPECTS)
            notes.append(
                ("suspects", f"{self.suspects:,} images decode with a warning; see {where}")
            )
        chosen = {name: value for name, value in self.options.items() if value is not None}
        if chosen:
            notes.append(("options", ", ".join(f"{n}={value!r}" for n, value in chosen.items())))
        return notes


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())


def info(directory: str | os.PathLike[str]) -> DatasetInfo:
    """What a dataset directory holds; its shards are checked by name and size.

    Args:
        directory: as for `load`.  Paths with a scheme need TensorFlow, local ones do not.

    Raises:
        DatasetError: the directory is no whole dataset.

    Example:
        >>> tfrecorder.info("out").class_names  # doctest: +SKIP
        ('daisy', 'rose')
    """
    where = os.fspath(directory)
    if storage.scheme(where):
        from tfrecorder.reading.remote import files_of  # TensorFlow, only where it must be

        files = files_of(where)
    else:
        files = local_files()
    stored = open_dataset(where, files)
    if stored.form != "tfrecorder":
        return _info(stored, {})
    path = os.path.join(where, layout.METADATA)
    try:
        return _info(stored, parse_json(files.read(path), where, layout.METADATA))
    except (OSError, storage.UnreadableError) as error:
        raise DatasetError(f"{path} cannot be read: {error}") from error


def _info(stored: StoredDataset, metadata: Mapping[str, Any]) -> DatasetInfo:
    totals = metadata.get("totals", {})
    names = stored.class_names
    return DatasetInfo(
        directory=stored.directory,
        form=stored.form,
        splits={
            name: SplitInfo(stored.records(name), len(shards), stored.bytes(name))
            for name, shards in stored.splits.items()
        },
        class_names=names,
        num_classes=metadata.get("num_classes", None if names is None else len(names)),
        image_shape=stored.image_shape,
        features=stored.features,
        formats=totals.get("formats", {}),
        rejects=totals.get("reasons", {}),
        suspects=totals.get("suspects", 0),
        options=metadata.get("options", {}),
        statistics=metadata.get("stated", {}).get("statistics", {}),
    )
