"""A dataset that grows while it is read: looking for new generations.

The form of an element is fixed when the dataset is opened, as a graph or as the shapes of arrays.
So a newer generation is refused if its elements would have another form.
"""

from __future__ import annotations

import os
from dataclasses import replace

from tfrecorder import storage
from tfrecorder.errors import DatasetError, OptionError
from tfrecorder.options.keywords import Datasets
from tfrecorder.options.read import ReadOptions
from tfrecorder.reading.commits import generations
from tfrecorder.reading.dataset import StoredDataset
from tfrecorder.reading.element_spec import ElementSpec, spec_of
from tfrecorder.reading.open import open_dataset
from tfrecorder.schema.kinds import Labels


class GrowingDataset:
    """A dataset that may grow, for a reader whose elements keep their form.

    Args:
        directory: of the dataset.
        options: what an element holds.
    """

    def __init__(
        self,
        directory: Datasets,
        options: ReadOptions,
    ) -> None:
        if not isinstance(directory, (str, os.PathLike)):
            raise OptionError.of("follow", True, "it reads one dataset; give one, or leave it out.")
        self.directory = storage.given_path(directory)
        self._options = options
        self._first: StoredDataset | None = None
        self._last: int | None = None

    def look(self, at: int | None = None) -> StoredDataset:
        """The dataset with all that is committed by now.

        Args:
            at: the generation to go back to, if the dataset has it.

        Raises:
            DatasetError: it is not whole, was rewritten or taken back, was not written by this
                package, or its elements no longer have the form they had on the first call.
        """
        stored = open_dataset(self.directory, named=self._options.keys)
        if stored.commit is None:
            raise DatasetError(
                f"follow: {self.directory} has no generations, as it was not written by "
                "tfrecorder. Leave out follow, or convert the images."
            )
        self._first = self._first or stored
        if self._first.since != stored.since:
            raise DatasetError(
                f"{self.directory} was overwritten while it was being read. Open it again to read "
                "the new dataset."
            )
        is_new = self._last not in (None, stored.commit)
        if is_new and self._last not in generations(self.directory):
            raise DatasetError(
                f"generation {self._last} of {self.directory} was taken back by `undo` while it "
                "was being read. Open it again to read what is left."
            )
        self._last = stored.commit
        before, now = (spec_of(dataset, self._options) for dataset in (self._first, stored))
        _refuse_other_form(
            before,
            now,
            f"generation {stored.commit}: since {stored.directory} was opened",
        )
        if at is not None and stored.since <= at < stored.commit:
            earlier = open_dataset(self.directory, at)
            of_then = {name: getattr(earlier, name) for name in ("splits", "commit", "contents")}
            return replace(stored, **of_then)
        return stored


def of_any_size(stored: StoredDataset, options: ReadOptions) -> StoredDataset:
    """The dataset with no expected image size, if all images are resized to a given one anyway."""
    if stored.raw or options.size is None:
        return stored
    shapes = {key: (None, None, shape[2]) for key, shape in stored.shapes.items()}
    return replace(stored, shapes=shapes, sides=None)


def _refuse_other_form(
    before: ElementSpec,
    now: ElementSpec,
    since: str,
) -> None:
    """Refuse a dataset whose elements no longer have the form they had.

    Args:
        before: what elements held when the dataset was opened.
        now: what they hold.
        since: how an error begins.
    """
    for field in now.decoded:
        was, shape = (spec.pictures[field.key].shape for spec in (before, now))
        if was[2] != shape[2]:
            raise DatasetError(
                f"{since}, images of {shape[2]} channels were added to images of {was[2]}. Open it "
                "again."
            )
        if any(side not in (None, new) for side, new in zip(was, shape, strict=True)):
            raise DatasetError(
                f"{since}, images of another size were added to images of {was[0]} x {was[1]} "
                "pixels. Open it with one size, such as `image_size=224`."
            )
    for was_field, field in zip(before.columns, now.columns, strict=True):
        if isinstance(field.kind, Labels) and was_field.num_classes != field.num_classes:
            raise DatasetError(
                f"{since}, column {field.column!r} grew from {was_field.num_classes} classes to "
                f"{field.num_classes}, and so did its vectors. Open it again."
            )
