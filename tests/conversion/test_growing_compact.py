"""`compact`: all generations as one dataset, by copying records."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest
from helpers.growing_cases import QUIET, drawn, grow_ten_times, records_of, shards_of, table
from helpers.public_types import ConversionResult
from support import public_files, records, rejects, run, serialized, shards

import tfrecorder
from tfrecorder.errors import DatasetError, OptionError


@pytest.fixture(scope="module")
def ten(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A dataset of ten generations, with a reject in the last; not to be changed."""
    folder = tmp_path_factory.mktemp("ten")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        grow_ten_times("out")
        rows = table(0, 4).assign(image_uri=[*drawn("extra", 3, (90, 60)), "missing.jpg"])
        tfrecorder.append(rows, "out", max_reject_fraction=0.5, **QUIET)
    return str(folder / "out")


def compact(directory: str, out: str = "new", **options: object) -> ConversionResult:
    found = tfrecorder.compact(directory, out, **{**QUIET, **options})
    assert isinstance(found, ConversionResult)
    return found


def all_records(directory: str, split: str = "") -> Counter[bytes]:
    return Counter(data for shard in shards(directory, split) for data in serialized(shard))


def all_bytes(directory: str) -> bytes:
    return b"".join(path.read_bytes() for path in Path(directory).rglob("*") if path.is_file())


def test_every_record_is_copied_as_it_is(ten) -> None:
    result = compact(ten)
    assert (result.records, result.rejects) == (51, {"read/not_found": 1})
    for split in ("TRAIN", "VALIDATION", "TEST"):
        assert all_records("new", split) == all_records(ten, split)
    assert tfrecorder.generations("new") == [0]
    assert tfrecorder.verify("new", progress=False).ok


def test_it_says_of_itself_what_the_generations_say(ten) -> None:
    compact(ten)
    old, new = tfrecorder.info(ten), tfrecorder.info("new")
    same = ("class_names", "num_classes", "class_counts", "image_shape", "image_sides", "features")
    for name in (*same, "formats", "rejects", "suspects", "oriented", "records", "columns"):
        assert getattr(new, name) == getattr(old, name), name
    old_rows, new_rows = (tfrecorder.to_frame(where).sort_index() for where in (ten, "new"))
    assert new_rows.equals(old_rows)


@pytest.mark.slow
def test_it_is_shuffled_anew_by_its_seed(ten) -> None:
    orders = []
    for seed in (0, 1):
        compact(ten, f"new{seed}", seed=seed, num_shards=1)
        orders.append([one["image/source_id"] for one in records(f"new{seed}", "TRAIN")])
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1])
    compact(ten, "again", seed=1, num_shards=1, num_workers=2)
    assert all_files("again") == all_files("new1")


def all_files(directory: str) -> dict[str, bytes]:
    paths = [path for path in Path(directory).rglob("*") if path.is_file()]
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths}


def test_without_the_sources() -> None:
    frame = table(0, 4)
    frame["image_uri"] = [
        shutil.copy(uri, f"{row}.jpg") for row, uri in enumerate(frame["image_uri"])
    ]
    tfrecorder.convert(frame, "own", **QUIET)
    for row in range(4):
        Path(f"{row}.jpg").unlink()
    assert compact("own").records == 4


def test_dropped_records_leave_nothing_behind(ten) -> None:
    uris = [one["image/filename"].decode() for one in records(ten, "TRAIN")][:3]
    images = [one["image/encoded"] for one in records(ten, "TRAIN")][:3]
    result = compact(ten, drop=pd.Series(uris))
    assert result.records == 48
    written = all_bytes("new")
    for uri, image in zip(uris, images, strict=True):
        assert uri.encode() not in written
        assert image not in written
        assert image in all_bytes(ten)
    assert tfrecorder.verify("new", progress=False).ok
    Path("drop.txt").write_text("\n".join(uris) + "\n")
    compact(ten, "again", drop="drop.txt")
    assert public_files("again") == public_files("new")  # the marks of what was dropped are salted


@pytest.mark.slow
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("start", ["", "\ufeff"])
def test_a_list_of_what_to_drop_is_read_by_its_newlines_alone(start: str, end: str) -> None:
    odd = [f"a{mark}b.jpg" for mark in "\u2028\u2029\x0b\x0c\x1c\x1d\x1e\x85"]
    frame = table(0, 1 + len(odd))
    frame["image_uri"] = [
        shutil.copy(uri, name)
        for uri, name in zip(frame["image_uri"], ["kept.jpg", *odd], strict=True)
    ]
    tfrecorder.convert(frame, "odd", **QUIET)
    Path("drop.txt").write_bytes((start + end.join(odd) + end).encode())
    compact("odd", drop="drop.txt")
    assert tfrecorder.to_frame("new")["image_uri"].tolist() == ["kept.jpg"]


