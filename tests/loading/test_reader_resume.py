"""A training that is killed goes on with exactly the batches that its saved model has not seen."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.reading_cases import convert_photos, ids
from support import TESTS, run, skip_without

import tfrecorder

EPOCHS, BATCH, EVERY = 3, 5, 2

#: Trains on the labels, and logs the source rows of each batch when it is trained on.
TRAINING = f"""
import json, os, signal, sys
import keras, numpy as np, tensorflow as tf
import tfrecorder

out, run, kill_epoch, kill_step = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
keras.utils.set_random_seed(1)
model = keras.Sequential([
    keras.Input((12, 12, 3)), keras.layers.Rescaling(1 / 255), keras.layers.Conv2D(4, 3, 2),
    keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(4),
])

def loss(target, logits):
    seen.append(target[:, 1].numpy().tolist())
    of_class = keras.losses.sparse_categorical_crossentropy
    return of_class(target[:, 0], logits, from_logits=True)

class Log(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        with open(run + "/log", "a") as file:
            print(json.dumps([position.epoch, position.step, seen[-1]]), file=file)
        if (position.epoch, position.step) == (kill_epoch, kill_step):
            os.kill(os.getpid(), signal.SIGKILL)

seen = []
os.makedirs(run, exist_ok=True)
model.compile(keras.optimizers.Adam(0.01), loss, run_eagerly=True)
position = tfrecorder.keras.TrainingPosition(run, model, every={EVERY})
print("begins at", position.epoch, position.step)
for epoch, step in position.epochs({EPOCHS}):
    train = tfrecorder.load(out, "TRAIN", batch_size={BATCH}, image_size=12, seed=7, inputs="all",
                            start=(epoch, step))
    train = train.map(lambda row: (row["image/encoded"], tf.stack(
        [row["image/class/label"], tf.strings.to_number(row["image/source_id"], tf.int64)], 1)))
    model.fit(train, initial_epoch=epoch, epochs=epoch + 1, callbacks=[position, Log()], verbose=0)
np.save(run + "/weights.npy", np.concatenate([w.ravel() for w in model.get_weights()]))
"""


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> str:
    return convert_photos(tmp_path_factory.mktemp("photos") / "out")


def train(out: str, run: Path, kill_at: tuple[int, int] = (-1, -1)) -> int:
    command = [sys.executable, "-c", TRAINING, out, str(run), *map(str, kill_at)]
    return subprocess.run(command, check=False).returncode


def batches(run: Path) -> list[tuple[int, int, list[int]]]:
    """(epoch, step, source rows) of each batch trained on."""
    return [tuple(json.loads(line)) for line in (run / "log").read_text().splitlines()]


@pytest.mark.slow
def test_a_killed_training_goes_on_with_the_batches_not_seen(out: str, tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert train(out, whole) == 0
    expected = batches(whole)
    assert len(expected) == EPOCHS * 8
    assert all(len({row for *_, rows in expected[e * 8 : e * 8 + 8] for row in rows}) == 36
               for e in range(EPOCHS))  # fmt: skip

    assert train(out, killed, kill_at=(1, 5)) == -signal.SIGKILL
    before = len(batches(killed))
    assert before == 8 + 5
    assert train(out, killed) == 0
    # The fifth step came after the last save: the saved model has not seen it.
    assert batches(killed)[: before - 1] + batches(killed)[before:] == expected
    np.testing.assert_allclose(
        np.load(killed / "weights.npy"), np.load(whole / "weights.npy"), rtol=1e-5, atol=1e-6
    )


@pytest.mark.slow
@pytest.mark.parametrize("more", [{}, {"augment": True}, {"cache": True}, {"shard": (1, 2)}])
def test_a_start_leaves_out_exactly_the_steps_before_it(out: str, more: dict[str, object]) -> None:
    options = {"batch_size": 4, "image_size": 10, "seed": 3, "inputs": "all"} | more
    for epoch in (0, 6):
        whole = list(tfrecorder.load(out, "TRAIN", start=(epoch, 0), **options))
        rest = list(tfrecorder.load(out, "TRAIN", start=(epoch, 2), **options))
        assert ids(rest) == ids(whole[2:])
        for one, same in zip(rest, whole[2:], strict=True):
            np.testing.assert_array_equal(one["image/encoded"], same["image/encoded"])


@pytest.mark.slow
def test_each_epoch_has_an_order_of_its_own(out: str) -> None:
    def order(epoch: int) -> list[int]:
        return ids(tfrecorder.load(out, "TRAIN", inputs="all", seed=3, start=(epoch, 0)))

    orders = [order(epoch) for epoch in range(4)]
    assert len({tuple(one) for one in orders}) == 4
    assert order(2) == orders[2]


@pytest.mark.slow
def test_every_iteration_gives_the_epoch_asked_for(out: str) -> None:
    """Keras makes iterators that it never reads, and people look at a batch before training."""
    options = {"image_size": 9, "batch_size": 36, "augment": True, "inputs": "all"}
    dataset = tfrecorder.load(out, "TRAIN", seed=3, start=(1, 0), **options)
    (first,), (second,) = list(dataset), list(dataset)
    assert ids([first]) == ids([second])
    np.testing.assert_array_equal(first["image/encoded"], second["image/encoded"])


class Lazy:
    """Models whose layers learn their shapes from the first batch."""

    @staticmethod
    def sequential() -> Any:
        import keras

        return keras.Sequential(
            [
                keras.layers.Rescaling(1 / 255),
                keras.layers.Conv2D(4, 3, 2),
                keras.layers.GlobalAveragePooling2D(),
                keras.layers.Dense(4),
            ]
        )

    @staticmethod
    def subclass() -> Any:
        import keras

        class Model(keras.Model):
            def __init__(self) -> None:
                super().__init__()
                self.within = Lazy.sequential()

            def call(self, inputs: Any) -> Any:
                return self.within(inputs["image"] if isinstance(inputs, dict) else inputs)

        return Model()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sequential", "subclass", "dict"])
def test_a_model_that_is_built_by_its_first_batch_goes_on_too(
    out: str, tmp_path: Path, kind: str
) -> None:
    import keras

    def train(run: Path, stop_at: tuple[int, int] | None = None) -> list[np.ndarray]:
        keras.utils.set_random_seed(1)
        model = (Lazy.sequential if kind == "sequential" else Lazy.subclass)()
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(0.01), loss)
        position = tfrecorder.keras.TrainingPosition(run, model, every=2)

        class Stop(keras.callbacks.Callback):
            def on_train_batch_end(self, batch: int, logs: object = None) -> None:
                if (position.epoch, position.step) == stop_at:
                    raise KeyboardInterrupt

        for start in position.epochs(2):
            options = {"batch_size": BATCH, "image_size": 12, "seed": 7}
            rows = tfrecorder.load(out, "TRAIN", start=start, **options)
            if kind == "dict":
                rows = rows.map(lambda image, label: ({"image": image}, label))
            span = {"initial_epoch": start[0], "epochs": start[0] + 1}
            model.fit(rows, callbacks=[position, Stop()], verbose=0, **span)
        variables = (*model.variables, *model.optimizer.variables)
        return [keras.ops.convert_to_numpy(variable) for variable in variables]

    whole = train(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "stopped", stop_at=(1, 3))
    rest = train(tmp_path / "stopped")
    assert len(rest) == len(whole) > 8
    for one, same in zip(rest, whole, strict=True):
        np.testing.assert_allclose(one, same, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_training_goes_on_with_the_other_backends_of_keras(backend: str, tmp_path: Path) -> None:
    skip_without(backend)
    test = f"{__file__}::test_a_model_that_is_built_by_its_first_batch_goes_on_too"
    # A folder of its own: pytest clears those of earlier runs, whatever others left there.
    given = ("-m", "pytest", "-q", "--basetemp", tmp_path / "own", test)
    given += ("-p", "no:cacheprovider", "-p", "no:xdist")
    environment = {**os.environ, "KERAS_BACKEND": backend}
    done = run(*given, seconds=600, env=environment, cwd=TESTS)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_a_training_ends_without_a_word_at_the_interpreters_exit(out: str, backend: str) -> None:
    skip_without(backend)
    code = f"""
import keras, tfrecorder
rows = tfrecorder.batches({out!r}, "TRAIN", batch_size=8, image_size=12, dtype="float32")
model = keras.Sequential([keras.Input((12, 12, 3)), keras.layers.Flatten(), keras.layers.Dense(4)])
model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit((one for _ in range(2) for one in rows), steps_per_epoch=2, verbose=0)
"""
    done = run("-c", code, seconds=300, env={**os.environ, "KERAS_BACKEND": backend})
    assert done.returncode == 0, done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.slow
def test_another_model_than_the_saved_one_is_refused(out: str, tmp_path: Path) -> None:
    import keras

    def position(model: Any) -> Any:
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return tfrecorder.keras.TrainingPosition(tmp_path, model)

    first = Lazy.sequential()
    rows = tfrecorder.load(out, "TRAIN", batch_size=BATCH, image_size=12)
    callback = position(first)
    first.fit(rows, callbacks=[callback], verbose=0)
    other = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(4)])
    with pytest.raises(tfrecorder.errors.OptionError, match="does not fit this model"):
        position(other)


def test_an_epoch_without_the_callback_is_said(tmp_path: Path) -> None:
    import keras

    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    position = tfrecorder.keras.TrainingPosition(tmp_path, model)
    with pytest.raises(tfrecorder.errors.OptionError, match=r"give this callback to model.fit"):
        list(position.epochs(2))
    with pytest.raises(tfrecorder.errors.OptionError, match="every=0"):
        tfrecorder.keras.TrainingPosition(tmp_path, model, every=0)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "Expecting value"),
        ("[]", "it has changed since it was written"),
        ('{"epoch": 1, "step": 2, "variables": "a"}', "it has changed since it was written"),
    ],
)
def test_a_position_that_was_changed_is_refused(tmp_path: Path, content: str, words: str) -> None:
    import keras

    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    (tmp_path / "position.json").write_text(content)
    with pytest.raises(
        tfrecorder.errors.OptionError, match=rf"position\.json is damaged: .*{words}"
    ):
        tfrecorder.keras.TrainingPosition(tmp_path, model)


@pytest.mark.slow
def test_a_stop_before_the_end_of_an_epoch_of_several_steps_an_execution(
    out: str, tmp_path: Path
) -> None:
    """During the validation, when Keras has counted 9 of 8 steps."""
    import keras

    class Stop(keras.callbacks.Callback):
        def on_test_begin(self, logs: object = None) -> None:
            raise KeyboardInterrupt

    model = keras.Sequential(
        [keras.Input((8, 8, 3)), keras.layers.Flatten(), keras.layers.Dense(4)]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, steps_per_execution=3)
    options = {"batch_size": BATCH, "image_size": 8, "seed": 1}
    position = tfrecorder.keras.TrainingPosition(tmp_path, model, every=1)
    train = tfrecorder.load(out, "TRAIN", start=(0, 0), **options)
    with pytest.raises(KeyboardInterrupt):
        model.fit(train, validation_data=train, callbacks=[position, Stop()], verbose=0)
    found = tfrecorder.keras.TrainingPosition(tmp_path, model)
    rest = tfrecorder.load(out, "TRAIN", start=(found.epoch, found.step), **options)
    assert (found.epoch, found.step, len(rest)) == (0, 6, 2)
