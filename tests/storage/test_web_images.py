"""Images behind http(s) uris: what hostile servers answer, who may be asked, and signatures."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
from services.gcs.certificates import write_certificates
from support import (
    error_of,
    filenames,
    forget_services,
    invoke,
    limit_web_files,
    make_public,
    records,
    rejects,
    run,
    shorten_patience,
    shorten_pauses,
    start,
    stop,
    wait_for,
)
from web_server import RUDE, WebServer, picture, serving

import tfrecorder
from tfrecorder.errors import (
    ImagesUnreachableError,
    OptionError,
    RejectedError,
    SourceError,
    ValidationError,
)

AMAZON = (
    "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=SECRET%2Fs3&X-Amz-Date=2026"
    "&X-Amz-Expires=60&X-Amz-SignedHeaders=host&X-Amz-Signature=SECRET"
)
SIGNATURES = [
    AMAZON,
    AMAZON.replace("&", "&amp;"),
    "AWSAccessKeyId=SECRET&Expires=2026&Signature=SECRET",
    "X-Goog-Algorithm=A&X-Goog-Credential=SECRET&X-Goog-Signature=SECRET",
    "Expires=2026&KeyName=SECRET&Signature=SECRET",
    "sv=2024-11-04&se=2026-12-01&sr=b&sp=r&sig=SECRET%3D",
    "Expires=2026&Signature=SECRET&Key-Pair-Id=SECRET",
    "Policy=SECRET&Signature=SECRET&Key-Pair-Id=SECRET",
]


@pytest.fixture
def web() -> Iterator[WebServer]:
    with serving() as server:
        yield server


def table(*uris: str) -> pd.DataFrame:
    return pd.DataFrame({"split": "TRAIN", "image_uri": uris, "label": "cat"})


def everything_in(folder: str | Path) -> str:
    """Every file of a directory as text, with the columns of Parquet unpacked."""
    texts = []
    for path in Path(folder).rglob("*"):
        if path.is_file():
            texts.append(path.read_bytes().decode("latin-1"))
            if path.suffix == ".parquet":
                texts.append(json.dumps(pq.read_table(path).to_pylist(), default=str))
    return "\n".join(texts)


@pytest.mark.slow
def test_each_row_is_a_record_or_a_reject_whatever_its_server_answers(
    web: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_patience(monkeypatch, 1)
    limit_web_files(monkeypatch, 2**20)
    answers = {
        "endless": "read/too_large",
        "always": "read/unreachable",
        "hang": "read/unreachable",
        "drip": "read/unreachable",
        "cut": "read/unreachable",
        "garbage": "read/unreachable",
        "loop": "read/read_failed",
        "gone": "read/not_found",
        "html": "check/not_an_image",
        "pictures": "",
        "moved": "",
    }
    uris = [web.uri(f"{kind}/5", f"127.0.0.{at + 2}") for at, kind in enumerate(answers)]
    uris += ["http://127.0.0.1:1/a.png", "http://no.such.host.invalid/a.png", "http://[::/a"]
    uris += [web.uri("to/1?place=file:///etc/passwd"), "https://me:word@127.0.0.1/a.png"]
    uris += [web.uri(f"pictures/{number}", "127.0.0.99") for number in range(30)]
    result = tfrecorder.convert(
        table(*uris), "out", private_hosts=True, max_reject_fraction=1, num_shards=1
    )
    assert result.records + sum(result.rejects.values()) == len(uris)
    codes = {
        row.image_uri: f"{row.stage}/{row.reason.partition(':')[0]}"
        for row in rejects("out").itertuples()
    }
    assert [codes.pop(uri, "") for uri in uris[: len(answers)]] == list(answers.values())
    assert [codes[uri].partition("/")[2] for uri in uris[11:16]] == [
        *("unreachable", "unreachable", "bad_name", "bad_name", "bad_name")
    ]
    assert result.records == 32
    assert {record["image/encoded"] for record in records("out")} >= {picture(5)}


@pytest.mark.slow
def test_whatever_a_server_sends_ends_in_time_with_a_record_or_a_reason(
    web: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_patience(monkeypatch, 0.5)
    limit_web_files(monkeypatch, 2**20)
    uris = {name: web.uri(f"rude/{name}", f"127.0.1.{at}") for at, name in enumerate(RUDE, start=1)}
    began = time.monotonic()
    options = {"private_hosts": True, "max_reject_fraction": 1, "num_shards": 1}
    result = tfrecorder.convert(table(*uris.values()), "out", num_threads=len(uris), **options)
    assert time.monotonic() - began < 12
    assert result.records + sum(result.rejects.values()) == len(uris)
    said = {row.image_uri: row.reason for row in rejects("out").itertuples()}
    codes = {name: said.get(uri, "").partition(":")[0] for name, uri in uris.items()}
    assert codes == {name: reason for name, (*_, reason) in RUDE.items()}
    assert max(map(len, said.values())) < 300


@pytest.mark.parametrize("answers", [1, 2, 5000])
def test_an_answer_that_nobody_asked_for_is_no_image(web: WebServer, answers: int) -> None:
    uris = [web.uri(f"smuggled/{answers - 1}"), *(web.uri(f"pictures/{n}") for n in range(9))]
    options = {"private_hosts": True, "num_shards": 1, "shuffle": False, "num_threads": 1}
    result = tfrecorder.convert(table(*uris), "out", **options)
    assert result.records == len(uris)
    assert picture(250) not in {record["image/encoded"] for record in records("out")}
    assert len({record["image/encoded"] for record in records("out")}) >= 9


@pytest.mark.slow
def test_a_server_is_asked_again_when_it_said(
    web: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_pauses(monkeypatch)
    result = tfrecorder.convert(table(web.uri("busy/1")), "out", private_hosts=True, num_shards=1)
    assert (result.records, result.rejects) == (1, {})
    first, second = (at for _, _, at in web.asked[:2])
    assert second - first >= 1


@pytest.mark.slow
def test_a_host_has_four_connections_that_are_used_again(web: WebServer) -> None:
    uris = [web.uri(f"pictures/{number}") for number in range(40)]
    tfrecorder.convert(table(*uris), "out", private_hosts=True, num_shards=1, num_threads=16)
    assert len({record["image/encoded"] for record in records("out")}) == 40
    assert 1 <= web.most["127.0.0.1"] <= 4


@pytest.mark.slow
def test_rows_of_a_dead_host_do_not_each_wait(
    web: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_patience(monkeypatch, 1)
    uris = [web.uri(f"always/{number}") for number in range(40)]
    uris += [web.uri(f"pictures/{number}", "127.0.0.2") for number in range(40)]
    began = time.monotonic()
    options = {"private_hosts": True, "max_reject_fraction": 1, "num_shards": 1}
    result = tfrecorder.convert(table(*uris), "out", num_threads=2, **options)
    assert result.rejects == {"read/unreachable": 40}
    assert time.monotonic() - began < 15  # not a second for each row of four


PRIVATE = [
    *("127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "0.0.0.0"),
    *("10.0.0.7", "192.168.1.1", "169.254.169.254", "[fd00::1]", "[2002:7f00:1::]", "224.0.0.1"),
    *("100.64.0.1", "[64:ff9b::7f00:1]", "[::7f00:1]", "[fec0::1]", "[2001::1]", "[::]"),
]


def test_private_addresses_are_not_asked(web: WebServer) -> None:
    port = web.server_address[1]
    uris = [f"http://{host}:{port}/pictures/1" for host in PRIVATE]
    report = tfrecorder.validate(table(*uris), check_images=True)
    faults = report[report.code == "unusable_image"]
    assert sorted(faults.row) == [*range(len(uris))]
    assert all("`private_hosts=True` allows it" in message for message in faults.message)
    words = error_of(ImagesUnreachableError, table(*uris))
    assert "`private_hosts=True`" in words
    assert web.asked == []
    result = invoke("convert", "-", "out", piped=table(uris[0]).to_csv(index=False).encode())
    assert result.exit_code == 1
    assert "--private-hosts" in result.stderr
    report = tfrecorder.validate(table(uris[0]), check_images=True, private_hosts=True)
    assert [*report.code] == ["few_images"]


@pytest.mark.slow
def test_a_redirect_does_not_lead_to_a_private_address(
    web: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_public(monkeypatch, "127.0.0.1")
    inner = web.uri("pictures/1", "127.0.0.2")
    uris = [web.uri(f"to/1?place={inner}"), web.uri("moved/7"), web.uri("pictures/3")]
    tfrecorder.convert(table(*uris), "out", max_reject_fraction=1, num_shards=1)
    (reject,) = rejects("out").itertuples()
    assert (reject.image_uri, reject.stage) == (uris[0], "read")
    assert reject.reason.startswith("private_host: 127.0.0.2 has a private address")
    assert "127.0.0.2" not in web.most


@pytest.mark.slow
def test_a_host_is_asked_at_the_address_that_was_checked_under_its_own_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_public(monkeypatch, "127.0.0.1")
    forget_services()
    authority, own = write_certificates(tmp_path)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority))
    answers = {"a.googleapis.com": ["127.0.0.1", "127.0.0.2"], "b.example": ["127.0.0.1"] * 9}
    system = socket.getaddrinfo

    def resolve(host: str, *rest: Any, **more: Any) -> Any:
        return system(answers[host].pop(0) if host in answers else host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with serving(own) as web:
        uris = [web.uri("pictures/1", host) for host in answers]
        tfrecorder.convert(table(*uris), "out", max_reject_fraction=1, num_shards=1)
    assert filenames("out") == uris[:1]
    assert "not valid for 'b.example'" in rejects("out").reason.iloc[0]
    assert {*web.most} == {"127.0.0.1"}


def test_a_table_given_for_a_directory_is_not_printed() -> None:
    with pytest.raises(OptionError, match=r"^directory=a DataFrame: give the path of a directory"):
        tfrecorder.append("out", table("a.png"))  # type: ignore[call-overload]


@pytest.mark.slow
def test_a_signature_stands_nowhere(web: WebServer, caplog: pytest.LogCaptureFixture) -> None:
    web.signed = "SECRET"
    signed = enumerate(SIGNATURES)
    uris = [web.uri(f"signed/{number}?id={number}&{query}&size=big") for number, query in signed]
    uris += [web.uri(f"gone/1?{AMAZON}"), web.uri("signed/9?id=9"), web.uri("pictures/1?sig=mine")]
    plain = [web.uri(f"signed/{number}?id={number}&size=big") for number in range(8)]
    plain += [web.uri("gone/1"), *uris[-2:]]
    source, options = table(*uris), {"private_hosts": True, "num_shards": 1, "shuffle": False}
    with caplog.at_level(logging.DEBUG):
        report = tfrecorder.validate(source, check_images=True, private_hosts=True)
        preview = source.tensorflow.preview()
        words = error_of(RejectedError, source, **options)
        left = everything_in("out")  # the plan, and all that a killed conversion leaves
        result = tfrecorder.convert(source, "out", max_reject_fraction=0.2, **options)
    assert result.records == 9
    assert filenames("out") == [*plain[:8], plain[10]]
    codes = dict(zip(rejects("out").image_uri, rejects("out").reason, strict=True))
    assert [*codes] == plain[8:10]
    assert codes[plain[9]] == "no_permission: 403 Forbidden, without a signature"
    said = [str(report), report.to_csv(), words, str(result), caplog.text]
    said += [str(preview), preview._repr_html_()]
    for text in (*said, left, everything_in("out")):
        assert "SECRET" not in text
        assert not {name for name in ("X-Amz", "X-Goog", "Key-Pair", "=2026") if name in text}


@pytest.mark.parametrize("form", ["a.csv", "a.parquet", "metadata.jsonl", "a.jsonl", "a list"])
def test_tables_of_each_form_lose_their_signatures(web: WebServer, form: str) -> None:
    web.signed, query = "SECRET", SIGNATURES[0]
    uris = [web.uri(f"{kind}/{number}?{query}") for kind in ("signed", "gone") for number in (1, 2)]
    rows, path = table(*uris), Path("in") / form
    path.parent.mkdir()
    source: Any = path
    match form:
        case "a.csv":
            rows.to_csv(path, index=False)
        case "a.parquet":
            rows.to_parquet(path)
        case "metadata.jsonl":
            source = path.parent
            Path("in/a.png").write_bytes(picture(1))
            rows.rename(columns={"image_uri": "file_name"}).to_json(
                path, orient="records", lines=True
            )
        case "a.jsonl":
            lines = [
                {"imageGcsUri": uri, "classificationAnnotation": {"displayName": "cat"}}
                for uri in uris
            ]
            path.write_text("\n".join(map(json.dumps, lines)))
        case _:
            source = ["in/1.csv", "in/2.csv"]
            rows[:2].to_csv(source[0], index=False)
            rows[2:].to_csv(source[1], index=False)
    report = tfrecorder.validate(source, check_images=True, private_hosts=True)
    result = tfrecorder.convert(
        source, "out", private_hosts=True, max_reject_fraction=1, num_shards=1
    )
    assert (result.records, result.rejects) == (2, {"read/not_found": 2})
    for text in (everything_in("out"), str(report), report.to_csv(), str(result)):
        assert "SECRET" not in text


@pytest.mark.slow
def test_a_new_signature_is_of_the_same_image(web: WebServer) -> None:
    def source(secret: str) -> pd.DataFrame:
        query = AMAZON.replace("SECRET", secret)
        return table(*(web.uri(f"signed/{number}?{query}") for number in range(6)))

    web.signed = "NEW"
    error_of(ImagesUnreachableError, source("OLD"), private_hosts=True, num_shards=1)
    web.signed = ""
    both = pd.concat([source("OLD"), table(*(web.uri(f"pictures/{n}") for n in range(9)))])
    options = {"private_hosts": True, "num_shards": 1}
    result = tfrecorder.convert(both, "out", max_reject_fraction=0.5, **options)
    assert result.rejects == {"read/no_permission": 6}
    web.signed = "NEW"
    again = both.iloc[6:]
    added = tfrecorder.append(
        pd.concat([source("NEW"), again]), "out", retry_rejects=True, private_hosts=True
    )
    assert (added.records, added.rejects) == (6, {})
    assert rejects("out").empty
    assert "NEW" not in everything_in("out")


@pytest.mark.slow
def test_worker_processes_have_the_signatures(web: WebServer) -> None:
    web.signed = "SECRET"
    source = table(*(web.uri(f"signed/{number}?{AMAZON}") for number in range(8)))
    options = {"private_hosts": True, "num_shards": 2, "num_workers": 2}
    assert tfrecorder.convert(source, "out", **options).records == 8
    more, words = table(web.uri(f"signed/9?{AMAZON}")), "are read on this machine alone"
    for refused in (
        lambda: tfrecorder.append(more, "out", stage_only=True),
        lambda: tfrecorder.append(more, "out", runner="DaskRunner"),
        lambda: tfrecorder.parts.stage(source, "staged"),
        lambda: tfrecorder.convert(source, "far", runner="DaskRunner"),
        lambda: tfrecorder.convert(table("a.png"), "far", runner="DaskRunner", private_hosts=True),
    ):
        with pytest.raises(OptionError, match=words):
            refused()
    assert not {"staged", "far"} & {*os.listdir()}


STREAM = """
import pytest, tfrecorder
from support import make_public
make_public(pytest.MonkeyPatch(), "127.0.0.1")
class Rows:
    name = "rows"
    def rows(self, position):
        for at in range(0 if position is None else position + 1, len(ROWS)):
            yield ROWS[at], at
    def wait(self, seconds): ...
