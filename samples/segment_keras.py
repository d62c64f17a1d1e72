"""Trains a tiny network to separate red and white china from the table, pixel by pixel.

python samples/segment_keras.py [--out DIR] [--epochs N]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import keras
import numpy as np
from kinds import CLASSES, segmentation

import tfrecorder

SIZE = (96, 128)


def build_model() -> keras.Model:
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((*SIZE, 3)),
            layers.Conv2D(16, 3, padding="same", activation="relu"),
            layers.Conv2D(24, 3, strides=2, padding="same", activation="relu"),
            layers.Conv2D(24, 3, padding="same", activation="relu"),
            layers.UpSampling2D(interpolation="bilinear"),
            layers.Conv2D(len(CLASSES), 3, padding="same"),
        ]
    )


def main() -> float:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("coffee-segmentation"))
    parser.add_argument("--epochs", type=int, default=40)
    chosen = parser.parse_args()

    if not (chosen.out / "dataset_info.json").exists():
        segmentation(chosen.out)
    keras.utils.set_random_seed(0)
    options = {"image_size": SIZE, "dtype": "float32", "batch_size": 3}
    model = build_model()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.005), loss, metrics=["accuracy"])
    train = tfrecorder.load(chosen.out, "TRAIN", seed=0, augment=True, **options)
    model.fit(train, epochs=chosen.epochs, verbose=0)

    right = []
    for images, masks in tfrecorder.load(chosen.out, "TEST", **options):
        found = np.argmax(model.predict(images, verbose=0), axis=-1)
        right.append(found == masks.numpy()[..., 0])
    accuracy = float(np.mean(np.concatenate(right)))
    print(f"pixels of held-out photographs classified correctly: {accuracy:.0%}")
    return accuracy


if __name__ == "__main__":
    main()
