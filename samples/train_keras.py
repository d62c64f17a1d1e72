"""Trains a small Keras network on the bundled photographs, from a CSV to a test accuracy.

    python samples/train_keras.py [--out DIR] [--epochs N]

You can stop it at any moment, even with kill -9. Start it again with the same --out, and it
continues from its last save, with exactly the batches that come next.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import keras

import tfrecorder

HERE = Path(__file__).parent
SIZE = (96, 128)


def build_model(classes: int) -> keras.Model:
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((*SIZE, 3)),
            layers.Conv2D(16, 3, 2, activation="relu"),
            layers.Conv2D(32, 3, 2, activation="relu"),
            layers.Conv2D(32, 3, 2, activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(classes),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.005), loss, metrics=["accuracy"])
    return model


def main() -> float:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("photos-training"))
    parser.add_argument("--epochs", type=int, default=25)
    chosen = parser.parse_args()

    dataset = chosen.out / "dataset"
    if not (dataset / "dataset_info.json").exists():
        tfrecorder.convert(HERE / "photos.csv", dataset, num_shards=4)
    info = tfrecorder.info(dataset)
    print(info)

    keras.utils.set_random_seed(0)
    as_floats = {"image_size": SIZE, "dtype": "float32", "batch_size": 9}
    model = build_model(len(info.class_names or ()))
    position = tfrecorder.keras.TrainingPosition(chosen.out / "position", model, every=50)
    for epoch, step in position.epochs(chosen.epochs):
        train = tfrecorder.load(dataset, "TRAIN", seed=1, start=(epoch, step), **as_floats)
        model.fit(train, initial_epoch=epoch, epochs=epoch + 1, callbacks=[position], verbose=2)

    _, accuracy = model.evaluate(tfrecorder.load(dataset, "TEST", **as_floats), verbose=0)
    print(f"accuracy on held-out images: {accuracy:.0%} (chance: {1 / len(info.class_names):.0%})")
    return accuracy


if __name__ == "__main__":
    main()