print(tfrecorder.stream(Rows(), "out", until_idle=0, every_rows=3, progress=False).rejects)
"""


@pytest.mark.slow
def test_a_stream_reads_them_and_reads_a_batch_again_that_was_killed(web: WebServer) -> None:
    web.signed = "SECRET"
    rows = table(*(web.uri(f"signed/{number}?{AMAZON}") for number in range(6))).to_dict("records")
    code = STREAM.replace("ROWS", repr(rows))
    web.stop_at = Path("out/_tfrecorder/plan.json").absolute()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = start(code, env=environment)
    wait_for(lambda: web.stopped, 60)
    stop(process)
    web.stop_at = None
    assert Path("out/_tfrecorder/plan.json").exists()
    assert "SECRET" not in everything_in("out")
    done = run("-c", code, env=environment)
    assert done.stdout == "{}\n", done.stderr
    assert len(records("out")) == 6
    assert "SECRET" not in everything_in("out")


def test_tables_folders_and_outputs_are_not_on_the_web() -> None:
    words = error_of(SourceError, "https://host/photos.csv")
    assert "https:// cannot be read: put the files on a disk or into a bucket first" in words
    words = error_of(OptionError, table("a.png"), "https://host/out")
    assert "a dataset cannot be written to https://" in words
    with pytest.raises(tfrecorder.errors.DatasetError, match="https://"):
        tfrecorder.Records("https://127.0.0.1/out", "TRAIN")
    assert "ftp://" in error_of(ValidationError, table("ftp://host/a.png"))


PROGRAM = """
import sys, pytest, tfrecorder
from support import shorten_patience
shorten_patience(pytest.MonkeyPatch(), 1)
result = tfrecorder.convert(
    sys.argv[1], "out", private_hosts=True, max_reject_fraction=1, num_shards=12, num_threads=32,
    progress=False,
)
print(result.records, sum(result.rejects.values()))
"""


@pytest.mark.slow
def test_uris_of_20_hosts_killed_and_resumed(web: WebServer) -> None:
    count = int(os.environ.get("TFRECORDER_TEST_URIS", 400))  # 2,000 by hand
    kinds = [*["pictures"] * 12, *["moved"] * 6, *["busy"] * 3, "loop", "html", "gone"]
    dead = {17: "cut", 18: "always", 19: "hang"}  # each kind that never answers has its own host
    of_rows = [dead.get(n % 20, kinds[n // 20 % len(kinds)]) for n in range(count)]
    uris = [
        web.uri(f"{kind}/{number}?n={number}&{AMAZON}", f"127.0.0.{number % 20 + 2}")
        for number, kind in enumerate(of_rows)
    ]
    table(*uris).to_csv("urls.csv", index=False)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", PROGRAM, "urls.csv"]
    with subprocess.Popen(command, env=environment) as process:
        wait_for(lambda: len(web.asked) > count * 9 // 20)
        process.send_signal(signal.SIGKILL)
    assert not Path("out/dataset_info.json").exists()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    kept, lost = map(int, done.stdout.split())
    assert kept + lost == count
    bad = sum(kind not in ("pictures", "moved", "busy") for kind in of_rows)
    assert (lost, len(records("out"))) == (bad, count - bad)
    assert len(web.most) == 20
    assert max(web.most.values()) <= 4
    for text in (everything_in("out"), done.stderr):
        assert "SECRET" not in text
