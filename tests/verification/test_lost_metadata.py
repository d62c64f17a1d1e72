"""A dataset whose manifests are gone or cannot be read: damaged, never one of another tool."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers.damage import reseal
from helpers.growing_cases import QUIET, table
from helpers.kind_cases import EVERY_KIND, every_kind
from services.gcs.control import Gcs
from services.objects.control import S3
from support import copied_as_tfds, photo_frame, public_files

import tfrecorder
from tfrecorder.errors import DatasetError, OutputError
from tfrecorder.schema import Boxes, Image, Schema, Split

pytest_plugins = ["services.gcs.fixtures", "services.objects.fixtures"]

FIRST, MIDDLE, NEWEST = (f"_tfrecorder/commits/0000{number}.json" for number in range(3))


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three generations of ten records; not to be changed."""
    out = tmp_path_factory.mktemp("grown") / "out"
    tfrecorder.convert(table(0, 10), out, num_shards=2, **QUIET)
    for number in (1, 2):
        tfrecorder.append(table(10 * number, 10), out, **QUIET)
    return out


@pytest.fixture
def out(grown: Path) -> Path:
    shutil.copytree(grown, "out")
    return Path("out")


def removed(file: Path) -> None:
    file.unlink()


def a_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def a_dangling_link(file: Path) -> None:
    file.unlink()
    file.symlink_to("nowhere")


def a_link_to_itself(file: Path) -> None:
    file.unlink()
    file.symlink_to(file.name)


def cut_short(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:100])


def all_private_gone(file: Path) -> None:
    shutil.rmtree(file.parents[1])


LOSSES = [removed, a_folder, a_dangling_link, a_link_to_itself, cut_short, all_private_gone]

READERS: dict[str, Callable] = {
    "load": lambda out: tfrecorder.load(out, "TRAIN", batch_size=4),
    "records": lambda out: tfrecorder.Records(out, "TRAIN"),
    "batches": lambda out: tfrecorder.batches(out, "TRAIN", batch_size=4),
    "follow": lambda out: tfrecorder.batches(out, "TRAIN", batch_size=4, follow=True),
    "info": tfrecorder.info,
    "inspect": lambda out: tfrecorder.inspect(out),
    "preview": lambda out: tfrecorder.preview(out, "page.html"),
    "to_frame": lambda out: tfrecorder.to_frame(out),
    "generations": tfrecorder.generations,
    "append": lambda out: tfrecorder.append(table(30, 2), out, **QUIET),
    "compact": lambda out: tfrecorder.compact(out, "compact", **QUIET),
    "stream": lambda out: tfrecorder.stream("images", out, until_idle=0),
    "status": tfrecorder.status,
}


def damage_of(read: Callable, out: Path) -> str:
    with pytest.raises(DatasetError) as caught:
        read(out)
    return str(caught.value)


@pytest.mark.parametrize("lose", LOSSES)
def test_the_newest_manifest_lost_is_damage_to_every_reader(out: Path, lose: Callable) -> None:
    Path("images").mkdir()
    lose(out / NEWEST)
    for name, read in READERS.items():
        words = damage_of(read, out)
        assert str(out / NEWEST) in words, name
        assert re.search(r"`tfrecorder repair \S*out` writes it again", words), name


@pytest.mark.parametrize("lose", LOSSES[:-1])
def test_an_older_manifest_lost_is_damage_to_who_reads_it(out: Path, lose: Callable) -> None:
    lose(out / MIDDLE)
    assert len(tfrecorder.Records(out, "TRAIN")) == 30
    assert str(out / MIDDLE) in damage_of(lambda out: tfrecorder.Records(out, "TRAIN", at=1), out)
    assert {fault.file for fault in tfrecorder.verify(out).found} == {MIDDLE}


@pytest.mark.parametrize("manifest", [FIRST, MIDDLE, NEWEST])
@pytest.mark.parametrize("lose", LOSSES)
def test_repair_makes_it_again(out: Path, lose: Callable, manifest: str) -> None:
    before = public_files(out)
    frame = tfrecorder.to_frame(out)
    lose(out / manifest)
    result = tfrecorder.repair(out, progress=False)
    assert NEWEST in result.files  # which says it all
    assert result.lost
    if lose == all_private_gone:
        assert str(result).count("not known any more: of 6 tables: sizes, checksums and times") == 1
    assert public_files(out) == before
    assert tfrecorder.verify(out, progress=False).ok
    pd.testing.assert_frame_equal(tfrecorder.to_frame(out), frame)
    lost = [FIRST, MIDDLE] if lose == all_private_gone else [manifest]
    for at, name in enumerate((FIRST, MIDDLE, NEWEST)):
        if name not in lost or name == NEWEST:
            assert tfrecorder.info(out, at=at).records == 10 * (at + 1)
        else:
            why = "Its manifest was lost"
            if lose == all_private_gone:
                why = "What was before generation 2 was lost"
            with pytest.raises(DatasetError, match=why):
                tfrecorder.info(out, at=at)
    assert tfrecorder.append(table(0, 10), out, **QUIET).rows_there == 10
    assert tfrecorder.append(table(30, 2), out, **QUIET).records == 2
    assert tfrecorder.info(out).records == 32
    assert tfrecorder.repair(out, progress=False).files == ()


