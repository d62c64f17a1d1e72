"""A card and an export under bad circumstances, on a bucket, and on the Hugging Face Hub."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from helpers.doc_pages import DOCS
from PIL import Image as PillowImage
from services.gcs.control import Gcs
from support import PHOTOS, copied_photos, shorten_pauses, skip_without

import tfrecorder
from tfrecorder.errors import OutputError
from tfrecorder.schema import Boxes, Image, Mask, Schema, Split

pytest_plugins = ["services.gcs.fixtures"]

BUCKET = "gs://bkt/sets/out"
CARD = {"croissant.json", "README.md", "card.jpg", "records.parquet"}


@pytest.fixture
def photos(tmp_path: Path) -> pd.DataFrame:
    """The rows of a dataset in "out", whose uris are relative."""
    frame = copied_photos(tmp_path)
    frame["image_uri"] = [os.path.relpath(uri, tmp_path) for uri in frame["image_uri"]]
    tfrecorder.convert(frame, "out", num_shards=3, progress=False)
    return frame


def files_of(folder: str) -> dict[str, bytes]:
    """The bytes of all files below a folder but the lock, by their paths."""
    paths = [path for path in Path(folder).rglob("*") if path.is_file() and path.name != "lock"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.fixture
def hub() -> Iterator[tuple[str, dict[str, bytes]]]:
    """The uri of a stand-in of the Hub, and the files that were committed there."""
    committed: dict[str, bytes] = {}

    class Hub(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            answer: dict[str, Any] = {"errors": [], "warnings": []}
            if self.path == "/api/validate-yaml":
                head = yaml.safe_load(json.loads(body)["content"].split("---")[1])
                assert {"pretty_name", "configs"} <= {*head}
            elif self.path.endswith("/preupload/main"):
                modes = {"uploadMode": "regular", "shouldIgnore": False}
                files = json.loads(body)["files"]
                answer = {"files": [{"path": file["path"], **modes} for file in files]}
            else:
                assert self.path.startswith("/api/datasets/me/photos/commit/main")
                for line in map(json.loads, body.splitlines()):
                    if line["key"] == "file":
                        committed[line["value"]["path"]] = base64.b64decode(
                            line["value"]["content"]
                        )
                answer = {"commitUrl": f"{uri}/datasets/me/photos/commit/1", "commitOid": "1"}
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    uri = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield uri, committed
    server.shutdown()
    server.server_close()


@pytest.mark.slow
def test_the_line_of_the_page_puts_the_directory_on_the_hub(
    photos: pd.DataFrame, hub: tuple[str, dict[str, bytes]], tmp_path: Path
) -> None:
    skip_without("huggingface_hub")
    tfrecorder.card("out", progress=False)
    (code,) = (
        block.partition("```")[0]
        for block in (DOCS / "share.md").read_text().split("```python\n")
        if "upload_folder" in block
    )
    uri, committed = hub
    settings = {"HF_ENDPOINT": uri, "HF_TOKEN": "hf_x", "HF_HOME": str(tmp_path / "hf")}
    settings |= {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | settings, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert committed.keys() - {"_tfrecorder/lock"} == files_of("out").keys()
    for path, data in committed.items():
        Path("down", path).parent.mkdir(parents=True, exist_ok=True)
        Path("down", path).write_bytes(data)
    assert files_of("down") == files_of("out")
    assert tfrecorder.verify("down", progress=False).ok


@pytest.mark.slow
def test_a_card_on_a_bucket_goes_with_what_is_removed(
    gcs: Gcs, photos: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_pauses(monkeypatch)
    tfrecorder.convert(photos[:8], BUCKET, num_shards=2, progress=False)
    assert {*tfrecorder.card(BUCKET, progress=False).files} == CARD
    tfrecorder.append(photos[8:10], BUCKET, progress=False)
    again = tfrecorder.card(BUCKET, progress=False)
    assert again.commit == 1
    assert 0 < again.hashed < again.shards
    gone = photos.image_uri[0]
    tfrecorder.remove(BUCKET, {"image_uri": [gone]}, progress=False)
    left = {name.removeprefix("sets/out/"): name for name in gcs.names(f"{BUCKET}/")}
    assert not CARD & {*left}
    assert "_tfrecorder/card.json" not in left
    assert not any(gone.encode() in gcs.get(f"gs://bkt/{name}") for name in left.values())


@pytest.mark.parametrize("to", ["csv", "webdataset"])
def test_an_export_from_a_bucket_to_a_bucket_is_that_of_a_disk(
    to: str, gcs: Gcs, photos: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_pauses(monkeypatch)
    gcs.put_folder(BUCKET, Path("out"))
    tfrecorder.export("out", "local", to=to, progress=False)
    gcs.inject("status", status=503, operation="upload", times=2)
    tfrecorder.export(BUCKET, "gs://bkt/given", to=to, progress=False)
    prefix = "gs://bkt/given/"
    names = [name.removeprefix("given/") for name in gcs.names(prefix)]
    assert {name: gcs.get(prefix + name) for name in names} == files_of("local")


@contextlib.contextmanager
def failing_after(
    writes: int, error: BaseException, raised: type[BaseException] = KeyboardInterrupt
) -> Iterator[pytest.ExceptionInfo[BaseException]]:
    """A block in which so many files get their final names, and then none."""
    replace, left = os.replace, writes

    def fail(*arguments: Any, **options: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise error
        return replace(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "replace", fail)
        with pytest.raises(raised) as caught:
            yield caught


@pytest.mark.slow
@pytest.mark.parametrize("has_card", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize("writes", range(5))
def test_a_card_that_was_interrupted_anywhere_is_written_again(
    has_card: bool, writes: int, photos: pd.DataFrame
) -> None:
    if has_card:
        tfrecorder.card("out", per_split=1, progress=False)
    more = photos[:1].assign(image_uri=shutil.copy(photos.image_uri[0], "copy.jpg"))
    tfrecorder.append(more, "out", duplicates="keep", progress=False)
    with failing_after(writes, KeyboardInterrupt()):
        tfrecorder.card("out", per_split=1, progress=False)
    shutil.copytree("out", "left")
    assert {*tfrecorder.card("out", per_split=1, progress=False).files} == CARD
    tfrecorder.remove("left", {"image_uri": "copy.jpg"}, progress=False)
    assert not CARD & {*os.listdir("left")}


@pytest.mark.parametrize("to", ["csv", "folder", "webdataset"])
def test_a_disk_that_is_full_is_one_line_and_the_export_continues(
    to: str, photos: pd.DataFrame
) -> None:
    error = OSError(28, "No space left on device")
    with failing_after(2 if to == "webdataset" else 20, error, OutputError) as caught:
        tfrecorder.export("out", "given", to=to, progress=False)
    kept = "Free space there and repeat the call; what is finished is kept."
    assert str(caught.value) == f"given cannot be written: No space left on device. {kept}"
    assert not {"dataset.csv", "schema.yaml"} & {*os.listdir("given")}
    tfrecorder.export("out", "given", to=to, progress=False)
    tfrecorder.export("out", "whole", to=to, progress=False)
    assert files_of("given") == files_of("whole")


def test_an_export_into_its_dataset_is_refused(photos: pd.DataFrame) -> None:
    for folder in ("out", "out/csv", "out/../out/a/b"):
        with pytest.raises(OutputError, match="is in the dataset itself; give another folder"):
            tfrecorder.export("out", folder, to="csv", progress=False)
    tfrecorder.append(photos[:1], "out", progress=False)


def images_and_labels(dataset: str) -> set[tuple[Any, ...]]:
    frame = tfrecorder.to_frame(dataset, images="bytes")
    return {*frame[["image_uri", "label"]].itertuples(False, None)}


def labelled(*labels: str) -> None:
    frame = pd.DataFrame({"split": "TRAIN", "image_uri": PHOTOS[: len(labels)], "label": labels})
    tfrecorder.convert(frame, "odd", progress=False)


@pytest.mark.slow
def test_labels_that_are_names_of_folders_come_back() -> None:
    labels = ["Grüne Äpfel", "猫", "train", "_background_noise_", "A.b (c), d+e=f@g", "2024"]
    labelled(*labels)
    tfrecorder.export("odd", "folder", to="folder", progress=False)
    tfrecorder.convert("folder", "again", progress=False)
    assert images_and_labels("again") == images_and_labels("odd")


@pytest.mark.slow
@pytest.mark.parametrize("label", ["a/b", "..", ".hidden", "a\\b", "a:b", "é\n", " a"])
def test_any_label_comes_back_from_a_csv(label: str) -> None:
    labelled(label, "b", 'say "hi", all')
    with pytest.raises(tfrecorder.errors.OptionError, match=r"is no name of a folder of its own"):
        tfrecorder.export("odd", "folder", to="folder", progress=False)
    tfrecorder.export("odd", "csv", to="csv", progress=False)
    tfrecorder.convert("csv/dataset.csv", "again", schema="csv/schema.yaml", progress=False)
    assert images_and_labels("again") == images_and_labels("odd")


def test_a_file_of_one_image_is_never_that_of_another(tmp_path: Path) -> None:
    shade = np.zeros((8, 8), np.uint8)
    rows = []
    for number, uri in enumerate(["a.png", "mask/a.png", "_tfrecorder/a.png"]):
        Path("in", uri).parent.mkdir(parents=True, exist_ok=True)
        picture = np.full((8, 8, 3), 40 * number, np.uint8)
        for name, pixels in ((f"in/{uri}", picture), (f"in/of_{number}.png", shade + number)):
            PillowImage.fromarray(pixels).save(name)
        rows.append({"split": "TRAIN", "image_uri": uri, "mask": f"of_{number}.png"})
    kinds = Schema(split=Split(), image_uri=Image(), mask=Mask())
    frame = pd.DataFrame(rows)
    tfrecorder.convert(frame, "out", schema=kinds, base="in", progress=False)
    tfrecorder.export("out", "csv", to="csv", progress=False)
    tfrecorder.convert("csv/dataset.csv", "again", schema="csv/schema.yaml", progress=False)
    again, out = (tfrecorder.to_frame(d, images="bytes") for d in ("again", "out"))
    wanted = {*out[["image_uri", "mask"]].itertuples(False, None)}
    assert {*again[["image_uri", "mask"]].itertuples(False, None)} == wanted


@pytest.mark.slow
def test_shards_without_a_record_and_datasets_without_images_are_exported() -> None:
    uris = [*map(str, PHOTOS[:2]), "absent.jpg", "absent_too.jpg"]
    frame = pd.DataFrame({"split": ["TRAIN", "TEST", "TRAIN", "VALIDATION"], "image_uri": uris})
    frame["n"] = [[1, 2], [], [3], [4]]
    kinds = {"split": Split(), "n": tfrecorder.schema.Number(dtype="int64", shape=(None,))}
    options = {"max_reject_fraction": 0.9, "num_shards": {"TRAIN": 2}, "progress": False}
    tfrecorder.convert(frame, "some", schema=Schema(image_uri=Image(), **kinds), **options)
    tfrecorder.convert(frame, "none", schema=Schema(**kinds), progress=False)
    for dataset, count in (("some", 2), ("none", 4)):
        for to in ("csv", "webdataset"):
            folder = f"{dataset}_{to}"
            assert tfrecorder.export(dataset, folder, to=to, progress=False).records == count
        assert tfrecorder.card(dataset, progress=False).shards
        source, schema = f"{dataset}_csv/dataset.csv", f"{dataset}_csv/schema.yaml"
        tfrecorder.convert(source, f"{dataset}_again", schema=schema, progress=False)
        lists = [sorted(map(list, tfrecorder.to_frame(d).n)) for d in (dataset, f"{dataset}_again")]
        assert lists[0] == lists[1]


@pytest.mark.slow
def test_what_was_appended_and_removed_is_exported_as_it_is_now(photos: pd.DataFrame) -> None:
    copy = shutil.copy(photos.image_uri[0], "copy.jpg")
    more = photos[:1].assign(image_uri=copy, label="new")
    tfrecorder.append(more, "out", duplicates="keep", progress=False)
    tfrecorder.remove("out", {"image_uri": list(photos.image_uri[3:9])}, progress=False)
    for to in ("csv", "folder", "webdataset"):
        assert tfrecorder.export("out", to, to=to, progress=False).records == len(photos) - 5
    tfrecorder.convert("csv/dataset.csv", "again", schema="csv/schema.yaml", progress=False)
    assert images_and_labels("again") == images_and_labels("out")


@pytest.mark.parametrize("background", [False, True])
def test_classes_that_are_numbers_are_categories(background: bool) -> None:
    edges = {name: [[0.25], []] for name in ("x_min", "y_min")}
    edges |= {name: [[0.75], []] for name in ("x_max", "y_max")}
    frame = pd.DataFrame({"split": "TRAIN", "image_uri": PHOTOS[:2], **edges, "label": [[3], []]})
    boxes = Boxes(label="label", background_class=background)
    kinds = Schema(split=Split(), image_uri=Image(), boxes=boxes)
    tfrecorder.convert(frame, "out", schema=kinds, progress=False)
    tfrecorder.export("out", "coco", to="coco", progress=False)
    document = json.loads(Path("coco/annotations/instances_train.json").read_text())
    (one,) = document["annotations"]
    names = {category["id"]: category["name"] for category in document["categories"]}
    assert names[one["category_id"]] == "3"
    assert 0 not in names


def coco_rows(path: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """The categories in their order, and each box by the names of its image and its category."""
    coco = json.loads(Path(path).read_text())
    images = {one["id"]: one["file_name"] for one in coco["images"]}
    names = {one["id"]: one["name"] for one in coco["categories"]}
    boxes = [
        (images[one["image_id"]], names[one["category_id"]], *one["bbox"], one["area"])
        + (one["iscrowd"],)
        for one in coco["annotations"]
    ]
    rows = [*boxes, *((name,) for name in images.values())]
    return [names[number] for number in sorted(names)], sorted(rows)


def test_coco_becomes_a_dataset_and_coco_again() -> None:
    Path("in/annotations").mkdir(parents=True)
    images = []
    for number, photo in zip((7, 20, 33), PHOTOS, strict=False):
        shutil.copy(photo, f"in/a {number}.jpg")
        width, height = PillowImage.open(photo).size
        size = {"width": width, "height": height}
        images.append({"id": number, "file_name": f"a {number}.jpg", **size})
    boxes = [
        (5, 7, 18, [10, 20, 30.5, 40], 1220.0, 0),
        (9, 7, 3, [0, 0, 50, 60.25], 2000.5, 1),
        (11, 33, 18, [1, 2, 3, 4], 12.0, 0),
    ]
    keys = ("id", "image_id", "category_id", "bbox", "area", "iscrowd")
    annotations = [dict(zip(keys, box, strict=True)) for box in boxes]
    categories = [{"id": n, "name": name} for n, name in ((3, "zebra"), (18, "dog"), (90, "ant"))]
    document = {"images": images, "annotations": annotations, "categories": categories}
    source = "in/annotations/instances_train.json"
    Path(source).write_text(json.dumps(document))
    tfrecorder.convert(source, "out", base="in", progress=False)
    assert tfrecorder.export("out", "coco", to="coco", progress=False).left_out == ()
    again = "coco/annotations/instances_train.json"
    assert coco_rows(again) == coco_rows(source)
    ids = {one["file_name"]: one["id"] for one in json.loads(Path(again).read_text())["images"]}
    assert ids == {one["file_name"]: one["id"] for one in images}
    for image in images:
        name = image["file_name"]
        assert Path("coco/images", name).read_bytes() == Path("in", name).read_bytes()
