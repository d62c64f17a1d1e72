"""`split_by` for COCO and YOLO: a CSV beside the annotations says of which video each image is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.annotation_cases import annotation, picture
from support import invoke

import tfrecorder
from tfrecorder.errors import OptionError, ValidationError

COUNT = 24
NAMES = [f"site {number % 3}/{number}.jpg" for number in range(COUNT)]
VIDEOS = [f"video {number // 4}" for number in range(COUNT)]


def coco() -> Path:
    """One file of annotations, whose images have no split; where the CSV goes."""
    images = []
    for number, name in enumerate(NAMES):
        picture(Path("in/images", name), 40, 30)
        images.append({"id": number, "file_name": name, "width": 40, "height": 30})
    objects = [annotation(number, 1, [1, 2, 20, 20]) for number in range(COUNT)]
    categories = [{"id": 1, "name": "cat"}]
    document = {"images": images, "annotations": objects, "categories": categories}
    path = Path("in/annotations/instances_all.json")
    path.parent.mkdir()
    path.write_text(json.dumps(document))
    return path.parent


def coco_at_the_top() -> Path:
    return coco().parent


def yolo() -> Path:
    """As labelImg and Label Studio have it, without splits."""
    for name in NAMES:
        picture(Path("in/images", name), 40, 30)
        text = Path("in/labels", name).with_suffix(".txt")
        text.parent.mkdir(parents=True, exist_ok=True)
        text.write_text("0 0.5 0.5 0.25 0.25\n")
    Path("in/classes.txt").write_text("cat\n")
    return Path("in")


FORMS = pytest.mark.parametrize("form", [coco, coco_at_the_top, yolo])

#: How a list names the images: by the whole path, by the end of it, or as another machine does.
WAYS: dict[str, Callable[[str], str]] = {
    "path": lambda name: name,
    "name": lambda name: name.rpartition("/")[2],
    "elsewhere": lambda name: "D:\\data\\" + name.replace("/", "\\"),
}


def listed(folder: Path, way: str = "path", encoding: str = "utf-8", column: str = "video") -> Path:
    lines = [f"file_name,{column}"]
    for name, video in zip(NAMES, VIDEOS, strict=True):
        lines.append(f"{WAYS[way](name)},{video}")
    path = folder / f"{column}.csv"
    path.write_text("\n".join([*lines, ""]), encoding)
    return path


@FORMS
@pytest.mark.parametrize("way", WAYS)
def test_all_images_of_a_video_share_a_split(form: Callable[[], Path], way: str) -> None:
    listed(form(), way, "utf-8-sig" if way == "name" else "utf-8")
    shares = {"TRAIN": 0.5, "TEST": 0.5}
    result = tfrecorder.convert("in", "out", split_by="video", splits=shares, progress=False)
    assert "by the 6 values of 'video'" in str(result)
    frame = tfrecorder.to_frame("out")
    assert "video" not in frame
    numbers = [int(Path(uri).stem) for uri in frame["image_uri"]]
    splits = frame["split"].groupby([VIDEOS[number] for number in numbers]).nunique()
    assert splits.tolist() == [1] * 6
    assert frame["split"].nunique() > 1


@FORMS
def test_what_the_list_lacks_or_says_twice_is_named(form: Callable[[], Path]) -> None:
    path = listed(form())
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:-1], "gone.jpg,video 1", f"{NAMES[0]},video 9", ""]))
    with pytest.raises(ValidationError) as caught:
        tfrecorder.convert("in", "out", split_by="video", progress=False)
    words = str(caught.value)
    assert f"gives 'images/{NAMES[-1]}' the video [], where it must give one" in words
    assert f"gives 'images/{NAMES[0]}' the video ['video 0', 'video 9']" in words
    assert "video.csv has 1 name of no image: gone.jpg" in words
    assert not Path("out").exists()


@FORMS
def test_without_one_list_it_is_refused_in_a_line(form: Callable[[], Path]) -> None:
    folder = form()
    listed(folder, column="site")
    shown = invoke("convert", "in", "out", "--split-by", "video", "--no-progress")
    assert shown.exit_code == 2
    assert "one CSV beside the annotations must have it" in shown.output
    assert "Traceback" not in shown.output
    listed(folder)
    other = listed(folder)
    other.rename(folder / "again.csv")
    listed(folder)
    with pytest.raises(OptionError, match=r"it is in .*again\.csv and .*video\.csv"):
        tfrecorder.convert("in", "out", split_by="video", progress=False)


def test_a_column_of_the_annotations_needs_no_list() -> None:
    coco()
    tfrecorder.convert("in", "out", split_by="image_id", progress=False)
    with pytest.raises(OptionError, match="it is in none"):
        tfrecorder.convert("in", "other", split_by="video", progress=False)


def test_a_list_with_a_wide_cell_is_read() -> None:
    path = listed(yolo())
    path.write_text(path.read_text().replace("video 0", "v" * 200_000))
    result = tfrecorder.convert("in/../in", "out", split_by="video", progress=False)
    assert "by the 6 values of 'video'" in str(result)
