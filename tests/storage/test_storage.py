"""Files elsewhere: uris, other schemes by fsspec, and stores that fail in passing.

The inner law: the contract of storage, which images, plans and readers share.
"""

from __future__ import annotations

import itertools
import json
import os
import random
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pandas as pd
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from helpers.power_cut import Recording, contents, recorded, strace
from support import (
    CSV,
    PHOTOS,
    SAMPLES,
    error_of,
    given_again,
    photo_frame,
    public_files,
    rejects,
    run,
    shorten_patience,
    shorten_pauses,
    written,
)

import tfrecorder
from tfrecorder import storage
from tfrecorder.errors import (
    DatasetError,
    ImagesUnreachableError,
    OptionError,
    OutputError,
    SourceError,
)


class FaultyFileSystem(MemoryFileSystem):
    """A store of which one request in twenty fails in passing, and a file that is never given."""

    protocol = "faulty"
    store: ClassVar[dict] = {}
    pseudo_dirs: ClassVar[list] = [""]
    random = random.Random(7)
    share = 0.05
    faults = 0

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.replace("faulty://", "memory://"))

    def _ask(self, path):
        if self.random.random() < self.share:
            type(self).faults += 1
            kind = self.random.choice((TimeoutError, ConnectionResetError, BusyError))
            raise kind("the store is busy")
        if path.endswith("forbidden.jpg"):
            type(self).faults += 1000
            raise PermissionError("not for you")

    def cat_file(self, path, *arguments, **more):
        self._ask(path)
        return super().cat_file(path, *arguments, **more)

    def put_file(self, local, path, *arguments, **more):
        self._ask(path)
        return super().put_file(local, path, *arguments, **more)

    def info(self, path, **more):
        self._ask(path)
        return super().info(path, **more)


class BusyError(Exception):
    status = 503


@pytest.fixture
def memory():
    """The bundled photographs in memory://photos, with their CSV."""
    system = fsspec.filesystem("memory")
    system.store.clear()
    system.pseudo_dirs[:] = [""]
    system.put(str(SAMPLES / "photos"), "/in/photos", recursive=True)
    system.put_file(str(CSV), "/in/photos.csv")
    yield system
    system.store.clear()


@pytest.fixture
def faulty(monkeypatch):
    fsspec.register_implementation("faulty", FaultyFileSystem, clobber=True)
    FaultyFileSystem.store.clear()
    monkeypatch.setattr(FaultyFileSystem, "faults", 0)
    shorten_pauses(monkeypatch)
    return FaultyFileSystem


def fetched(system, folder):
    """The public files of a dataset, with their bytes."""
    return {
        Path(one).name: system.cat_file(one)
        for one in system.find(folder)
        if "/_tfrecorder/" not in one
    }


@pytest.mark.slow
def test_a_dataset_made_elsewhere_is_that_made_here_byte_for_byte(memory):
    tfrecorder.convert(CSV, "out")
    result = tfrecorder.convert("memory://in/photos.csv", "memory://out")
    assert result.records == len(PHOTOS)
    assert fetched(memory, "/out") == public_files("out")
    assert tfrecorder.info("memory://out").splits.keys() == {"TRAIN", "VALIDATION", "TEST"}
    assert tfrecorder.verify("memory://out").ok


def test_a_folder_elsewhere_is_a_source_and_what_is_no_image_is_counted(memory):
    memory.pipe_file("/in/photos/.hidden", b"")
    memory.pipe_file("/in/photos/notes.txt", b"")
    result = tfrecorder.convert("memory://in/photos", "out")
    assert result.records == len(PHOTOS)
    assert result.passed_over == {"hidden": 1, "not images": 1}
    assert result.class_names == tuple(sorted({path.parent.name for path in PHOTOS}))


@pytest.mark.slow
def test_images_here_and_output_elsewhere_and_the_other_way_round(memory):
    frame = photo_frame()
    tfrecorder.convert(frame, "memory://mixed")
    tfrecorder.convert(frame, "here")
    assert fetched(memory, "/mixed") == public_files("here")
    frame["image_uri"] = [
        f"memory://in/photos/{Path(u).parent.name}/{Path(u).name}" for u in frame.image_uri
    ]
    assert tfrecorder.convert(frame, "back").records == len(frame)


