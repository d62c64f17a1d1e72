"""A topic of a Kafka cluster, as confluent-kafka reads it: its partitions, offsets and messages.

Failures that may pass are waited out: for two minutes until the cluster has answered once, because
a wrong address never does, and after that without limit.  A failure that does not pass, such as a
refused password, is raised at once.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tfrecorder.errors import OptionError, SourceError
from tfrecorder.storage.retry import Wait, patience, pause, retried, service_of
from tfrecorder.storage.store import TransientError

T = TypeVar("T")

#: Messages that are taken from librdkafka's queue together; it limits their bytes (64 MB).
TOGETHER = 1000

#: Seconds that a request to the cluster may take before it is repeated, because Ctrl-C waits that
#: long; and the same for a quick look in passing.
ANSWER = 3
LOOK = 1

#: Seconds between two requests to a cluster that is away.
PAUSE = 1

#: The position is kept only in the dataset, and librdkafka may not move to another one.
_OURS = {"enable.auto.commit": False, "auto.offset.reset": "error", "enable.partition.eof": True}
_RESERVED = {*_OURS, "bootstrap.servers", "metadata.broker.list", "enable.auto.offset.store"}
_RESERVED |= {"error_cb", "logger"}
_DEFAULTS: dict[str, Any] = {
    "group.id": "tfrecorder",  # librdkafka requires one; nothing is committed for it
    "isolation.level": "read_committed",
    "reconnect.backoff.max.ms": 2000,
}

_SECRET = re.compile(r"password|passphrase|secret|token|pem|jaas|oauthbearer\.config|basic\.auth")

#: Errors that do not go away by waiting.
_REFUSALS = {
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError._FATAL,
}
#: The same, until the cluster has answered once; later, a proxy may just be restarting.
_REFUSALS_AT_FIRST = {KafkaError._SSL, KafkaError._CRIT_SYS_RESOURCE}
#: These only say that there was no answer; other errors say why.
_GENERAL = {KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN}
#: The answers for an offset that is not there, and for a topic that is not.
_LOST = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION}
_NO_TOPIC = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION}


def refuse_settings(settings: Mapping[str, Any]) -> None:
    """Raise an OptionError for settings of librdkafka that the caller may not set."""
    for name in settings:
        if name in _RESERVED:
            raise OptionError.of(name, settings[name], "the stream sets it itself; leave it out.")


def is_end(error: KafkaError | None) -> bool:
    """True if an error says that a partition has no more messages at present."""
    return error is not None and error.code() == KafkaError._PARTITION_EOF


class Topic:
    """A topic, and how far its messages have been fetched.

    Args:
        servers: addresses of brokers, separated by commas.
        name: the topic's name.
        settings: further settings of librdkafka; secrets among them appear in no message.
    """

    def __init__(
        self,
        servers: str,
        name: str,
        settings: Mapping[str, Any],
    ) -> None:
        self.name = name
        self._servers = servers
        self._settings = settings
        self._url = f"kafka://{servers}/{name}"
        self._client: Consumer | None = None
        self._answered = False
        self._away: Wait | None = None
        self._refusal: KafkaError | None = None

    # Requests to the cluster.

    def partitions(self) -> list[int]:
        """The numbers of its partitions.

        Raises:
            UnreachableError: the cluster could not be reached for two minutes.
            SourceError: there is no such topic, or the cluster refuses us.
        """
        return self._asked(lambda: self._list(ANSWER))

    def look(self) -> list[int] | None:
        """The same without waiting: None while the cluster is away, or sees no such topic.

        Raises:
            SourceError: the topic has been away from its cluster for two minutes.
        """
        try:
            partitions = self._list(LOOK)
        except TransientError as error:
            self._note(str(error))
            return None
        except _NoTopicError as error:
            self._note(f"there is no topic {self.name}")
            if self._away is not None and time.monotonic() - self._away.since > patience().seconds:
                raise SourceError(str(error)) from None
            return None
        self._away = None
        return partitions

    def ends(self, partition: int) -> tuple[int, int]:
        """The earliest offset of a partition, and the one its next message will get.

        Raises:
            UnreachableError: the cluster could not be reached for two minutes.
        """
        return self._asked(lambda: self._watermarks(TopicPartition(self.name, partition)))

    def known_end(self, partition: int) -> int | None:
        """The end of a partition as the latest fetch saw it; None before the first fetch."""
        end = self._consumer().get_watermark_offsets(
            TopicPartition(self.name, partition),
            cached=True,
        )[1]
        return end if end >= 0 else None

    # Messages.

    def assign(self, offsets: Mapping[int, int]) -> None:
        """Fetch only these partitions, from these offsets."""
        self._consumer().assign([TopicPartition(self.name, *pair) for pair in offsets.items()])

    def add(self, offsets: Mapping[int, int]) -> None:
        """Fetch these partitions too."""
        self._consumer().incremental_assign(
            [TopicPartition(self.name, *pair) for pair in offsets.items()]
        )

    def seek(
        self,
        partition: int,
        offset: int,
    ) -> None:
        """Fetch a partition, whose fetching had ended, from another offset."""
        consumer = self._consumer()
        place = TopicPartition(self.name, partition, offset)
        consumer.incremental_unassign([place])
        consumer.incremental_assign([place])

    def take(self, seconds: float) -> list[Message]:
        """Return what was fetched, including errors of partitions; waits for the first one.

        Raises:
            SourceError: the cluster refuses us.
        """
        consumer = self._consumer()
        messages: list[Message] = consumer.consume(TOGETHER, 0) or consumer.consume(1, seconds)
        self._raise_refusal()
        return messages

    def is_lost(self, error: KafkaError) -> bool:
        """True if the offset of a partition is not there; other errors are noted or raised.

        Raises:
            SourceError: the cluster refuses us.
        """
        if error.code() in _LOST:
            return True
        self._hear(error)
        self._raise_refusal()
        return False

    def pause(self, seconds: float) -> None:
        """Wait and say so while the cluster is away; otherwise return at once."""
        if self._away is not None:
            pause(self._away, min(seconds, PAUSE))

    @property
    def is_away(self) -> bool:
        """True if the cluster did not answer lately."""
        return self._away is not None

    def close(self) -> None:
        """Stop its threads and close its connections."""
        client = self._client
        self._client = None
        if client is not None:
            client.close()

    # How the cluster is asked, and what its answers mean.

    def _consumer(self) -> Consumer:
        if self._client is None:
            settings = {**_DEFAULTS, **self._settings, **_OURS, "bootstrap.servers": self._servers}
            try:
                self._client = Consumer({**settings, "error_cb": self._hear}, logger=_Log())
            except (KafkaException, TypeError, ValueError) as error:
                raise OptionError(f"Kafka: {self._shown(error)}.") from None
        return self._client

    def _asked(self, question: Callable[[], T]) -> T:
        try:
            answer = retried(question, self._url)
        except _NoTopicError as error:
            raise SourceError(str(error)) from None
        self._answered = True
        self._away = None
        return answer

    def _list(self, seconds: float) -> list[int]:
        try:
            topic = self._consumer().list_topics(self.name, timeout=seconds).topics[self.name]
        except KafkaException as error:
            raise self._failure(error) from None
        if topic.error is not None:
            if topic.error.code() in _NO_TOPIC:
                raise _NoTopicError(
                    f"there is no topic {self.name!r} at {self._servers}; create it first."
                )
            raise self._failure(KafkaException(topic.error))
        for number, partition in topic.partitions.items():
            if partition.leader < 0:
                raise TransientError(f"partition {number} of {self.name} has no leader")
        return sorted(topic.partitions)

    def _watermarks(self, place: Any) -> tuple[int, int]:
        try:
            ends = self._consumer().get_watermark_offsets(place, timeout=ANSWER)
        except KafkaException as error:
            raise self._failure(error) from None
        if ends is None:
            raise TransientError(f"partition {place.partition} of {self.name} did not answer")
        return ends

    def _failure(self, failed: Exception) -> Exception:
        """The error of a request in our terms, based on what the connection has reported since."""
        self._consumer().consume(1, 0)  # calls `_hear`
        if not self._away:
            self._hear(failed.args[0])
        self._raise_refusal()
        return TransientError(self._away.words if self._away else self._shown(failed))

    def _hear(self, error: KafkaError) -> None:
        """Note what a connection or a partition reports."""
        refusals = _REFUSALS if self._answered else _REFUSALS | _REFUSALS_AT_FIRST
        cut_off = "transport failure" in error.str()  # in the middle of a handshake
        if error.fatal() or (error.code() in refusals and not cut_off):
            self._refusal = error
        elif error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
            self._note(self._shown(error), error.code() in _GENERAL)

    def _note(
        self,
        words: str,
        general: bool = False,
    ) -> None:
        """Note that the cluster is away; a general message replaces no other."""
        since = self._away.since if self._away else time.monotonic()
        if self._away is None or not general:
            self._away = Wait(service_of(self._url), since, words)

    def _raise_refusal(self) -> None:
        if self._refusal is not None:
            raise SourceError(
                f"{self._url} refuses: {self._shown(self._refusal)}; check the TLS and SASL "
                "settings, and the rights of this user."
            )

    def _shown(self, error: Any) -> str:
        """The text of an error without its secrets."""
        inner = error.args[0] if isinstance(error, Exception) and error.args else error
        words = inner.str() if hasattr(inner, "str") else str(inner)
        for name, value in self._settings.items():
            if _SECRET.search(name) and value:
                words = words.replace(str(value), "***")
        return words.rstrip(".")


class _NoTopicError(Exception):
    """The cluster has no such topic."""


class _Log:
    """Receives librdkafka's own log, which would repeat each failure of an outage."""

    def log(
        self,
        level: int,
        words: str,
        *values: Any,
    ) -> None:
        logging.getLogger("tfrecorder.librdkafka").debug(words, *values)
