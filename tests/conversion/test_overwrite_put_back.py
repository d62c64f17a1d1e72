"""An overwrite whose classes fit no file of the old dataset: if it fails, the old one is back."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest
import tensorflow_datasets as tfds
from helpers.damage import all_files
from helpers.growing_cases import QUIET, table
from support import invoke, public_files
from torture.steps import Moment, convert_until

import tfrecorder
from tfrecorder.errors import DatasetError, TfrecorderError

#: Other classes in another order, and fewer: neither labels file is the beginning of the other.
OLD = table(0, 12)
NEW = table(6, 8).assign(label=[*"zyxwzyxw"])


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A dataset of two generations."""
    monkeypatch.chdir(tmp_path)
    tfrecorder.convert(OLD[:8], "out", num_shards=2, **QUIET)
    tfrecorder.append(OLD[8:], "out", **QUIET)
    return Path("out")


def overwrite() -> None:
    tfrecorder.convert(NEW, "out", overwrite="all", num_shards=2, **QUIET)


def labels(out: Path) -> list[str]:
    """What TFDS and our reader agree on."""
    builder = tfds.builder_from_directory(str(out))
    names = builder.info.features["image/class/label"].names
    found = [names[row["image/class/label"]] for row in tfds.as_numpy(builder.as_dataset("train"))]
    assert sorted(found) == sorted(tfrecorder.to_frame(out)["label"])
    return sorted(found)


def lists(out: Path) -> dict[str, bytes]:
    """The public files, but for shards of an operation under way."""
    return {name: data for name, data in public_files(out).items() if "-r2-" not in name}


def test_if_it_fails_the_old_dataset_is_back_as_it_was(out: Path) -> None:
    before = lists(out)
    in_the_way = out / "_tfrecorder/commits/00002.json"
    in_the_way.mkdir()
    with pytest.raises(TfrecorderError):
        overwrite()
    assert lists(out) == before
    assert labels(out) == sorted(OLD["label"])
    said = str(tfrecorder.status(out))
    assert "overwrite: the finished dataset stays until this one takes its place" in said
    in_the_way.rmdir()
    overwrite()
    assert labels(out) == sorted(NEW["label"])
    assert tfrecorder.verify(out, records=True, progress=False).ok


def test_what_failed_can_be_given_up(out: Path) -> None:
    files = {name: data for name, data in all_files(out).items() if "commits" not in name}
    in_the_way = out / "_tfrecorder/commits/00002.json"
    in_the_way.mkdir()
    with pytest.raises(TfrecorderError):
        overwrite()
    in_the_way.rmdir()
    tfrecorder.undo(out)
    after = {name: data for name, data in all_files(out).items() if "commits" not in name}
    del files["dataset_info.json"], after["dataset_info.json"]
    assert after == files
    assert labels(out) == sorted(OLD["label"])


@pytest.mark.slow
def test_ctrl_c_at_any_change_leaves_one_of_the_two(out: Path) -> None:
    shutil.copytree(out, "start")
    whole = {"old": sorted(OLD["label"]), "new": sorted(NEW["label"])}
    seen = []
    for step in range(99):
        shutil.rmtree(out)
        shutil.copytree("start", out)
        moment = Moment(step, sent=signal.SIGINT, once=True)
        options = {"overwrite": "all", "num_shards": 2}
        if not convert_until(moment, NEW, str(out.absolute()), **options):
            break
        found = labels(out)
        seen += [name for name, of in whole.items() if of == found]
        overwrite()
        assert labels(out) == whole["new"]
    assert len(seen) == step > 20
    assert {*seen} == {*whole}


@pytest.mark.slow
def test_a_kill_leaves_none_and_status_says_so_until_the_call_is_repeated(out: Path) -> None:
    shutil.copytree(out, "start")
    none = 0
    for step in range(99):
        shutil.rmtree(out)
        shutil.copytree("start", out)
        options = {"overwrite": "all", "num_shards": 2}
        if not convert_until(Moment(step), NEW, str(out.absolute()), **options):
            break
        words = "overwrite: until it is complete there is no dataset"
        if (out / "dataset_info.json").exists():
            assert words not in str(tfrecorder.status(out))
            continue
        none += 1
        assert words in invoke("status", "out").output
        with pytest.raises(DatasetError):
            tfrecorder.to_frame(out)
        overwrite()
        assert labels(out) == sorted(NEW["label"])
    assert none > 2
