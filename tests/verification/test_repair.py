"""`repair`: what is damaged is written again, byte for byte; what cannot be is refused."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from helpers.damage import (
    MANIFEST,
    SHARD,
    TABLE,
    agree,
    all_files,
    edit_done,
    flip,
    make_dataset,
    planned,
    restore,
    unseal,
)
from helpers.wall_cases import BEAM, TENSORFLOW, attempts_of
from hypothesis import given, settings, strategies as st
from support import PHOTOS, photo_frame, public_files

import tfrecorder
from tfrecorder import repair, verify
from tfrecorder.errors import DatasetError, OutputError, SourceError

OTHER = "train-00001.tfrecord"
INDEX = f"_tfrecorder/index/{SHARD}.idx"

#: What comes back only as far as the records say.
PARTLY = ("_tfrecorder/tables/", "_tfrecorder/commits/")


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


@pytest.mark.slow
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
    names = [name for name in files if not name.startswith(PARTLY)]
    damaged = {}
    for where, how, at, by in harms:
        name = names[int(where * len(names))]
        damaged[name] = (how, at, by)
    for name, (how, at, by) in damaged.items():
        data, place = files[name], min(int(at * len(files[name])), len(files[name]) - 1)
        if how == "gone":
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


def test_every_file_but_tables_and_manifests_comes_back(bench, files) -> None:
    gone = [name for name in files if not name.startswith(PARTLY)]
    for name in gone:
        (bench / name).unlink()
    result = repair(bench)
    assert all_files(bench) == files
    assert set(result.files) == set(gone)
    assert str(len(result.files)) in str(result)
    assert not result.lost


def test_sound_shards_are_not_touched(bench, files) -> None:
    sound = bench / OTHER
    before = sound.stat()
    harm(bench, SHARD)
    result = repair(bench)
    assert result.shards == result.files == (SHARD,)
    assert result.bytes == len(files[SHARD])
    assert (sound.stat().st_ino, sound.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    (bench / f"_tfrecorder/index/{OTHER}.idx").unlink()
    assert repair(bench).shards == ()
    assert (sound.stat().st_ino, sound.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert all_files(bench) == files


def test_exchanged_shards_come_back(bench, files) -> None:
    (bench / SHARD).write_bytes(files[OTHER])
    (bench / OTHER).write_bytes(files[SHARD])
    assert repair(bench).shards == (SHARD, OTHER)
    assert all_files(bench) == files


# ------------------------------------------------------------------------- tables and manifests


def columns_of(out: Path) -> dict[str, list]:
    """The tables of all shards, but for what is read again of no record."""
    unknown = ("tfrecorder.source.", "tfrecorder.stream/")
    tables = {path.name: pq.read_table(path) for path in sorted(out.glob("_tfrecorder/tables/*"))}
    return {
        f"{name}:{column}": sorted(map(str, table[column].to_pylist()))
        for name, table in tables.items()
        for column in table.column_names
        if not column.startswith(unknown)
    }


@pytest.mark.parametrize("how", ["gone", "cut", "flipped"])
def test_a_table_is_made_again_of_its_records(bench, files, how: str) -> None:
    columns = columns_of(bench)
    for name in [name for name in files if "/tables/" in name]:
        data = files[name]
        (bench / name).unlink()
        if how != "gone":
            (bench / name).write_bytes(data[:-9] if how == "cut" else flip(data, len(data) // 2, 1))
        result = repair(bench)
        assert set(result.files) == {name, MANIFEST}
        assert any(name in words for words in result.lost)
        assert verify(bench).ok
        changed = {name for name, data in all_files(bench).items() if data != files[name]}
        assert changed == {name, MANIFEST}
        again = columns_of(bench)
        assert {*columns} == {*again}
        different = {column for column in columns if columns[column] != again[column]}
        of_rejects = ("image/class/label", "image/class/text")
        assert all(column.endswith(of_rejects) for column in different)
        restore(bench, files)


def test_a_shard_comes_back_of_a_table_that_was_made_again(out: Path) -> None:
    whole = (out / SHARD).read_bytes()
    (out / TABLE).unlink()
    repair(out)
    (out / SHARD).unlink()
    assert repair(out).shards == (SHARD,)
    assert (out / SHARD).read_bytes() == whole


def test_a_shard_whose_table_is_damaged_too_is_refused(out: Path) -> None:
    harm(out, SHARD, TABLE)
    harmed = all_files(out)
    with pytest.raises(SourceError, match=f"{SHARD}: its table is damaged too"):
        repair(out)
    assert all_files(out) == harmed


def test_a_manifest_is_made_again_of_the_tables(bench, files) -> None:
    before = unseal(files[MANIFEST])
    (bench / MANIFEST).unlink()
    result = repair(bench)
    assert result.files == (MANIFEST,)
    assert result.lost
    assert verify(bench).ok
    after = unseal((bench / MANIFEST).read_bytes())
    for key in ("plan", "own", "done", "totals", "image_shapes", "image_sides"):
        assert after[key] == before[key], key
    for key in ("source_rows", "base", "stated", "lists", "contents"):
        assert after[key] == before[key], key
    assert repair(bench).files == ()
    restore(bench, files)


def test_the_same_conversion_over_a_manifest_made_again_is_refused_in_words(out: Path) -> None:
    """It cannot be told from another one any more."""
    (out / MANIFEST).unlink()
    repair(out)
    shards = {"TRAIN": 3, "VALIDATION": 2, "TEST": 1}
    with pytest.raises(OutputError, match="is a finished dataset"):
        tfrecorder.convert("images/images.csv", out, num_shards=shards, progress=False)
    assert verify(out).ok


# ---------------------------------------------------------------- without sources, and with others


def test_what_needs_no_source_is_repaired_without(out: Path) -> None:
    whole = all_files(out)
    shutil.rmtree("images")
    harm(out, INDEX, "features.json", "dataset_info.json")
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


def test_a_reject_stays_one_whatever_its_image_is_now(out: Path) -> None:
    whole = all_files(out)
    Path("images/missing.jpg").write_bytes(PHOTOS[0].read_bytes())
    group = next(g for g in range(6) if "missing.jpg" in dict(planned(out, g)).values())
    shard = verify_shards(out)[group]
    (out / shard).unlink()
    assert repair(out).files == (shard,)
    assert all_files(out) == whole


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


def test_a_folder_of_the_sources_that_is_damaged_in_the_manifest_is_not_believed(out: Path) -> None:
    data = (out / MANIFEST).read_bytes()
    (out / MANIFEST).write_bytes(data.replace(b'"base": "', b'"base": "x'))
    assert {fault.file for fault in verify(out).found} == {MANIFEST}
    repair(out)
    assert unseal((out / MANIFEST).read_bytes())["base"] == unseal(data)["base"]


def test_without_any_checksum_nothing_is_written(out: Path) -> None:
    (out / MANIFEST).unlink()
    harm(out, SHARD)
    harmed = all_files(out)
    with pytest.raises(DatasetError, match=rf"nothing proves what {SHARD} held"):
        repair(out)
    assert all_files(out) == harmed


@pytest.mark.parametrize("name", ["notes.txt", "train-00009.tfrecord"])
def test_what_is_not_of_the_dataset_is_left_to_its_owner(out: Path, name: str) -> None:
    (out / name).write_text("mine")
    with pytest.raises(DatasetError, match=rf"move them away first.*{name}"):
        repair(out)
    assert (out / name).read_text() == "mine"


def test_an_uncommitted_directory_is_for_its_conversion() -> None:
    Path("none.jpg").write_bytes(b"no image")
    frame = photo_frame(3).assign(image_uri=[str(PHOTOS[0]), "none.jpg", "none.jpg"])
    with pytest.raises(tfrecorder.errors.RejectedError):
        tfrecorder.convert(frame, "out", progress=False)
    with pytest.raises(DatasetError, match="run the same conversion again"):
        repair("out")


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
    harm(out, SHARD, OTHER, INDEX, "features.json")
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
    assert not list(out.rglob("tmp/*"))
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