def test_what_cannot_be_dropped_is_refused(ten) -> None:
    with pytest.raises(OptionError, match=r"drop: no row has 'image_uri' 'nowhere\.jpg'; write"):
        compact(ten, drop=["nowhere.jpg", records(ten)[0]["image/filename"].decode()])
    with pytest.raises(OptionError, match="cannot be read"):
        compact(ten, drop="nowhere.txt")
    every = [*tfrecorder.to_frame(ten)["image_uri"], "missing.jpg"]
    with pytest.raises(OptionError, match="would leave no record"):
        compact(ten, drop=every)
    assert not Path("new").exists()


@pytest.mark.slow
def test_a_compacted_dataset_grows_on(ten) -> None:
    compact(ten)
    missing = str(Path(ten).parent / "missing.jpg")
    uris = [*tfrecorder.to_frame(ten)["image_uri"][:3], missing, *drawn("late", 2, (9, 9))]
    result = tfrecorder.append(table(0, 6).assign(image_uri=uris), "new", **QUIET)
    assert (result.rows_there, result.records) == (4, 2)
    ids = [int(one["image/source_id"]) for one in records_of("new", 1)]
    assert sorted(ids) == [52, 53]
    assert rejects("new")["row"].tolist() == [51]
    compact("new", "newer")
    assert all_records("newer") == all_records("new")
    assert tfrecorder.verify("newer", progress=False).ok


def test_at_compacts_it_as_it_was(ten) -> None:
    assert compact(ten, at=2).records == 20
    assert tfrecorder.info("new").class_names == tfrecorder.info(ten, at=2).class_names


def test_a_damaged_shard_is_repaired_from_the_old_dataset(ten) -> None:
    compact(ten)
    shard = next(Path("new").glob("train-*.tfrecord"))
    written = shard.read_bytes()
    shard.write_bytes(written[:-1] + b"x")
    assert tfrecorder.repair("new", progress=False).files == (shard.name,)
    assert shard.read_bytes() == written


def test_a_damaged_record_is_not_copied(ten) -> None:
    shutil.copytree(ten, "old")
    (shard,) = shards_of("old", 3)
    data = bytearray(shard.read_bytes())
    data[200] ^= 1
    shard.write_bytes(data)
    with pytest.raises(DatasetError, match=rf"{shard.name}.*checksum of the data is wrong"):
        compact("old")
    assert not Path("new/dataset_info.json").exists()
    shutil.copy(Path(ten, shard.name), shard)
    assert compact("old").records == 51


@pytest.mark.slow
def test_boxes_masks_and_other_columns_are_copied() -> None:
    kinds = tfrecorder.schema.Schema(
        image_uri=tfrecorder.schema.Image(),
        tags=tfrecorder.schema.Labels(separator="|"),
        age=tfrecorder.schema.Number(shape=(2,)),
        note=tfrecorder.schema.Text(),
    )
    rows = table(0, 4)[["image_uri"]].assign(
        tags=["a|b", "", "b", "a"], age=[[1.0, 2.0]] * 4, note=["x", "y", "", "é"]
    )
    tfrecorder.convert(rows[:2], "out", schema=kinds, **QUIET)
    tfrecorder.append(rows[2:], "out", **QUIET)
    compact("out")
    assert all_records("new") == all_records("out")
    assert tfrecorder.verify("new", progress=False).ok


def test_options_of_a_conversion_are_refused(ten) -> None:
    with pytest.raises(OptionError, match="image_size=32: compact copies records as they are"):
        compact(ten, image_size=32)
    with pytest.raises(OptionError, match="give a directory outside of"):
        compact(ten, f"{ten}/new")
    with pytest.raises(DatasetError, match="there is no such directory"):
        compact("nowhere")
    assert not Path("new").exists()


def test_info_advises_it_where_generations_are_many_and_small(ten) -> None:
    assert "`tfrecorder compact" in str(tfrecorder.info(ten))
    assert "compact" not in str(tfrecorder.info(ten, at=3))


@pytest.mark.slow
def test_the_shell_compacts(ten) -> None:
    uri = records(ten, "train")[0]["image/filename"].decode()
    Path("drop.txt").write_text(f"{uri}\n")
    done = run(
        "-m", "tfrecorder", "compact", ten, "new", "--drop", "drop.txt", "--at", "1", "--json"
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["records"] == 15
