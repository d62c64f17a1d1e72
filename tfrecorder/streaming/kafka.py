"""A Kafka topic as the source of a stream.

The position is the next offset of each partition, and it is kept only in the dataset: we assign and
seek partitions ourselves, and no group commits anything.
"""

from __future__ import annotations

import logging
import re
import time
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import Message

from tfrecorder.errors import OptionError, SourceError
from tfrecorder.streaming.kafka_messages import KafkaOptions, row_of
from tfrecorder.streaming.kafka_topic import Topic, is_end, refuse_settings
from tfrecorder.streaming.stream_source import RowAt

#: Seconds between two checks for new partitions of the topic.
LOOK_SECONDS = 30

#: Seconds for one wait for messages, and for all such waits until the ends of the topic are known.
SHORT = 0.5
LONG = 10

_URL = re.compile(r"kafka://(?P<servers>[^/@?#\s]+)/(?P<topic>[A-Za-z0-9._-]{1,249})/?")

_ANOTHER = "Stream it into another directory, which starts with its earliest message."

logger = logging.getLogger("tfrecorder")


def open_kafka(url: str, *, config: Mapping[str, Any] | None = None, **options: Any) -> KafkaSource:
    """A Kafka topic, to be read by `tfrecorder.stream`; no broker is contacted yet.

    Args:
        url: kafka://HOST:PORT[,HOST:PORT …]/TOPIC.
        config: settings of librdkafka, such as {"security.protocol": "SASL_SSL", …}.
        **options: those of `KafkaOptions`.

    Raises:
        OptionError: an argument is wrong.
    """
    match = _URL.fullmatch(url)
    if match is None:
        shown = re.sub(r"//[^/]*@", "//***@", url)
        user = "; give user and password as sasl.username and sasl.password"
        more = user if shown != url else ""
        raise OptionError(f"{shown!r} is not kafka://HOST:PORT[,HOST:PORT …]/TOPIC{more}.")
    chosen = KafkaOptions.of(options)
    settings = dict(config or {})
    refuse_settings(settings)
    return KafkaSource(Topic(match["servers"], match["topic"], settings), chosen)


