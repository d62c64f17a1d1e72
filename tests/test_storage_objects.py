"""Files on s3:// and az:// by obstore, against moto and Azurite on loopback."""

from __future__ import annotations

import multiprocessing
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from objects import PAGE
from objects.control import S3
from support import end_by_ctrl_c, run, shorten_patience, shorten_pauses, start, wait_for

from tfrecorder import UnreachableError, storage
from tfrecorder.storage import files, object_store

pytest_plugins = ["objects.fixtures"]

#: Names that are written otherwise in a request.
ODD = ["plain", "two words", "50%", "a%20b", "grün", "a#b?c=d&e", "1+1", "~x", "'q'", "[1]", "日本"]


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What may pass is asked for again at once; whose machine this is does not matter."""
    shorten_pauses(monkeypatch)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    for name in ("AWS_PROFILE", "AWS_DEFAULT_REGION", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(params=["s3", "azure"])
def place(request: pytest.FixtureRequest) -> str:
    """The uri of an empty bucket or container."""
    server = request.getfixturevalue(request.param)
    return "s3://bkt" if request.param == "s3" else server


# --------------------------------------------------------------------------------- what it can do


@pytest.mark.slow
def test_a_file_is_written_described_and_read(place: str) -> None:
    storage.publish_bytes(f"{place}/a", "b/c", b"0123456789")
    path = f"{place}/a/b/c"
    assert storage.read_bytes(path) == b"0123456789"
    assert storage.size(path) == 10
    assert storage.crc32c_or_none(path) is None
    assert storage.sums(path) == (10, 0x280C069E)
    with storage.open_seekable(path) as file:
        file.seek(-3, os.SEEK_END)
        assert file.read() == b"789"
    with storage.local_copy(path) as copy:
        assert Path(copy).read_bytes() == b"0123456789"
    assert storage.size_or_none(f"{place}/none") is None
    assert storage.version(f"{place}/none") is None
    assert storage.size_or_none(f"{place}/a/b") is None, "a folder is no file"
    with pytest.raises(storage.UnreadableError) as caught:
        storage.read_bytes(f"{place}/none")
    assert caught.value.code == "not_found"


def test_a_file_without_bytes(place: str) -> None:
    storage.publish_bytes(place, "empty", b"")
    assert storage.read_bytes(f"{place}/empty") == b""
    with storage.open_seekable(f"{place}/empty") as file:
        assert file.read() == b""


def test_folders_are_listed(place: str) -> None:
    for name in ("in/a.jpg", "in/b.jpg", "in/deep/er/c.jpg", "inside.jpg"):
        storage.publish_bytes(place, name, name.encode())
    assert storage.sizes(f"{place}/in") == {"a.jpg": 8, "b.jpg": 8, "deep": None}
    assert set(storage.sizes(place)) >= {"in", "inside.jpg"}
    assert storage.files_below(f"{place}/in") == ["a.jpg", "b.jpg", "deep/er/c.jpg"]
    assert {name: one.size for name, one in storage.descriptions(f"{place}/in").items()} == {
        "a.jpg": 8,
        "b.jpg": 8,
    }
    assert storage.is_folder(f"{place}/in/deep")
    assert not storage.is_folder(f"{place}/ins")
    assert storage.exists(f"{place}/in/a.jpg")
    assert storage.exists(f"{place}/in")
    assert storage.sizes(f"{place}/none") == {}
    assert storage.files_below(f"{place}/none") == []


def test_more_files_than_an_answer_names(s3: S3) -> None:
    names = [f"{number:03}" for number in range(2 * PAGE + 3)]
    storage.each(lambda name: storage.publish_bytes("s3://bkt/many", name, b"x"), names, "s3://bkt")
    assert storage.files_below("s3://bkt/many") == names
    assert storage.names("s3://bkt/many") == names
    storage.remove("s3://bkt", "many")
    assert storage.names("s3://bkt/many") == []


@pytest.mark.parametrize("name", ODD)
def test_any_name_comes_back(place: str, name: str) -> None:
    storage.publish_bytes(place, f"in/{name}/{name}.jpg", name.encode())
    assert storage.read_bytes(f"{place}/in/{name}/{name}.jpg") == name.encode()
    assert storage.files_below(f"{place}/in") == [f"{name}/{name}.jpg"]
    assert storage.names(f"{place}/in/{name}") == [f"{name}.jpg"]
    storage.move(f"{place}/in", f"{name}/{name}.jpg", f"{name}.png")
    storage.remove(f"{place}/in", f"{name}.png")
    assert storage.names(f"{place}/in") == []


def test_the_empty_objects_that_stand_for_folders_are_no_files(s3: S3) -> None:
    for name in ("in/", "in/cats/", "in/cats/1.jpg", "in/empty"):
        s3.put(f"s3://bkt/{name}", b"x" if name.endswith("jpg") else b"")
    assert storage.files_below("s3://bkt/in") == ["cats/1.jpg", "empty"]
    assert storage.sizes("s3://bkt/in") == {"cats": None, "empty": 0}


def test_a_folder_is_removed_with_all_in_it_and_no_other(place: str) -> None:
    for name in ("out", "out/a", "out/b/c", "outer"):
        storage.publish_bytes(place, name, b"x")
    storage.remove(place, "out")
    storage.remove(place, "out")
    assert storage.names(place)[-1:] == ["outer"]
    assert not storage.exists(f"{place}/out")


def test_a_file_is_moved_once_however_often_it_is_asked_for(place: str) -> None:
    storage.publish_bytes(place, "from/here", b"new")
    storage.publish_bytes(place, "to/there", b"old")
    for _ in range(2):
        storage.move(place, "from/here", "to/there")
        assert storage.read_bytes(f"{place}/to/there") == b"new"
        assert not storage.exists(f"{place}/from/here")
    with pytest.raises(OSError):
        storage.move(place, "from/here", "to/nowhere")


def test_what_is_written_again_has_another_version(place: str) -> None:
    storage.publish_bytes(place, "a", b"first")
    before = storage.version(f"{place}/a")
    assert storage.version(f"{place}/a") == before
    storage.publish_bytes(place, "a", b"other")
    assert storage.version(f"{place}/a") != before


def test_no_two_versions_of_a_file_are_mixed(place: str) -> None:
    storage.publish_bytes(place, "a", bytes(600_000))
    with storage.open_seekable(f"{place}/a") as file:
        file.read(10)
        storage.publish_bytes(place, "a", b"x" * 600_000)
        file.seek(500_000)
        with pytest.raises(storage.UnreadableError, match="replaced while it was read"):
            file.read()


def test_a_file_of_several_parts(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "_AT_ONCE", 2**20)
    data = os.urandom(20_000_000)
    storage.publish_bytes("s3://bkt", "large", data)
    assert s3.count("PUT", "/bkt/large") == 3
    assert s3.get("s3://bkt/large") == data


# ------------------------------------------------------------------------ only where nothing stands


def test_what_stands_already_stays(place: str) -> None:
    assert storage.publish_new(place, "note", b"first")
    assert not storage.publish_new(place, "note", b"second")
    assert storage.read_bytes(f"{place}/note") == b"first"
    assert storage.publish_new(place, "note", b"first"), "of the same words both were first"


def test_a_file_is_replaced_only_over_the_one_that_was_seen(place: str) -> None:
    first = storage.publish_over(place, "note", b"first", "")
    found = storage.describe(f"{place}/note")
    assert found is not None
    assert found.version == first != ""
    second = storage.publish_over(place, "note", b"second", first)
    with pytest.raises(storage.OtherStandsError):
        storage.publish_over(place, "note", b"third", first)
    storage.remove(place, "note")
    with pytest.raises(storage.OtherStandsError):
        storage.publish_over(place, "note", b"third", second)


def test_of_several_at_once_one_was_first(place: str) -> None:
    notes = [f"of {number}".encode() for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        first = list(pool.map(lambda note: storage.publish_new(place, "note", note), notes))
    assert first.count(True) == 1
    assert storage.read_bytes(f"{place}/note") == notes[first.index(True)]


def test_an_answer_that_is_lost_makes_nobody_else_the_first(s3: S3) -> None:
    s3.inject("status", method="PUT", after=True, times=1)
    assert storage.publish_new("s3://bkt/a", "note", b"first")
    assert s3.count("PUT", "/bkt/a/note") == 2


def test_a_server_that_knows_no_conditions_can_be_used_without(
    s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.refuse(501, "NotImplemented", method="PUT", times=1)
    with pytest.raises(OSError, match="set AWS_CONDITIONAL_PUT=disabled"):
        storage.publish_new("s3://bkt", "note", b"first")
    monkeypatch.setenv("AWS_CONDITIONAL_PUT", "disabled")
    assert storage.publish_new("s3://bkt", "note", b"first")
    assert not storage.publish_new("s3://bkt", "note", b"second")
    found = storage.describe("s3://bkt/note")
    assert found is not None
    assert found.version == ""


class Holder:
    """A claim that is taken once it is asked for."""

    def __init__(self) -> None:
        self.held = False

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
    assert claim.held
    assert storage.read_bytes(f"{place}/shard") == b"second"


# --------------------------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "status", "status": 503},
        {"kind": "status", "status": 500},
        {"kind": "status", "status": 429},
        {"kind": "drop"},
    ],
)
def test_what_may_pass_is_waited_for(s3: S3, fault: dict[str, Any]) -> None:
    s3.put("s3://bkt/a", b"data")
    asks = {
        "GET": lambda: storage.read_bytes("s3://bkt/a"),
        "HEAD": lambda: storage.size("s3://bkt/a"),
        "PUT": lambda: storage.publish_bytes("s3://bkt", "b", b"data"),
        "POST|DELETE": lambda: storage.remove("s3://bkt", "b"),
    }
    for method, ask in asks.items():
        s3.inject(**fault, method=method, times=2)
        ask()
    assert s3.names("s3://bkt/") == ["a"]


def test_a_body_of_errors_under_a_good_status(s3: S3) -> None:
    s3.put("s3://bkt/a/from", b"data")
    s3.refuse(200, "InternalError", method="PUT", path="*/to", times=1)
    storage.move("s3://bkt/a", "from", "to")
    assert s3.names("s3://bkt/") == ["a/to"]


def test_a_server_that_is_away_is_named(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_patience(monkeypatch)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(UnreachableError, match=r"s3://bkt/a could not .*Connection refused"):
        storage.read_bytes("s3://bkt/a")


@pytest.mark.parametrize(
    ("status", "code", "kind", "words"),
    [
        (403, "AccessDenied", "no_permission", "403 AccessDenied: Injected"),
        (
            403,
            "InvalidAccessKeyId",
            "no_credentials",
            "are refused: set AWS_PROFILE, or AWS_ACCESS_KEY_ID.*403 Inv",
        ),
        (403, "SignatureDoesNotMatch", "no_credentials", "AWS_SECRET_ACCESS_KEY"),
        (400, "ExpiredToken", "no_credentials", "400 ExpiredToken"),
        (400, "AuthorizationHeaderMalformed", "wrong_setup", "set AWS_REGION to the region"),
        (301, "PermanentRedirect", "wrong_setup", "set AWS_REGION to the region"),
        (400, "InvalidRequest", "read_failed", "400 InvalidRequest: Injected"),
    ],
)
def test_a_refusal_is_not_tried_again(
    s3: S3, status: int, code: str, kind: str, words: str
) -> None:
    s3.refuse(status, code, method="GET|PUT")
    with pytest.raises(storage.UnreadableError, match=words) as caught:
        storage.read_bytes("s3://bkt/a")
    assert caught.value.code == kind
    assert s3.count("GET", "/bkt/a") == 1
    with pytest.raises(OSError, match=words):
        storage.publish_bytes("s3://bkt", "a", b"")


def test_a_bucket_that_is_not_there(s3: S3) -> None:
    with pytest.raises(storage.UnreadableError, match="NoSuchBucket"):
        storage.read_bytes("s3://nowhere/a")


@pytest.mark.parametrize("path", ["s3://", "s3:///a", "az://"])
def test_a_path_without_a_bucket(path: str) -> None:
    with pytest.raises(storage.UnreadableError, match="names no bucket"):
        storage.read_bytes(path)


# ------------------------------------------------------------------------------------ in whose name


def signers(s3: S3) -> set[str]:
    """The access keys that requests were signed with; "" for none."""
    return {signed.partition("Credential=")[2].partition("/")[0] for *_, signed in s3.requests()}


def test_credentials_come_from_the_environment(s3: S3) -> None:
    s3.put("s3://bkt/a", b"data")
    s3.forget_requests()
    storage.read_bytes("s3://bkt/a")
    assert signers(s3) == {"loopback"}


def test_credentials_come_from_a_profile(
    s3: S3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    s3.put("s3://bkt/a", b"data")
    s3.forget_requests()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.delenv(name)
    keys = "aws_access_key_id = of-profile\naws_secret_access_key = secret\nregion = eu-west-1\n"
    tmp_path.joinpath("config").write_text(f"[profile mine]\n{keys}")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_PROFILE", "mine")
    assert storage.read_bytes("s3://bkt/a") == b"data"
    assert signers(s3) == {"of-profile"}
    assert any("/eu-west-1/s3/" in signed for *_, signed in s3.requests())


def test_a_profile_that_is_not_there_is_named(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(storage.UnreadableError, match=r"set AWS_PROFILE.*nobody"):
        storage.read_bytes("s3://bkt/a")


def test_without_credentials_what_is_public_is_read(
    s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.put("s3://bkt/a", b"data", public=True)
    s3.put("s3://bkt/b", b"data")
    s3.forget_requests()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    assert storage.read_bytes("s3://bkt/a") == b"data"
    assert signers(s3) == {""}
    with pytest.raises(storage.UnreadableError, match="no AWS credentials: set AWS_PROFILE"):
        storage.read_bytes("s3://bkt/b")
    s3.refuse(403, "AccessDenied", method="PUT")
    with pytest.raises(OSError, match="no AWS credentials: set AWS_PROFILE"):
        storage.publish_bytes("s3://bkt", "b", b"")


def test_azure_without_an_account_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("AZURE_"):
            monkeypatch.delenv(name)
    files._remote_store.cache_clear()
    with pytest.raises(storage.UnreadableError, match=r"[Aa]ccount") as caught:
        storage.read_bytes("az://box/a")
    assert caught.value.code == "wrong_setup"


# -------------------------------------------------------------------------------- other processes


def _length(path: str) -> int:
    return len(storage.read_bytes(path))


def _in_a_fork(path: str) -> str:
    """What a forked process has to say of a file."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(60)
        try:
            words = str(_length(path))
        except storage.UnreadableError as error:
            words = f"{error.code}: {error}"
        os.write(writer, words.encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as pipe:
        words = pipe.read()
    os.waitpid(child, 0)
    return words


@pytest.mark.slow
def test_a_fork_of_a_process_that_has_read_refuses_at_once(s3: S3) -> None:
    """It would wait for ever: the threads behind obstore are those of the other process."""
    s3.put("s3://bkt/a", b"data")
    code = (
        "import sys; sys.path[:0] = sys.argv[1:2]\n"
        "from test_storage_objects import _in_a_fork, _length\n"
        "print(_in_a_fork('s3://bkt/a'))\n"
        "_length('s3://bkt/a')\n"
        "print(_in_a_fork('s3://bkt/a'))"
    )
    before, after = run("-c", code, Path(__file__).parent).stdout.splitlines()
    assert before == "4"
    assert after.startswith("wrong_setup: this process was forked")
    assert "'spawn'" in after


def test_ctrl_c_does_not_wait_for_a_server_that_stalls(s3: S3) -> None:
    s3.inject("stall", seconds=300, method="GET")
    process = start("from tfrecorder import storage; storage.read_bytes('s3://bkt/a')")
    wait_for(lambda: s3.count("GET"))
    assert "KeyboardInterrupt" in end_by_ctrl_c(process)


def test_spawned_processes_read(s3: S3) -> None:
    s3.put("s3://bkt/a", b"data")
    assert _length("s3://bkt/a") == 4
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(_length, ["s3://bkt/a"] * 2) == [4, 4]


def test_what_is_missing_is_named_with_the_command_that_installs_it() -> None:
    code = (
        "import sys; sys.modules['obstore'] = None\n"
        "from tfrecorder import storage\n"
        "print(storage.refusal('s3')); print(storage.refusal('abfss'))"
    )
    found = run("-c", code).stdout.splitlines()
    assert found[0].startswith("run `pip install obstore")
    assert found[1] == "run `pip install obstore`"


def test_nothing_of_obstore_is_loaded_without_need() -> None:
    code = "import sys, tfrecorder.storage; print('obstore' in sys.modules)"
    assert run("-c", code).stdout.strip() == "False"
