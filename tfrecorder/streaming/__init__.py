"""Datasets that grow: what is appended becomes a further generation."""

from tfrecorder.streaming.stream_source import StreamSource as StreamSource, Unusable as Unusable
