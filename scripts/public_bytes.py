"""Are the public files of a dataset still what they were, byte for byte?

    python scripts/public_bytes.py               # exit code 1 if a byte is not as recorded
    python scripts/public_bytes.py --keep DIR    # and leave the datasets in DIR, to look into
    python scripts/public_bytes.py --record      # after a change that is meant: record them anew

Converts the bundled photographs into small datasets of every form, appends, compacts and
overwrites, by the public interface alone, and compares the SHA-256 of every file but those of
`_tfrecorder/` with `public_bytes.json`. All uris are relative, so the bytes are the same on every
machine; but pixels encoded again, and the words for damaged ones, come from Pillow, simplejpeg and
their libraries (on Linux the system's zlib). Such datasets are compared only where the versions are
those recorded; else it says so.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shutil
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import pandas as pd
import simplejpeg
from PIL import Image as Pictures, features

import tfrecorder
from tfrecorder.schema import Boxes, Bytes, Image, Label, Labels, Mask, Number, Schema, Split, Text

ROOT = Path(__file__).resolve().parent.parent
RECORD = Path(__file__).resolve().with_suffix(".json")

#: By the name of a dataset, its source and its options.
Conversions = dict[str, tuple[Any, dict[str, Any]]]

#: What decides on pixels that are encoded again, and on the words for damaged ones.
VERSIONS = {
    **{name: features.version(name) for name in ("pil", "zlib_ng", "zlib", "libjpeg_turbo")},
    **{"simplejpeg": simplejpeg.__version__, "machine": platform.machine()},
}

NAMES = ("gravel", "dog", "coffee", "cat", "brick")
EDGES = {"x_min": 3.0, "y_min": 5.0, "x_max": 60.0, "y_max": 70.5}

#: Further columns: of which kind, and their cells in three rows.
COLUMNS: dict[str, tuple[Any, list[Any]]] = {
    "split": (Split(), ["TRAIN", "Test", "training"]),
    "label": (Label(names=NAMES), ["cat", "coffee", "brick"]),
    "tags": (Labels(separator="|"), ["x|y", "", "z|x"]),
    "topics": (Labels(), [["p", "q"], [], ["q"]]),
    "angle": (Number(default=-1.0, target=True), [1 / 7, None, -2.5]),
    "count": (Number(dtype="int64"), [10**12, 0, -1]),
    "lit": (Number(dtype="bool"), [True, False, True]),
    "matrix": (Number(shape=(2, 2)), [[[row, 0.1], [-3, 4]] for row in range(3)]),
    "steps": (Number(dtype="int64", shape=(None,)), [[1, 2], [], [300]]),
    "caption": (Text(default="none"), ["a cat, ä", None, "\n"]),
    "words": (Text(shape=(None,)), [["one", "two"], [], [""]]),
    "blob": (Bytes(), [b"\0\xff", b"", b"blob"]),
}


def write(name: str, *lines: str) -> str:
    """A text file in the working directory; its name."""
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return name


def vertex(uri: str, **more: Any) -> str:
    """A line of Vertex AI's JSON Lines."""
    split = {"aiplatform.googleapis.com/ml_use": "validation"}
    return json.dumps({"imageGcsUri": uri, "dataItemResourceLabels": split, **more})


