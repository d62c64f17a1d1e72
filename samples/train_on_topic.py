"""Trains a small network on the images of a Kafka topic while they arrive.

    python samples/train_on_topic.py kafka://localhost:9092/photos [--out DIR]

One process writes the topic into a dataset, batch by batch. This one trains on the dataset, epoch
by epoch: each has what was committed when it began. Both end when nothing new has come for
--until-idle seconds. If you run the same command again, the stream continues where it ended, but
the training starts over.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

import keras

import tfrecorder

SIZE = (96, 128)

#: New classes may arrive, and the last layer needs room for each.
MOST_CLASSES = 10


def build_model() -> keras.Model:
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((*SIZE, 3)),
            layers.Rescaling(1 / 255),
            layers.Conv2D(16, 3, 2, activation="relu"),
            layers.Conv2D(32, 3, 2, activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(MOST_CLASSES),
        ]
    )
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("topic", help="kafka://HOST:PORT/TOPIC")
    parser.add_argument("--out", type=Path, default=Path("topic-training"))
    parser.add_argument("--until-idle", type=float, default=60)
    chosen = parser.parse_args()

    dataset = chosen.out / "dataset"
    idle = ["--until-idle", str(chosen.until_idle)]
    command = ["stream", chosen.topic, str(dataset), "--every-rows", "32", "--every-seconds", "2"]
    stream = subprocess.Popen([sys.executable, "-m", "tfrecorder", *command, *idle, "--quiet"])
    while not (dataset / "dataset_info.json").exists():
        if stream.poll() is not None:
            sys.exit("the stream ended before its first batch")
        time.sleep(0.5)

    train = tfrecorder.batches(dataset, "TRAIN", batch_size=8, image_size=SIZE, follow=True)
    model = build_model()
    is_last = False
    while not is_last:
        is_last = stream.poll() is not None  # this epoch then has everything that was written
        for images, labels in train:
            loss = model.train_on_batch(images, labels)
        print(f"epoch {train.epoch}: {len(train)} batches, loss {loss:.2f}", flush=True)
    print(tfrecorder.info(dataset))


if __name__ == "__main__":
    main()
