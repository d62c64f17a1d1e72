"""From photographs to a batch in one minute: convert the bundled photographs, and read them back.

python samples/demo.py [OUTPUT_DIR]
"""

import os
import shutil
import sys
from pathlib import Path

import pandas as pd
from PIL import Image

import tfrecorder

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # fewer messages about the machine
PHOTOS = Path(__file__).parent / "photos.csv"
OUTPUT = Path(sys.argv[1] if len(sys.argv) > 1 else "demo")
BATCH = 12
SIZE = (120, 160)  # height, width


def main() -> None:
    frame = pd.read_csv(PHOTOS)
    frame["image_uri"] = [str(PHOTOS.parent / uri) for uri in frame["image_uri"]]
    print(f"A frame of {len(frame)} photographs:\n{frame.drop(columns='image_uri').head(3)}\n")

    problems = frame.tensorflow.validate()
    print(f"df.tensorflow.validate(): {len(problems)} problems\n")

    shutil.rmtree(OUTPUT / "dataset", ignore_errors=True)
    result = frame.tensorflow.to_tfrecord(output_dir=OUTPUT / "dataset")
    print(f"df.tensorflow.to_tfrecord(...):\n{result}\n")

    train = tfrecorder.load(OUTPUT / "dataset")["TRAIN"]
    pairs = list(train.take(BATCH).as_numpy_iterator())
    names = [result.class_names[label] for _, label in pairs]
    print(f'tfrecorder.load(...)["TRAIN"]: {len(train)} images; the first {BATCH}:')
    for (image, label), name in zip(pairs, names, strict=True):
        print(f"  image {image.shape} {image.dtype}, label {label} ({name})")

    height, width = SIZE
    sheet = Image.new("RGB", (width * 4, height * (BATCH // 4)))
    for at, (image, _) in enumerate(pairs):
        tile = Image.fromarray(image).resize((width, height))
        sheet.paste(tile, (at % 4 * width, at // 4 * height))
    sheet.save(OUTPUT / "batch.png")

    print(f"\nThe files in {OUTPUT}/:")
    for path in sorted(OUTPUT.rglob("*")):
        private = "_tfrecorder" in path.parts
        if path.is_file() and not private:
            print(f"  {path.relative_to(OUTPUT)}  {path.stat().st_size:,} bytes")
    print("  dataset/_tfrecorder/  tables, checksums and index")


main()
