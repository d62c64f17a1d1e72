"""`Records`: any record by its number, with the elements that `load` gives."""

from __future__ import annotations

import multiprocessing
import pickle
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from helpers import image_cases
from helpers.kind_cases import EVERY_KIND, convert, every_kind
from helpers.object_cases import in_pixels, masked
from helpers.reading_cases import (
    assert_alike,
    by_load,
    convert_images,
    convert_photos,
    damaged,
    jpeg,
    mean_difference,
    photograph,
    without_rust,
)

import tfrecorder
from tfrecorder import Records
from tfrecorder.errors import DatasetError, OptionError

#: Grey levels of 255 in the mean, which docs/read-options.md states.
TO_ANTIALIASED = 2.0
TO_LOAD = 2.0
TO_PLAIN = 0.3


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> str:
    return convert_photos(tmp_path_factory.mktemp("photos") / "out")


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A dataset with every kind of column, one with boxes and one with masks."""
    folder = tmp_path_factory.mktemp("kinds")
    every = {"schema": EVERY_KIND, "shuffle": False, "num_shards": 2}
    return {
        "every": convert(every_kind(), folder / "every", **every),
        "boxes": convert(in_pixels(), folder / "boxes", shuffle=False, num_shards=1),
        "masks": convert(masked(4), folder / "masks", shuffle=False),
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dataset", "options"),
    [
        ("every", {}),
        ("every", {"inputs": "all"}),
        ("every", {"decode": False}),
        ("every", {"inputs": "all", "decode": False}),
        ("every", {"inputs": ["count", "caption"], "targets": ["lit", "topics"]}),
        ("every", {"inputs": ["series"], "targets": ["matrix"]}),
        ("every", {"image_size": 40, "dtype": "float32", "value_range": (-100, 155)}),
        ("boxes", {}),
        ("boxes", {"image_size": (50, 30), "resize": "crop"}),
        ("boxes", {"image_size": (50, 30), "resize": "pad", "max_boxes": 2}),
        ("masks", {"image_size": (33, 70), "resize": "crop"}),
        ("masks", {"image_size": (33, 70), "resize": "pad"}),
        ("masks", {"image_size": (333, 70), "resize": "fit"}),
        ("masks", {"image_size": 77}),
    ],
)
def test_elements_are_those_of_load(
    kinds: dict[str, str], dataset: str, options: dict[str, Any]
) -> None:
    ours = list(Records(kinds[dataset], "TRAIN", **options))
    theirs = by_load(kinds[dataset], **options)
    assert len(ours) == len(theirs) > 1
    for pair in zip(ours, theirs, strict=True):
        assert_alike(*pair, pixels=5 if "image_size" in options else 0)


@pytest.mark.slow
def test_every_accepted_image_is_decoded_as_load_does(tmp_path: Path) -> None:
    files = {
        f"{at}.{'png' if 'png' in name else 'jpg'}": data
        for at, (name, data) in enumerate(image_cases.kept(image_cases.photo()).items())
    }
    out = convert_images(tmp_path / "out", files)
    ours, theirs = list(Records(out, "TRAIN")), by_load(out)
    assert len(ours) == len(files)
    for name, (image, _), (expected, _) in zip(files, ours, theirs, strict=True):
        assert image.shape == expected.shape, name
        assert mean_difference(image, expected) < 0.01, name


@pytest.mark.slow
def test_raw_pixels(tmp_path: Path) -> None:
    out = convert_photos(tmp_path / "out", image_format="raw", image_size=(60, 70))
    for options in ({}, {"image_size": 30}, {"image_size": (60, 70), "dtype": "float32"}):
        for pair in zip(Records(out, "TRAIN", **options), by_load(out, **options), strict=True):
            assert_alike(*pair, pixels=8)  # of 60 x 70 pixels


@pytest.fixture(params=["rust", "pillow"])
def resizer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "pillow":
        without_rust(monkeypatch)
    else:
        pytest.importorskip("cykooz_resizer")
    return request.param


@pytest.mark.slow
@pytest.mark.parametrize("size", [(60, 70), (100, 100), (200, 250)])
@pytest.mark.parametrize("resize", ["stretch", "crop", "pad", "fit"])
def test_pixels_are_near_to_those_of_load(
    out: str, resizer: str, size: tuple[int, int], resize: str
) -> None:
    for antialias, bound in ((True, TO_LOAD), (False, TO_PLAIN)):
        options = {"image_size": size, "resize": resize, "antialias": antialias}
        pairs = list(zip(Records(out, "TRAIN", **options), by_load(out, **options), strict=True))
        assert all(ours[0].shape == theirs[0].shape for ours, theirs in pairs)
        assert np.mean([mean_difference(ours[0], theirs[0]) for ours, theirs in pairs]) < bound


@pytest.mark.parametrize("size", [(60, 70), (40, 40), (100, 100)])
def test_pixels_are_near_to_an_antialiased_resize(
    out: str, resizer: str, size: tuple[int, int]
) -> None:
    ours = [image for image, _ in Records(out, "TRAIN", image_size=size)]
    whole = [image for image, _ in Records(out, "TRAIN")]
    theirs = [tf.image.resize(pixels, size, antialias=True) for pixels in whole]
    found = [mean_difference(*pair) for pair in zip(ours, theirs, strict=True)]
    assert np.mean(found) < (0.5 if size == (100, 100) else TO_ANTIALIASED)


def test_each_image_has_memory_of_its_own(tmp_path: Path) -> None:
    pixels = photograph(448, 448)
    out = convert_images(tmp_path / "out", {"a.jpg": jpeg(pixels), "b.jpg": jpeg(pixels[:, ::-1])})
    records = Records(out, "TRAIN", image_size=224)
    kept = [image.copy() for image, _ in (records[0], records[1])]
    np.testing.assert_array_equal(records[0][0], kept[0])
    assert mean_difference(kept[0], kept[1]) > 5


def test_images_of_many_sizes_are_resized_one_after_another(tmp_path: Path) -> None:
    """Each alone in a fresh thread, which has no memory of others, and all in this one."""
    pixels = photograph(120, 160)
    files = {f"{side}.jpg": jpeg(pixels[: 100 + side, : 150 - side]) for side in range(12)}
    records = Records(convert_images(tmp_path / "out", files), "TRAIN", image_size=64)
    for number in range(12):
        with ThreadPoolExecutor(1) as fresh:
            alone, _ = fresh.submit(records.__getitem__, number).result()
        for turn in (number, number - 1, number):
            found = records[turn][0]
        np.testing.assert_array_equal(found, alone)


# ---------------------------------------------------------------------------------------------
# A sequence.


def test_records_come_by_numbers_lists_and_slices(out: str) -> None:
    records = Records(out, "TRAIN", inputs="all", decode=False)
    ids = [one["image/source_id"] for one in records]
    assert len(records) == len(set(ids)) == 36
    assert records[7]["image/source_id"] == ids[7]
    assert records[-1]["image/source_id"] == ids[-1]
    assert records[np.int64(7)]["image/source_id"] == ids[7]
    wanted = [35, 0, 9, 8, 10, 9, -2, 20]
    for asked in (wanted, np.array(wanted), tuple(wanted)):
        assert [one["image/source_id"] for one in records[asked]] == [ids[at] for at in wanted]
    assert [one["image/source_id"] for one in records[30:2:-4]] == ids[30:2:-4]
    assert records[[]] == records[5:5] == []


@pytest.mark.parametrize("number", [36, -37, [0, 36]])
def test_a_number_beyond_the_records_is_an_index_error(out: str, number: Any) -> None:
    with pytest.raises(IndexError, match="there are 36 records, numbered from 0"):
        Records(out, "TRAIN")[number]


@pytest.mark.parametrize("number", [1.0, "1", None])
def test_what_is_no_number_is_refused(out: str, number: Any) -> None:
    with pytest.raises(TypeError, match="give a number, numbers, or a slice"):
        Records(out, "TRAIN")[number]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"image_sise": 3}, "image_size"),
        ({"shuffle": True}, "shuffle"),
        ({"image_size": 0}, "image_size=0"),
        ({"augment": True}, "give a size, such as `image_size=224`"),
        ({"inputs": ["nothing"]}, "there is no column 'nothing'"),
    ],
)
def test_a_wrong_option_is_named(out: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        Records(out, "TRAIN", **options)


def test_a_function_is_applied_to_each_element(out: str) -> None:
    records = Records(out, "TRAIN", map_fn=lambda image, label: (image.shape, int(label)))
    plain = Records(out, "TRAIN")
    assert records[:5] == [(image.shape, int(label)) for image, label in plain[:5]]


def test_random_parts_follow_from_seed_epoch_and_number(out: str) -> None:
    def parts(seed: int, epoch: int, numbers: list[int]) -> list[np.ndarray]:
        records = Records(out, "TRAIN", image_size=48, augment=True, seed=seed)
        records.set_epoch(epoch)
        return [image for image, _ in records[numbers]]

    first = parts(7, 1, [3, 4])
    again = parts(7, 1, [4, 9, 3])
    np.testing.assert_array_equal(first[0], again[2])
    np.testing.assert_array_equal(first[1], again[0])
    assert mean_difference(first[0], parts(7, 2, [3])[0]) > 1
    assert mean_difference(first[0], parts(8, 1, [3])[0]) > 1


# ---------------------------------------------------------------------------------------------
# Other processes, other directories, damage.


def test_threads_share_it(out: str) -> None:
    records = Records(out, "TRAIN", image_size=50)
    expected = [image for image, _ in records]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda at: records[at % 36][0], range(144)))
    assert all(np.array_equal(found[at], expected[at % 36]) for at in range(144))


def _one_of(records: Records, number: int, queue: Any) -> None:
    queue.put(records[number][0].sum())


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_another_process_reads_on(out: str, method: str) -> None:
    records = Records(out, "TRAIN", image_size=50)
    expected = records[7][0].sum()  # its file is open
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    process = context.Process(target=_one_of, args=(records, 7, queue))
    process.start()
    assert queue.get(timeout=60) == expected
    process.join()
    assert records[7][0].sum() == expected


def test_it_pickles_without_what_it_has_read(out: str) -> None:
    records = Records(out, "TRAIN", inputs="all", decode=False)
    before = len(pickle.dumps(records))
    expected = list(records)
    assert len(pickle.dumps(records)) == before
    assert list(pickle.loads(pickle.dumps(records))) == expected


def test_the_words_for_it_are_the_same_wherever_it_lies(out: str, tmp_path: Path) -> None:
    copy = shutil.copytree(out, tmp_path / "copy")
    options = {"image_size": 50, "map_fn": _one_of}
    words = repr(Records(out, "TRAIN", **options))
    assert words == repr(Records(copy, "TRAIN", **options))
    assert words != repr(Records(out, "TEST", **options))
    assert words != repr(Records(out, "TRAIN", image_size=60, map_fn=_one_of))
    assert "0x" not in words


@pytest.mark.parametrize("at", [0, 9, 300, -1])
def test_a_damaged_record_is_one_error_with_its_file_and_offset(
    out: str, tmp_path: Path, at: int
) -> None:
    shard, offset, number = damaged(out, tmp_path, at)
    records = Records(shard.parent, "TRAIN")
    for asked in (number, [number - 1, number]):
        with pytest.raises(DatasetError, match=f"{shard.name} is damaged: .* byte {offset}, "):
            records[asked]
    assert len(records[[number - 1, number + 1]]) == 2


def test_bare_files_are_read_without_an_index(out: str, tmp_path: Path) -> None:
    for path in Path(out).glob("*.tfrecord"):
        shutil.copy(path, tmp_path)
    bare, own = (Records(one, "TRAIN", image_size=50) for one in (tmp_path, out))
    assert len(bare) == 36
    for pair in zip(bare[[30, 2, 3]], own[[30, 2, 3]], strict=True):
        assert_alike(*pair)


def test_an_example_is_parsed_by_a_public_function(out: str) -> None:
    record = next(
        tf.data.TFRecordDataset(sorted(map(str, Path(out).glob("train-*"))))
        .take(1)
        .as_numpy_iterator()
    )
    found = tfrecorder.parse_example(record)
    assert found["image/class/label"].dtype == np.int64
    assert found["image/encoded"][0].startswith(b"\xff\xd8")
