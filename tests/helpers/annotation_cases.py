"""Sets of images with annotations, in the forms of other tools."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

from PIL import Image as Pictures

#: Their order is neither that of the ids nor that of the names.
CATEGORIES = [{"id": 7, "name": "dog"}, {"id": 3, "name": "a cat"}, {"id": 90, "name": "zebra"}]

#: Width and height of the images, whose ids have gaps, by their names.
IMAGES = {"one.jpg": (11, 40, 30), "two words.png": (5, 30, 60), "sub\\three.jpg": (300, 50, 20)}


_NUMBERS = itertools.count(1)


def picture(path: Path, width: int, height: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Pictures.effect_noise((width, height), 99).convert("RGB").save(path)


def yolo(folder: str, config: str, labels: dict[str, str]) -> None:
    """Images of 40 x 20 pixels with the lines of their objects, by path."""
    Path(folder).mkdir()
    Path(folder, "data.yaml").write_text(config)
    for image, lines in labels.items():
        picture(Path(folder, image), 40, 20)
        path = Path(folder, image.replace("images/", "labels/")).with_suffix(".txt")
        if lines:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(lines)


def annotation(image: int, category: int, box: list[float], **more: Any) -> dict[str, Any]:
    named = {"image_id": image, "category_id": category, "bbox": box}
    return {"id": next(_NUMBERS), **named, "area": box[2] * box[3], "iscrowd": 0, **more}


#: A crowd, a box on all edges, one beyond them by rounding, and an image without any.
ANNOTATIONS = [
    annotation(11, 3, [0, 0, 40, 30]),
    annotation(300, 90, [1.5, 2.25, 10, 3], area=17.5, iscrowd=1),
    annotation(11, 7, [3, 4, 37.4, 26]),
]


def coco_file(path: str | Path, **changes: Any) -> Path:
    """A file of COCO's JSON; `changes` replace its lists."""
    images = [
        {"id": number, "file_name": name, "width": width, "height": height}
        for name, (number, width, height) in IMAGES.items()
    ]
    lists = {"images": images, "annotations": ANNOTATIONS, "categories": CATEGORIES, **changes}
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(lists))
    return path


def pictures(folder: str | Path) -> None:
    for name, (_, *size) in IMAGES.items():
        picture(Path(folder, name.replace("\\", "/")), *size)


OBJECT = """<object><name>{}</name><difficult>{}</difficult><bndbox><xmin>{}</xmin>
<ymin>{}</ymin><xmax>{}</xmax><ymax>{}</ymax></bndbox></object>"""


def voc(stem: str, *objects: tuple[Any, ...]) -> None:
    """An image of 40 x 20 pixels with its objects: name, difficult, and edges."""
    picture(Path(f"voc/JPEGImages/{stem}.jpg"), 40, 20)
    size = "<size><width>40</width><height>20</height></size>"
    text = "".join(OBJECT.format(*one) for one in objects)
    path = Path(f"voc/Annotations/{stem}.xml")
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"<annotation><filename>{stem}.jpg</filename>{size}{text}</annotation>")
