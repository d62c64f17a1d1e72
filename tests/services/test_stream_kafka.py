"""A Kafka topic as the source of a stream, against two brokers that speak the protocol.

The inner law: what becomes of a message, and how often the brokers are asked.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import logging
import re
import socketserver
import ssl
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.clusters import free_port
from helpers.kafka_brokers import Broker, Cluster, mock_cluster
from helpers.streaming_cases import TO_ITS_END
from support import PHOTOS, SAMPLES, records, run, shorten_patience, shorten_pauses, skip_without
from torture import topics

import tfrecorder
from services.gcs.certificates import write_certificates
from tfrecorder.errors import OptionError, PackageError, SourceError, UnreachableError
from tfrecorder.streaming import Unusable
from tfrecorder.streaming.kafka import KafkaOptions, row_of

pytest.importorskip("confluent_kafka", reason="no confluent-kafka")

from tfrecorder.streaming import kafka, kafka_topic
from tfrecorder.streaming.kafka import KafkaSource, open_kafka

#: Seconds after which a test gives up on a message.
PATIENCE = 60

PHOTO = PHOTOS[0].read_bytes()


@pytest.fixture(scope="module")
def mock() -> Iterator[Cluster]:
    with mock_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    skip_without("noida_db")
    with Broker(tmp_path_factory.mktemp("broker")) as process:
        yield process


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic for one test."""
    return request.node.originalname.removeprefix("test_")


def numbered(count: int, first: int = 0) -> list[dict[str, Any]]:
    """Messages with a number, over four partitions."""
    numbers = range(first, first + count)
    return [{"value": {"image_uri": "a.jpg", "n": n}, "partition": n % 4} for n in numbers]


def take(source: KafkaSource, position: Any, count: int) -> list[tuple[Any, Any]]:
    """So many rows, for which it waits; more are an error."""
    found: list[tuple[Any, Any]] = []
    end = time.monotonic() + PATIENCE
    while len(found) < count:
        assert time.monotonic() < end, f"{len(found)} of {count} messages came"
        for row, behind in source.rows(position):
            found.append((row, behind))
            position = behind
        if len(found) < count:
            source.wait(1)
    assert len(found) == count
    return found


def numbers(found: list[tuple[Any, Any]]) -> list[int]:
    return [row["n"] for row, _ in found]


# From a message to a row.


def test_the_fields_of_a_json_object_are_the_columns_of_a_row() -> None:
    value = json.dumps({"image_uri": "ä.jpg", "label": 3, "note": None}).encode()
    row = row_of("t/0/1", b"camera 1", value, [("trace", b"\xff")], KafkaOptions())
    assert row == {"image_uri": "ä.jpg", "label": 3, "note": None, "key": "camera 1"}


def test_a_column_called_key_is_not_replaced() -> None:
    row = row_of("t/0/1", b"camera 1", b'{"image_uri": "a.jpg", "key": 7}', None, KafkaOptions())
    assert row["key"] == 7


@pytest.mark.parametrize("key", [None, b"\xff\xfe"])
def test_a_key_that_is_no_text_is_left_out(key: bytes | None) -> None:
    row = row_of("t/0/1", key, b'{"image_uri": "a.jpg"}', None, KafkaOptions())
    assert row == {"image_uri": "a.jpg"}


def test_an_image_in_base64_is_named_by_its_message() -> None:
    form = KafkaOptions(image="photo", image_bytes="jpeg")
    value = json.dumps({"jpeg": base64.b64encode(PHOTO).decode(), "label": "x"})
    row = row_of("t/2/9", None, value, None, form)
    assert row == {"photo": {"bytes": PHOTO, "path": "t/2/9"}, "label": "x"}


