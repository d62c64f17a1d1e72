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
Check: TypeAlias = Literal["decode", "strict", "header"]
Resize: TypeAlias = Literal["stretch", "crop", "pad", "fit"]
ImageFormat: TypeAlias = Literal["keep", "jpeg", "png", "raw"]
Layout: TypeAlias = Literal["NHWC", "NCHW"]


class ArrowTable(Protocol):
    """A table that gives its rows by Arrow's own protocol: of polars, PyArrow, DuckDB, pandas."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...


Frame: TypeAlias = "pd.DataFrame | ArrowTable"
Source: TypeAlias = "Frame | Dataset | DatasetDict | Path | Sequence[Path] | IO[Any]"


class _Shards(TypedDict, total=False):
    num_shards: int | Mapping[str, int] | None
    """Shards of each split, of which none is empty: one number, or one per split, at least 1.
    Default: by the shard size, but up to 8 for a small split, so that reading mixes them."""
    shard_size: int | str
    """Target size of a shard, estimated from at most 1,000 image sizes. Units: B, KB, MB, GB, KiB,
    MiB, GiB."""
    shuffle: bool
    """Shuffle the rows of each split, or keep the source's order."""
    seed: int
    """Seed of the shuffle, and of the assignment of rows without a split. 0 to 4294967295."""


class _Rows(TypedDict, total=False):
    schema: Schema | Mapping[str, Any] | Path | None
    """What each column contains: a YAML or JSON file; in Python also a Schema or a dict.
    `tfrecorder schema` prints one to edit. Default: the columns split, image_uri and label, and the
    boxes, masks and lists of labels that the source shows."""
    splits: Mapping[str, float] | None
    """Shares of the splits for rows without a split; they must sum to 1. Default: TRAIN=0.8,
    VALIDATION=0.1, TEST=0.1."""
    stratify: bool
    """Keep the shares of the splits within each label, not only over all rows."""
    split_by: str | None
    """Rows with the same value in this column get the same split, such as all images of a patient.
    With COCO or YOLO, a CSV beside the annotations has this column."""
    check: Check
    """How to check each image. decode: accept only what decodes, so training never fails on it;
    strict: also reject what decodes with a warning; header: read only the headers of JPEG and PNG
    (format, size, channels, number of a JPEG's scans)."""
    max_pixels: int
    """Reject images with more pixels than this. At least 1."""


class _Records(_Shards, _Rows, total=False):
    image_size: int | tuple[int, int] | None
    """Store all images in this size: height and width in pixels, or one number for both. Default:
    as they are."""
    short_side: int | None
    """Shrink larger images to this short side, in pixels; smaller ones stay as they are. At least
    1."""
    resize: Resize
    """How to fit an image with other proportions to height and width. stretch: distort it; crop:
    cut the longer side, centred; pad: add black; fit: shrink it to stay within."""
    image_format: ImageFormat
    """How images are stored. keep: as their files are; jpeg; png; raw: as pixels, all of one size,
    read without decoding."""
    image_quality: int
    """Quality of images that are encoded as JPEG. 1 to 100."""
    apply_exif: bool
    """Turn images upright, following their EXIF orientation."""
    fingerprints: bool
    """Also decode images that the check does not decode, so that near copies of them are found.
    These are PNG, and with the check 'header' JPEG."""
    strip_metadata: bool
    """Cut EXIF (but for the orientation), XMP and comments out of JPEG and PNG; the pixels stay as
    they are encoded."""


class _Runners(TypedDict, total=False):
    runner_options: Mapping[str, Any] | None
    """Options of Beam and its runner, with or without leading dashes, checked by Beam."""
    project: str | None
    """Google Cloud project, for Dataflow."""
    region: str | None
    """Google Cloud region, for Dataflow."""
    num_workers: int | None
    """Local worker processes, or the machines that Dataflow starts with. Default: one process for
    every five cores if there are 50,000 rows or more, else one with threads on all. At least 1."""
    num_threads: int | None
    """Threads that load images, in each worker process. Default: one per core, or 16 if images come
    from a bucket. At least 1."""
    progress: bool | None
    """Show a progress bar. Default: only in a terminal or a notebook."""


