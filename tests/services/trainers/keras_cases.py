"""What `tfrecorder.keras.dataset` does, on the backend that KERAS_BACKEND names.

tests/services/test_trainers.py runs this file by a pytest of its own for each backend. The dataset
stands in TFRECORDER_DATASET: 36 photographs in TRAIN, 8 in TEST.
"""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import tfrecorder
from tfrecorder.errors import OptionError
from tfrecorder.keras import BatchDataset, TrainingPosition, dataset

OUT = os.environ["TFRECORDER_DATASET"]
OPTIONS: dict[str, Any] = {"batch_size": 5, "image_size": 8, "dtype": "float32"}


@pytest.fixture(autouse=True)
def without_warnings() -> Iterator[None]:
    """Keras warns where a dataset ends too early; what torch says of NumPy's arrays is theirs."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "__array__ implementation")
        yield


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[list[float]]:
    """The batches that Keras took within epochs, by the sums of their images."""
    found: list[list[float]] = []
    item = BatchDataset.__getitem__

    def noted(self: BatchDataset, index: int) -> Any:
        batch = item(self, index)
        if self._is_in_epoch:
            found.append(sums(batch))
        return batch

    monkeypatch.setattr(BatchDataset, "__getitem__", noted)
    return found


def sums(batch: Any) -> list[float]:
    return batch[0].sum((1, 2, 3)).tolist()


def epochs_of(split: str, epochs: int, **more: Any) -> list[list[list[float]]]:
    loop = tfrecorder.batches(OUT, split, **OPTIONS, **more)
    return [[sums(batch) for batch in loop] for _ in range(epochs)]


def mean_model(*layers: Any) -> keras.Model:
    """Without layers its prediction is the mean of each image's channels."""
    model = keras.Sequential(
        [keras.Input((8, 8, 3)), keras.layers.GlobalAveragePooling2D(), *layers]
    )
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


class Stop(keras.callbacks.Callback):
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == 2:
            raise KeyboardInterrupt


def test_fit_takes_every_batch_of_every_epoch_in_its_order(trained: list[list[float]]) -> None:
    """Although Keras looks at batches before, and shuffles their numbers."""
    train = dataset(OUT, "TRAIN", seed=7, **OPTIONS)
    assert len(train) == 8
    mean_model(keras.layers.Dense(9)).fit(train, epochs=2, verbose=0)
    assert trained[-16:] == list(itertools.chain(*epochs_of("TRAIN", 2, seed=7)))
    assert len(trained) - 16 in (0, 1), "at most the one that the model was built by"


def test_predictions_come_for_every_record_in_order_each_time() -> None:
    test, model = dataset(OUT, "TEST", **OPTIONS), mean_model()
    whole = [batch[0].mean((1, 2)) for batch in tfrecorder.batches(OUT, "TEST", **OPTIONS)]
    for _ in range(2):
        found = model.predict(test, verbose=0)
        np.testing.assert_allclose(found, np.concatenate(whole), rtol=1e-4)


def test_evaluation_and_class_weights_work() -> None:
    train, test = dataset(OUT, "TRAIN", **OPTIONS), dataset(OUT, "TEST", **OPTIONS)
    model = mean_model(keras.layers.Dense(9))
    weights = dict.fromkeys(range(9), 1.0)
    fitted = model.fit(train, validation_data=test, class_weight=weights, epochs=2, verbose=0)
    last = model.evaluate(test, verbose=0)
    assert fitted.history["val_loss"][-1] == pytest.approx(last, rel=1e-4)


def test_a_training_that_is_stopped_goes_on_with_what_it_has_not_seen(
    trained: list[list[float]], tmp_path: Path
) -> None:
    def train(*callbacks: Any) -> None:
        model = mean_model(keras.layers.Dense(9))
        position = TrainingPosition(tmp_path / "run", model, every=1)
        for epoch, step in position.epochs(2):
            rest = dataset(OUT, "TRAIN", seed=7, start=(epoch, step), **OPTIONS)
            model.fit(
                rest,
                initial_epoch=epoch,
                epochs=epoch + 1,
                callbacks=[position, *callbacks],
                verbose=0,
            )

    with pytest.raises(KeyboardInterrupt):
        train(Stop())
    trained.clear()
    train()
    assert trained[-13:] == list(itertools.chain(*epochs_of("TRAIN", 2, seed=7)))[3:]


def test_an_epoch_that_was_not_read_to_its_end_is_read_anew() -> None:
    train = dataset(OUT, "TRAIN", seed=7, **OPTIONS)
    [first, second] = epochs_of("TRAIN", 2, seed=7)
    for batch, _ in zip(train, range(3), strict=False):
        assert sums(batch) in first[:3]
    assert [sums(batch) for batch in train] == first
    assert [sums(batch) for batch in train] == second


def test_one_batch_is_asked_for_by_its_number() -> None:
    train = dataset(OUT, "TRAIN", seed=7, **OPTIONS)
    [first] = epochs_of("TRAIN", 1, seed=7)
    for number in (3, 0, 1, 7, -1):
        assert sums(train[number]) == first[number]
    with pytest.raises(IndexError):
        train[8]


def test_a_start_that_is_none_is_refused() -> None:
    for start in ((0, 9), (0, -1), 3):
        with pytest.raises(OptionError, match=r"start=|step=9: an epoch has 8 steps"):
            dataset(OUT, "TRAIN", seed=7, start=start, **OPTIONS)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match=r"start=.*; give the seed of the run to continue"):
        dataset(OUT, "TRAIN", start=(0, 0), **OPTIONS)
    with pytest.raises(OptionError, match="there is no option 'batchsize'"):
        dataset(OUT, "TRAIN", batchsize=8)  # type: ignore[call-arg]
