"""The options of each call, for type checkers: names and types alone.

What an option does, its default and its check stand once, in the dataclasses of `options/` and of
the readers; a test compares these types with theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

from tfrecorder.schema.kinds import Schema


class _Shards(TypedDict, total=False):
    num_shards: int | Mapping[str, int] | None
    shard_size: int | str
    shuffle: bool
    seed: int


class _Rows(TypedDict, total=False):
    schema: Schema | None
    splits: Mapping[str, float] | None
    stratify: bool
    split_by: str | None
    check: str
    max_pixels: int


class _Records(_Shards, _Rows, total=False):
    image_size: int | tuple[int, int] | None
    short_side: int | None
    resize: str
    image_format: str
    image_quality: int
    apply_exif: bool


class _Runners(TypedDict, total=False):
    runner: str | None
    runner_options: Mapping[str, Any]
    project: str | None
    region: str | None
    num_workers: int | None
    num_threads: int | None
    progress: bool | None


class AppendKeywords(_Records, _Runners, total=False):
    base: str | None
    warnings: str | tuple[str, ...]
    max_reject_fraction: float


class ConvertKeywords(AppendKeywords, total=False):
    name: str | None
    overwrite: bool


class ToTFRecordKeywords(ConvertKeywords, total=False):
    duplicates: str
    retry_rejects: bool
    stage_only: bool


class StageKeywords(_Records, total=False):
    base: str | None
    warnings: str | tuple[str, ...]
    name: str | None
    overwrite: bool


class StreamKeywords(_Records, total=False):
    name: str | None
    num_threads: int | None
    progress: bool | None
    every_rows: int
    every_seconds: float
    spool_size: int | str
    until_idle: float | None


class CompactKeywords(_Shards, _Runners, total=False):
    name: str | None
    overwrite: bool


class ValidateKeywords(_Rows, total=False):
    base: str | None
    seed: int
    warnings: str | tuple[str, ...]
    progress: bool | None


class _Keys(TypedDict, total=False):
    at: int | None
    image: str | None
    label: str | None


class PreviewKeywords(_Keys, total=False):
    num_records: int
    per_split: int
    seconds: float
    seed: int
    progress: bool | None


class ReadKeywords(_Keys, total=False):
    image_size: int | tuple[int, int] | None
    resize: str
    antialias: bool
    dtype: str
    value_range: tuple[float, float] | None
    decode: bool
    seed: int | None
    map_fn: Callable[..., Any] | None
    augment: bool
    inputs: Sequence[str] | str | None
    targets: Sequence[str] | None
    max_boxes: int | None


class _Epochs(ReadKeywords, total=False):
    follow: bool
    shard: tuple[int, int] | None
    ram_budget: int | str | None


class _Loading(_Epochs, total=False):
    drop_remainder: bool
    shuffle: bool | int | str | None
    cache: bool | str
    start: tuple[int, int] | None


class LoadKeywords(_Loading, total=False):
    batch_size: int | None


class BenchmarkKeywords(_Loading, total=False):
    batch_size: int
    seconds: float
    step_ms: float | None


class BatchKeywords(_Epochs, total=False):
    batch_size: int
    drop_remainder: bool | None
    shuffle: bool | str | None
    num_threads: int | None
    layout: str
