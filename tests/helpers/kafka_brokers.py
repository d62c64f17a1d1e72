"""Brokers that speak Kafka's protocol: one in this process, and one that can be killed."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from support import wait_for

from helpers.clusters import answers, free_port

#: Seconds that a broker may take on a busy machine.
SECONDS = 60


class Cluster:
    """A broker as its administrators and producers see it.

    Args:
        address: host:port.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self._admin: Any = None
        self._producer: Any = None

    def url(self, topic: str) -> str:
        return f"kafka://{self.address}/{topic}"

    def admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        if self._admin is None:  # without a holder it would end before it is answered
            self._admin = AdminClient(self._settings(), logger=_Silent())
        return self._admin

    def make_topic(self, name: str, partitions: int = 4) -> None:
        from confluent_kafka.admin import NewTopic

        _done(self.admin().create_topics([NewTopic(name, partitions, 1)]))

    def remove_topic(self, name: str) -> None:
        _done(self.admin().delete_topics([name]))

    def add_partitions(self, topic: str, total: int) -> None:
        from confluent_kafka.admin import NewPartitions

        _done(self.admin().create_partitions([NewPartitions(topic, total)]))

    def remove_messages(self, topic: str, partition: int, before: int) -> None:
        """As retention does it."""
        from confluent_kafka import TopicPartition

        _done(self.admin().delete_records([TopicPartition(topic, partition, before)]))

    def send(self, topic: str, messages: Iterable[Mapping[str, Any]]) -> None:
        """Send messages, and wait until the broker has them.

        Args:
            messages: what `Producer.produce` takes; a value that is a dict becomes JSON.
        """
        from confluent_kafka import Producer

        if self._producer is None:
            self._producer = Producer(self._settings(), logger=_Silent())
        for one in messages:
            value = one.get("value")
            text = json.dumps(value) if isinstance(value, dict) else value
            self._producer.produce(topic, **{**one, "value": text})
            self._producer.poll(0)
        assert self._producer.flush(SECONDS) == 0, "messages could not be sent"

    def _settings(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.address, "queue.buffering.max.messages": 1_000_000}


class Broker(Cluster):
    """A broker process with its data in a folder; to be used in a `with` block."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"127.0.0.1:{free_port()}")
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Broker:
        self.start()
        self.make_topic("saved", 1)
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        import noida_db

        program, port = Path(noida_db.__file__).with_name("noida-db"), self.address.split(":")[1]
        os.chmod(program, 0o755)  # as its own command does it
        self._process = subprocess.Popen(
            [program, "start", "--only", "kafka", "--kafka-port", port, "--data-dir", self._folder],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_for(lambda: answers(int(port)), SECONDS)

    def save(self) -> None:
        """Wait until a kill can lose nothing: it saves what is new once a second."""
        file = self._folder / "kafka.json"
        for _ in range(2):  # a file that was under way when the last message came may not have it
            before = file.stat().st_ino if file.exists() else 0
            self.send("saved", [{"value": "x"}])
            wait_for(lambda before=before: file.exists() and file.stat().st_ino != before, SECONDS)

    def kill(self) -> None:
        """By SIGKILL; what it has saved stays."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextlib.contextmanager
def mock_cluster() -> Iterator[Cluster]:
    """librdkafka's own broker, in this process.

    It makes a topic of four partitions for whoever writes to it, and keeps 5 MB of each.
    """
    from confluent_kafka import Producer

    host = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 1}, logger=_Silent())
    broker = next(iter(host.list_topics(timeout=SECONDS).brokers.values()))
    yield Cluster(f"{broker.host}:{broker.port}")
    del host


class _Silent:
    def log(self, *_: object) -> None:
        pass


def _done(asked: Mapping[Any, Any]) -> None:
    for future in asked.values():
        future.result(SECONDS)