def test_a_value_that_is_an_image_has_its_columns_in_headers() -> None:
    headers = [("label", "Löwe".encode()), ("split", b"TEST"), ("note", None), ("split", b"TRAIN")]
    row = row_of("t/2/9", b"k", PHOTO, headers, KafkaOptions(value="bytes"))
    image = {"bytes": PHOTO, "path": "t/2/9"}
    wanted = {"label": "Löwe", "split": "TRAIN", "note": None, "image_uri": image, "key": "k"}
    assert row == wanted


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (None, "no_value"),
        (b"", "bad_json"),
        (b"hello", "bad_json"),
        (b"\xff\xd8", "bad_json"),
        (b"[" * 100_000, "bad_json"),
        (b'{"image_uri": "a.jpg", "label": NaN}', "bad_json"),
        (b'{"image_uri": "a.jpg", "label": "\\ud800"}', "bad_json"),
        (b'["a.jpg"]', "bad_json"),
        (b"null", "bad_json"),
        (b'{"image_bytes": "???"}', "bad_base64"),
        (b'{"image_bytes": "\xc3\xa4\xc3\xa4"}', "bad_base64"),
        (b'{"image_bytes": 3}', "bad_base64"),
        (b'{"label": "x"}', "no_image"),
        (b'{"image_uri": ""}', "no_image"),
        (b'{"image_uri": 3}', "bad_uri"),
    ],
)
def test_a_poisoned_message_has_a_name_and_a_reason(value: bytes | None, code: str) -> None:
    row = row_of("t/3/41", b"k", value, None, KafkaOptions())
    assert isinstance(row, Unusable)
    assert (row.name, row.reason.partition(": ")[0]) == ("t/3/41", code)
    assert row.reason.isprintable()
    assert len(row.reason) < 300


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("data:image/jpeg;base64,/9j/", "it is a data: uri, of which only what follows"),
        ("_9j_", "it is that for urls; write + and / for - and _"),
    ],
)
def test_an_image_in_another_form_of_base64_is_told(text: str, words: str) -> None:
    row = row_of("t/3/41", b"k", json.dumps({"image_bytes": text}).encode(), None, KafkaOptions())
    assert isinstance(row, Unusable)
    assert row.reason.startswith(f"bad_base64: image_bytes is not base64: {words}")


def test_a_header_that_is_no_text_poisons_its_message() -> None:
    row = row_of("t/3/41", None, PHOTO, [("label", b"\xff")], KafkaOptions(value="bytes"))
    assert isinstance(row, Unusable)
    assert row.reason == "bad_header: 'label' is not UTF-8 text"


# From a topic to rows.


def test_every_message_comes_once_from_every_position(mock: Cluster, topic: str) -> None:
    mock.send(topic, numbered(40))
    source = open_kafka(mock.url(topic))
    whole = take(source, None, 40)
    source.close()
    assert sorted(numbers(whole)) == [*range(40)]
    assert whole[-1][1] == {"0": 10, "1": 10, "2": 10, "3": 10}
    for taken in range(0, 40, 3):
        position = json.loads(json.dumps(whole[taken][1]))
        again = open_kafka(mock.url(topic))
        rest = take(again, position, 39 - taken)
        again.close()
        assert sorted(numbers(whole[: taken + 1]) + numbers(rest)) == [*range(40)]
        for partition in range(4):  # the order within a partition is that of the topic
            own = [n for n in numbers(rest) if n % 4 == partition]
            assert own == sorted(own)


def test_a_reader_that_stops_in_the_midst_goes_on_where_it_stood(mock: Cluster, topic: str) -> None:
    mock.send(topic, numbered(200))
    source, position, found = open_kafka(mock.url(topic)), None, []
    end = time.monotonic() + PATIENCE
    while len(found) < 200 and time.monotonic() < end:
        for row, behind in itertools.islice(source.rows(position), 7):
            found.append(row["n"])
            position = behind
    assert sorted(found) == [*range(200)]
    source.close()


@pytest.mark.slow
def test_a_position_of_before_is_read_again(mock: Cluster, topic: str) -> None:
    mock.send(topic, numbered(20))
    source = open_kafka(mock.url(topic))
    whole = take(source, None, 20)
    rest = take(source, whole[4][1], 15)
    source.close()
    assert sorted(numbers(whole[:5]) + numbers(rest)) == [*range(20)]


def test_messages_bring_key_headers_and_name(mock: Cluster, topic: str) -> None:
    headers = [("label", b"cat"), ("split", b"TEST")]
    mock.send(topic, [{"value": PHOTO, "key": "c1", "headers": headers, "partition": 2}])
    source = open_kafka(mock.url(topic), value="bytes")
    ((row, position),) = take(source, None, 1)
    source.close()
    image = {"bytes": PHOTO, "path": f"{topic}/2/0"}
    assert row == {"label": "cat", "split": "TEST", "image_uri": image, "key": "c1"}
    assert position == {"0": 0, "1": 0, "2": 1, "3": 0}


