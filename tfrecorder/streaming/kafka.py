"""A Kafka topic as the source of a stream: its messages, and the row that each becomes.

The position is the next offset of each partition, and it is kept only in the dataset: we assign and
seek partitions ourselves, and no group commits anything.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
import re
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from confluent_kafka import Message

from tfrecorder.core.option import Fault, OneOf, option
from tfrecorder.errors import OptionError, SourceError
from tfrecorder.options.option import Options
from tfrecorder.sources.cells import is_data_uri
from tfrecorder.streaming.kafka_topic import Topic, is_end, refuse_settings
from tfrecorder.streaming.stream_source import Cells, RowAt, Unusable

#: The column of a message's key, for `split_by="key"`.
KEY_COLUMN = "key"

#: Seconds between two checks for new partitions of the topic.
LOOK_SECONDS = 30

#: Seconds for one wait for messages, and for all such waits until the ends of the topic are known.
SHORT = 0.5
LONG = 10

_URL = re.compile(r"kafka://(?P<servers>[^/@?#\s]+)/(?P<topic>[A-Za-z0-9._-]{1,249})/?")

_ANOTHER = "Stream it into another directory, which starts with its earliest message."

logger = logging.getLogger("tfrecorder")


def _check_field(value: Any) -> str | None:
    return None if isinstance(value, str) and value else "give the name of a field."


@dataclass(frozen=True, kw_only=True)
class KafkaOptions(Options):
    """How messages hold images and columns, and what to do where some are lost.

    Attributes:
        value: "json": an object whose fields are the columns of a row. "bytes": an image file; the
            columns are the headers, as texts.
        image: the column of the image: the field that holds its uri.
        image_bytes: the field of a JSON object that holds an image file in base64 instead.
        on_lost: what to do if the broker has deleted messages before they were read.  "raise" is an
            error; "skip" warns and continues with the earliest message that is still there.

    Raises:
        OptionError: a value that is not one of these.
    """

    value: str = option("json", OneOf("json", "bytes"))
    image: str = option("image_uri", _check_field)
    image_bytes: str = option("image_bytes", _check_field)
    on_lost: str = option("raise", OneOf("raise", "skip"))

    def _conflicts(self) -> Iterator[Fault]:
        if self.image == self.image_bytes:
            yield "image_bytes", "`image` is the same field; give another."


def open_kafka(
    url: str,
    *,
    config: Mapping[str, Any] | None = None,
    **options: Any,
) -> KafkaSource:
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

    def __init__(
        self,
        topic: Topic,
        options: KafkaOptions,
    ) -> None:
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

    def _refuse_fewer(
        self,
        read: set[int],
        partitions: list[int],
    ) -> None:
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


class _Poisoned(Exception):
    """A message that does not have the form it should; worded as a reject."""


def row_of(
    name: str,
    key: bytes | str | None,
    value: bytes | str | None,
    headers: Iterable[tuple[str, Any]] | None,
    options: KafkaOptions,
) -> Cells:
    """The row of a message; `Unusable`, with a reason, if it has none.

    Args:
        name: the message's name: TOPIC/PARTITION/OFFSET.
        key: becomes the column `key` if it is text and the message has no such column.

    >>> row_of("photos/0/7", b"cam 1", b'{"image_uri": "a.jpg", "label": 3}', None, KafkaOptions())
    {'image_uri': 'a.jpg', 'label': 3, 'key': 'cam 1'}
    >>> row_of("photos/0/8", None, b"hello", None, KafkaOptions()).reason
    'bad_json: the value is not JSON: Expecting value: line 1 column 1 (char 0)'
    """
    try:
        if value is None:
            raise _Poisoned("no_value: the message has no value")
        data = value.encode() if isinstance(value, str) else bytes(value)
        if options.value == "bytes":
            row = _texts(headers)
            row[options.image] = {"bytes": data, "path": name}
        else:
            row = _fields(data)
            _place_image(row, name, options)
    except _Poisoned as poisoned:
        return Unusable(name, str(poisoned))
    text = _text(key)
    if text is not None:
        row.setdefault(KEY_COLUMN, text)
    return row


def _fields(data: bytes) -> dict[str, Any]:
    """The fields of a JSON object."""
    try:
        text = data.decode("utf-8")
        value = json.loads(text, parse_constant=_refuse_constant)
        if "\\u" in text:  # half of a surrogate pair is not text, and no file could hold it
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise _Poisoned(f"bad_json: the value is not JSON: {error}") from error
    if not isinstance(value, dict):
        kind = type(value).__name__
        raise _Poisoned(f"bad_json: the value is not a JSON object with columns, but a {kind}")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


def _place_image(
    row: dict[str, Any],
    name: str,
    options: KafkaOptions,
) -> None:
    """Put the image into its column if it came as base64."""
    encoded = row.pop(options.image_bytes, None)
    if encoded is not None:
        row[options.image] = {"bytes": _decoded(encoded, options.image_bytes), "path": name}
        return
    uri = row.get(options.image)
    if uri is None or uri == "":
        words = f"the message has neither {options.image} nor {options.image_bytes}"
        raise _Poisoned(f"no_image: {words}")
    if not isinstance(uri, str):
        raise _Poisoned(f"bad_uri: {options.image} is not a text, but a {type(uri).__name__}")


def _decoded(encoded: Any, field: str) -> bytes:
    if not isinstance(encoded, str):
        kind = type(encoded).__name__
        raise _Poisoned(f"bad_base64: {field} is not a text in base64, but a {kind}")
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        words = str(error)
        if is_data_uri(encoded):
            words = "it is a data: uri, of which only what follows the comma is needed"
        elif not {*"-_"}.isdisjoint(encoded):
            words = "it is that for urls; write + and / for - and _"
        raise _Poisoned(f"bad_base64: {field} is not base64: {words}") from error


def _texts(headers: Iterable[tuple[str, Any]] | None) -> dict[str, Any]:
    """The headers of a message; if a name occurs twice, the last one counts."""
    texts = {}
    for name, value in headers or ():
        text = _text(value)
        if text is None and value is not None:
            raise _Poisoned(f"bad_header: {name[:80]!r} is not UTF-8 text")
        texts[name] = text
    return texts


def _text(data: bytes | str | None) -> str | None:
    """Bytes as text; None if they are not UTF-8."""
    if data is None or isinstance(data, str):
        return data
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None