def of_sources(photos: pd.DataFrame, masks: pd.DataFrame) -> Conversions:
    """Every source, option and kind of column whose bytes no codec decides on."""
    uris, labels, unassigned = photos["image_uri"], photos["label"], photos.drop(columns="split")
    odd = labels.replace({"brick": " brick", "cat": "two\nlines", "coffee": "café, ≥1"})
    stated = Schema(split=Split(), image_uri=Image(), label=Label(names=NAMES))
    shards = {"TRAIN": 4, "VALIDATION": 2, "TEST": 1}
    several = [f"TRAIN,{uris[row]},{labels[row]},photo" for row in range(0, 52, 6)]
    shutil.copytree("photos", "by_split/train")
    shutil.copytree("photos", "by_split/val")
    cat, coffee, brick = uris[[20, 30, 0]]
    automl = [f"TRAIN,{cat},eye,0.125,0.25,,,0.5,0.7,,", f"TRAIN,{brick}"]
    automl += [f"TEST,{coffee},cup,0,0,0.3,0,0.3,0.5,0,0.5", f"TRAIN,{cat},cat,0,0.1,,,1,1,,"]
    eye = {"displayName": "eye", "xMin": 0.125, "yMin": 0.25, "xMax": 0.5, "yMax": 0.7}
    lines = vertex(cat, boundingBoxAnnotations=[eye, {**eye, "xMax": 1.0}]), vertex(brick)
    kinds = {name: kind for name, (kind, _) in COLUMNS.items()}
    three = {name: cells for name, (_, cells) in COLUMNS.items()}
    three |= {"part_1": ["wheel"] * 3, "part_2": ["door", None, ""]}
    three |= {name: [[edge, edge + 1], [], [edge]] for name, edge in EDGES.items()}
    three |= {"thing": [["eye", "ear"], [], ["cup"]], "image_uri": [cat, coffee, brick]}
    kinds["parts"] = Labels(columns=("part_1", "part_2"))
    boxes = {"image_uri": Image(), "boxes": Boxes(label="thing", unit="pixel")}
    pairs = photos.assign(other_uri=uris.to_numpy()[::-1])
    pair = {"split": Split(), "image_uri": Image(), "other_uri": Image(), "label": Label()}
    mask = {"split": Split(), "image_uri": Image(), "mask_uri": Mask()}
    return {
        "text labels": ("photos.csv", {}),
        "splits assigned": (unassigned, {}),
        "splits assigned, another seed": (unassigned, {"seed": 7}),
        "another seed": (photos, {"seed": 2**32 - 1, "num_shards": 3}),
        "number of shards, no shuffle": (photos, {"num_shards": shards, "shuffle": False}),
        "size of shards": (photos, {"shard_size": "32KiB"}),
        "integer labels": (photos.assign(label=labels.str.len()), {}),
        "odd class names": (photos.assign(label=odd), {}),
        "stated class names": (photos, {"schema": stated}),
        "no labels": (photos.drop(columns="label"), {}),
        "folder of labels": ("photos", {}),
        "folder of splits": ("by_split", {}),
        "AutoML, several labels": (write("several.csv", *several, f"TEST,{uris[1]}"), {}),
        "AutoML, boxes": (write("boxes.csv", *automl), {}),
        "Vertex, boxes": (write("boxes.jsonl", *lines), {}),
        "every kind": (pd.DataFrame(three), {"schema": Schema({**kinds, **boxes})}),
        "no images": (pd.DataFrame(three), {"schema": Schema(kinds)}),
        "two images": (pairs, {"schema": Schema(pair)}),
        "masks": (masks, {"schema": Schema(mask)}),
    }


def of_objects(photos: pd.DataFrame) -> Conversions:
    """The forms of files of objects, as their makers publish them."""
    write_coco(photos)
    write_yolo(photos)
    write_voc(photos)
    return {
        "COCO": ("coco", {}),
        "COCO, captions": ("coco/annotations/captions_train2017.json", {"base": "coco/train2017"}),
        "COCO, Roboflow": ("roboflow", {}),
        "YOLO": ("yolo", {}),
        "YOLO, lists of images": ("yolo/lists.yaml", {}),
        "VOC": ("voc", {}),
    }


def write_coco(photos: pd.DataFrame) -> None:
    """COCO's folder of two splits, captions, and Roboflow's folder of one."""
    categories = [{"id": 10 * number, "name": name} for number, name in enumerate(NAMES, 1)]
    images: list[dict[str, Any]] = []
    objects = []
    captions = []
    for row, (uri, label) in enumerate(zip(photos["image_uri"], photos["label"], strict=True)):
        name = Path(uri).name
        width, height = Pictures.open(uri).size
        images.append({"id": row + 100, "file_name": name, "width": width, "height": height})
        captions.append({"id": row, "image_id": row + 100, "caption": f"a {label}, ä"})
        if label not in NAMES:
            continue  # a picture without objects
        category = 10 * (NAMES.index(label) + 1)
        box = [2.5, 3, width / 3, height / 4]
        right = box[0] + box[2]
        bottom = box[1] + box[3]
        made = {"id": row, "image_id": row + 100, "category_id": category, "bbox": box}
        made["segmentation"] = [[2.5, 3, right, 3, right, bottom]]
        objects.append({**made, "iscrowd": row % 2, "area": box[2] * box[3] / 2})
    folders = {"train2017": images[::2], "val2017": images[1::2]}
    for folder, of_split in folders.items():
        ids = {image["id"] for image in of_split}
        for image in of_split:
            place(photos, image["file_name"], f"coco/{folder}")
        for kind, every in {"instances": objects, "captions": captions}.items():
            kept = [one for one in every if one["image_id"] in ids]
            document = {"images": of_split, "annotations": kept, "categories": categories}
            write(f"coco/annotations/{kind}_{folder}.json", json.dumps(document))
    for image in images:
        place(photos, image["file_name"], "roboflow/train")
    document = {"images": images, "annotations": objects, "categories": categories}
    write("roboflow/train/_annotations.coco.json", json.dumps(document))