def test_a_poisoned_message_ends_nothing(mock: Cluster, topic: str) -> None:
    values = [{"image_uri": "a.jpg", "n": 0}, "poison", None, {"image_uri": "a.jpg", "n": 1}]
    mock.send(topic, [{"value": value, "partition": 1, "key": "k"} for value in values])
    source = open_kafka(mock.url(topic))
    rows = [row for row, _ in take(source, None, 4)]
    source.close()
    assert [isinstance(row, Unusable) for row in rows] == [False, True, True, False]
    assert [row.name for row in rows if isinstance(row, Unusable)] == [
        f"{topic}/1/1",
        f"{topic}/1/2",
    ]


def test_what_is_behind_is_counted(mock: Cluster, topic: str) -> None:
    mock.send(topic, numbered(20))
    source = open_kafka(mock.url(topic))
    assert source.behind(None) == 0  # nothing was asked yet
    whole = take(source, None, 20)
    assert source.behind(whole[4][1]) == 15
    assert source.behind(whole[-1][1]) == 0
    source.close()


@pytest.mark.slow
def test_a_slow_producer_is_waited_for(mock: Cluster, topic: str) -> None:
    mock.send(topic, numbered(4))
    source = open_kafka(mock.url(topic))
    position = take(source, None, 4)[-1][1]
    assert list(source.rows(position)) == []
    began = time.monotonic()
    source.wait(0.3)  # nothing comes
    assert time.monotonic() - began >= 0.29
    later = threading.Timer(0.5, mock.send, [topic, numbered(1, first=4)])
    later.start()
    began = time.monotonic()
    source.wait(PATIENCE)
    assert time.monotonic() - began < PATIENCE / 2
    assert [row["n"] for row, _ in source.rows(position)] == [4]
    later.join()
    source.close()


@pytest.mark.slow
def test_a_slow_consumer_keeps_its_place(mock: Cluster, topic: str) -> None:
    mock.send(topic, numbered(8))
    settings = {"max.poll.interval.ms": "1000", "session.timeout.ms": "1000"}
    source = open_kafka(mock.url(topic), config=settings)
    found = []
    for row, _ in source.rows(None):
        found.append(row["n"])
        if len(found) == 2:
            time.sleep(2)
    source.close()
    assert sorted(found) == [*range(8)]


def test_messages_of_a_transaction_that_was_aborted_are_passed_over(
    broker: Broker, topic: str
) -> None:
    from confluent_kafka import Producer

    broker.make_topic(topic, 1)
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": topic})
    producer.init_transactions(PATIENCE)
    for n, commits in enumerate([True, False, True]):
        producer.begin_transaction()
        producer.produce(topic, json.dumps({"image_uri": "a.jpg", "n": n}))
        producer.flush(PATIENCE)
        end = producer.commit_transaction if commits else producer.abort_transaction
        end(PATIENCE)
    source = open_kafka(broker.url(topic))
    whole = take(source, None, 2)
    assert numbers(whole) == [0, 2]
    assert take(source, whole[0][1], 1)[0] == whole[1]
    source.close()


def test_partitions_that_are_added_are_read_from_their_beginning(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka, "LOOK_SECONDS", 0)
    broker.make_topic(topic, 2)
    broker.send(topic, [{"value": {"image_uri": "a.jpg", "n": n}, "partition": n} for n in (0, 1)])
    source = open_kafka(broker.url(topic))
    position = take(source, None, 2)[-1][1]
    broker.add_partitions(topic, 4)
    fresh = [{"value": {"image_uri": "a.jpg", "n": n}, "partition": n} for n in (2, 3)]
    # A producer learns of them in its own time; another one asks.
    Cluster(broker.address).send(topic, fresh)
    found = take(source, position, 2)
    source.close()
    assert sorted(numbers(found)) == [2, 3]
    assert found[-1][1] == {"0": 1, "1": 1, "2": 1, "3": 1}
    restarted = open_kafka(broker.url(topic))
    assert sorted(numbers(take(restarted, position, 2))) == [2, 3]
    restarted.close()