class KafkaSource:
    """The messages of a topic as rows; a `StreamSource`.

    A position is the offset of the next message of each partition, {"0": 118, "1": 97}.

    Args:
        topic: the topic to read.
        options: the form of its messages, and what to do where some are lost.
    """

    def __init__(self, topic: Topic, options: KafkaOptions) -> None:
        self.name = f"kafka:{topic.name}"
        self._topic = topic
        self._options = options
        self._held: deque[Message] = deque()
        self._next: dict[int, int] = {}
        self._ended: set[int] = set()
        self._stands_at: Any = None
        self._is_assigned = False
        self._looked = 0.0

    def rows(self, position: Any) -> Iterator[RowAt]:
        """The messages behind a position that are there now, each with the position behind it.

        Args:
            position: None starts at the earliest message of each partition that is still there.

        Raises:
            SourceError: messages behind the position were deleted, or the cluster refuses us.
            UnreachableError: the cluster could not be reached for the first two minutes.
        """
        if not self._is_assigned or position != self._stands_at:
            self._go_to(position)
        self._look_when_due()
        while self._held or self._fetch_until_ended():
            message = self._held.popleft()
            error = message.error()
            if error is None:
                yield self._taken(message)
            elif is_end(error):
                self._ended.add(message.partition())
            elif self._topic.is_lost(error):
                self._find_again(message.partition())

    def wait(self, seconds: float) -> None:
        """Return once a message is there, or after this many seconds at the latest.

        Raises:
            SourceError: the cluster refuses us, or no longer has the topic.
        """
        end = time.monotonic() + seconds
        while self._is_assigned and not self._held and (left := end - time.monotonic()) > 0:
            self._topic.pause(left)
            self._look_when_due(self._topic.is_away)
            self._held.extend(self._topic.take(min(left, SHORT)))
            while self._held and is_end(self._held[0].error()):
                self._ended.add(self._held.popleft().partition())

    def behind(self, position: Any) -> int:
        """How many messages are behind a position, as seen by the latest fetches."""
        if not self._is_assigned:
            return 0
        counts = []
        for partition, offset in self._next.items():
            taken = (position or {}).get(str(partition), offset)
            end = self._topic.known_end(partition)
            ended = partition in self._ended and taken == offset
            counts.append(0 if end is None or ended else max(0, end - taken))
        return sum(counts)

    def close(self) -> None:
        """Close the connections; the next `rows` opens new ones."""
        self._held.clear()
        self._is_assigned = False
        self._topic.close()

    def _go_to(self, position: Mapping[str, int] | None) -> None:
        partitions = self._topic.partitions()
        if position is None:
            self._next = {partition: self._topic.ends(partition)[0] for partition in partitions}
        else:
            # For a partition that is new since then, all messages are behind the position.
            self._next = {partition: position.get(str(partition), 0) for partition in partitions}
            self._refuse_fewer({int(partition) for partition in position}, partitions)
        self._held.clear()
        self._ended.clear()
        self._topic.assign(self._next)
        self._is_assigned = True
        self._stands_at = position
        self._looked = time.monotonic()

    def _refuse_fewer(self, read: set[int], partitions: list[int]) -> None:
        gone = sorted(read.difference(partitions))
        if gone:
            raise SourceError(
                f"{self.name} has {len(partitions)} partitions, but the stream has already read "
                f"partition {gone[-1]}: the topic was recreated. {_ANOTHER}"
            )

    def _look_when_due(self, is_due: bool = False) -> None:
        """Look for new partitions, and see whether the cluster is back."""
        if not is_due and time.monotonic() - self._looked < LOOK_SECONDS:
            return
        partitions = self._topic.look()
        self._looked = time.monotonic()
        if partitions is not None:
            self._refuse_fewer({*self._next}, partitions)
            new = {partition: 0 for partition in partitions if partition not in self._next}
            if new:
                self._next |= new
                self._topic.add(new)

    def _fetch_until_ended(self) -> bool:
        """True once a message is there; False if no partition has more at present."""
        until = time.monotonic() + LONG
        while not self._held:
            ended = all(map(self._is_ended, self._next))
            self._held.extend(self._topic.take(0 if ended else SHORT))
            if ended or self._topic.is_away or time.monotonic() > until:
                break
        return bool(self._held)

    def _is_ended(self, partition: int) -> bool:
        end = self._topic.known_end(partition)
        return partition in self._ended or (end is not None and end <= self._next[partition])

    def _taken(self, message: Message) -> RowAt:
        partition = message.partition()
        offset = message.offset()
        self._next[partition] = offset + 1
        self._ended.discard(partition)
        position = {str(partition): at for partition, at in self._next.items()}
        self._stands_at = position
        name = f"{self._topic.name}/{partition}/{offset}"
        row = row_of(name, message.key(), message.value(), message.headers(), self._options)
        return row, position

    def _find_again(self, partition: int) -> None:
        """Continue with a partition whose next message the broker does not have, if allowed."""
        at = self._next[partition]
        first, end = self._topic.ends(partition)
        if at < first:
            words = (
                f"{self.name}, partition {partition}: the next message is {at:,}, but the earliest "
                f"that the broker still has is {first:,}; it has deleted {first - at:,} messages "
                "that were not read"
            )
            if self._options.on_lost == "raise":
                raise SourceError(
                    f"{words}. Let the topic keep them for longer; "
                    'on_lost="skip" continues without them.'
                )
            logger.warning("%s; the stream continues without them.", words)
            self._next[partition] = at = first
        elif at > end:
            raise SourceError(
                f"{self.name}, partition {partition}: the next message is {at:,}, but the topic "
                f"ends at {end:,}: it was recreated, or its broker has lost messages. {_ANOTHER}"
            )
        self._topic.seek(partition, at)