def write_yolo(photos: pd.DataFrame) -> None:
    """Ultralytics' folder of two splits, some images without objects; and lists of images."""
    for row, (uri, label) in enumerate(zip(photos["image_uri"], photos["label"], strict=True)):
        split = "val" if row % 3 == 0 else "train"
        name = Path(uri).name
        place(photos, name, f"yolo/images/{split}")
        if label in NAMES:
            number = NAMES.index(label)
            lines = f"{number} 0.5 0.5 0.25 0.125", f"{number} 0.1 0.1 0.6 0.1 0.6 0.7"
            write(f"yolo/labels/{split}/{Path(uri).stem}.txt", *lines)
    names = f"names: [{', '.join(NAMES)}]"
    write("yolo/data.yaml", "train: images/train", "val: images/val", "nc: 5", names)
    for split in ("train", "val"):
        listed = sorted(path.name for path in Path(f"yolo/images/{split}").iterdir())
        write(f"yolo/{split}.txt", *(f"./images/{split}/{name}" for name in listed))
    write("yolo/lists.yaml", "train: train.txt", "val: val.txt", names)


def write_voc(photos: pd.DataFrame) -> None:
    """Pascal VOC's folder, with lists of the images of two splits."""
    lists: dict[str, list[str]] = {"train": [], "val": []}
    for row, (uri, label) in enumerate(zip(photos["image_uri"], photos["label"], strict=True)):
        name = Path(uri).name
        stem = Path(uri).stem
        place(photos, name, "voc/JPEGImages")
        lists["val" if row % 4 == 0 else "train"].append(stem)
        width, height = Pictures.open(uri).size
        edges = {"xmin": 3, "ymin": 4, "xmax": width - 5, "ymax": height // 2}
        box = "".join(f"<{side}>{value}</{side}>" for side, value in edges.items())
        flags = f"<truncated>0</truncated><difficult>{row % 2}</difficult>"
        write(
            f"voc/Annotations/{stem}.xml",
            f"<annotation><filename>{name}</filename>",
            f"<size><width>{width}</width><height>{height}</height><depth>3</depth></size>",
            f"<object><name>{label}</name>{flags}<bndbox>{box}</bndbox></object></annotation>",
        )
    for split, stems in lists.items():
        write(f"voc/ImageSets/Main/{split}.txt", *sorted(stems))


def place(photos: pd.DataFrame, name: str, folder: str) -> None:
    """A photograph in a folder, which is made."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    shutil.copy(next(uri for uri in photos["image_uri"] if Path(uri).name == name), folder)


def of_codecs(photos: pd.DataFrame, masks: pd.DataFrame) -> Conversions:
    """Pixels encoded again, and damaged ones: what Pillow and simplejpeg decide on."""
    mixed = pd.DataFrame({"image_uri": sorted(map(str, Path("mixed").iterdir()))})
    data = Path(photos["image_uri"][30]).read_bytes()
    half = len(data) // 2
    Path("cut.jpg").write_bytes(data[:half])
    Path("zeroes.jpg").write_bytes(data[:half] + bytes(500) + data[half + 500 :])
    objects = Schema(
        split=Split(),
        image_uri=Image(),
        boxes=Boxes(unit="pixel", masks="segmentation"),
    )
    names = ["cut.jpg", "zeroes.jpg", write("words.png", "no image"), "missing.jpg"]
    bad = pd.DataFrame({"split": "TRAIN", "image_uri": [*names, *photos["image_uri"]]})
    return {
        "rejects and suspects": (bad, {"num_shards": 2}),
        "rejects, strict": (bad, {"check": "strict"}),
        "other formats": (mixed, {"num_shards": 1}),
        "upright": (mixed, {"apply_exif": True}),
        "PNG, padded": (mixed, {"image_format": "png", "resize": "pad", "image_size": (48, 64)}),
        "JPEG": (mixed, {"image_format": "jpeg", "image_quality": 80}),
        "short side": (photos, {"short_side": 130}),
        "raw": (photos, {"image_format": "raw", "resize": "crop", "image_size": (24, 32)}),
        "masks, cropped": (masks, {"resize": "crop", "image_size": (64, 96)}),
        "masks of objects": ("coco", {"schema": objects}),
        "boxes, stretched": (photos.assign(**EDGES), {"image_size": (64, 96)}),
    }


def grow(photos: pd.DataFrame) -> None:
    """Datasets that were converted, and then changed: by one operation more each."""
    out = Path("datasets")
    tfrecorder.convert(photos[photos["label"] != "cat"], out / "appended", progress=False)
    tfrecorder.append(photos, out / "appended", progress=False)
    shutil.copytree(out / "appended", out / "compacted")
    tfrecorder.compact(out / "compacted", progress=False)
    shutil.copytree(out / "compacted", out / "overwritten")
    tfrecorder.convert(photos, out / "overwritten", overwrite="all", progress=False)


def convert(folder: Path) -> tuple[dict[str, str], list[str]]:
    """The sums by "dataset/file", all made in a folder; and which datasets codecs decide on."""
    shutil.copytree(ROOT / "samples", folder, dirs_exist_ok=True)
    os.chdir(folder)  # where relative uris of frames are taken from
    photos = pd.read_csv("photos.csv")
    masks = photos[photos["label"] == "coffee"].drop(columns="label")
    masks["mask_uri"] = [f"masks/{Path(uri).stem}.png" for uri in masks["image_uri"]]
    by_codecs = of_codecs(photos, masks)
    sources = of_sources(photos, masks) | of_objects(photos) | by_codecs
    sums = {}
    for name, (source, options) in sources.items():
        tfrecorder.convert(source, Path("datasets", name), progress=False, **options)
    grow(photos)
    for path in sorted(Path("datasets").rglob("*")):
        if path.is_file() and "_tfrecorder" not in path.parts:
            file = path.relative_to("datasets").as_posix()
            sums[file] = hashlib.sha256(path.read_bytes()).hexdigest()
    return sums, list(by_codecs)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--record", action="store_true", help="write public_bytes.json anew")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave all in this new folder")
    chosen = parser.parse_args()
    if not Path(tfrecorder.__file__).resolve().is_relative_to(ROOT):
        sys.exit(
            f"{tfrecorder.__file__} is not the package of this checkout: set PYTHONPATH={ROOT}"
        )
    warnings.simplefilter("ignore")  # the odd class names are meant
    with tempfile.TemporaryDirectory(prefix="tfrecorder-bytes-") as name:
        now, by_codecs = convert(chosen.keep or Path(name))
        os.chdir(ROOT)
    if chosen.record:
        record = {"versions": VERSIONS, "by_codecs": by_codecs, "sha256": now}
        RECORD.write_text(json.dumps(record, indent=1) + "\n")
    record = json.loads(RECORD.read_text())
    skipped = record["by_codecs"] if record["versions"] != VERSIONS else []
    if skipped:
        print(f"recorded with {record['versions']}\nhere     with {VERSIONS}")
        print(f"so these are not compared: {'; '.join(skipped)}")
    was: dict[str, str] = record["sha256"]
    files = [file for file in was | now if file.split("/")[0] not in skipped]
    differing = [file for file in files if was.get(file) != now.get(file)]
    for file in differing:
        print(f"{file}: recorded {was.get(file)}, now {now.get(file)}")
    datasets = {file.split("/")[0] for file in files}
    if differing:
        sys.exit(f"{len(differing)} of {len(files)} files of {len(datasets)} datasets differ")
    print(f"{len(files)} files of {len(datasets)} datasets are byte for byte as recorded")


if __name__ == "__main__":
    main()