# What is lost is never a gap.


@pytest.mark.slow
def test_an_offset_that_the_broker_has_lost_is_an_error_with_both_numbers(
    mock: Cluster, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    mock.send(topic, numbered(4))
    source = open_kafka(mock.url(topic))
    position = take(source, None, 4)[-1][1]
    source.close()
    for n in range(16):  # the mock keeps 5 MB of a partition
        mock.send(topic, [{"value": {"image_uri": "a" * 600_000, "n": n}, "partition": 0}])
    late = open_kafka(mock.url(topic))
    with pytest.raises(SourceError, match="the next message is 1, but the earliest") as error:
        take(late, position, 1)
    words = str(error.value)
    assert f"kafka:{topic}, partition 0" in words
    first = int(words.partition("the broker still has is ")[2].partition(";")[0])
    assert first > 1
    assert f"has deleted {first - 1} messages" in words
    late.close()
    # From the beginning, or asked to, it goes on with the earliest.
    skipping = open_kafka(mock.url(topic), on_lost="skip")
    with caplog.at_level(logging.WARNING):
        rest = take(skipping, position, 17 - first)
    assert numbers(rest) == [*range(first - 1, 16)]
    assert "continues without them" in caplog.text
    skipping.close()
    fresh = open_kafka(mock.url(topic))
    assert len(take(fresh, None, 17 - first + 3)) > 0
    fresh.close()


def test_messages_that_are_deleted_while_the_stream_runs_are_an_error(
    broker: Broker, topic: str
) -> None:
    broker.make_topic(topic)
    broker.send(topic, numbered(4))
    source = open_kafka(broker.url(topic))
    position = take(source, None, 4)[-1][1]
    source.close()
    broker.send(topic, numbered(40))
    broker.remove_messages(topic, 2, before=9)
    with pytest.raises(SourceError, match=r"partition 2: the next message is 1, .* has is 9;"):
        take(source, position, 40)
    source.close()


def test_a_topic_that_was_made_anew_is_an_error(broker: Broker, topic: str) -> None:
    broker.make_topic(topic)
    broker.send(topic, numbered(40))
    source = open_kafka(broker.url(topic))
    position = take(source, None, 40)[-1][1]
    source.close()
    broker.remove_topic(topic)
    broker.make_topic(topic)
    Cluster(broker.address).send(topic, numbered(4))
    with pytest.raises(SourceError, match="the next message is 10, but the topic ends at 1"):
        take(source, position, 1)
    source.close()
    broker.remove_topic(topic)
    broker.make_topic(topic, 2)
    with pytest.raises(SourceError, match=r"has 2 partitions, .* already read partition 3"):
        take(source, position, 1)
    source.close()


# Outages.


@pytest.mark.slow
def test_a_broker_that_is_killed_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    skip_without("noida_db")
    shorten_pauses(monkeypatch)
    with Broker(tmp_path / "broker") as broker:
        broker.make_topic("photos")
        broker.send("photos", numbered(2000))
        broker.save()
        source = open_kafka(broker.url("photos"))
        rows = source.rows(None)
        found = [next(rows) for _ in range(100)]
        broker.kill()
        found += rows  # what was fetched already
        position = found[-1][1]
        for _ in range(3):
            assert list(source.rows(position)) == []
            source.wait(0.2)
        assert f"Waiting for kafka://{broker.address}" in caplog.text
        broker.start()
        broker.send("photos", numbered(400, first=2000))
        found += take(source, position, 2400 - len(found))
        source.close()
    assert Counter(numbers(found)) == Counter(range(2400))


@pytest.mark.slow
def test_a_broker_that_never_answers_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_patience(monkeypatch, 3)
    monkeypatch.setattr(kafka_topic, "ANSWER", 0.1)
    port = free_port()
    source = open_kafka(f"kafka://127.0.0.1:{port}/photos")
    with pytest.raises(UnreachableError, match=f"kafka://127.0.0.1:{port}/photos could not be"):
        list(source.rows(None))
    source.close()


@pytest.mark.slow
def test_a_certificate_that_is_not_trusted_is_an_error_at_once(tmp_path: Path) -> None:
    skip_without("confluent_kafka", "cryptography")
    certificate = write_certificates(tmp_path)[1]
    (tmp_path / "other").mkdir()
    another = write_certificates(tmp_path / "other")[0]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    class Refused(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError):
                context.wrap_socket(self.request, server_side=True).recv(1)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Refused) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"127.0.0.1:{server.server_address[1]}"
        other = {"security.protocol": "SSL", "ssl.ca.location": str(another)}
        source = open_kafka(f"kafka://{address}/photos", config=other)
        with pytest.raises(SourceError, match=r"refuses: .*certificate verify failed"):
            list(source.rows(None))
        source.close()
        server.shutdown()