class _Validated(TypedDict, total=False):
    base: Path | None
    """The folder that relative image paths start from. Default: the folder of the CSV; for COCO's
    JSON, where its images are found; for a frame or standard input, the current folder."""
    form: str | None
    """What a folder is read as, where it could be several. metadata: a table metadata.*; masks:
    pictures and their masks; folder: splits and classes by its folders alone; datumaro:NAME: a form
    that Datumaro reads, such as datumaro:kitti. Default: what its files say."""
    group_by: str | None
    """A column: rows with the same value become one record, such as all captions of an image.
    Columns of lists, such as `Text(shape=(None,))`, gather their values; all others must agree."""
    warnings: str | Sequence[str]
    """What to do about warnings of the validation. show: count them and go on; error: take all of
    them for errors; or a list of the codes to take for errors."""


class _Grouped(TypedDict, total=False):
    group_copies: bool
    """Put near copies of an image into one split, as far as rows state none. Each image is opened
    before anything is written, and once more to write it."""


class _Written(TypedDict, total=False):
    name: str | None
    """Write into the folder NAME/VERSION of the output directory, where tfds.load(NAME, data_dir=…)
    finds it. The version is 1.0.0, unless it is given, as in flowers:1.0.1."""
    overwrite: bool | Literal["all"]
    """Replace a dataset that tfrecorder wrote there before, once the new one is complete. all: even
    if rows were appended or streamed to it, which the source may not have; rows that were removed
    from it may come back."""


class _Converted(_Records, _Runners, _Validated, total=False):
    max_reject_fraction: float
    """Fail before the commit if more than this share of the rows, 0 to 1, is rejected."""
    private_hosts: bool
    """Also read images over http(s) from private addresses, such as 10.0.0.7."""


class _Grown(_Converted, total=False):
    new_classes: Literal["warn", "refuse", "allow"]
    """What to do with classes that the dataset does not have. warn: add them, and name those that
    look like one it has; refuse: raise an error; allow: add them."""
    readmit: bool
    """Also add rows whose images, by place or bytes, were removed from the dataset before. Default:
    skip and count them."""


class AppendKeywords(_Grown, _Grouped, total=False):
    duplicates: Literal["name", "content", "keep"]
    """What to do with rows whose images are already in the dataset. name: skip those of the same
    place, warn of the same bytes under another name; content: skip both; keep: add all."""
    retry_rejects: bool
    """Also add rows that the dataset has only as rejects: their images may exist now."""


class UpdateKeywords(_Grown, total=False):
    missing: Literal["keep", "remove"]
    """What to do with rows of the dataset that the source does not have. keep: nothing; remove:
    remove their records."""
    reread: bool
    """Also read images again whose files have changed since they were converted."""


class ConvertKeywords(_Converted, _Written, _Grouped, total=False):
    pass


class FrameKeywords(ConvertKeywords, AppendKeywords, UpdateKeywords, total=False):
    pass


class StageKeywords(_Records, _Validated, _Written, _Grouped, total=False):
    pass


class StreamKeywords(_Records, total=False):
    name: str | None
    """Write into the folder NAME/VERSION of the output directory, where tfds.load(NAME, data_dir=…)
    finds it. The version is 1.0.0, unless it is given, as in flowers:1.0.1."""
    num_threads: int | None
    """Threads that load images, in each worker process. Default: one per core, or 16 if images come
    from a bucket. At least 1."""
    progress: bool | None
    """Show a progress bar. Default: only in a terminal or a notebook."""
    every_rows: int
    """Write a batch once it has this many rows. At least 1."""
    every_seconds: float
    """Write a batch once its first row is this many seconds old, from 0."""
    spool_size: int | str
    """Write a batch once its images take this much space in the output directory (only for sources
    whose rows contain images)."""
    until_idle: float | None
    """Stop once no image has arrived for this many seconds, from 0. Default: run until Ctrl-C."""
    readmit: bool
    """Also add rows whose images, by place or bytes, were removed from the dataset before. Default:
    skip and count them."""


class RemoveKeywords(_Runners, total=False):
    runner: str | None
    """The Beam runner: DirectRunner, DataflowRunner, DaskRunner, FlinkRunner, PortableRunner,
    PrismRunner, SparkRunner, in any case, or the dotted path of a class. Default: the DirectRunner;
    without Apache Beam, this process."""


class CompactKeywords(_Shards, _Runners, _Written, total=False):
    runner: str | None
    """The Beam runner: DirectRunner, DataflowRunner, DaskRunner, FlinkRunner, PortableRunner,
    PrismRunner, SparkRunner, in any case, or the dotted path of a class. Default: the DirectRunner;
    without Apache Beam, this process."""


