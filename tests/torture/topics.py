"""A topic of Kafka whose reader and broker are killed again and again: every message counts once.

A message is one record with its own bytes, or one reject under its own name.
"""

from __future__ import annotations

import base64
import io
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from helpers.kafka_brokers import Broker
from helpers.streaming_cases import TO_ITS_END, rejects_of
from PIL import Image as Picture
from support import records

import tfrecorder
from tfrecorder.errors import DatasetError
from tfrecorder.schema import Image, Label, Number, Schema
from torture.counts import Count, demand

TOPIC, PARTITIONS = "photos", 4

#: Of ten messages, by the last digit of their numbers; the others hold the uri of an image.
POISON, NO_IMAGE, NO_LABEL, IN_BASE64 = 3, 4, 5, 6
REJECTED = {POISON: "row/bad_json", NO_IMAGE: "check/not_an_image", NO_LABEL: "row/null_label"}

#: Images that the messages share; small, as the broker keeps all messages in one file.
IMAGES = 50

SCHEMA = Schema(image_uri=Image(), label=Label(), n=Number(dtype="int64"))

READER = """
import sys
import tfrecorder
from tfrecorder.schema import Image, Label, Number, Schema
schema = Schema(image_uri=Image(), label=Label(), n=Number(dtype="int64"))
tfrecorder.stream(sys.argv[1], sys.argv[2], schema=schema, every_rows=int(sys.argv[3]),
                  every_seconds=1, progress=False)
"""


def make_images(folder: Path) -> list[Path]:
    """Small images, no two alike."""
    folder.mkdir(parents=True)
    paths = []
    for number in range(IMAGES):
        found = io.BytesIO()
        Picture.new("RGB", (8, 8), (number, 255 - number, 99)).save(found, "JPEG")
        paths.append(folder / f"{number}.jpg")
        paths[-1].write_bytes(found.getvalue())
    return paths


def message(number: int, images: list[Path]) -> dict[str, Any]:
    """A message, by its number."""
    kind, path = number % 10, images[number % IMAGES]
    value: dict[str, Any] | str = {"image_uri": str(path), "label": "ab"[number % 2], "n": number}
    if kind == POISON:
        value = "this is not JSON"
    elif kind in (NO_IMAGE, NO_LABEL, IN_BASE64):
        data = b"this is no image" if kind == NO_IMAGE else path.read_bytes()
        label = None if kind == NO_LABEL else "c"
        value = {"image_bytes": base64.b64encode(data).decode(), "label": label, "n": number}
    return {"value": value, "partition": number % PARTITIONS, "key": f"camera {number % 7}"}


def name_of(number: int) -> str:
    """The name of a message: its place in the topic."""
    return f"{TOPIC}/{number % PARTITIONS}/{number // PARTITIONS}"


def check_all(out: Path, messages: int, images: list[Path]) -> None:
    """Every message is in a dataset once.

    Raises:
        BrokenError: one is not, or twice, or with other bytes.
    """
    contents, found = [path.read_bytes() for path in images], Counter[int]()
    for record in records(out):
        number = record["n"]
        found[number] += 1
        same = record["image/encoded"] == contents[number % IMAGES]
        demand(same, f"{out}: message {number} has other bytes")
    sound = [number for number in range(messages) if number % 10 not in REJECTED]
    demand(found == Counter(sound), f"{out}: records {_difference(found, Counter(sound))}")
    wanted = Counter(
        (name_of(number), REJECTED[number % 10])
        for number in range(messages)
        if number % 10 in REJECTED
    )
    rejects = Counter(rejects_of(out))
    demand(rejects == wanted, f"{out}: rejects {_difference(rejects, wanted)}")
    demand(tfrecorder.verify(out, progress=False).ok, f"{out}: verify finds faults")


def _difference(found: Counter[Any], wanted: Counter[Any]) -> str:
    return f"too many {sorted(found - wanted)[:9]}, missing {sorted(wanted - found)[:9]}"


def read_and_kill(
    folder: Path, messages: int, reader_kills: int, broker_kills: int, seed: int = 0
) -> tuple[int, int]:
    """Messages come into a topic whose reader and broker are killed; how often each was.

    Raises:
        BrokenError: a message is missing, is there twice, or has other bytes.
    """
    dice, images = random.Random(seed), make_images(folder / "images")
    out, batch = folder / "out", max(100, messages // 50)
    events = ["reader"] * reader_kills + ["broker"] * broker_kills
    dice.shuffle(events)
    with Broker(folder / "broker") as broker:
        broker.make_topic(TOPIC, PARTITIONS)
        url, sent, share = broker.url(TOPIC), 0, messages // (len(events) + 1)
        reader = _reader(url, out, batch)
        try:
            for event in events:
                broker.send(TOPIC, (message(n, images) for n in range(sent, sent + share)))
                sent += share
                _wait_until(reader, out, dice.randint(0, sent))
                if event == "broker":
                    broker.save()
                    broker.kill()
                    time.sleep(dice.random())
                    broker.start()
                else:
                    time.sleep(dice.random() * 0.3)
                    reader.kill()
                    reader.wait()
                    reader = _reader(url, out, batch)
            broker.send(TOPIC, (message(n, images) for n in range(sent, messages)))
            _wait_until(reader, out, messages // 2)
        finally:
            reader.kill()
            reader.wait()
        for _ in range(10):  # a busy broker may seem to have no more
            if committed(out) < messages:
                tfrecorder.stream(url, out, schema=SCHEMA, every_rows=batch, **TO_ITS_END)
        again = tfrecorder.stream(url, out, **TO_ITS_END)
        demand(again.rows == 0, f"{out}: {again.rows} rows were still to be read")
    check_all(out, messages, images)
    return events.count("reader"), events.count("broker")


def _reader(url: str, out: Path, batch: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", READER, url, str(out), str(batch)])


def _wait_until(reader: subprocess.Popen[bytes], out: Path, rows: int, seconds: int = 600) -> None:
    """Wait until so many rows are committed, or nearly so."""
    until = time.monotonic() + seconds
    while committed(out) < rows:
        demand(reader.poll() is None, "the reader ended by itself")
        demand(time.monotonic() < until, f"{out}: {committed(out)} of {rows} rows came")
        time.sleep(0.05)


def committed(out: Path) -> int:
    """How many messages of the topic are in the dataset."""
    try:
        position = tfrecorder.status(out).streams.get(f"kafka:{TOPIC}", {})
    except DatasetError:
        return 0
    return sum(position.values())


def stream_topics(folder: Path, messages: int, kills: int, seed: int = 0) -> list[Count]:
    """Everything, and the counts; a fifth of the kills are of the broker."""
    readers, brokers = read_and_kill(folder, messages, kills - kills // 5, kills // 5, seed)
    note = f"{readers} kills of the reader, {brokers} of the broker"
    return [Count("Kafka topic of 4 partitions", readers + brokers, messages, 0, note)]