def test_a_topic_that_is_not_there_is_an_error(mock: Cluster) -> None:
    source = open_kafka(mock.url("photograph"))
    with pytest.raises(SourceError, match=r"no topic 'photograph' .*; create it first"):
        list(source.rows(None))
    source.close()


# A whole stream.


@pytest.mark.slow
def test_every_message_counts_once_while_reader_and_broker_are_killed(tmp_path: Path) -> None:
    skip_without("noida_db")
    assert topics.read_and_kill(tmp_path / "killed", 2000, 3, 1) == (3, 1)


@pytest.mark.slow
def test_a_topic_of_image_files_becomes_a_dataset_in_the_shell(mock: Cluster, topic: str) -> None:
    labels = [path.parent.name for path in PHOTOS[:6]]
    mock.send(
        topic,
        [
            {"value": path.read_bytes(), "headers": {"label": label}, "partition": at % 4}
            for at, (path, label) in enumerate(zip(PHOTOS, labels, strict=False))
        ],
    )
    command = ["-m", "tfrecorder", "stream", mock.url(topic), "out", "--until-idle", "0"]
    settings = ["value=bytes", "client.id=test"]
    done = run(*command, *(word for one in settings for word in ("--source-option", one)))
    assert done.returncode == 0, done.stderr
    frame = tfrecorder.to_frame("out", images="bytes")
    assert sorted(frame["label"]) == sorted(labels)
    assert {*frame["image_uri"]} == {path.read_bytes() for path in PHOTOS[:6]}
    names = {record["image/filename"].decode() for record in records("out")}
    assert names == {f"{topic}/{at % 4}/{at // 4}" for at in range(6)}


def test_messages_with_one_key_have_one_split(mock: Cluster, topic: str) -> None:
    row = {"image_uri": str(PHOTOS[0]), "label": "x"}
    mock.send(topic, [{"value": row, "key": f"camera {n % 20}"} for n in range(100)])
    tfrecorder.stream(mock.url(topic), "out", split_by="key", every_rows=30, **TO_ITS_END)
    counts = {name: split.records for name, split in tfrecorder.info("out").splits.items()}
    assert sum(counts.values()) == 100
    assert {count % 5 for count in counts.values()} == {0}
    assert len([count for count in counts.values() if count]) > 1


def test_a_lost_offset_ends_a_stream_whose_records_stay(broker: Broker, topic: str) -> None:
    row = {"image_uri": str(PHOTOS[0]), "label": "x"}
    messages = [{"value": row, "partition": n % 4} for n in range(40)]
    broker.make_topic(topic)
    broker.send(topic, messages)
    tfrecorder.stream(broker.url(topic), "out", **TO_ITS_END)
    broker.send(topic, messages)
    broker.remove_messages(topic, 1, before=15)
    lost = r"partition 1: the next message is 10, .* still has is 15;"
    with pytest.raises(SourceError, match=lost):
        tfrecorder.stream(broker.url(topic), "out", **TO_ITS_END)
    assert tfrecorder.verify("out", progress=False).ok
    skips = {"source_options": {"on_lost": "skip"}}
    tfrecorder.stream(broker.url(topic), "out", **skips, **TO_ITS_END)
    assert tfrecorder.info("out").records == 75
    position = {"0": 20, "1": 20, "2": 20, "3": 20}
    assert tfrecorder.status("out").streams == {f"kafka:{topic}": position}