@pytest.mark.slow
def test_a_conversion_elsewhere_continues_and_refuses_another_plan(memory):
    written(CSV, "memory://out", num_shards=2)
    shard = "/out/train-00000.tfrecord"
    before = memory.cat_file(shard)
    memory.rm_file(shard)
    words = error_of(tfrecorder.errors.OutputError, CSV, "memory://out", num_shards=3)
    assert "`num_shards` was 2 and now is 3" in words
    tfrecorder.convert(CSV, "memory://out", num_shards=2)
    assert memory.cat_file(shard) == before
    memory.pipe_file(shard, before[:-1])
    assert not tfrecorder.verify("memory://out").ok
    assert tfrecorder.repair("memory://out").files == ("train-00000.tfrecord",)
    assert memory.cat_file(shard) == before
    tfrecorder.convert(CSV, "memory://out", overwrite=True, num_shards=1)
    assert not memory.exists(shard)


@pytest.mark.slow
def test_nothing_is_lost_where_one_request_in_twenty_fails(faulty):
    system = fsspec.filesystem("faulty")
    faulty.share = 0
    for number in range(400):
        system.pipe_file(f"/in/{number}.jpg", PHOTOS[number % len(PHOTOS)].read_bytes())
    frame = photo_frame(400)
    here = tfrecorder.convert(frame, "here", num_shards=20)
    frame["image_uri"] = [f"faulty://in/{number}.jpg" for number in range(400)]
    faulty.share = 0.05
    result = tfrecorder.convert(frame, "faulty://out", num_shards=20)
    assert (result.records, result.rejects) == (400, {})
    assert result.bytes > here.bytes / 2
    faulty.share = 0
    manifest = json.loads(system.cat_file("/out/_tfrecorder/commits/00000.json"))
    assert faulty.faults > 20
    assert manifest["totals"]["retries"] >= 5
    assert tfrecorder.verify("faulty://out").ok


def test_what_is_forbidden_is_asked_for_once_and_rejected(faulty):
    system = fsspec.filesystem("faulty")
    faulty.share = 0
    frame = photo_frame(20)
    for number in range(20):
        system.pipe_file(f"/in/{number}.jpg", PHOTOS[number % len(PHOTOS)].read_bytes())
    system.pipe_file("/in/forbidden.jpg", PHOTOS[0].read_bytes())
    frame["image_uri"] = [f"faulty://in/{number}.jpg" for number in range(19)] + [
        "faulty://in/forbidden.jpg"
    ]
    result = tfrecorder.convert(frame, "out")
    assert result.rejects == {"read/no_permission": 1}
    assert rejects("out").reason.tolist() == ["no_permission: not for you"]
    assert faulty.faults == 3000  # its size, the look before the launch, and the one read


