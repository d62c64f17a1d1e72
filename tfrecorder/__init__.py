"""tfrecorder: a pandas frame of images in, a training-ready TFRecord dataset out.

    >>> import pandas as pd, tfrecorder
    >>> df = pd.read_csv("flowers.csv")                  # split,image_uri,label  # doctest: +SKIP
    >>> df.tensorflow.to_tfrecord(output_dir="out")      # doctest: +SKIP
    >>> train = tfrecorder.load("out")["TRAIN"]          # doctest: +SKIP

Importing the package registers `df.tensorflow`. It loads neither TensorFlow nor Apache Beam: each
function imports what it needs when it is called.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tfrecorder.cli import process as _process  # noqa: F401  (before the others)

# isort: split
from tfrecorder import accessor as _accessor  # noqa: F401  (registers df.tensorflow)
from tfrecorder.errors import (
    DatasetError,
    ImagesUnreachableError,
    OptionError,
    OutputError,
    PackageError,
    RejectedError,
    RunnerError,
    SourceError,
    TfrecorderError,
    UnreachableError,
    ValidationError,
)
from tfrecorder.errors import missing_explained as _missing_explained
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.version import __version__

if TYPE_CHECKING:
    from tfrecorder.conversion.convert import convert
    from tfrecorder.conversion.convert_and_load import convert_and_load
    from tfrecorder.conversion.stage import stage
    from tfrecorder.dataset.example import parse_example
    from tfrecorder.growing.append import append
    from tfrecorder.growing.compact import compact
    from tfrecorder.growing.stream import StreamResult, stream
    from tfrecorder.growing.stream_source import StreamSource, Unusable
    from tfrecorder.indexed.batches import Batches, batches
    from tfrecorder.indexed.records import Records
    from tfrecorder.inspection.inspect import inspect
    from tfrecorder.inspection.preview import Preview, preview
    from tfrecorder.loading.load import load
    from tfrecorder.loading.options import LoadOptions
    from tfrecorder.loading.throughput import Throughput, benchmark
    from tfrecorder.loading.training import TrainingPosition
    from tfrecorder.runners.dataflow.job import DataflowJob, JobStatus
    from tfrecorder.schema.kinds import (
        Boxes,
        Bytes,
        Ignore,
        Image,
        Label,
        Labels,
        Mask,
        Number,
        Schema,
        Split,
        Text,
    )
    from tfrecorder.sources.inference import infer_schema
    from tfrecorder.stored.column_info import ColumnInfo
    from tfrecorder.stored.frame import to_frame
    from tfrecorder.stored.generations import generations
    from tfrecorder.stored.info import DatasetInfo, info
    from tfrecorder.validation.validate import validate
    from tfrecorder.verification.faults import VerificationReport
    from tfrecorder.verification.repair import RepairResult, repair
    from tfrecorder.verification.verify import verify
    from tfrecorder.writing.parts import PartResult, commit, work
    from tfrecorder.writing.result import ConversionResult
    from tfrecorder.writing.status import ConversionStatus, status

#: Public names whose modules are imported on first use.
_LAZY = {
    "ColumnInfo": "tfrecorder.stored.column_info",
    "DataflowJob": "tfrecorder.runners.dataflow.job",
    "DatasetInfo": "tfrecorder.stored.info",
    "JobStatus": "tfrecorder.runners.dataflow.job",
    "LoadOptions": "tfrecorder.loading.options",
    "Throughput": "tfrecorder.loading.throughput",
    "TrainingPosition": "tfrecorder.loading.training",
    "append": "tfrecorder.growing.append",
    "compact": "tfrecorder.growing.compact",
    "StreamResult": "tfrecorder.growing.stream",
    "StreamSource": "tfrecorder.growing.stream_source",
    "Unusable": "tfrecorder.growing.stream_source",
    "stream": "tfrecorder.growing.stream",
    "Batches": "tfrecorder.indexed.batches",
    "batches": "tfrecorder.indexed.batches",
    "benchmark": "tfrecorder.loading.throughput",
    "Boxes": "tfrecorder.schema.kinds",
    "Bytes": "tfrecorder.schema.kinds",
    "Ignore": "tfrecorder.schema.kinds",
    "Image": "tfrecorder.schema.kinds",
    "Label": "tfrecorder.schema.kinds",
    "Labels": "tfrecorder.schema.kinds",
    "Mask": "tfrecorder.schema.kinds",
    "Number": "tfrecorder.schema.kinds",
    "Schema": "tfrecorder.schema.kinds",
    "Split": "tfrecorder.schema.kinds",
    "Text": "tfrecorder.schema.kinds",
    "PartResult": "tfrecorder.writing.parts",
    "commit": "tfrecorder.writing.parts",
    "stage": "tfrecorder.conversion.stage",
    "work": "tfrecorder.writing.parts",
    "convert": "tfrecorder.conversion.convert",
    "convert_and_load": "tfrecorder.conversion.convert_and_load",
    "infer_schema": "tfrecorder.sources.inference",
    "generations": "tfrecorder.stored.generations",
    "to_frame": "tfrecorder.stored.frame",
    "info": "tfrecorder.stored.info",
    "inspect": "tfrecorder.inspection.inspect",
    "load": "tfrecorder.loading.load",
    "parse_example": "tfrecorder.dataset.example",
    "preview": "tfrecorder.inspection.preview",
    "Preview": "tfrecorder.inspection.preview",
    "Records": "tfrecorder.indexed.records",
    "repair": "tfrecorder.verification.repair",
    "status": "tfrecorder.writing.status",
    "validate": "tfrecorder.validation.validate",
    "verify": "tfrecorder.verification.verify",
    "ConversionResult": "tfrecorder.writing.result",
    "ConversionStatus": "tfrecorder.writing.status",
    "RepairResult": "tfrecorder.verification.repair",
    "VerificationReport": "tfrecorder.verification.faults",
}

__all__ = [
    "Batches",
    "Boxes",
    "Bytes",
    "ColumnInfo",
    "ConversionResult",
    "ConversionStatus",
    "ConvertOptions",
    "DataflowJob",
    "DatasetError",
    "DatasetInfo",
    "Ignore",
    "Image",
    "ImagesUnreachableError",
    "JobStatus",
    "Label",
    "Labels",
    "LoadOptions",
    "Mask",
    "Number",
    "OptionError",
    "OutputError",
    "PackageError",
    "PartResult",
    "Preview",
    "Records",
    "RejectedError",
    "RepairResult",
    "RunnerError",
    "Schema",
    "SourceError",
    "Split",
    "StreamResult",
    "StreamSource",
    "Text",
    "TfrecorderError",
    "Throughput",
    "TrainingPosition",
    "UnreachableError",
    "Unusable",
    "ValidationError",
    "VerificationReport",
    "__version__",
    "append",
    "batches",
    "benchmark",
    "commit",
    "compact",
    "convert",
    "convert_and_load",
    "generations",
    "infer_schema",
    "info",
    "inspect",
    "load",
    "parse_example",
    "preview",
    "repair",
    "stage",
    "status",
    "stream",
    "to_frame",
    "validate",
    "verify",
    "work",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'tfrecorder' has no attribute {name!r}")
    with _missing_explained():
        return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return __all__