class ValidateKeywords(_Rows, _Validated, _Grouped, total=False):
    seed: int
    """Seed of the shuffle, and of the assignment of rows without a split. 0 to 4294967295."""
    private_hosts: bool
    """Also read images over http(s) from private addresses, such as 10.0.0.7."""
    progress: bool | None
    """Show a progress bar. Default: only in a terminal or a notebook."""


class _Keys(TypedDict, total=False):
    at: int | None
    """The last generation of the dataset to read. Default: the newest. At least 0."""
    image: str | None
    """Key of the image, in records of other tools. Default: by their metadata or usual names."""
    label: str | None
    """Key of the label, in records of other tools. Default: by their metadata or usual names."""
    features: Mapping[str, str] | None
    """What a key holds, in records of other tools: int64, float, text or bytes, of which each
    record has one value; with ? at most one, with [] a list, with [16] so many. Default: as in the
    first and the last record of each file."""


class CardKeywords(TypedDict, total=False):
    num_records: int
    """How many random records of each split to decode, at most. At least 1."""
    per_split: int
    """How many records of each split to show. 1 to 200."""
    seconds: float
    """Seconds, from 0, that the search for duplicates may take. It compares all records by a hash
    of the image's bytes, then those that may be near copies; if time runs out, the page says how
    many it compared."""
    seed: int
    """Seed of the choice of records. At least 0."""
    progress: bool | None
    """Show a progress bar. Default: only in a terminal or a notebook."""


class PreviewKeywords(_Keys, CardKeywords, total=False):
    pass


class ReadKeywords(_Keys, total=False):
    image_size: int | tuple[int, int] | None
    """Height and width in pixels, or one number for a square. Default: as each image is stored."""
    resize: Resize
    """How to fit an image with other proportions to the image size. stretch: distort it; crop: cut
    the longer side, centred; pad: add black; fit: shrink it to stay within, never enlarge it, so
    that images differ in size."""
    antialias: bool
    """When an image shrinks, average all pixels that fall together. `antialias=False` is plain
    bilinear sampling: less work, but aliased."""
    dtype: Any  # also a type of NumPy or of TensorFlow
    """Type of the pixels: uint8 (uint16 where the schema has `Image(depth=16)`), float32, float16
    or bfloat16."""
    value_range: tuple[float, float] | None
    """What pixels of 0 and 255 (65,535 of 16 bits) become, such as `value_range=(-1, 1)`. Default:
    (0, 1) for floats; whole numbers stay as they are."""
    mean: ByChannel | None
    """With `std`: pixels become (x / 255 - mean) / std, or x / 65,535 for 16 bits. One number, or
    one for each channel; or 'imagenet' (torchvision's values) or 'clip' (OpenAI's)."""
    std: ByChannel | None
    """The standard deviation that goes with `mean`, given in the same way."""
    decode: bool
    """Decode the images; `decode=False` gives the stored bytes of each."""
    seed: int | None
    """Seed of the order, `augment` and `choose`. Default: drawn at random, and kept by the
    position; 0 in several processes, which all need the same. 0 to 4294967295."""
    map_fn: Callable[..., Any] | None
    """A function that is called on each record's `(image, label)`, or on its dict with
    `inputs='all'`, in parallel, after decoding and before batching. `load` lets TensorFlow trace
    it; `Records` and `batches` give it NumPy arrays."""
    augment: bool
    """Take a random part of each image, at `image_size`, and mirror it half of the time."""
    inputs: Sequence[str] | str | None
    """The columns in the first half of an element: one gives its value, several a dict.
    `inputs='all'` gives a dict of every stored feature in place of both halves. Default: the images
    or, if there are none, all numbers, texts and bytes that are not targets."""
    targets: Sequence[str] | None
    """The columns in the second half. Default: labels, boxes, masks, and the numbers that the
    schema marks as targets."""
    max_boxes: int | None
    """Pad the boxes of each image to this many, with zeros and the class -1, and leave out any
    more. Default: all of them; batches of `load` are then ragged. At least 1."""
    where: Mapping[str, Any] | Callable[[Any], Any] | None
    """Only records for which this holds: columns, all of which must agree, each with a value, a
    list of values, or a tuple of two numbers, which is a range with both ends in it, such as
    `where={'label': ['cat', 'dog'], 'age': (18, None)}`; or a function from a frame, as
    `Records.table()` gives it, to True or False for each row."""
    classes: str | Mapping[Any, Any] | None
    """How the classes of several datasets become one list. 'by name': each name has one integer;
    those of the first dataset keep theirs. 'equal': refuse other classes than those of the first.
    Or new names, in the order of their integers, each with the classes that it is made of, such as
    `classes={'cat': ['cat', 'kitten'], 'dog': ['dog']}`, also for one dataset: records of any other
    class are left out. Default: 'by name'."""
    local_cache: Path | None
    """A folder on a local disk that keeps what is read from a bucket. It serves the next epochs and
    runs, and other processes with the same folder. Default: nothing is kept."""
    cache_bytes: int | str | None
    """The most that the local cache may hold, in bytes or as text such as '500GiB'. Once it is
    full, everything else is read without being kept. Default: nine tenths of what its disk has
    left."""


