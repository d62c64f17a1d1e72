"""Write one dataset of each kind from the bundled photographs, and load it as for training.

    python samples/kinds.py [KIND ...] [--out DIR]

The kinds are multi-label, detection, segmentation, two-images and tabular.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image as Pictures

import tfrecorder
from tfrecorder.schema import Image, Label, Labels, Mask, Number, Schema, Split, Text

HERE = Path(__file__).parent
CLASSES = ("table", "red china", "white china")


def photos() -> pd.DataFrame:
    """The bundled photographs with absolute paths."""
    frame = pd.read_csv(HERE / "photos.csv")
    return frame.assign(image_uri=[str(HERE / uri) for uri in frame["image_uri"]])


def coffee() -> pd.DataFrame:
    """The coffee photographs with their masks."""
    frame = photos().query("label == 'coffee'").drop(columns="label")
    masks = [str(HERE / "masks" / f"{Path(uri).stem}.png") for uri in frame["image_uri"]]
    return frame.assign(mask_uri=masks).reset_index(drop=True)


def multi_label(out: Path) -> Any:
    """What each photograph shows: several words, with a separator between them."""
    words = {
        "brick": "wall|outdoors",
        "gravel": "ground|outdoors",
        "cat": "animal|indoors",
        "coffee": "drink|china|indoors",
    }
    frame = photos()
    frame = frame.assign(shows=frame.pop("label").map(words))
    schema = Schema(split=Split(), image_uri=Image(), shows=Labels(separator="|"))
    frame.tensorflow.to_tfrecord(out, schema=schema)
    return tfrecorder.load(out, "TRAIN", batch_size=4, image_size=96)


def box_of(mask: np.ndarray) -> tuple[float, float, float, float]:
    """The edges of the pixels that are not 0."""
    rows, columns = np.nonzero(mask)
    return tuple(map(float, (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)))


def detection(out: Path) -> Any:
    """Boxes around the red and the white china, in pixels, made from the masks: one row per box."""
    rows = []
    for row in coffee().itertuples():
        mask = np.asarray(Pictures.open(row.mask_uri))
        for number in (1, 2):
            if (mask == number).any():
                edges = box_of(mask == number)
                rows.append((row.split, row.image_uri, CLASSES[number], *edges))
    columns = ["split", "image_uri", "label", "x_min", "y_min", "x_max", "y_max"]
    # The columns are recognised by their names, so no schema is needed.
    pd.DataFrame(rows, columns=columns).tensorflow.to_tfrecord(out)
    return tfrecorder.load(out, "TRAIN", batch_size=4, image_size=96, max_boxes=4)


def segmentation(out: Path) -> Any:
    """The coffee photographs, each with its mask."""
    frame = coffee()
    schema = Schema(split=Split(), image_uri=Image(), mask_uri=Mask())
    frame.tensorflow.to_tfrecord(out, schema=schema)
    return tfrecorder.load(out, "TRAIN", batch_size=4, image_size=96)


def two_images(out: Path) -> Any:
    """Two photographs per row: do they show the same thing?"""
    frame = photos()
    other = frame.sample(frac=1, random_state=0).reset_index(drop=True)
    pairs = pd.DataFrame(
        {
            "split": frame["split"],
            "left_uri": frame["image_uri"],
            "right_uri": other["image_uri"],
            "label": np.where(frame["label"] == other["label"], "same", "other"),
        }
    )
    schema = Schema(split=Split(), left_uri=Image(), right_uri=Image(), label=Label())
    pairs.tensorflow.to_tfrecord(out, schema=schema)
    return tfrecorder.load(out, "TRAIN", batch_size=4, image_size=96)


def tabular(out: Path) -> Any:
    """The mean colour and the width of each photograph, without the photograph itself."""
    frame = photos()
    pictures = [np.asarray(Pictures.open(uri)) for uri in frame["image_uri"]]
    table = pd.DataFrame(
        {
            "split": frame["split"],
            "colour": [picture.mean((0, 1)).astype(np.float32) for picture in pictures],
            "width": [picture.shape[1] for picture in pictures],
            "name": [Path(uri).name for uri in frame["image_uri"]],
            "label": frame["label"],
        }
    )
    schema = Schema(
        split=Split(),
        colour=Number(shape=(3,)),
        width=Number(dtype="int64"),
        name=Text(),
        label=Label(),
    )
    table.tensorflow.to_tfrecord(out, schema=schema)
    return tfrecorder.load(out, "TRAIN", batch_size=4, inputs=["colour", "width"])


KINDS: dict[str, Callable[[Path], Any]] = {
    "multi-label": multi_label,
    "detection": detection,
    "segmentation": segmentation,
    "two-images": two_images,
    "tabular": tabular,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"any of {', '.join(KINDS)}")
    parser.add_argument("--out", type=Path, default=Path("kinds"))
    chosen = parser.parse_args()
    if unknown := set(chosen.kinds) - KINDS.keys():
        parser.error(f"{', '.join(sorted(unknown))}: give any of {', '.join(KINDS)}.")
    for name in chosen.kinds or KINDS:
        dataset = KINDS[name](chosen.out / name)
        print(f"\n{name}: {len(dataset)} batches of")
        inputs, targets = dataset.element_spec
        print(f"  inputs  {inputs}\n  targets {targets}")


if __name__ == "__main__":
    main()
