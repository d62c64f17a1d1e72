"""An inner law: what every store can do and how it fails; what only one can do is in its own file.

The tests are in the order of the methods of `tfrecorder.storage.store.Store`.
"""

from __future__ import annotations

import errno
import os
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from services.gcs.server import PAGE as GATEWAY
from services.objects import PAGE
from support import patience, shorten_patience, shorten_pauses

from tfrecorder import storage
from tfrecorder.errors import UnreachableError

pytest_plugins = ["services.gcs.fixtures", "services.objects.fixtures"]

#: Those that know the version of a file, and write over that one alone.
VERSIONED = ("gs", "s3", "azure")

#: Those that fail on demand, and for good or in passing.
FAULTY = ("disk", "gs", "s3", "memory")

#: Those of gs:// that fail; Google's client asks for the bucket besides, in a thread.
OPERATIONS = "download|metadata|list|upload|start|piece|copy|delete"

#: The ways to fail that are not a status, as the two servers know them.
FAULTS: dict[str, dict[object, dict[str, Any]]] = {
    "gs": {
        "drop": {"kind": "reset"},
        "lost": {"kind": "reset", "after": True},
        "page": {"kind": "page"},
        "empty": {"kind": "empty"},
    },
    "s3": {
        "drop": {"kind": "drop"},
        "lost": {"kind": "status", "after": True},
        "page": {"kind": "status", "status": 200, "body": GATEWAY.decode()},
        "empty": {"kind": "status", "status": 200},
    },
}
in_versions = pytest.mark.parametrize("place", VERSIONED, indirect=True)

#: Names that are written otherwise in a request, or that stand for others in a pattern.
ODD = ["plain", "two words", "50%", "a%20b", "grün", "a#b?c=d&e", "1+1", "~x", "'q'", "[1]", "日本"]
ODD += ["*"]


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What may pass is asked for again at once."""
    shorten_pauses(monkeypatch)


@pytest.fixture(params=["disk", *VERSIONED, "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The uri of an empty folder in a store."""
    match request.param:
        case "disk":
            return str(tmp_path / "disk")
        case "azure":
            return request.getfixturevalue("azure")
        case "memory":
            system = fsspec.filesystem("memory")
            system.store.clear()
            system.pseudo_dirs[:] = [""]
            return "memory://place"
    request.getfixturevalue("gcs" if request.param == "gs" else "s3")
    return f"{request.param}://bkt"


@pytest.fixture
def server(place: str, request: pytest.FixtureRequest) -> Any:
    """The server behind gs:// or s3://, with its own objects and faults."""
    return request.getfixturevalue("gcs" if storage.scheme(place) == "gs" else "s3")


Fail = Callable[..., None]


