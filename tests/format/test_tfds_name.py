"""A dataset with a name and a version: TFDS finds it, and all else works as with any directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tensorflow_datasets as tfds
from helpers.growing_cases import table
from helpers.streaming_cases import TO_ITS_END, Numbered
from support import dry_run, filenames, invoke, photo_frame, public_files

import tfrecorder

OUT = "data/flowers/1.0.0"
NAMED: dict[str, Any] = {"name": "flowers", "progress": False}


def found_by_tfds(name: str = "flowers", data_dir: str = "data", **options: Any) -> list[str]:
    """The images' uris in the training split, as tfds.load finds it."""
    options = {"decoders": {"image/encoded": tfds.decode.SkipDecoding()}, **options}
    dataset = tfds.load(name, data_dir=data_dir, split="train", download=False, **options)
    return sorted(one["image/filename"].decode() for one in tfds.as_numpy(dataset))


def test_tfds_load_finds_a_named_dataset() -> None:
    result = tfrecorder.convert(photo_frame(8), "data", **NAMED)
    assert result.output_dir == OUT
    assert found_by_tfds() == sorted(photo_frame(8)["image_uri"])
    builder = tfds.builder("flowers", data_dir="data")
    assert (builder.info.name, str(builder.info.version)) == ("flowers", "1.0.0")
    assert builder.info.features["image/class/label"].names == ["brick"]


@pytest.mark.slow
def test_the_result_shows_a_call_that_works() -> None:
    result = tfrecorder.convert(photo_frame(4), "data", **NAMED)
    assert result.tfds_call == "tfds.load('flowers:1.0.0', data_dir='data')"
    assert f"TFDS: {result.tfds_call}" in str(result)
    assert len(eval(result.tfds_call)["train"]) == 4
    again = tfrecorder.convert(photo_frame(4), OUT, **NAMED)
    assert (again.was_finished, again.tfds_call) == (True, result.tfds_call)
    plain = tfrecorder.convert(photo_frame(4), "out", progress=False)
    assert (plain.tfds_call, "TFDS" in str(plain)) == (None, False)


@pytest.mark.slow
def test_versions_stand_side_by_side_and_tfds_takes_the_newest() -> None:
    tfrecorder.convert(photo_frame(4), "data", **NAMED)
    tfrecorder.convert(photo_frame(6), "data", name="flowers:1.10.0", progress=False)
    tfrecorder.convert(photo_frame(5), "data", name="flowers:1.9.0", progress=False)
    assert len(found_by_tfds()) == 6
    assert len(found_by_tfds("flowers:1.0.0")) == 4
    assert len(found_by_tfds("flowers:1.9.0")) == 5


def test_a_name_changes_no_byte_but_in_dataset_info() -> None:
    tfrecorder.convert(photo_frame(8), "out", progress=False)
    tfrecorder.convert(photo_frame(8), "data", **NAMED)
    named, plain = public_files(OUT), public_files("out")
    info = json.loads(named.pop("dataset_info.json"))
    other = json.loads(plain.pop("dataset_info.json"))
    assert named == plain
    # The digest of the plan, which knows the name.
    assert info.pop("releaseNotes").keys() == other.pop("releaseNotes").keys()
    assert info == {**other, "name": "flowers", "version": "1.0.0"}


@pytest.mark.parametrize("path", [OUT, f"{OUT}/", "./data/flowers/1.0.0"])
def test_a_directory_that_ends_with_name_and_version_is_the_dataset(path: str) -> None:
    assert tfrecorder.convert(photo_frame(4), path, **NAMED).output_dir == path
    assert tfrecorder.convert(photo_frame(4), "data", **NAMED).was_finished
    assert len(found_by_tfds()) == 4


@pytest.mark.slow
def test_every_verb_works_on_a_named_dataset() -> None:
    frame = photo_frame(12)
    frame.loc[11, "image_uri"] = "missing.jpg"
    tfrecorder.convert(frame, "data", num_shards=3, **NAMED)
    assert tfrecorder.status(OUT).committed
    assert len(tfrecorder.load(OUT, "TRAIN")) == tfrecorder.info(OUT).records == 11
    first = sorted(Path(OUT).glob("train-*"))[0]
    first.write_bytes(b"")
    assert not tfrecorder.verify(OUT, progress=False).ok
    assert tfrecorder.repair(OUT, progress=False).shards == (first.name,)
    tfrecorder.convert(frame[:6], "data", overwrite=True, **NAMED)
    assert tfrecorder.verify(OUT, progress=False).ok
    assert sorted(filenames(OUT)) == found_by_tfds()
    assert len(found_by_tfds()) == 6


def test_an_interrupted_conversion_is_continued() -> None:
    staged = tfrecorder.parts.stage(photo_frame(9), "data", name="flowers", num_shards=3)
    assert staged.output_dir == OUT
    tfrecorder.parts.work(OUT, part=(1, 3), progress=False)
    assert tfrecorder.convert(photo_frame(9), "data", num_shards=3, **NAMED).shards_before == 1
    assert len(found_by_tfds()) == 9


