"""Trains a small Keras network on NumPy batches, on the backend that KERAS_BACKEND names.

KERAS_BACKEND=jax python train_keras_batches.py DATASET
"""

from __future__ import annotations

import sys

import keras

import tfrecorder


def main(dataset: str) -> None:
    size, options = (48, 64), {"batch_size": 6, "dtype": "float32"}
    train = tfrecorder.batches(dataset, "TRAIN", image_size=size, seed=7, augment=True, **options)
    valid = tfrecorder.batches(dataset, "VALIDATION", image_size=size, **options)

    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((*size, 3)),
            keras.layers.Conv2D(16, 3, 2, activation="relu"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(len(tfrecorder.info(dataset).class_names)),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1), loss)
    while train.epoch < 8:
        epoch = train.epoch
        for images, labels in train:
            model.train_on_batch(images, labels)
        held_out = sum(model.test_on_batch(images, labels) for images, labels in valid) / len(valid)
        print(f"{keras.backend.backend()}, epoch {epoch}, loss on held-out images: {held_out:.2f}")


if __name__ == "__main__":
    main(sys.argv[1])
