"""The source of a stream, from what its user names: an object, a folder, a Kafka topic."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

from tfrecorder import storage
from tfrecorder.core.checks import is_text, seconds
from tfrecorder.errors import OptionError, SourceError, refuse_missing
from tfrecorder.options.option import names_of
from tfrecorder.streaming.stream_source import OpenedSource, StreamSource
from tfrecorder.streaming.watched_folder import SETTLE, WatchedFolder


def open_source(source: Any, where: str, options: Mapping[str, Any]) -> OpenedSource:
    """The source that a user names.

    Args:
        where: the output directory.
        options: the source's options.

    Raises:
        SourceError, OptionError: there is no such source, or its options are wrong.
    """
    if isinstance(source, (str, os.PathLike)):
        path = storage.given_path(source)
        is_topic = path.startswith("kafka://")
        source = _topic(path, options) if is_topic else _folder(path, where, options)
    elif not (hasattr(source, "rows") and hasattr(source, "wait")):
        raise SourceError(
            f"source is a {type(source).__name__}; give a folder, kafka://host:port/topic, or an "
            "object with the methods of tfrecorder.streaming.StreamSource."
        )
    elif options:
        raise OptionError.of("source_options", ..., "a source object has none; leave it out.")
    name = getattr(source, "name", None)
    if not is_text(name):
        raise SourceError(
            f"source {name!r}: positions are saved under its `name`; give it one, and in Unicode."
        )
    return OpenedSource(source)


def _topic(url: str, options: Mapping[str, Any]) -> StreamSource:
    refuse_missing("confluent_kafka")
    from tfrecorder.streaming.kafka import KafkaOptions, open_kafka

    # All settings of librdkafka have a dot in their names.
    settings = {name: value for name, value in options.items() if "." in name}
    others = {name: value for name, value in options.items() if "." not in name}
    _refuse_unknown(others, "Kafka", names_of(KafkaOptions))
    return open_kafka(url, config=settings, **others)


def _folder(path: str, where: str, options: Mapping[str, Any]) -> WatchedFolder:
    _refuse_unknown(options, "a folder", ("settle",))
    settle = options.get("settle", SETTLE)
    with contextlib.suppress(TypeError, ValueError):
        settle = float(settle)  # a shell passes text
    if remedy := seconds(settle):
        raise OptionError.of("source_options", {"settle": settle}, remedy)
    folder = WatchedFolder(path, settle)
    if f"{where}/".startswith(f"{folder.base}/"):
        words = "it is inside the watched folder; give a directory outside it."
        raise OptionError.of("output_dir", where, words)
    return folder


def _refuse_unknown(options: Mapping[str, Any], kind: str, names: Sequence[str]) -> None:
    if unknown := sorted(set(options).difference(names)):
        words = f"{kind} has no option {unknown[0]!r}; it has {', '.join(names)}."
        raise OptionError.of("source_options", ..., words)  # some values are passwords