@pytest.fixture
def fail(place: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Fail:
    """A function that lets the next requests fail in one of these ways, in place of an earlier one.

    With a status (403 is no permission, others may pass), without an answer ("drop"), with that of
    a gateway ("page", "empty"), or so that the request is done and its answer is "lost".
    """
    kind = storage.scheme(place)
    if kind in FAULTS:
        server = request.getfixturevalue("server")

        def fail_there(times: int | None = None, how: object = 503) -> None:
            server.mend()
            matching = {"operation": OPERATIONS} if kind == "gs" else {}
            if kind == "s3" and how in ("page", "empty"):
                matching = {"path": "/bkt/?*"}  # to obstore a page is an empty listing
            fault = FAULTS[kind].get(how, {"kind": "status", "status": how})
            server.inject(times=times, **fault, **matching)

        return fail_there
    errors: list[Exception] = []
    owner: Any = MemoryFileSystem if kind else os

    def failing(ask: Callable[..., Any]) -> Callable[..., Any]:
        def ask_or_fail(*given: Any, **more: Any) -> Any:
            if errors:
                raise errors.pop()
            return ask(*given, **more)

        return ask_or_fail

    names = ("cat_file", "cp_file", "put_file", "info", "ls", "find", "isdir", "rm", "rm_file")
    for name in names if kind else ("open", "stat", "scandir", "unlink", "replace"):
        monkeypatch.setattr(owner, name, failing(getattr(owner, name)))

    def fail_here(times: int | None = None, how: object = 503) -> None:
        code = errno.EACCES if how == 403 else errno.EIO
        errors[:] = [OSError(code, os.strerror(code))] * (10**6 if times is None else times)

    return fail_here


def fill(place: str, *names: str) -> None:
    """Files that hold their own names."""
    for name in names:
        storage.publish_bytes(place, name, name.encode())


# ---------------------------------------------------------------------------------------- reading


def test_a_file_is_written_described_and_read(place: str) -> None:
    storage.publish_bytes(f"{place}/a", "b/c", b"0123456789")
    path = f"{place}/a/b/c"
    assert storage.read_bytes(path) == b"0123456789"
    assert storage.size(path) == storage.size_or_none(path) == 10
    assert storage.sums(path) == (10, 0x280C069E)
    description = storage.describe(path)
    assert description is not None
    assert description.size == 10
    assert description.crc32c == (0x280C069E if storage.scheme(path) == "gs" else None)
    with storage.local_copy(path) as copy:
        assert Path(copy).read_bytes() == b"0123456789"
    assert Path(copy).exists() == storage.is_local(path), "a temporary copy is removed"


def test_a_file_without_bytes(place: str) -> None:
    storage.publish_bytes(place, "empty", b"")
    assert storage.read_bytes(f"{place}/empty") == b""
    with storage.open_seekable(f"{place}/empty") as file:
        assert file.read() == b""


@pytest.mark.slow
def test_an_open_file_is_read_from_anywhere(place: str) -> None:
    data = os.urandom(3_000_000)
    storage.publish_bytes(place, "a", data)
    with storage.open_seekable(f"{place}/a") as file:
        assert file.read(1_000_000) == data[:1_000_000]
        assert file.seek(-5, os.SEEK_END) == len(data) - 5
        assert file.read() == data[-5:]
        assert file.read() == b""
        assert file.seek(7) == file.tell() == 7
        assert file.read() == data[7:]


@pytest.mark.parametrize("place", ["disk", *VERSIONED], indirect=True)
def test_no_two_versions_of_a_file_are_mixed(place: str) -> None:
    storage.publish_bytes(place, "a", bytes(600_000))
    with storage.open_seekable(f"{place}/a") as file:
        file.read(10)
        storage.publish_bytes(place, "a", b"x" * 600_000)
        file.seek(500_000)
        if storage.is_local(place):
            assert file.read() == bytes(100_000), "it is still open"
            return
        with pytest.raises(storage.UnreadableError, match=r"replaced while it was read|No such"):
            file.read()


def test_a_file_and_its_version_belong_together(place: str) -> None:
    storage.publish_bytes(place, "a", b"0")
    versions: dict[str, bytes] = {}
    data, version = b"", ""

    def replace() -> None:
        for number in range(1, 60):
            storage.publish_bytes(place, "a", b"%d" % number * 1000)

    with ThreadPoolExecutor(1) as pool:
        replacing = pool.submit(replace)
        while not replacing.done() or data != b"59" * 1000:
            data, version = storage.read_versioned(f"{place}/a")
            assert versions.setdefault(version, data) == data, "one version, other bytes"
            assert data == data[: len(data) // 1000 or 1] * 1000 or data == b"0"
    assert version == storage.version(f"{place}/a")
    if storage.scheme(place) not in ("", "memory"):
        assert storage.publish_over(place, "a", b"last", version)


def test_a_file_that_is_written_in_place_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(bytes(200_000))
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(lambda: [path.write_bytes(bytes([n]) * 200_000) for n in range(200)])
        while not writing.done():
            data, _ = storage.read_versioned(str(path))
            assert len(set(data)) <= 1
    assert storage.read_versioned(str(path)) == (b"\xc7" * 200_000, storage.version(str(path)))


#: Of a disk and fsspec's memory; on a bucket a folder is only a part of a name.
CODE_OF_FOLDER = ("a", "not_a_file")


def test_what_is_not_there(place: str) -> None:
    fill(place, "a/b")
    for name in ("none", "a", "a/none", "a/b/none"):  # a folder is no file
        path = f"{place}/{name}"
        assert storage.size(path) is storage.size_or_none(path) is None
        assert storage.describe(path) is None
        if name != "a":
            assert storage.version(path) is None
        for read in (storage.read_bytes, storage.read_versioned, storage.open_seekable):
            with pytest.raises(storage.UnreadableError) as caught:
                read(path)
            assert caught.value.code == "not_found" or (name, caught.value.code) == CODE_OF_FOLDER


def test_what_is_written_again_has_another_version(place: str) -> None:
    storage.publish_bytes(place, "a", b"first")
    before = storage.version(f"{place}/a")
    assert isinstance(before, str)
    assert storage.version(f"{place}/a") == before
    storage.publish_bytes(place, "a", b"other")
    assert storage.version(f"{place}/a") != before


# ---------------------------------------------------------------------------------------- listing


def test_folders_are_listed(place: str) -> None:
    fill(place, "in/b.jpg", "in/a.jpg", "in/deep/er/c.jpg", "inside.jpg")
    for folder in (f"{place}/in", f"{place}/in/"):
        assert storage.sizes(folder) == {"a.jpg": 8, "b.jpg": 8, "deep": None}
        assert storage.names(folder) == ["a.jpg", "b.jpg", "deep"]
        assert storage.files_below(folder) == ["a.jpg", "b.jpg", "deep/er/c.jpg"]
    assert {"in", "inside.jpg"} <= set(storage.sizes(place))
    descriptions = storage.descriptions(f"{place}/in")
    assert descriptions == {n: storage.describe(f"{place}/in/{n}") for n in ("a.jpg", "b.jpg")}
    assert storage.is_folder(f"{place}/in/deep")
    assert storage.exists(f"{place}/in/a.jpg")
    assert storage.exists(f"{place}/in")
    for none in (f"{place}/ins", f"{place}/none"):
        assert not storage.is_folder(none)
        assert not storage.exists(none)
        assert storage.sizes(none) == storage.descriptions(none) == {}
        assert storage.files_below(none) == []


def test_more_files_than_an_answer_names(place: str) -> None:
    names = [f"{number:03}" for number in range(2 * PAGE + 3)]
    storage.each(lambda name: storage.publish_bytes(place, f"many/{name}", b"x"), names, place)
    assert storage.files_below(f"{place}/many") == names
    assert storage.names(f"{place}/many") == names
    storage.remove(place, "many")
    assert storage.names(f"{place}/many") == []


def test_any_name_comes_back(place: str) -> None:
    names = [f"{name}/{name}.jpg" for name in ODD]
    fill(f"{place}/in", *names)
    assert set(storage.files_below(f"{place}/in")) - set(names) == set()
    for name, whole in zip(ODD, names, strict=True):
        assert storage.read_bytes(f"{place}/in/{whole}") == whole.encode()
        assert storage.names(f"{place}/in/{name}") == [f"{name}.jpg"]
        storage.move(f"{place}/in", whole, f"{name}.png")
        assert storage.read_bytes(f"{place}/in/{name}.png") == whole.encode()
    for left, name in enumerate(reversed(ODD), 1):
        storage.remove(f"{place}/in", f"{name}.png")
        assert len(storage.files_below(f"{place}/in")) == len(ODD) - left


# ---------------------------------------------------------------------------------------- writing


def test_a_file_appears_whole_or_not_at_all(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.joinpath("tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    storage.publish_bytes(place, "out/a", b"old")

    def write(fails: bool) -> None:
        with storage.publish(place, "out/a") as file:
            file.write(b"new")
            assert storage.sizes(f"{place}/out") == {"a": 3}
            assert storage.read_bytes(f"{place}/out/a") == b"old"
            if fails:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(fails=True)
    assert storage.read_bytes(f"{place}/out/a") == b"old"
    write(fails=False)
    assert storage.read_bytes(f"{place}/out/a") == b"new"
    assert [name for name in storage.files_below(place) if name != "out/a"] == []
    assert list(tmp_path.joinpath("tmp").iterdir()) == []


def test_what_stands_already_stays(place: str) -> None:
    assert storage.publish_new(place, "note", b"first")
    assert not storage.publish_new(place, "note", b"second")
    assert storage.read_bytes(f"{place}/note") == b"first"
    assert storage.publish_new(place, "note", b"first"), "of the same words both were first"
    assert storage.files_below(place) == ["note"]


@in_versions
def test_of_several_at_once_one_was_first(place: str) -> None:
    notes = [f"of {number}".encode() for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        first = list(pool.map(lambda note: storage.publish_new(place, "note", note), notes))
    assert first.count(True) == 1
    assert storage.read_bytes(f"{place}/note") == notes[first.index(True)]


def test_a_file_is_replaced_only_over_the_one_that_was_seen(place: str) -> None:
    first = storage.publish_over(place, "note", b"first", "")
    description = storage.describe(f"{place}/note")
    assert description is not None
    assert description.version == first
    second = storage.publish_over(place, "note", b"second", first)
    assert storage.read_bytes(f"{place}/note") == b"second"
    assert storage.replaces_conditionally(place) == (storage.scheme(place) != "memory")
    if storage.scheme(place) in ("", "memory"):
        assert first == second == "", "without versions, whatever is there is replaced"
        return
    assert "" != first != second
    with pytest.raises(storage.OtherStandsError):
        storage.publish_over(place, "note", b"third", first)
    storage.remove(place, "note")
    with pytest.raises(storage.OtherStandsError):
        storage.publish_over(place, "note", b"third", second)


@in_versions
def test_of_several_that_replace_one_version_one_does(place: str) -> None:
    version = storage.publish_over(place, "note", b"old", "")

    def replace(number: int) -> str:
        try:
            return storage.publish_over(place, "note", b"by %d" % number, version)
        except storage.OtherStandsError:
            return ""

    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(replace, range(8)))
    assert sum(map(bool, made)) == 1
    winner = max(made)
    assert storage.read_versioned(f"{place}/note") == (b"by %d" % made.index(winner), winner)


@pytest.mark.parametrize("place", ["gs", "s3"], indirect=True)
def test_a_replacement_whose_answer_was_lost_was_made(place: str, fail: Fail) -> None:
    version = storage.publish_over(place, "note", b"old", "")
    fail(times=2, how="lost")
    made = storage.publish_over(place, "note", b"new", version)
    assert storage.read_versioned(f"{place}/note") == (b"new", made)
    assert made != version


def test_what_stands_on_a_disk_is_replaced_by_a_rename(tmp_path: Path) -> None:
    storage.publish_over(str(tmp_path), "note", b"old", "")
    with open(tmp_path / "note", "rb") as before:
        storage.publish_over(str(tmp_path), "note", b"new", "")
        assert before.read() == b"old"
    assert tmp_path.joinpath("note").read_bytes() == b"new"


def cache_control(path: str) -> str | None:
    """What a bucket tells caches of an object."""
    import obstore
    from obstore.store import AzureStore, S3Store

    bucket, _, name = path.partition("://")[2].partition("/")
    if path.startswith("gs"):
        where = f"{os.environ['STORAGE_EMULATOR_HOST']}/{bucket}/{name}"
        with urllib.request.urlopen(where) as answer:
            return answer.headers["Cache-Control"]
    store = S3Store if path.startswith("s3") else AzureStore
    answer = obstore.get(store(bucket, client_options={"allow_http": True}), name)
    return str(answer.attributes.get("Cache-Control"))


@in_versions
def test_no_cache_keeps_what_may_be_replaced(place: str) -> None:
    storage.publish_bytes(place, "published", b"1")
    version = storage.publish_over(place, "over", b"1", "")
    storage.publish_over(place, "over", b"2", version)
    storage.publish_bytes(place, "large", bytes(20_000_000))
    storage.publish_bytes(place, "shard", b"1", Holder())
    storage.link(place, "over", "linked")
    storage.link(place, "shard", "shard2")
    for name in ("published", "over", "large", "linked"):
        assert cache_control(f"{place}/{name}") == "no-cache", name
    for name in ("shard", "shard2"):
        assert cache_control(f"{place}/{name}") != "no-cache"


class Holder:
    """A claim that is taken once it is asked for."""

    held = False

    def is_held(self) -> bool:
        return self.held

    def take(self) -> None:
        self.held = True


def test_other_bytes_are_replaced_only_by_who_holds_the_claim(place: str) -> None:
    storage.publish_bytes(place, "shard", b"first!")
    claim = Holder()
    storage.publish_bytes(place, "shard", b"first!", claim)
    assert not claim.held, "the same bytes need no claim"
    storage.publish_bytes(place, "shard", b"second", claim)
    assert claim.held == (storage.scheme(place) not in ("", "memory"))
    assert storage.read_bytes(f"{place}/shard") == b"second"


def test_a_folder_is_removed_with_all_in_it_and_no_other(place: str) -> None:
    fill(place, "out/a", "out/b/c", "outer")
    if storage.scheme(place) not in ("", "memory"):
        fill(place, "out")  # a folder and a file may have one name
    for _ in range(2):
        storage.remove(place, "out")
        assert storage.files_below(place) == ["outer"]
    assert not storage.exists(f"{place}/out")
    storage.remove_files(place, ["outer", "none"])
    assert storage.files_below(place) == []


def test_a_file_is_moved_once_however_often_it_is_asked_for(place: str) -> None:
    storage.publish_bytes(place, "from/here", b"new")
    storage.publish_bytes(place, "to/there", b"old")
    for _ in range(2):
        storage.move(place, "from/here", "to/there")
        assert storage.read_bytes(f"{place}/to/there") == b"new"
        assert not storage.exists(f"{place}/from/here")
    with pytest.raises(OSError):
        storage.move(place, "from/here", "to/nowhere")


def test_a_file_gets_a_second_name(place: str) -> None:
    storage.publish_bytes(place, "from/here", b"new")
    storage.publish_bytes(place, "to/there", b"old")
    for _ in range(2):
        storage.link(place, "from/here", "to/there")
        storage.link(place, "from/here", "from/here2")
    assert storage.files_below(place) == ["from/here", "from/here2", "to/there"]
    if storage.is_local(place):
        assert os.path.samefile(f"{place}/from/here", f"{place}/to/there")
    storage.publish_bytes(place, "from/here", b"newer")
    for name in ("from/here2", "to/there"):
        assert storage.read_bytes(f"{place}/{name}") == b"new"
    with pytest.raises(OSError):
        storage.link(place, "nowhere", "to/there")
    assert storage.read_bytes(f"{place}/to/there") == b"new"


def test_a_disk_without_links_gets_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    storage.publish_bytes(str(tmp_path), "a", b"data")
    storage.link(str(tmp_path), "a", "b")
    assert tmp_path.joinpath("b").read_bytes() == b"data"
    assert not os.path.samefile("a", "b")
    assert storage.files_below(str(tmp_path)) == ["a", "b"]


@pytest.mark.parametrize("place", ["gs", "s3"], indirect=True)
def test_a_bucket_copies_by_itself(place: str, server: Any) -> None:
    storage.publish_bytes(place, "a", bytes(1000))
    server.forget_requests()
    storage.link(place, "a", "b")
    asked = server.requests()
    assert not [one for one in asked if "GET" in one or "download" in one], asked


def test_what_is_synced_is_there(place: str) -> None:
    fill(place, "a", "b/c/d")
    storage.sync(place, ["a", "b/c/d"])
    storage.sync(place, [])
    if storage.is_local(place):
        with pytest.raises(OSError):
            storage.sync(place, ["none"])


def test_a_disk_that_lost_a_write_is_not_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def fail(descriptor: int) -> None:
        asked.append(descriptor)
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    fill(str(tmp_path), "a")
    with pytest.raises(OSError, match="Input/output"):
        storage.sync(str(tmp_path), ["a"])
    assert len(asked) == 1


@pytest.mark.parametrize("place", ["gs", "s3"], indirect=True)
def test_the_empty_objects_that_stand_for_folders_are_no_files(place: str, server: Any) -> None:
    for name in ("in/", "in/cats/", "in/cats/1.jpg", "in/empty"):
        server.put(f"{place}/{name}", b"x" if name.endswith("jpg") else b"")
    assert storage.files_below(f"{place}/in") == ["cats/1.jpg", "empty"]
    assert storage.sizes(f"{place}/in") == {"cats": None, "empty": 0}


# --------------------------------------------------------------------------------------- failures

#: What is asked of a store that holds "a/b".
READING: dict[str, Callable[[str], object]] = {
    "read": lambda place: storage.read_bytes(f"{place}/a/b"),
    "read_versioned": lambda place: storage.read_versioned(f"{place}/a/b")[0],
    "open": lambda place: storage.open_seekable(f"{place}/a/b").read(),
    "sums": lambda place: storage.sums(f"{place}/a/b"),
    "size": lambda place: storage.size(f"{place}/a/b"),
    "describe": lambda place: storage.describe(f"{place}/a/b") is None,
    "version": lambda place: storage.version(f"{place}/a/b") is None,
    "names": lambda place: storage.names(f"{place}/a"),
    "sizes": lambda place: storage.sizes(f"{place}/a"),
    "descriptions": lambda place: list(storage.descriptions(f"{place}/a")),
    "files_below": lambda place: storage.files_below(f"{place}/a"),
    "exists": lambda place: storage.exists(f"{place}/a/b"),
    "is_folder": lambda place: storage.is_folder(f"{place}/a"),
}
WRITING: dict[str, Callable[[str], object]] = {
    "publish": lambda place: storage.publish_bytes(place, "a/b", b"a/b"),
    "publish_new": lambda place: storage.publish_new(place, "a/b", b"a/b"),
    "publish_over": lambda place: storage.publish_over(place, "new", b"new", "") == "",
    "remove": lambda place: storage.remove(place, "a/b"),
    "move": lambda place: storage.move(place, "a/b", "c"),
    "link": lambda place: storage.link(place, "a/b", "c"),
}
REQUESTS = {**READING, **WRITING}

on_demand = pytest.mark.parametrize("place", FAULTY, indirect=True)


def outcome(place: str, name: str, fails: Callable[[], None]) -> tuple[object, list[str]]:
    """What a request gives that fails so, and what is in the store then."""
    storage.remove(place, "new")
    storage.remove(place, "c")
    fill(place, "a/b")
    fails()
    return REQUESTS[name](place), storage.files_below(place)


@pytest.mark.parametrize(
    ("place", "how"),
    [
        *(("disk", 503), ("memory", 503)),
        *((store, how) for store in ("gs", "s3") for how in (429, 500, 503, "drop", "lost")),
        *((store, how) for store in ("gs", "s3") for how in ("page", "empty")),
    ],
    indirect=["place"],
)
@pytest.mark.parametrize("name", REQUESTS)
def test_what_may_pass_is_waited_for(place: str, fail: Fail, name: str, how: object) -> None:
    if name == "remove" and how == "empty":
        pytest.skip("the answer to a removal is empty, if all is well")
    expected = outcome(place, name, lambda: None)
    assert outcome(place, name, lambda: fail(times=2, how=how)) == expected


@on_demand
@pytest.mark.parametrize("name", [*REQUESTS, "size_or_none"])
def test_what_does_not_pass_is_named(
    place: str, fail: Fail, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_patience(monkeypatch)
    fill(place, "a/b")
    fail()
    began = time.monotonic()
    request = REQUESTS.get(name, lambda place: storage.size_or_none(f"{place}/a/b"))
    words = rf"^{place}\S* could not be reached for \d+ s: "
    with pytest.raises(UnreachableError, match=words) as caught:
        request(place)
    assert time.monotonic() - began >= patience().seconds
    assert "http" not in str(caught.value), "the request's address helps nobody"


@on_demand
@pytest.mark.parametrize("name", REQUESTS)
def test_what_is_forbidden_is_asked_for_once(place: str, fail: Fail, name: str) -> None:
    fill(place, "a/b")
    fail(times=1, how=403)
    with pytest.raises(OSError if name in WRITING else storage.UnreadableError) as caught:
        REQUESTS[name](place)
    assert "http" not in str(caught.value)
    assert getattr(caught.value, "code", "no_permission") == "no_permission"
    REQUESTS[name](place)


@pytest.mark.slow
@on_demand
def test_retries_are_counted(place: str, fail: Fail, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(place, "a/b")
    retries: list[None] = []

    def read(path: str) -> bytes:
        return storage.read_source(path, storage.FoldersRead(), lambda: retries.append(None))[0]

    fail(times=3)
    assert read(f"{place}/a/b") == b"a/b"
    assert len(retries) == 3
    shorten_patience(monkeypatch, 0.5)
    fail()
    with pytest.raises(UnreachableError):
        read(f"{place}/a/b")
    assert len(retries) >= 3 + 5, "it is asked for six times at least"


@pytest.mark.parametrize("place", ["gs", "s3", "memory"], indirect=True)
def test_reads_of_an_open_file_that_fail_are_tried_again(
    place: str, fail: Fail, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = os.urandom(1_000_000)
    storage.publish_bytes(place, "a", data)
    with storage.open_seekable(f"{place}/a") as file:
        fail(times=2)
        assert file.read(1000) == data[:1000]
        shorten_patience(monkeypatch)
        fail()
        file.seek(-600_000, os.SEEK_END)
        with pytest.raises(UnreachableError, match=f"^{place}/a could not be reached"):
            file.read()
        fail(times=0)
        assert file.read() == data[-600_000:]


@in_versions
def test_a_bucket_that_is_not_there(place: str) -> None:
    nowhere = f"{storage.scheme(place)}://nowhere"
    assert storage.size(f"{nowhere}/a") is None
    with pytest.raises(storage.UnreadableError) as caught:
        storage.read_bytes(f"{nowhere}/a")
    assert caught.value.code == "not_found"
    with pytest.raises(OSError):
        storage.publish_bytes(nowhere, "a", b"")


@pytest.mark.parametrize("path", ["gs://", "gs:///a", "s3://", "s3:///a", "az://"])
def test_a_path_without_a_bucket(path: str) -> None:
    with pytest.raises(storage.UnreadableError, match="names no bucket") as caught:
        storage.read_bytes(path)
    assert caught.value.code == "bad_name"
