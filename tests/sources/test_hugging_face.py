"""Datasets of Hugging Face as sources, with the real package: what goes in comes out."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cell_cases import DATA, content, data_uri, images_of, spooled
from PIL import Image
from support import PHOTOS, dry_run, records, run, skip_without

import tfrecorder
from tfrecorder import Records, ValidationError
from tfrecorder.errors import SourceError

pytestmark = pytest.mark.usefixtures("_datasets")


@pytest.fixture
def _datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    skip_without("datasets")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


NAMES = ["tabby", "brick", "apple"]  # in no order of the alphabet


def dataset(rows: int = 12, first: int = 0, **columns: Any) -> Any:
    """Images with their bytes in an Arrow file, and class labels."""
    import datasets

    features = datasets.Features(
        {"img": datasets.Image(), "kind": datasets.ClassLabel(names=NAMES)}
    )
    data = {
        "img": [{"bytes": DATA[row], "path": None} for row in range(first, first + rows)],
        "kind": [row % 3 for row in range(rows)],
    }
    made = datasets.Dataset.from_dict(data, features=features)
    for name, values in columns.items():
        made = made.add_column(name, values)
    return made


def in_splits(**rows: int) -> Any:
    import datasets

    firsts = np.cumsum([0, *rows.values()]).tolist()
    parts = zip(rows.items(), firsts, strict=False)
    return datasets.DatasetDict({name: dataset(count, at) for (name, count), at in parts})


@pytest.mark.slow
def test_splits_classes_and_bytes_come_over_as_they_are() -> None:
    source = in_splits(train=8, validation=3, test=4)
    result = tfrecorder.convert(source, "out", progress=False)
    assert {name: one.records for name, one in result.splits.items()} == {
        "TRAIN": 8,
        "VALIDATION": 3,
        "TEST": 4,
    }
    assert tfrecorder.info("out").class_names == tuple(NAMES)
    assert images_of("out") == {content(data): data for data in DATA[:15]}
    for split, name, first in (("train", "TRAIN", 0), ("test", "TEST", 11)):
        labels = {one["image/source_id"]: one["image/class/label"] for one in records("out", name)}
        wanted = {str(first + at).encode(): at % 3 for at in range(len(source[split]))}
        assert labels == wanted
    assert tfrecorder.verify("out", progress=False).ok
    assert not spooled()


def test_a_dataset_without_splits_is_divided_as_any_table() -> None:
    result = tfrecorder.convert(dataset(20), "out", splits={"TRAIN": 0.5, "TEST": 0.5})
    assert result.records == 20
    assert set(result.splits) == {"TRAIN", "TEST"}


def test_nothing_is_decoded_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    def fail(*arguments: Any, **more: Any) -> None:
        raise AssertionError("an image was decoded")

    source = dataset(6)
    monkeypatch.setattr(datasets.Image, "decode_example", fail)
    assert tfrecorder.convert(source, "out", progress=False).records == 6


def test_selected_shuffled_and_formatted_datasets_give_their_rows() -> None:
    source = dataset(20).shuffle(seed=3).select(range(2, 20, 2)).with_format("numpy")
    tfrecorder.convert(source, "out", shuffle=False, splits={"TRAIN": 1.0}, num_shards=1)
    wanted = [row["bytes"] for row in source.with_format("arrow")[:]["img"].to_pylist()]
    assert [one["image/encoded"] for one in records("out")] == wanted
    assert wanted != DATA[:9]


def test_paths_names_and_pictures_in_a_dataset() -> None:
    import datasets

    made = Image.fromarray(np.arange(48, dtype=np.uint8).reshape(4, 4, 3))
    cells = [str(PHOTOS[0]), {"bytes": DATA[1], "path": "b.jpg"}, made, data_uri(DATA[2])]
    kept = [cells[0], cells[1], made]
    features = datasets.Features({"image": datasets.Image()})
    source = datasets.Dataset.from_dict({"image": kept}, features=features)
    tfrecorder.convert(source, "out", splits={"TRAIN": 1.0}, progress=False)
    images = images_of("out")
    assert images[str(PHOTOS[0])] == DATA[0]
    assert images["b.jpg"] == DATA[1]
    (drawn,) = (data for name, data in images.items() if name.endswith(".png"))
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(drawn))), np.asarray(made))


def test_a_missing_image_and_a_missing_label_are_named_by_their_rows() -> None:
    import datasets

    source = dataset(4).to_dict()
    features = dataset(1).features
    source["img"][1], source["kind"][2], source["kind"][3] = None, None, -1
    source = datasets.Dataset.from_dict(source, features=features)
    report = tfrecorder.validate(source, progress=False)
    found = report[report["severity"] == "error"]
    assert list(zip(found["code"], found["row"], strict=True)) == [
        ("null_uri", 1),
        ("null_label", 2),
        ("null_label", 3),
    ]
    with pytest.raises(ValidationError):
        tfrecorder.convert(source, "out", progress=False)
    assert not Path("out").exists()


@pytest.mark.slow
def test_columns_a_schema_and_groups_are_taken() -> None:
    source = dataset(12, weight=[row / 2 for row in range(12)], patient=[0, 1, 2] * 4)
    schema = tfrecorder.schema.Schema(
        img=tfrecorder.schema.Image(),
        kind=tfrecorder.schema.Label(),
        weight=tfrecorder.schema.Number(),
    )
    tfrecorder.convert(source, "out", schema=schema, split_by="patient", progress=False)
    frame = tfrecorder.to_frame("out")
    assert sorted(frame["weight"]) == [row / 2 for row in range(12)]
    assert tfrecorder.info("out").class_names == tuple(NAMES)
    renamed = source.rename_column("patient", "label")
    tfrecorder.convert(renamed, "other", progress=False)
    assert tfrecorder.info("other").class_names == ("0", "1", "2")


def test_several_labels_of_a_row_have_their_names() -> None:
    import datasets

    tags = datasets.Features(
        {"image": datasets.Image(), "tags": datasets.Sequence(datasets.ClassLabel(names=NAMES))}
    )
    rows = {"image": [{"bytes": DATA[at], "path": None} for at in (0, 1)], "tags": [[2, 0], []]}
    schema = tfrecorder.schema.Schema(
        image=tfrecorder.schema.Image(), tags=tfrecorder.schema.Labels()
    )
    source = datasets.DatasetDict(train=datasets.Dataset.from_dict(rows, features=tags))
    tfrecorder.convert(source, "out", schema=schema, progress=False)
    found = sorted(map(list, tfrecorder.to_frame("out")["tags"]))
    assert found == [[], ["apple", "tabby"]]
    tfrecorder.convert(source, "by type", progress=False)
    assert sorted(map(list, tfrecorder.to_frame("by type")["label"])) == found


@pytest.mark.slow
@pytest.mark.slow
@pytest.mark.parametrize("by_image", [True, False])
def test_the_boxes_of_a_dataset_have_their_classes(by_image: bool, tmp_path: Path) -> None:
    """Hugging Face has them as lists in a dict, or as a list of dicts; in Parquet too."""
    import datasets

    one = {"bbox": [1.0, 2.0, 3.0, 4.0], "category": 2, "area": 12.0}
    number = datasets.Value("float32")
    of_one = {
        "bbox": datasets.List(number),
        "category": datasets.ClassLabel(names=NAMES),
        "area": number,
    }
    objects: Any = [[one, one], []]
    feature: Any = datasets.List(of_one)
    if by_image:
        feature = {key: datasets.List(of) for key, of in of_one.items()}
        objects = [{key: [value, value] for key, value in one.items()}, {key: [] for key in one}]
    made = datasets.Dataset.from_dict(
        {"image": [{"bytes": DATA[row], "path": None} for row in range(2)], "objects": objects},
        features=datasets.Features({"image": datasets.Image(), "objects": feature}),
    )
    made.to_parquet(tmp_path / "a.parquet")
    for source in (made, str(tmp_path / "a.parquet")):
        report = tfrecorder.validate(source)
        assert report.code.tolist() == ["column_left_out"]
        assert "objects.area" in report.message[0]
        tfrecorder.convert(source, "out", splits={"TRAIN": 1}, progress=False, overwrite=True)
        frame = tfrecorder.to_frame("out")
        assert frame.label.map(list).tolist() == [["apple", "apple"], []]
        assert frame.x_max.map(list).tolist() == [[4, 4], []]
        assert frame.y_max.map(list).tolist() == [[6, 6], []]
        assert tfrecorder.info("out").class_names == tuple(NAMES)


def test_an_append_of_a_dataset_passes_over_what_is_there() -> None:
    tfrecorder.convert(dataset(6), "out", progress=False)
    assert tfrecorder.append(dataset(10), "out", progress=False).rows_there == 6
    assert tfrecorder.info("out").records == 10


def test_a_dry_run_and_a_conversion_that_is_read() -> None:
    source = in_splits(train=6, test=2)
    splits = dry_run(source)["splits"]
    assert {name: split["rows"] for name, split in splits.items()} == {"TRAIN": 6, "TEST": 2}
    assert not Path("out").exists()
    tfrecorder.convert(source, "out", progress=False)
    loaded = tfrecorder.load("out", "TEST", batch_size=2, image_size=16)
    images, labels = next(iter(loaded))
    assert images.shape == (2, 16, 16, 3)
    assert labels.numpy().tolist() == [0, 1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: dataset().to_iterable_dataset(), "a stream of Hugging Face"),
        (lambda: in_splits(train=2, extra=2), "split 'extra' of the dataset is not train"),
        (lambda: dataset(4, split=["train"] * 4), None),
        (
            lambda: dataset(2).add_column("img2", [None, None]).cast_column("img2", _image()),
            r"the columns \['img', 'img2'\] of the dataset are all images",
        ),
    ],
)
def test_what_a_dataset_may_not_be(make: Any, words: str | None) -> None:
    if words is None:
        assert set(tfrecorder.convert(make(), "out", progress=False).splits) == {"TRAIN"}
        return
    with pytest.raises(SourceError, match=words):
        tfrecorder.convert(make(), "out", progress=False)
    assert not Path("out").exists()


def _image() -> Any:
    import datasets

    return datasets.Image()


FLAT = """
import sys
import numpy, datasets, tfrecorder

