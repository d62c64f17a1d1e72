"""The options that each call takes, and what may be given for them: names and types alone.

Type checkers see these.  What an option does, its default and its check stand in the dataclasses of
`options/` and of the readers, with the type in which its value is kept.  The functions
whose result depends on `runner` name that option themselves.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypedDict

from tfrecorder.schema.kinds import Schema

if TYPE_CHECKING:
    import pandas as pd
    from datasets import Dataset, DatasetDict
    from typing_extensions import Unpack as Unpack
else:
    Unpack = None  # which nobody evaluates


COCO, CSV, FOLDER, WEBDATASET, YOLO = FORMS = ("coco", "csv", "folder", "webdataset", "yolo")
#: Of the images of an export.
IMAGE_FORMATS = ("keep", "jpeg", "png")


Path: TypeAlias = str | os.PathLike[str]
#: One dataset, several, or several with how much of an epoch each is.
Datasets: TypeAlias = Path | Sequence[Path] | Mapping[str, float]
#: One number for all channels, or one for each; or the name of such numbers.
ByChannel: TypeAlias = float | Sequence[float] | Literal["imagenet", "clip"]
OnDataflow: TypeAlias = Literal["DataflowRunner"]


class ArrowTable(Protocol):
    """A table that gives its rows by Arrow's own protocol: of polars, PyArrow, DuckDB, pandas."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...


Frame: TypeAlias = "pd.DataFrame | ArrowTable"
Source: TypeAlias = "Frame | Dataset | DatasetDict | Path | Sequence[Path] | IO[Any]"


class _Shards(TypedDict, total=False):
    num_shards: int | Mapping[str, int] | None
    shard_size: int | str
    shuffle: bool
    seed: int


class _Rows(TypedDict, total=False):
    schema: Schema | Mapping[str, Any] | Path | None
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
    fingerprints: bool
    strip_metadata: bool


class _Runners(TypedDict, total=False):
    runner_options: Mapping[str, Any] | None
    project: str | None
    region: str | None
    num_workers: int | None
    num_threads: int | None
    progress: bool | None


class _Validated(TypedDict, total=False):
    base: Path | None
    form: str | None
    group_by: str | None
    warnings: str | Sequence[str]


class _Grouped(TypedDict, total=False):
    group_copies: bool


class _Written(TypedDict, total=False):
    name: str | None
    overwrite: bool | str


class _Converted(_Records, _Runners, _Validated, total=False):
    max_reject_fraction: float
    private_hosts: bool


class _Grown(_Converted, total=False):
    new_classes: str
    readmit: bool


class AppendKeywords(_Grown, _Grouped, total=False):
    duplicates: str
    retry_rejects: bool


class UpdateKeywords(_Grown, total=False):
    missing: str
    reread: bool


class ConvertKeywords(_Converted, _Written, _Grouped, total=False):
    pass


class FrameKeywords(ConvertKeywords, AppendKeywords, UpdateKeywords, total=False):
    pass


class StageKeywords(_Records, _Validated, _Written, _Grouped, total=False):
    pass


class StreamKeywords(_Records, total=False):
    name: str | None
    num_threads: int | None
    progress: bool | None
    every_rows: int
    every_seconds: float
    spool_size: int | str
    until_idle: float | None
    readmit: bool


class RemoveKeywords(_Runners, total=False):
    runner: str | None


class CompactKeywords(_Shards, _Runners, _Written, total=False):
    runner: str | None


class ValidateKeywords(_Rows, _Validated, _Grouped, total=False):
    seed: int
    private_hosts: bool
    progress: bool | None


class _Keys(TypedDict, total=False):
    at: int | None
    image: str | None
    label: str | None
    features: Mapping[str, str] | None


class CardKeywords(TypedDict, total=False):
    num_records: int
    per_split: int
    seconds: float
    seed: int
    progress: bool | None


class PreviewKeywords(_Keys, CardKeywords, total=False):
    pass


class ReadKeywords(_Keys, total=False):
    image_size: int | tuple[int, int] | None
    resize: str
    antialias: bool
    dtype: Any  # also a type of NumPy or of TensorFlow
    value_range: tuple[float, float] | None
    mean: ByChannel | None
    std: ByChannel | None
    decode: bool
    seed: int | None
    map_fn: Callable[..., Any] | None
    augment: bool
    inputs: Sequence[str] | str | None
    targets: Sequence[str] | None
    max_boxes: int | None
    where: Mapping[str, Any] | Callable[[Any], Any] | None
    classes: str | Mapping[Any, Any] | None
    local_cache: Path | None
    cache_bytes: int | str | None


class _Epochs(ReadKeywords, total=False):
    follow: bool
    shard: tuple[int, int] | None
    ram_budget: int | str | None
    balance: Any  # a name, a mapping, or an array
    epoch_size: int | None


class _Loading(_Epochs, total=False):
    drop_remainder: bool
    shuffle: bool | int | str | None
    cache: bool | Path
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
    pad: bool
    shuffle: bool | str | None
    num_threads: int | None
    choose: Literal["random"] | None
    layout: str


class TensorKeywords(BatchKeywords, total=False):
    num_workers: int
