"""`repair`: what is damaged is written again, byte for byte; what cannot be is refused."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

import pandas as pd
import pytest
from damage import SHARD, agree, all_files, edit_done, flip, make_dataset, planned, restore
from hypothesis import given, settings, strategies as st
from support import PHOTOS, public_files
from wall_cases import BEAM, TENSORFLOW, attempts_of

import tfrecorder
from tfrecorder import DatasetError, OutputError, SourceError, repair, verify

OTHER = "train-00001.tfrecord"
INDEX = f"_tfrecorder/index/{SHARD}.idx"
DONE = "_tfrecorder/done/train-00000.json"
METADATA = "_tfrecorder/metadata.json"
PLAN = "_tfrecorder/plan.json"


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_dataset(tmp_path_factory.mktemp("clean"))


@pytest.fixture(scope="module")
def files(clean: Path) -> dict[str, bytes]:
    return all_files(clean)


@pytest.fixture(scope="module")
def bench(clean: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy to be harmed and repaired many times, of the same sources."""
    return Path(shutil.copytree(clean, tmp_path_factory.mktemp("bench") / "out"))


@pytest.fixture
def out() -> Path:
    """A new dataset in `out`, made of the photographs in `images`."""
    return make_dataset(Path.cwd())


def harm(out: Path, *names: str) -> None:
    for name in names:
        data = (out / name).read_bytes()
        (out / name).write_bytes(flip(data, len(data) // 2, 1))


def row_of(out: Path, shard: int = 0, suffix: str = "") -> tuple[int, str]:
    """The number and the image of a planned row of a TRAIN shard whose image is there."""
    return next(
        (row, image)
        for row, image in planned(out, shard)
        if image.endswith(suffix) and image not in ("cut.jpg", "missing.jpg")
    )


# ------------------------------------------------------------------------------ the same bytes


def test_where_all_is_well_it_says_so_and_writes_nothing(out: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
    result = repair(out)
    assert result.files == ()
    assert "all is well; nothing was written" in str(result)
    after = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
    assert after == before


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(
    harms=st.lists(
        st.tuples(
            st.floats(0, 1, exclude_max=True),
            st.sampled_from(["flip", "cut", "longer", "gone"]),
            st.floats(0, 1),
            st.integers(1, 255),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_whatever_is_damaged_comes_back_byte_for_byte(bench, files, harms) -> None:
    names = [name for name in files if "/plan." not in name]
    damaged = {}
    for where, how, at, by in harms:
        name = names[int(where * len(names))]
        damaged[name] = (how, at, by)
    shards = {name.rpartition("/")[2].split(".")[0] for name in damaged if "/done/" in name}
    if METADATA in damaged:  # then the done-records are the only proof: see below
        damaged = {n: h for n, h in damaged.items() if not shards or "/done/" not in n}
    for name, (how, at, by) in damaged.items():
        data, place = files[name], min(int(at * len(files[name])), len(files[name]) - 1)
        if how == "gone" and name != "dataset_info.json":
            (bench / name).unlink()
        else:
            changed = {"flip": flip(data, place, by), "cut": data[:place], "longer": data + b"x"}
            (bench / name).write_bytes(changed.get(how, b""))
    try:
        result = repair(bench)
        assert all_files(bench) == files
        assert set(result.files) >= damaged.keys()
    finally:
        restore(bench, files)


def test_every_file_but_the_plan_comes_back(bench, files) -> None:
    gone = [name for name in files if "/plan." not in name and name != "dataset_info.json"]
    for name in gone:
        if name == METADATA:
            continue  # with the done-records it is the last that knows the checksums
        (bench / name).unlink()
    result = repair(bench)
    assert all_files(bench) == files
    assert set(result.files) == set(gone) - {METADATA}
    assert str(len(result.files)) in str(result)
    (bench / METADATA).unlink()
    (bench / "features.json").unlink()
    (bench / "dataset_info.json").write_bytes(b"")
    assert set(repair(bench).files) == {METADATA, "features.json", "dataset_info.json"}
    assert all_files(bench) == files


def test_sound_shards_are_not_touched(bench, files) -> None:
    sound = bench / OTHER
    before = sound.stat()
    harm(bench, SHARD)
    result = repair(bench)
    assert result.shards == result.files == (SHARD,)
    assert result.bytes == len(files[SHARD])
    assert (sound.stat().st_ino, sound.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    (bench / "_tfrecorder/done/train-00001.json").unlink()
    assert repair(bench).shards == ()
    assert (sound.stat().st_ino, sound.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert all_files(bench) == files


def test_exchanged_shards_come_back(bench, files) -> None:
    (bench / SHARD).write_bytes(files[OTHER])
    (bench / OTHER).write_bytes(files[SHARD])
    assert repair(bench).shards == (SHARD, OTHER)
    assert all_files(bench) == files


def test_counts_that_only_the_sources_show_come_back(bench, files) -> None:
    """The done-record of a shard with PNGs, which may have been made of other files."""
    for name in (name for name in files if "/done/" in name):
        changed = files[name].replace(b'"input_bytes": ', b'"input_bytes": 1')
        (bench / name).write_bytes(changed)
        repair(bench)
        assert all_files(bench) == files, name


# ---------------------------------------------------------------- without sources, and with others


def test_what_needs_no_source_is_repaired_without(out: Path) -> None:
    whole = all_files(out)
    shutil.rmtree("images")
    harm(out, INDEX, "features.json", METADATA)
    (out / "suspects.csv").unlink()
    (out / "rejects.csv").write_bytes(b"")
    repair(out)
    assert all_files(out) == whole


def test_sources_that_have_moved_are_found_by_their_base(out: Path) -> None:
    whole = all_files(out)
    Path("images").rename("elsewhere")
    harm(out, SHARD)
    with pytest.raises(SourceError):
        repair(out)
    repair(out, base="elsewhere")
    assert all_files(out) == whole


def change_source(how: str, image: str) -> None:
    path = Path("images", image)
    data = path.read_bytes()
    changed = {
        "larger": data + b"\0" * 9,
        "same size": flip(data, data.index(b"JFIF") + 9, 1),
        "no image": b"nothing",
    }
    path.unlink()
    if how in changed:
        path.write_bytes(changed[how])


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("larger", "an image has other bytes now"),
        ("same size", "an image has other bytes now"),
        ("no image", "row {}, image {!r}, cannot be used now (not_an_image: "),
        ("gone", "row {}, image {!r}, cannot be used now (not_found: "),
    ],
)
def test_a_source_that_has_changed_is_refused_and_named(out: Path, how: str, words: str) -> None:
    row, image = row_of(out, suffix=".jpg")
    change_source(how, image)
    harm(out, SHARD)
    harmed = all_files(out)
    with pytest.raises(SourceError) as caught:
        repair(out)
    message = str(caught.value)
    assert f"{SHARD}: {words.format(row, image)}" in message
    assert "Bring the sources back" in message
    assert all_files(out) == harmed


def test_a_reject_that_has_come_since_is_refused(out: Path) -> None:
    Path("images/missing.jpg").write_bytes(PHOTOS[0].read_bytes())
    group = next(g for g in range(6) if "missing.jpg" in dict(planned(out, g)).values())
    shard = verify_shards(out)[group]
    (out / shard).unlink()
    with pytest.raises(SourceError, match=f"{shard}: an image has other bytes now"):
        repair(out)


def verify_shards(out: Path) -> list[str]:
    """The shards in the order of the plan."""
    order = ["train", "validation", "test"]
    names = [path.name for path in out.glob("*.tfrecord")]
    return sorted(names, key=lambda name: (order.index(name.split("-")[0]), name))


def test_other_shards_are_repaired_all_the_same(out: Path) -> None:
    whole = all_files(out)
    change_source("gone", row_of(out, suffix=".jpg")[1])
    harm(out, SHARD, OTHER)
    with pytest.raises(SourceError, match=f"Other files were written again: {OTHER}"):
        repair(out)
    assert (out / OTHER).read_bytes() == whole[OTHER]


# ------------------------------------------------------------------------------- what is refused


def test_a_conversion_or_repair_at_work_is_not_disturbed(out: Path) -> None:
    harm(out, SHARD)
    harmed = all_files(out)
    with open(out / "_tfrecorder/lock", "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(OutputError, match="is writing this directory"):
            repair(out)
    assert all_files(out) == harmed
    repair(out)


@pytest.mark.parametrize("name", [PLAN, "_tfrecorder/plan.parquet"])
@pytest.mark.parametrize("how", ["gone", "cut"])
def test_without_its_plan_nothing_is_written(out: Path, name: str, how: str) -> None:
    harm(out, SHARD)
    data = (out / name).read_bytes()
    (out / name).unlink()
    if how == "cut":
        (out / name).write_bytes(data[:-9])
    harmed = all_files(out)
    with pytest.raises(DatasetError, match=r"cannot be repaired: its plan.*`overwrite=True`"):
        repair(out)
    assert all_files(out) == harmed


def test_a_folder_of_the_sources_that_is_damaged_in_the_plan_is_not_believed(out: Path) -> None:
    data = (out / PLAN).read_bytes()
    (out / PLAN).write_bytes(data.replace(b'"base": "', b'"base": "x'))
    harmed = all_files(out)
    with pytest.raises(DatasetError, match=r"its plan is damaged or gone.*it has changed since"):
        repair(out)
    assert all_files(out) == harmed


def test_without_any_checksum_nothing_is_written(out: Path) -> None:
    (out / METADATA).unlink()
    (out / DONE).unlink()
    harmed = all_files(out)
    with pytest.raises(DatasetError, match=rf"for {SHARD} neither the done-record nor {METADATA}"):
        repair(out)
    assert all_files(out) == harmed


@pytest.mark.parametrize("name", ["notes.txt", "train-00000.tfrecord"])
def test_what_is_not_of_the_dataset_is_left_to_its_owner(out: Path, name: str) -> None:
    (out / name).write_text("mine")
    with pytest.raises(DatasetError, match=rf"move them away first.*{name}"):
        repair(out)
    assert (out / name).read_text() == "mine"


def test_an_uncommitted_directory_is_for_its_conversion(out: Path) -> None:
    (out / "dataset_info.json").unlink()
    with pytest.raises(DatasetError, match="run the same conversion again"):
        repair(out)


def test_a_directory_that_is_not_there_is_not_made() -> None:
    with pytest.raises(DatasetError, match="no such directory"):
        repair("nowhere")
    assert not Path("nowhere").exists()


def test_checksums_that_no_bytes_have_cannot_be_repaired(out: Path) -> None:
    """A done-record that was wrong from the start, and that the list of the commit agrees with."""
    edit_done(out, lambda done: done["beside"].update(index=1))
    agree(out, "", [])
    with pytest.raises(DatasetError, match=r"as it was written, but it is still wrong: .* report"):
        repair(out)


def test_a_shard_whose_images_were_read_again_and_again_is_repaired(out: Path) -> None:
    """How often is noted in the done-record, so a repair may write it with other bytes."""
    edit_done(out, lambda done: done.update(retries=3))
    agree(out, "", [])
    harm(out, SHARD)
    repair(out)
    assert verify(out).ok


# ------------------------------------------------------------------------------------ interrupted


def test_a_repair_that_is_interrupted_is_completed_by_the_next(out, monkeypatch) -> None:
    whole = all_files(out)
    harm(out, SHARD, OTHER, DONE, "features.json")
    replace, calls = os.replace, []

    def interrupted(source, target, **folders) -> None:
        calls.append(target)
        if calls.count(OTHER) == 2:  # the first puts it into the folder aside
            raise KeyboardInterrupt
        replace(source, target, **folders)

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        repair(out)
    monkeypatch.undo()
    assert (out / SHARD).read_bytes() == whole[SHARD]
    assert not list(out.rglob("repair-*"))
    repair(out)
    assert all_files(out) == whole


def test_a_disk_that_is_full_is_one_clear_error(out: Path, monkeypatch) -> None:
    harm(out, SHARD)
    harmed = all_files(out)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "writev", full)
    with pytest.raises(OutputError, match="out cannot be written: No space left on device"):
        repair(out)
    assert all_files(out) == harmed


def test_what_is_repaired_is_read_as_before(out: Path) -> None:
    public = public_files(out)
    (out / SHARD).unlink()
    with pytest.raises(DatasetError, match="tfrecorder repair"):
        tfrecorder.load(out)
    repair(out)
    assert public_files(out) == public
    assert verify(out, decode=True).ok


@pytest.mark.slow
def test_neither_tensorflow_nor_beam_is_loaded(out: Path) -> None:
    (out / SHARD).unlink()
    code = f"import tfrecorder; assert tfrecorder.repair({str(out)!r}).files"
    assert attempts_of(code, (*TENSORFLOW, *BEAM)) == []


def test_the_sources_of_a_repaired_dataset_may_be_absolute(frame: pd.DataFrame) -> None:
    tfrecorder.convert(frame.iloc[:10], "absolute", num_shards=2)
    whole = all_files(Path("absolute"))
    Path("absolute/train-00000.tfrecord").unlink()
    repair("absolute", base="nowhere")
    assert all_files(Path("absolute")) == whole