def own():
    lines = open("/proc/self/status").read().splitlines()
    return int(next(line for line in lines if line.startswith("RssAnon")).split()[1]) / 1024

def rows(count, size):
    for row in range(count):
        data = numpy.random.default_rng(row).integers(0, 255, size, numpy.uint8).tobytes()
        yield {"image": {"bytes": b"\\xff\\xd8\\xff" + data, "path": None}}

features = datasets.Features({"image": datasets.Image()})
made = datasets.Dataset.from_generator(
    rows, gen_kwargs={"count": 1500, "size": 200_000}, features=features, cache_dir="cache",
    writer_batch_size=50,
)
made = made.shuffle(seed=0)  # whose rows are copied, not mapped
tfrecorder.parts.stage(made.select(range(3)), "warm", num_shards=1)
before = most = own()
import threading, time
def watch():
    global most
    while True:
        most = max(most, own())
        time.sleep(0.01)
threading.Thread(target=watch, daemon=True).start()
tfrecorder.parts.stage(made, "out", num_shards=1)
print(most - before)
"""


@pytest.mark.slow
def test_the_images_of_a_dataset_are_never_in_memory_together(tmp_path: Path) -> None:
    """300 MB of images are hashed and spooled in a small part of that."""
    done = run("-c", FLAT, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.splitlines()[-1]) < 150
    assert len(list((tmp_path / "out/_tfrecorder/spool").iterdir())) == 1500


@pytest.mark.slow
def test_a_dataset_goes_back_to_hugging_face_without_loss() -> None:
    """The lines of docs/hugging-face.md."""
    import datasets

    tfrecorder.convert(in_splits(train=8, test=4), "out", progress=False)
    names = tfrecorder.info("out").class_names

    def rows(split: str) -> Any:
        for image, label in Records("out", split, decode=False):
            yield {"image": {"bytes": image}, "label": label}

    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(names=list(names))}
    )
    back = datasets.DatasetDict(
        {
            split: datasets.Dataset.from_generator(
                rows, features=features, gen_kwargs={"split": split}, cache_dir="cache"
            )
            for split in ("train", "test")
        }
    )
    again = tfrecorder.convert(back, "again", progress=False)
    assert again.records == 12
    assert images_of("again") == images_of("out")
    assert tfrecorder.info("again").class_names == names