def test_a_secret_is_in_no_file_of_a_dataset(mock: Cluster, topic: str) -> None:
    mock.send(topic, [{"value": {"image_uri": str(PHOTOS[0]), "label": "x"}}])
    options = {"sasl.password": "hidden phrase"}
    tfrecorder.stream(mock.url(topic), "out", source_options=options, **TO_ITS_END)
    files = [path for path in Path("out").rglob("*") if path.is_file()]
    assert len(files) > 5
    assert not [path for path in files if b"hidden phrase" in path.read_bytes()]


# Arguments, and what is never shown.


@pytest.mark.parametrize(
    "url",
    [
        "kafka://localhost:9092",
        "kafka:///photos",
        "kafka://localhost:9092/a/b",
        "kafka://localhost:9092/photos?x=1",
        "kafka://me:hidden@localhost:9092/photos",
    ],
)
def test_a_wrong_address_is_an_error(url: str) -> None:
    with pytest.raises(OptionError, match="kafka://HOST:PORT") as error:
        open_kafka(url)
    assert "hidden" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"value": "avro"}, "give one of 'json', 'bytes'"),
        ({"on_lost": "ignore"}, "give one of 'raise', 'skip'"),
        ({"image": "x", "image_bytes": "x"}, "`image` is the same field"),
        (
            {"config": {"auto.offset.reset": "latest"}},
            "auto.offset.reset='latest': the stream sets",
        ),
    ],
)
def test_a_wrong_option_is_an_error(options: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        open_kafka("kafka://localhost:9092/photos", **options)


def test_a_setting_that_librdkafka_does_not_know_is_an_error() -> None:
    source = open_kafka("kafka://localhost:9092/photos", config={"security.protocl": "SSL"})
    with pytest.raises(OptionError, match="No such configuration property"):
        list(source.rows(None))


def test_secrets_are_in_no_message_and_no_name() -> None:
    settings = {"sasl.mechanism": "PLAIN", "sasl.password": "hidden"}
    wrong = {"security.protocol": "hidden"}  # librdkafka repeats a value that it does not know
    source = open_kafka("kafka://localhost:9092/photos", config={**settings, **wrong})
    with pytest.raises(OptionError) as error:
        list(source.rows(None))
    assert "hidden" not in f"{error.value} {source!r} {source.name}"
    assert error.value.__cause__ is None


def test_the_name_stays_when_the_brokers_change() -> None:
    names = {open_kafka(f"kafka://{one}/photos").name for one in ("a:1", "b:2,c:3")}
    assert names == {"kafka:photos"}


def test_without_confluent_kafka_the_command_that_installs_it_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import importlib.util

    monkeypatch.delitem(sys.modules, "confluent_kafka", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(PackageError, match=r'pip install "tfrecorder-images\[kafka\]"'):
        tfrecorder.stream("kafka://localhost:9092/photos", "out")


@pytest.mark.slow
def test_a_model_trains_on_a_topic_while_it_arrives(mock: Cluster, topic: str) -> None:
    """The sample, from the broker to the last epoch, while photographs are still sent."""
    encoded = [
        {
            "value": {
                "image_bytes": base64.b64encode(path.read_bytes()).decode(),
                "label": path.parent.name,
                "split": "train",
            }
        }
        for path in PHOTOS
    ]
    mock.send(topic, encoded[:20])
    command = [sys.executable, SAMPLES / "train_on_topic.py", mock.url(topic)]
    words = ["--out", "out", "--until-idle", "25"]
    with subprocess.Popen([*command, *words], stdout=subprocess.PIPE, text=True) as training:
        assert training.stdout is not None
        first = training.stdout.readline()  # the end of an epoch, before the others are sent
        mock.send(topic, encoded[20:])
        printed = first + training.stdout.read()
    assert training.returncode == 0, printed
    assert f"TRAIN {len(PHOTOS)} " in re.sub(r" +", " ", printed)
    batches = list(map(int, re.findall(r"epoch \d+: (\d+) batches, loss", printed)))
    assert batches == sorted(batches), "each epoch has all that the one before it had"
    assert batches[0] < batches[-1] == -(-len(PHOTOS) // 8)
    assert len(tfrecorder.generations("out/dataset")) > 1
