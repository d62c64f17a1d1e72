"""`batches` of raw pixels takes the values of a record as `Records`, which parses each, does."""

from __future__ import annotations

import random
import shutil
import time
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image as Picture
from support import encoded, examples, framed, serialized

import tfrecorder
from tfrecorder import Records, batches
from tfrecorder.errors import DatasetError
from tfrecorder.schema import Image, Label, Number, Schema, Split, Text

#: Class names of several lengths; one is as long as what stands before the pixels of a record.
CLASSES = ["a", "cat", "giraffe", "zebra" * 12]
COUNT = 40
SHARD = "train-00000.tfrecord"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures of 6x5, with names and notes of many lengths, and numbers of one to three bytes."""
    folder = tmp_path_factory.mktemp("raw")
    drawn = np.random.default_rng(0).integers(0, 256, (COUNT, 6, 5, 3), np.uint8)
    rows = []
    for number, pixels in enumerate(drawn):
        path = folder / f"{'n' * (number % 7)}{number}.png"
        Picture.fromarray(pixels).save(path)
        age, note = (number - 4) * 40, "ä" * (number % 5)
        rows.append(("TRAIN", str(path), CLASSES[number % 4], age, note))
    frame = pd.DataFrame(rows, columns=["split", "image_uri", "label", "age", "note"])
    columns = {"age": Number(dtype="int64"), "note": Text()}
    schema = Schema(split=Split(), image_uri=Image(), label=Label(), **columns)
    options: dict[str, Any] = {
        "schema": schema,
        "image_format": "raw",
        "image_size": (6, 5),
        "num_shards": 1,
    }
    tfrecorder.convert(frame, folder / "out", progress=False, **options)
    return folder / "out"


@pytest.fixture
def out(made: Path, tmp_path: Path) -> Path:
    """A dataset to be changed."""
    shutil.copytree(made, tmp_path / "out")
    return tmp_path / "out"


def assert_same(batch: Any, element: Any) -> None:
    """A batch of one record is its element, in values and types."""
    if isinstance(element, Mapping):
        assert batch.keys() == element.keys()
        for key in element:
            assert_same(batch[key], element[key])
    elif isinstance(element, tuple):
        for several, one in zip(batch, element, strict=True):
            assert_same(several, one)
    elif isinstance(element, bytes):
        assert batch.tolist() == [element]
    else:
        assert batch.dtype == element.dtype
        np.testing.assert_array_equal(batch[0], element)


def outcome(read: Callable[[], Any]) -> tuple[Any, str]:
    """What is read, or the words of its error."""
    try:
        return read(), ""
    except DatasetError as error:
        return None, str(error)


def assert_read_alike(out: Path, **options: Any) -> int:
    """Read each record in both ways, after all of them once; how many cannot be read."""
    records = Records(out, "TRAIN", **options)
    loop = batches(out, "TRAIN", batch_size=1, shuffle=False, num_threads=1, **options)
    refused = 0
    for number in [*range(COUNT), *range(COUNT)]:
        loop.seek(0, number)
        element, fault = outcome(lambda: records[number])  # noqa: B023  (called at once)
        batch, its_fault = outcome(lambda: next(iter(loop)))
        assert fault == its_fault
        refused += bool(fault)
        if not fault:
            assert_same(batch, element)
    return refused


@pytest.mark.parametrize(
    "options",
    [{}, {"targets": ["age"]}, {"targets": ["label", "note", "age"]}],
)
def test_a_batch_of_raw_pixels_holds_what_records_do(made: Path, options: dict[str, Any]) -> None:
    assert assert_read_alike(made, **options) == 0
    whole = Records(made, "TRAIN", **options)
    loop = batches(made, "TRAIN", batch_size=16, shuffle=False, num_threads=2, **options)
    first = [batch[0] if isinstance(batch, tuple) else batch for batch in loop]
    images = [one[0] if isinstance(one, tuple) else one for one in whole]
    np.testing.assert_array_equal(np.concatenate(first), np.stack(images))


def in_place(out: Path, change: Callable[[bytes], bytes]) -> None:
    """Change the data of each record, keeping their sizes, as a wrong writer would."""
    changed = [change(data) for data in serialized(out / SHARD)]
    before = (out / SHARD).stat().st_size
    (out / SHARD).write_bytes(b"".join(map(framed, changed)))
    assert (out / SHARD).stat().st_size == before


#: The bytes before the pixels of a record that tell of them: of the key 17, and of the sizes 6.
MARK_BYTES = 23


def test_what_looks_like_the_key_of_the_pixels_is_not_taken_for_it(out: Path) -> None:
    name = CLASSES[-1].encode()
    several = examples(out / SHARD)
    found = []
    for number, data in enumerate(serialized(out / SHARD)):
        end = data.index(b"image/encoded") + len(b"image/encoded") + 6
        mark = data[end - MARK_BYTES : end]
        assert mark[:4] == b"\n\x6f\n\x0d"
        example = several[number]
        if number % 3 == 0 and example["image/class/text"] == [name]:
            # An image of five bytes more, with the key in its pixels.
            pixels = example["image/encoded"][0] + b"12345"
            pixels = pixels[:20] + mark + pixels[20 + MARK_BYTES :]
            data = encoded({**example, "image/encoded": pixels, "image/class/text": name[:-5]})
        found.append(data.replace(name, (b"x" * 9 + mark).ljust(len(name), b"y")))
    order = iter(found)
    in_place(out, lambda data: next(order))
    assert 0 < assert_read_alike(out) < COUNT


def entry(key: str, value: Any) -> bytes:
    """A feature as it stands among others."""
    alone = encoded({key: value})
    return alone[2 if alone[1] < 128 else 3 :]


def test_entries_in_any_order_are_read(out: Path) -> None:
    found = [*zip(serialized(out / SHARD), examples(out / SHARD), strict=True)]
    drawn = random.Random(0)
    changed = []
    for data, example in found:
        entries = [entry(key, value) for key, value in example.items()]
        drawn.shuffle(entries)
        body = b"".join(entries)
        changed.append(data[: len(data) - len(body)] + body)
    order = iter(changed)
    in_place(out, lambda data: next(order))
    assert assert_read_alike(out, targets=["label", "age"]) == 0


@pytest.mark.parametrize("seed", range(3))
def test_sound_records_of_any_bytes_are_read_or_refused_alike(out: Path, seed: int) -> None:
    drawn = random.Random(seed)

    def change(data: bytes) -> bytes:
        if drawn.random() < 0.3:
            return data
        several = bytearray(data)
        label = data.index(b"class/label") + len(b"class/label")
        for _ in range(drawn.randint(1, 3)):
            place = drawn.choice([drawn.randrange(180), label + drawn.randrange(8)])
            several[place] = drawn.choice([0, 1, 10, 18, 26, 200])
        return bytes(several)

    in_place(out, change)
    assert 0 < assert_read_alike(out, targets=["label"]) < 2 * COUNT


def test_pixels_that_end_behind_their_record_are_refused(out: Path) -> None:
    full = np.zeros((6, 5, 3), np.uint8).tobytes()
    mark = entry("image/encoded", full).removesuffix(full)

    def change(data: bytes) -> bytes:
        """Of the same size, with pixels that are last and lack five bytes."""
        for length in range(len(data)):
            label = {"image/class/label": 0, "image/class/text": b"x" * length}
            short = encoded({**label, "image/encoded": full[:-5]})
            if len(short) == len(data):
                break
        place = short.index(entry("image/encoded", full[:-5]))
        return short[:place] + mark + full[:-5]

    in_place(out, change)
    assert assert_read_alike(out) == 2 * COUNT


def test_a_damaged_record_is_named(out: Path) -> None:
    data = bytearray((out / SHARD).read_bytes())
    second = len(framed(serialized(out / SHARD)[0]))
    for place in (20, second + 9, len(data) // 2, len(data) - 30):
        data[place] ^= 4
    (out / SHARD).write_bytes(data)
    assert assert_read_alike(out) == 8


def test_no_more_than_four_batches_a_thread_are_held(tmp_path: Path) -> None:
    """Also by a loop that is slower than its threads, on a machine with much memory."""
    paths = [tmp_path / f"{grey}.png" for grey in range(24)]
    for grey, path in enumerate(paths):
        Picture.new("RGB", (160, 160), (grey, grey, grey)).save(path)
    frame = pd.DataFrame({"split": "TRAIN", "image_uri": [*map(str, paths)]})
    options: dict[str, Any] = {"image_format": "raw", "image_size": 160, "num_shards": 1}
    tfrecorder.convert(frame, tmp_path / "out", progress=False, **options)
    batch_bytes = 2 * 160 * 160 * 3
    reading: dict[str, Any] = {"batch_size": 2, "ram_budget": "8GiB"}
    for threads in (1, 2):
        loop = batches(tmp_path / "out", "TRAIN", num_threads=threads, **reading)
        tracemalloc.start()
        for _ in loop:
            time.sleep(0.02)
        kept, held = tracemalloc.get_traced_memory()
        assert 2 * batch_bytes < held < (4 * threads + 1) * batch_bytes
        for _ in loop:
            time.sleep(0.02)
        held = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert kept > 2 * batch_bytes, "the next epoch takes the memory of this one"
        assert held < (4 * threads + 1) * batch_bytes