def test_stage_work_and_commit_give_the_bytes_of_convert() -> None:
    tfrecorder.convert(photo_frame(9), "data", num_shards=3, **NAMED)
    tfrecorder.parts.stage(photo_frame(9), "other", name="flowers", num_shards=3)
    tfrecorder.parts.work("other/flowers/1.0.0", progress=False)
    done = tfrecorder.parts.commit("other/flowers/1.0.0")
    assert done.tfds_call == "tfds.load('flowers:1.0.0', data_dir='other')"
    assert public_files(OUT) == public_files("other/flowers/1.0.0")


def test_append_keeps_the_name_of_the_dataset() -> None:
    tfrecorder.convert(table(0, 6), "data", **NAMED)
    added = tfrecorder.append(table(6, 4, label="new"), OUT, progress=False)
    assert (added.output_dir, added.generation, added.records) == (OUT, 1, 4)
    info = json.loads(Path(OUT, "dataset_info.json").read_text())
    assert (info["name"], info["version"]) == ("flowers", "1.1.0")
    assert tfrecorder.verify(OUT, progress=False).ok
    assert {name: len(split) for name, split in eval(added.tfds_call).items()} == {"train": 10}
    builder = tfds.builder("flowers:1.0.0", data_dir="data")
    assert "new" in builder.info.features["image/class/label"].names


def test_append_and_compact_in_place_take_no_name() -> None:
    tfrecorder.convert(table(0, 4), OUT, progress=False)
    with pytest.raises(tfrecorder.errors.OptionError, match=r"name='flowers': .* keeps its name"):
        tfrecorder.append(table(4, 4), OUT, **NAMED)
    with pytest.raises(tfrecorder.errors.OptionError, match="a dataset keeps its name"):
        tfrecorder.compact(OUT, **NAMED)


@pytest.mark.slow
def test_compact_gives_the_new_dataset_a_name_and_a_version() -> None:
    tfrecorder.convert(table(0, 6), "data", **NAMED)
    tfrecorder.append(table(6, 4), OUT, progress=False)
    done = tfrecorder.compact(OUT, "data", name="flowers:1.1.0", progress=False)
    assert done.output_dir == "data/flowers/1.1.0"
    assert len(found_by_tfds("flowers:1.0.0")) == 10
    assert len(found_by_tfds()) == 10
    assert str(tfds.builder("flowers", data_dir="data").info.version) == "1.1.0"
    assert tfrecorder.compact(OUT, "out", progress=False).tfds_call is None
    assert tfds.builder_from_directory("out").info.name == "dataset"


def test_a_stream_writes_and_continues_a_named_dataset() -> None:
    for rows in (10, 20):
        done = tfrecorder.stream(Numbered(rows), "data", name="flowers", **TO_ITS_END)
        assert done.output_dir == OUT
    assert tfrecorder.status(OUT).streams == {"numbered": 20}
    assert len(tfrecorder.generations(OUT)) > 1
    builder = tfds.builder_from_directory(OUT)
    assert builder.info.name == "flowers"
    read = sum(split.num_examples for split in builder.info.splits.values())
    assert read == tfrecorder.info(OUT).records


def test_the_frame_and_a_dry_run_know_the_directory() -> None:
    frame = photo_frame(4)
    trial = dry_run(frame, "data", name="flowers")
    assert (trial["output_dir"], Path("data").exists()) == (OUT, False)
    assert frame.tensorflow.to_tfrecord("data", **NAMED).output_dir == OUT


def test_the_command_line_prints_the_directory_and_the_call() -> None:
    photo_frame(4).to_csv("photos.csv", index=False)

    def call(*words: str) -> str:
        ended = invoke(*words)
        assert ended.exit_code == 0, ended.output
        return ended.stdout

    words = ("photos.csv", "data", "--name", "flowers:2.0.0")
    assert "would go to data/flowers/2.0.0;" in call("convert", *words, "--dry-run")
    shown = call("convert", *words)
    assert "4 records in data/flowers/2.0.0 " in shown
    assert "TFDS: tfds.load('flowers:2.0.0', data_dir='data')" in shown
    assert json.loads(call("convert", *words, "--json"))["version"] == "2.0.0"
    assert "nothing to append" in call("append", "photos.csv", "data/flowers/2.0.0")


def test_the_directory_of_another_version_is_not_taken_for_the_folder_above() -> None:
    tfrecorder.convert(photo_frame(2), OUT, **NAMED)
    with pytest.raises(tfrecorder.errors.OutputError, match="is itself a dataset"):
        tfrecorder.convert(photo_frame(2), OUT, name="flowers:2.0.0", progress=False)


def test_a_dataset_is_not_written_into_another() -> None:
    frame = photo_frame(4)
    tfrecorder.convert(frame, "out", progress=False)
    runs = [tfrecorder.convert, dry_run, tfrecorder.parts.stage]
    for run in runs:
        with pytest.raises(tfrecorder.errors.OutputError, match="out is itself a dataset"):
            run(frame, "out", name="flowers")
    with pytest.raises(tfrecorder.errors.OutputError, match="out is itself a dataset"):
        tfrecorder.stream(Numbered(3), "out", name="flowers", **TO_ITS_END)
    assert tfrecorder.verify("out", progress=False).ok
    assert not Path("out/flowers").exists()