class _Epochs(ReadKeywords, total=False):
    follow: bool
    """Look for new generations before each epoch, not only when the dataset is opened."""
    shard: tuple[int, int] | None
    """(index, count): only this process's part, of parts that differ by one record at most.
    `shard=(0, 1)` reads everything. Default: by torch.distributed or jax.distributed if one is
    initialized, else by RANK and WORLD_SIZE, else by the tasks of a SLURM step."""
    ram_budget: int | str | None
    """Memory for the buffers of one split, in bytes or as text such as '4GiB'. Default: a quarter
    of what the process may use; of several processes on a machine, each its part."""
    balance: Any  # a name, a mapping, or an array
    """How often each record comes. `balance='label'` makes each class as frequent; any other column
    of texts each of its values, and one of numbers has the weights. Or a weight for each class,
    such as `{'cat': 2, 'dog': 1}`, or for each record, as an array. In each epoch a record, a class
    and a dataset come as often as expected, to the next whole number."""
    epoch_size: int | None
    """Records in an epoch. Default: as many as there are, or as are chosen. At least 1."""


class _Loading(_Epochs, total=False):
    drop_remainder: bool
    """Leave out the last batch of an epoch if it is not full."""
    shuffle: bool | int | str | None
    """True, False, or how many records to hold in memory to choose from. 'exact' shuffles the whole
    split, in the order that `tfrecorder.batches` has with the same `seed`, `batch_size` and
    `shard`; `augment` takes the same parts. Default: shuffle TRAIN, with a number that fits
    `ram_budget`, and keep the order of other splits."""
    cache: bool | Path
    """Keep the decoded images after the first epoch (with `augment` or `decode=False` the stored
    bytes): True in memory, a path in files there."""
    start: tuple[int, int] | None
    """(epoch, step), both from 0: every iteration gives this epoch's order, without its first
    steps, which were trained on before an interruption. A step is a batch, or an image without
    `batch_size`. Needs `seed`. Begin a run to be continued with `start=(0, 0)`: without `start` the
    order is another, on each iteration."""


class LoadKeywords(_Loading, total=False):
    batch_size: int | None
    """Images per batch. Default: single images. At least 1."""


class BenchmarkKeywords(_Loading, total=False):
    batch_size: int
    """Images per batch. At least 1."""
    seconds: float
    """Seconds to measure, above 0, after ten batches or two seconds to warm up."""
    step_ms: float | None
    """Simulate a training step of this many milliseconds, above 0. It shows what share of the time
    an accelerator would wait. Default: take batches as fast as they come."""


class BatchKeywords(_Epochs, total=False):
    batch_size: int
    """Records per batch, in each process. At least 1."""
    drop_remainder: bool | None
    """Leave out the last records if they do not fill a batch in every process. With
    `drop_remainder=False`, the processes divide them: all take equally many steps, and their last
    batches differ by one record at most. Default: True for TRAIN in several processes without
    `pad`, else False."""
    pad: bool
    """Fill the last batch in every process with records from the beginning of the epoch. Each batch
    then has one value more, its last: a bool for each record, False if it is repeated."""
    shuffle: bool | str | None
    """'exact' or True shuffles the whole split. 'blocks', for buckets, shuffles blocks of
    neighbouring records of about 0.5 MiB, and the records within 128 blocks. False keeps the stored
    order. Default: 'exact' for TRAIN, False for other splits."""
    num_threads: int | None
    """Threads that decode. Default: one for each core of the process but one. At least 1."""
    choose: Literal["random"] | None
    """Of each list of texts, such as the captions of an image: random gives one, drawn anew in each
    epoch by `seed` and the record's number; an empty text if there is none. Default: whole lists,
    for `map_fn`."""
    layout: Layout
    """Axes of images and masks: NHWC or NCHW."""


class TensorKeywords(BatchKeywords, total=False):
    num_workers: int
    """Worker processes of a `DataLoader` that decode, in place of threads. Default: none. At least
    0."""
