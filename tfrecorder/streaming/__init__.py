"""Datasets that grow: what is appended becomes a further generation."""

from tfrecorder.streaming.stream_source import StreamSource, Unusable

__all__ = ["StreamSource", "Unusable"]