@pytest.fixture
def faulty_reads(faulty, monkeypatch):
    """The store of `faulty`, where only reads of a part of a file fail: every third breaks off,
    every fifth is cut short, and the shards of `secret` are not to be read at all."""

    def cat_file(system, path, start=None, end=None, **more):
        data = MemoryFileSystem.cat_file(system, path, start=start, end=end, **more)
        if start is None:
            return data
        FaultyFileSystem.faults += 1
        if "secret/train" in path:
            raise PermissionError("not for you")
        if FaultyFileSystem.faults % 3 == 0:
            raise TimeoutError("the store is busy")
        return data[: len(data) // 2] if FaultyFileSystem.faults % 5 == 0 else data

    monkeypatch.setattr(faulty, "share", 0)
    monkeypatch.setattr(faulty, "cat_file", cat_file)
    return fsspec.filesystem("faulty")


@pytest.mark.slow
def test_a_dataset_whose_reads_fail_in_passing_gives_its_frame_and_else_one_clear_error(
    faulty_reads,
):
    frame = photo_frame(30)
    for name in ("out", "secret"):
        tfrecorder.convert(frame, f"faulty://{name}", num_shards=2)
    back = given_again("faulty://out").sort_index()
    pd.testing.assert_frame_equal(back, frame, check_dtype=False)
    shard = "faulty://secret/train-00000.tfrecord"
    with pytest.raises(DatasetError, match=rf"^{shard} cannot be read: not for you\.$"):
        tfrecorder.to_frame("faulty://secret")


def test_a_folder_that_may_not_be_listed_is_told_once(faulty, monkeypatch):
    def refuse(*given, **more):
        raise PermissionError("not for you")

    faulty.share = 0
    monkeypatch.setattr(faulty, "ls", refuse)
    monkeypatch.setattr(faulty, "isdir", refuse)
    words = "cannot be read: not for you."
    assert error_of(OutputError, CSV, "faulty://out") == f"faulty://out {words}"
    assert error_of(SourceError, "faulty://in") == f"faulty://in {words}"


def test_where_nothing_is_replaced_conditionally_a_dataset_does_not_grow():
    tfrecorder.convert(photo_frame(3), "memory://out")
    before = storage.sizes("memory://out")
    grow = {
        "append": lambda: tfrecorder.append(photo_frame(5), "memory://out"),
        "stage": lambda: tfrecorder.append(photo_frame(5), "memory://out", stage_only=True),
    }
    for begin in grow.values():
        with pytest.raises(OutputError) as caught:
            begin()
        words = str(caught.value)
        assert words.startswith("memory://out cannot be added to: memory:// cannot replace")
        assert words.endswith("or keep the dataset on a disk, gs://, s3:// or az://.")
        assert "\n" not in words
        assert storage.sizes("memory://out") == before
        with pytest.raises(DatasetError, match="which is not taken back"):
            tfrecorder.undo("memory://out")


def test_what_may_not_be_looked_at_is_not_taken_for_missing(plain_user):
    tfrecorder.convert(photo_frame(3), "locked/out")
    Path("locked/data.csv").write_text("image_uri\na.jpg\n")
    assert storage.size("locked/data.csv") == 16
    assert storage.size("locked") is storage.size("locked/none") is storage.size("x" * 300) is None
    os.chmod("locked", 0)
    words = "cannot be read: Permission denied"
    with plain_user():
        with pytest.raises(storage.UnreadableError, match=r"^Permission denied$"):
            storage.size("locked/data.csv")
        with pytest.raises(DatasetError, match=rf"^locked/out {words}\.$"):
            tfrecorder.verify("locked/out")
        for act in (tfrecorder.validate, tfrecorder.infer_schema):
            with pytest.raises(SourceError, match=rf"^\S*locked/data\.csv {words}\.$"):
                act("locked/data.csv")


def test_a_dataset_that_may_not_be_listed_is_one_clear_error(plain_user):
    tfrecorder.convert(photo_frame(3), "out")
    looks = (tfrecorder.verify, tfrecorder.repair, tfrecorder.info, tfrecorder.to_frame)
    for look in looks:  # which imports what they need
        look("out")
    os.chmod("out", 0o311)
    with plain_user():
        for look in looks:
            with pytest.raises(DatasetError, match=r"^out cannot be read: Permission denied\.$"):
                look("out")
        with pytest.raises(OutputError, match=r"/out cannot be written: Permission denied\. Ask"):
            tfrecorder.convert(photo_frame(3), "out", overwrite=True)


def test_a_folder_that_may_be_listed_but_not_entered_is_one_clear_error(plain_user):
    Path("in/deep").mkdir(parents=True)
    Path("in/a").write_text("a")
    looks = (storage.names, storage.sizes, storage.descriptions)
    assert [[*look("in")] for look in looks[:2]] == [["a", "deep"]] * 2
    os.chmod("in", 0o444)
    with plain_user():
        for look in looks:
            with pytest.raises(storage.UnreadableError, match=r"^in cannot be read: Permission"):
                look("in")


def test_a_store_that_is_away_ends_in_a_bounded_time_with_its_words(faulty, monkeypatch):
    shorten_patience(monkeypatch)
    faulty.share = 1
    frame = photo_frame(12)
    frame["image_uri"] = [f"faulty://in/{number}.jpg" for number in range(12)]
    words = error_of(ImagesUnreachableError, frame)
    assert "could not be reached for" in words
    assert "the store is busy. Nothing was written." in words
    assert not Path("out").exists() or not list(Path("out").glob("*.tfrecord"))


@pytest.mark.parametrize(
    ("uri", "remedy"),
    [
        ("ftp://example.com/a.jpg", "put the files on a disk or into a bucket first"),
        ("nowhere://a/b.jpg", "there is no such storage"),
        ("oci://bucket/a.jpg", "Install ocifs"),
        ("oss://box/a.jpg", "Install ossfs"),
    ],
)
def test_a_scheme_that_cannot_be_read_is_named_with_its_remedy(uri, remedy):
    report = tfrecorder.validate(photo_frame(3).assign(image_uri=[uri, str(PHOTOS[0]), uri]))
    found = report[report.code == "unsupported_scheme"]
    assert found.row.tolist() == [0, 2]
    assert remedy in found.message.iloc[0]
    folder = uri.rpartition("/")[0]
    assert remedy in error_of(OptionError, CSV, folder)
    assert remedy in error_of(SourceError, folder)


def test_file_uris_are_local_paths(tmp_path):
    odd = tmp_path / "a b%.jpg"
    odd.write_bytes(PHOTOS[0].read_bytes())
    frame = photo_frame(1).assign(image_uri=odd.as_uri())
    assert tfrecorder.convert(frame, "out").records == 1


def test_paths_are_resolved_by_their_scheme():
    assert storage.resolve("s3://b/a.jpg", "/x") == "s3://b/a.jpg"
    assert storage.parent("gs://bucket/in/data.csv") == "gs://bucket/in"
    assert storage.absolute("gs://bucket/out/") == "gs://bucket/out"


@pytest.mark.slow
@pytest.mark.parametrize("nowhere", ["gs://", "gs:///"])
def test_a_uri_without_a_bucket_is_no_folder_here(nowhere, tmp_path, monkeypatch):
    """What the shell makes of gs://$BUCKET where the variable is not set."""
    monkeypatch.chdir(tmp_path)
    assert "names no bucket" in error_of(OutputError, CSV, nowhere)
    assert "names no bucket" in error_of(SourceError, nowhere)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_command_line_says_in_one_line_what_to_install(tmp_path):
    finished = run("-m", "tfrecorder", "convert", CSV, "oci://bucket/out")
    assert finished.returncode == 2
    assert "Install ocifs" in finished.stderr
    assert finished.stderr.count("\n") == 1


# ------------------------------------------------------------------------------------- power cuts

in_power_cuts = pytest.mark.skipif(strace() is None, reason="strace is not installed")


def filled(folder: Path) -> Path:
    disk = folder / "disk"
    disk.mkdir()
    disk.joinpath("old").write_bytes(b"old")
    return disk


def left(recording: Recording, *cuts_and_kept: Any, **more: Any) -> list[dict[str, bytes]]:
    """The files that power cuts leave."""
    return [contents(path) for _, path in recording.states(Path("after"), *cuts_and_kept, **more)]


PUBLISH = """
import sys
from helpers.power_cut import mark
from tfrecorder import storage

out = sys.argv[1] + "/made/out"
storage.publish_bytes(out, "a", b"new" * 1000)
storage.publish_bytes(out, "b/c", b"other")
"""
SYNC = """
storage.sync(out, ["a", "b/c"])
mark("synced")
storage.publish_bytes(out, "a", b"last")
"""
WHOLE = {"old": b"old", "made/out/a": b"new" * 1000, "made/out/b/c": b"other"}


@pytest.mark.slow
@in_power_cuts
def test_what_was_synced_survives_a_power_cut(tmp_path: Path) -> None:
    disk = filled(tmp_path)
    recording = recorded(PUBLISH + SYNC, disk, str(disk))
    synced = recording.marks["synced"]
    assert left(recording, [0]) == [{"old": b"old"}]
    after = left(recording, range(synced, len(recording.calls) + 1), range(20))
    emptied, last = WHOLE | {"made/out/a": b""}, WHOLE | {"made/out/a": b"last"}
    assert len(after) > 3
    assert all(state in (WHOLE, emptied, last) for state in after)
    for state in left(recording, [synced], ["none", "names", "all"]):
        assert state == WHOLE
    assert left(recording, unsynced=["all"])[-1] == contents(disk) == last


@pytest.mark.slow
@in_power_cuts
def test_what_was_not_synced_is_lost_in_one(tmp_path: Path) -> None:
    disk = filled(tmp_path)
    recording = recorded(PUBLISH, disk, str(disk))
    end = [len(recording.calls)]
    assert left(recording, end, ["none"]) == [{"old": b"old"}]
    empty = {"old": b"old", "made/out/a": b"", "made/out/b/c": b""}
    assert left(recording, end, ["names"]) == [empty]
    assert left(recording, end, ["all"]) == [WHOLE]


@pytest.mark.parametrize("system", ["Linux", "refuses", "has no such call"])
def test_a_file_is_on_its_way_to_the_disk_in_whole_pieces_each_once(
    system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A piece that is named twice could leave the page cache, and be read again from the disk."""
    ranges = []

    def advise(file: int, begin: int, size: int, advice: int) -> None:
        ranges.append((begin, begin + size))
        if system == "refuses":
            raise OSError
        given(file, begin, size, advice)

    given = getattr(os, "posix_fadvise", None)
    monkeypatch.setattr(os, "posix_fadvise", advise, raising=False)
    if system == "has no such call":
        monkeypatch.delattr(os, "posix_fadvise")
    data = random.Random(3).randbytes(11 * 2**20)
    cuts = [0, 1, 5, 2**22 - 1, 2**22, 2**22 + 3, 2**23 + 2**20, len(data)]
    parts = [data[begin:end] for begin, end in itertools.pairwise(cuts)]
    with storage.publish(str(tmp_path), "file") as file:
        for at in range(0, len(parts), 2):
            storage.write_all(file, *parts[at : at + 2])
    assert (tmp_path / "file").read_bytes() == data
    assert ranges == ([] if system == "has no such call" else [(0, 2**22), (2**22, 2**23)])