@pytest.mark.parametrize("manifest", [FIRST, MIDDLE, NEWEST])
def test_a_training_goes_on_after_a_manifest_was_lost(out: Path, manifest: str) -> None:
    options = {"batch_size": 4, "image_size": 8, "seed": 3}
    batches = tfrecorder.batches(out, "TRAIN", **options)
    iterator = iter(batches)
    next(iterator)
    state = batches.state_dict()
    following = next(iterator)
    (out / manifest).unlink()
    tfrecorder.repair(out, progress=False)
    batches = tfrecorder.batches(out, "TRAIN", **options)
    batches.load_state_dict(state)
    again = next(iter(batches))
    for one, other in zip(following, again, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("names", [(FIRST, MIDDLE), (MIDDLE, NEWEST)])
def test_several_manifests_are_made_again_as_one(out: Path, names) -> None:
    for name in names:
        (out / name).unlink()
    assert {fault.file for fault in tfrecorder.verify(out).found} == {*names}
    # The newest says it all.
    assert tfrecorder.repair(out, progress=False).files == (NEWEST,)
    for at, name in enumerate((FIRST, MIDDLE, NEWEST)):
        if name not in names or name == NEWEST:
            assert tfrecorder.info(out, at=at).records == 10 * (at + 1)
    lost = tfrecorder.info(out).lost
    assert any("the source, its own options" in words for words in lost)
    assert lost[0] in str(tfrecorder.info(out))
    assert tfrecorder.verify(out).ok


def test_a_file_that_may_not_be_read_is_not_a_lost_one(grown: Path, plain_user) -> None:
    shutil.copytree(grown, "out")
    tfrecorder.info("out")  # imports all that is needed
    for name in (NEWEST, "_tfrecorder"):
        os.chmod(f"out/{name}", 0)
        with plain_user():
            words = damage_of(tfrecorder.info, Path("out"))
            assert f"{NEWEST} cannot be read: Permission denied" in words
            with pytest.raises((DatasetError, OutputError)) as caught:
                tfrecorder.repair("out")
            refused = "cannot be read: Permission denied|do not have the right to write"
            assert re.search(refused, str(caught.value))


def test_what_another_version_made_is_named_in_one_line(out: Path) -> None:
    file = out / NEWEST
    reseal(file, lambda metadata: metadata.update(version=9))
    Path("images").mkdir()
    for read in (*READERS.values(), tfrecorder.verify, tfrecorder.repair):
        assert damage_of(read, out).endswith(
            f"{file} was made by another version of tfrecorder: its form is number 9, and this "
            "version reads numbers 4 and 5. Use that version, or convert again."
        )


def test_without_its_commit_it_is_read_only_once_that_is_made_again(out: Path) -> None:
    info = (out / "dataset_info.json").read_bytes()
    (out / "dataset_info.json").unlink()
    assert "is not committed yet" in damage_of(tfrecorder.info, out)
    assert {fault.file for fault in tfrecorder.verify(out).found} == {"dataset_info.json"}
    assert tfrecorder.repair(out, progress=False).files == ("dataset_info.json",)
    assert (out / "dataset_info.json").read_bytes() == info


def test_a_copy_of_tfds_and_bare_files_still_open(grown: Path) -> None:
    copied_as_tfds(grown, "theirs")
    assert (tfrecorder.info("theirs").form, tfrecorder.info("theirs").records) == ("tfds", 30)
    Path("theirs/dataset_info.json").unlink()
    Path("theirs/features.json").unlink()
    assert tfrecorder.info("theirs").form == "files"
    assert tfrecorder.info(f"{grown}/*.tfrecord").form == "files"


@pytest.mark.parametrize("status", [403, 404])
def test_in_a_bucket_only_not_found_is_missing(gcs: Gcs, grown: Path, status: int) -> None:
    gcs.put_folder("gs://bkt/out", grown)
    file = f"gs://bkt/out/{NEWEST}"
    if status == 404:
        gcs.delete(file)
    else:
        gcs.inject("status", operation="download", object="*/00002.json", status=status)
    for read in (tfrecorder.info, tfrecorder.generations, READERS["records"]):
        with pytest.raises(DatasetError) as caught:
            read("gs://bkt/out")
        fault = "is missing" if status == 404 else "cannot be read"
        assert f"{NEWEST} {fault}" in str(caught.value)
    if status == 404:
        assert tfrecorder.repair("gs://bkt/out", progress=False).files == (NEWEST,)
        assert tfrecorder.verify("gs://bkt/out", progress=False).ok


def test_in_a_bucket_all_of_our_files_are_made_again(gcs: Gcs, grown: Path) -> None:
    gcs.put_folder("gs://bkt/out", grown)
    for name in gcs.names("gs://bkt/out/_tfrecorder/"):
        gcs.delete(f"gs://bkt/{name}")
    with pytest.raises(DatasetError, match="is missing"):
        tfrecorder.info("gs://bkt/out")
    assert tfrecorder.repair("gs://bkt/out", progress=False).lost
    assert tfrecorder.info("gs://bkt/out").records == 30
    assert tfrecorder.verify("gs://bkt/out", progress=False).ok


def test_in_s3_a_refusal_is_not_an_absence(s3: S3, grown: Path) -> None:
    s3.put_folder("s3://bkt/out", grown)
    s3.refuse(403, "AccessDenied", path="*/00002.json")
    with pytest.raises(DatasetError, match=r"00002\.json cannot be read"):
        tfrecorder.info("s3://bkt/out")


def detection() -> tuple[pd.DataFrame, Schema]:
    edges = {name: [[0.1, 0.2]] * 12 for name in ("x_min", "y_min")}
    edges |= {name: [[0.5, 0.7]] * 12 for name in ("x_max", "y_max")}
    frame = photo_frame(12).assign(**edges, label=[["cat", "dog"]] * 12)
    boxes = Boxes(background_class=True, tfds_features=True)
    return frame, Schema(split=Split(), image_uri=Image(), boxes=boxes)


def with_rejects() -> tuple[pd.DataFrame, None]:
    frame = photo_frame(40).assign(split=["TRAIN", "TRAIN", "TEST", "VALIDATION"] * 10)
    frame.loc[[3, 4, 17], "image_uri"] = "nowhere.jpg"
    frame.loc[frame["label"] == "cat", "label"] = " c\nat"
    return frame, None


@pytest.mark.parametrize(
    ("source", "options"),
    [
        (lambda: (every_kind(), EVERY_KIND), {}),
        (detection, {}),
        (with_rejects, {"num_shards": 3, "max_reject_fraction": 0.5}),
        (lambda: (photo_frame(9).drop(columns="label"), None), {"short_side": 32}),
        (lambda: (photo_frame(9), None), {"image_size": (8, 8), "image_format": "raw"}),
    ],
    ids=["every kind", "detection", "rejects", "no label", "raw"],
)
def test_what_the_records_hold_is_made_again(source: Callable, options: dict) -> None:
    frame, schema = source()
    tfrecorder.convert(frame, "out", schema=schema, progress=False, **options)
    before, info = public_files("out"), tfrecorder.info("out").as_dict()
    shutil.rmtree("out/_tfrecorder")
    tfrecorder.repair("out", progress=False)
    assert public_files("out") == before
    assert tfrecorder.verify("out", progress=False).ok
    again = tfrecorder.info("out").as_dict()
    for name in ("records", "class_counts", "class_names", "features", "rejects", "image_sides"):
        assert again[name] == info[name], name


@pytest.mark.parametrize("file", ["features.json", "train-00000.tfrecord", "rejects.csv"])
def test_what_cannot_be_made_again_is_named_and_nothing_is_written(out: Path, file: str) -> None:
    shutil.rmtree(out / "_tfrecorder/commits")
    (out / file).unlink()
    words = damage_of(tfrecorder.repair, out)
    assert file in words
    assert not (out / "_tfrecorder/commits").exists()


def test_a_sound_dataset_that_cannot_be_written_is_sound(grown: Path, plain_user) -> None:
    shutil.copytree(grown, "out")
    tfrecorder.repair("out", progress=False)  # imports all that is needed
    for path in (Path("out"), *Path("out").rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    with plain_user():
        assert str(tfrecorder.repair("out", progress=False)).startswith("out: all is well")
    Path("out/features.json").write_text("{}")
    with plain_user(), pytest.raises(OutputError, match="out cannot be written"):
        tfrecorder.repair("out", progress=False)
