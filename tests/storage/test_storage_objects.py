"""Files on s3:// and az:// by obstore, against moto and Azurite on loopback.

The inner law: the contract of storage, where only s3:// and az:// do a thing in this way.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path

import pytest
from services.objects.control import S3
from support import (
    TESTS,
    end_by_ctrl_c,
    forget_services,
    run,
    shorten_patience,
    shorten_pauses,
    start,
    upload_in_parts,
    wait_for,
)

from tfrecorder import storage
from tfrecorder.errors import UnreachableError

pytest_plugins = ["services.objects.fixtures"]


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What may pass is asked for again at once; whose machine this is does not matter."""
    shorten_pauses(monkeypatch)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    for name in ("AWS_PROFILE", "AWS_DEFAULT_REGION", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)


# --------------------------------------------------------------------------------- what it can do


def test_a_file_of_several_parts(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    upload_in_parts(monkeypatch, 2**20)
    data = os.urandom(20_000_000)
    storage.publish_bytes("s3://bkt", "large", data)
    assert s3.count("PUT", "/bkt/large") == 3
    assert s3.get("s3://bkt/large") == data


# ------------------------------------------------------------------------ only where nothing stands


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


# --------------------------------------------------------------------------------- what goes wrong


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
    forget_services()
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
        "import sys; sys.path[:0] = sys.argv[1:]\n"
        "from test_storage_objects import _in_a_fork, _length\n"
        "print(_in_a_fork('s3://bkt/a'))\n"
        "_length('s3://bkt/a')\n"
        "print(_in_a_fork('s3://bkt/a'))"
    )
    before, after = run("-c", code, TESTS, Path(__file__).parent).stdout.splitlines()
    assert before == "4"
    assert after.startswith("wrong_setup: this process was forked")
    assert "'spawn'" in after


@pytest.mark.slow
def test_ctrl_c_does_not_wait_for_a_server_that_stalls(s3: S3) -> None:
    s3.inject("stall", seconds=300, method="GET")
    process = start("from tfrecorder import storage; storage.read_bytes('s3://bkt/a')")
    wait_for(lambda: s3.count("GET"))
    assert "KeyboardInterrupt" in end_by_ctrl_c(process)


@pytest.mark.slow
def test_spawned_processes_read(s3: S3) -> None:
    s3.put("s3://bkt/a", b"data")
    assert _length("s3://bkt/a") == 4
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(_length, ["s3://bkt/a"] * 2) == [4, 4]


@pytest.mark.slow
def test_what_is_missing_is_named_with_the_command_that_installs_it() -> None:
    code = (
        "import sys; sys.modules['obstore'] = None\n"
        "import tfrecorder\n"
        "for place in ('s3://bkt/a', 'abfss://bkt/a'):\n"
        "    try: tfrecorder.info(place)\n"
        "    except tfrecorder.errors.PackageError as error: print(error)"
    )
    found = run("-c", code).stdout.splitlines()
    command = 'obstore is needed for this but is not installed; run `pip install "tfrecorder-images'
    assert found == [f'{command}[{extra}]"`.' for extra in ("s3", "az")]


@pytest.mark.slow
def test_nothing_of_obstore_is_loaded_without_need() -> None:
    code = "import sys, tfrecorder.storage; print('obstore' in sys.modules)"
    assert run("-c", code).stdout.strip() == "False"
