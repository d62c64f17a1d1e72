"""For Keras, on any backend: datasets for `fit`, and resuming a training after an interruption.

    position = tfrecorder.keras.TrainingPosition("run", model, every=100)
    for epoch, step in position.epochs(5):
        train = tfrecorder.keras.dataset("out", "TRAIN", batch_size=64, image_size=224, seed=7,
                                         start=(epoch, step))
        model.fit(train, initial_epoch=epoch, epochs=epoch + 1, callbacks=[position])

The same lines start a training and resume it, also with `load` in place of `dataset`.  We save the
model with its optimizer and two numbers: the order of the records follows from the seed, so there
is no shuffle buffer to store.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tfrecorder.core.option import Whole
from tfrecorder.errors import OptionError, missing_explained
from tfrecorder.format.documents import seal, unseal
from tfrecorder.options.keywords import BatchKeywords, Datasets, Unpack
from tfrecorder.options.option import require, takes
from tfrecorder.options.read import check_start
from tfrecorder.reading.batches import Batches, BatchOptions, batches

with missing_explained():
    import keras

_POINTER = "position.json"


@takes(BatchKeywords, BatchOptions)
def dataset(
    directory: Datasets,
    split: str,
    *,
    start: tuple[int, int] | None = None,
    **options: Unpack[BatchKeywords],
) -> BatchDataset:
    """The batches of `tfrecorder.batches` for `fit`, `evaluate` and `predict`, on any backend.

    Each epoch of `fit` reads the next one, in a new order for TRAIN.  An epoch that Keras does not
    read to its end is read anew the next time.

    Args:
        directory: as for `tfrecorder.batches`.
        split: as for `tfrecorder.batches`.
        start: (epoch, step), both from 0, where the first epoch begins; `TrainingPosition` knows
            them.  It needs the `seed` of the run to continue.
        **options: those of `tfrecorder.batches`.

    Raises:
        OptionError: an option's name or value is wrong, or an epoch has fewer steps than `start`.
        DatasetError: the directory is not a whole dataset, or has no such split.

    Example:
        >>> train = tfrecorder.keras.dataset("out", "TRAIN", batch_size=64,
        ...                                  image_size=224)  # doctest: +SKIP
        >>> model.fit(train, epochs=5)  # doctest: +SKIP
    """
    if start is not None and options.get("seed") is None:
        raise OptionError.of(
            "start",
            start,
            "an epoch's order comes from the seed; give the seed of the run to continue.",
        )
    begin = (0, 0) if start is None else start
    return BatchDataset(batches(directory, split, **options), begin)


class BatchDataset(keras.utils.PyDataset):
    """What `dataset` returns: `keras.utils.PyDataset` over batches that our own threads make.

    Keras asks for each number of an epoch once, in an order of its own if it shuffles.  The records
    are shuffled already, so within an epoch it gets the batches one after the other.
    """

    def __init__(
        self,
        batches: Batches,
        start: tuple[int, int],
    ) -> None:
        super().__init__()
        if reason := check_start(start):
            raise OptionError.of("start", start, reason)
        self._batches = batches
        self._epoch, self._begin = start
        batches.seek(self._epoch, self._begin)
        self._loop: Iterator[Any] | None = None
        self._next = 0  # the batch that the loop comes to, by its number
        self._is_in_epoch = False

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """By integer; None if no column or several columns have classes."""
        return self._batches.class_names

    def __len__(self) -> int:
        """The number of batches in the epoch that is read or comes next."""
        return len(self._batches) - self._begin

    def __getitem__(self, index: int) -> Any:
        """A batch: within an epoch the next one, otherwise the one with this number."""
        if not self._is_in_epoch and (wanted := range(len(self))[index]) != self._next:
            self._loop = None
            self._next = wanted
        if self._loop is None:
            self._batches.seek(self._epoch, self._begin + self._next)
            self._loop = iter(self._batches)
        batch = next(self._loop)
        self._next += 1
        if self._is_in_epoch and self._next == len(self):
            self._epoch += 1
            self._begin = 0
        return batch

    def __iter__(self) -> Iterator[Any]:
        """The batches of one epoch."""
        self.on_epoch_begin()
        for index in range(len(self)):
            yield self[index]
        self.on_epoch_end()

    def on_epoch_begin(self) -> None:
        """Begin an epoch at its first batch, whatever Keras looked at before."""
        self._is_in_epoch = True
        self._loop = None
        self._next = 0

    def on_epoch_end(self) -> None:
        """Keras may now look at single batches."""
        self._is_in_epoch = False
        self._loop = None
        self._next = 0


class TrainingPosition(keras.callbacks.Callback):
    """A Keras callback that saves a model and its position in training, and restores both.

    Both are saved together: a kill at any moment leaves the last complete pair.

    Args:
        directory: local, only for this training; created if missing.
        model: compiled, with the same layers each time.  If the directory holds a position, the
            model's and the optimizer's variables are restored from it.  A model that is built only
            by its first batch is then built as it was before.
        every: steps between two saves, at least 1; the end of an epoch is always saved.

    Attributes:
        epoch: the epoch to continue with, from 0.
        step: how many batches of that epoch were already trained on.

    Raises:
        OptionError: `every` is not a positive whole number, or the saved variables do not fit.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        model: keras.Model,
        every: int = 100,
    ) -> None:
        super().__init__()
        require(Whole(1), every=every)
        self._directory = Path(directory)
        self._every = int(every)
        self.epoch = self.step = 0
        self._begun_at = self._saved = 0
        self._unread: Path | None = None
        self._find(model)
        if model.built:
            self._restore(model)

    def epochs(self, epochs: int) -> Iterator[tuple[int, int]]:
        """(epoch, step) of each epoch still to train, for `load` and `fit`.

        Args:
            epochs: of the whole training, including those already done.
        """
        while self.epoch < epochs:
            before = self.epoch, self.step
            yield before
            if (self.epoch, self.step) == before:
                raise OptionError(
                    "the epoch was not trained to its end; give this callback to model.fit, as "
                    "`callbacks=[position]`, with `epochs=epoch + 1`."
                )

    def on_train_begin(self, logs: Any = None) -> None:
        self._restore(self.model)  # for a model that only fit can build, on JAX and torch

    def on_epoch_begin(
        self,
        epoch: int,
        logs: Any = None,
    ) -> None:
        self._begun_at = self.step if epoch == self.epoch else 0
        self.epoch = epoch

    def on_train_batch_end(
        self,
        batch: int,
        logs: Any = None,
    ) -> None:
        # With several steps per execution, Keras calls this once, with the last step's number.
        self.step = self._begun_at + batch + 1
        # The last step is saved when the epoch ends: with no batches left, fit could not run an
        # epoch.  With several steps per execution, the number may be beyond the last step.
        steps = self.params.get("steps")
        is_last = steps is not None and batch + 1 >= steps
        if not is_last and self.step // self._every > self._saved // self._every:
            self._save()

    def on_epoch_end(
        self,
        epoch: int,
        logs: Any = None,
    ) -> None:
        self.epoch = epoch + 1
        self.step = 0
        self._begun_at = 0
        self._save()

    def _save(self) -> None:
        """Write the variables to a new file; then one rename makes them the position."""
        self._directory.mkdir(parents=True, exist_ok=True)
        name = f"epoch-{self.epoch:05d}-step-{self.step:08d}.weights.h5"
        unready = self._directory / f"unready-{name}"
        self.model.save_weights(unready, overwrite=True)
        os.replace(unready, self._directory / name)
        built = self.model.get_build_config() or {}
        document = {
            "epoch": self.epoch,
            "step": self.step,
            "variables": name,
            "input_shape": built.get("input_shape"),
        }
        pointer = self._directory / f"{_POINTER}.tmp"
        pointer.write_bytes(seal(document))
        os.replace(pointer, self._directory / _POINTER)
        self._saved = self.step
        for old in self._directory.glob("*.weights.h5"):
            if old.name != name:
                old.unlink()

    def _find(self, model: keras.Model) -> None:
        """Read the saved position, if any, and build the model as it was."""
        pointer = self._directory / _POINTER
        if not pointer.exists():
            return
        try:
            document = unseal(pointer.read_bytes())
        except ValueError as error:
            raise OptionError(
                f"{pointer} is damaged: {error}; copy it again, or begin anew in another directory."
            ) from error
        self.epoch = document["epoch"]
        self.step = document["step"]
        self._saved = self.step
        self._unread = self._directory / document["variables"]
        if not model.built and document.get("input_shape"):
            model(_symbolic(document["input_shape"]))  # builds layers, computes nothing

    def _restore(self, model: keras.Model) -> None:
        """Set a model's variables, once, from the file that `_find` found."""
        if self._unread is None:
            return
        if not model.built:
            raise OptionError.of(
                "directory",
                str(self._directory),
                "the position there cannot be given to a model without variables; build it first, "
                "for example with `model.build((None, 224, 224, 3))`.",
            )
        if model.optimizer is not None and not model.optimizer.built:
            # An unbuilt optimizer has no variables yet, and its saved ones would be skipped.
            model.optimizer.build(model.trainable_variables)
        try:
            model.load_weights(self._unread)
        except (ValueError, KeyError) as error:
            raise OptionError.of(
                "directory",
                str(self._directory),
                f"what is saved there does not fit this model: {str(error).rstrip('.')}. "
                "Give the model that was trained, or another directory.",
            ) from error
        self._unread = None


def _symbolic(shape: Any) -> Any:
    """Symbolic inputs with the shapes in a position: one, or a dict or list of them."""
    if isinstance(shape, dict):
        return {name: _symbolic(part) for name, part in shape.items()}
    if all(side is None or isinstance(side, int) for side in shape):
        return keras.KerasTensor((None, *shape[1:]))
    return [_symbolic(part) for part in shape]
