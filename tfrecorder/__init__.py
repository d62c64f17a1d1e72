"""tfrecorder: a pandas frame of images in, a training-ready TFRecord dataset out.

    >>> import pandas as pd, tfrecorder
    >>> df = pd.read_csv("flowers.csv")                  # split,image_uri,label  # doctest: +SKIP
    >>> df.tensorflow.to_tfrecord(output_dir="out")      # doctest: +SKIP
    >>> train = tfrecorder.load("out")["TRAIN"]          # doctest: +SKIP

Importing the package registers `df.tensorflow`. It loads neither TensorFlow nor Apache Beam: each
function imports what it needs when it is called.
"""

from __future__ import annotations

from tfrecorder.cli import process as _process  # noqa: F401  (before the others)

# isort: split
from importlib import import_module
from typing import TYPE_CHECKING, Any

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
    from tfrecorder.conversion.append import append
    from tfrecorder.conversion.compact import compact
    from tfrecorder.conversion.convert import convert
    from tfrecorder.conversion.undo import UndoResult, undo
    from tfrecorder.format.example import parse_example
    from tfrecorder.inspection.inspect import inspect
    from tfrecorder.inspection.preview import Preview, preview
    from tfrecorder.loading.load import load
    from tfrecorder.loading.options import LoadOptions
    from tfrecorder.loading.throughput import Throughput, benchmark
    from tfrecorder.loading.training import TrainingPosition
    from tfrecorder.output.result import ConversionResult
    from tfrecorder.output.status import ConversionStatus, status
    from tfrecorder.parts import PartResult, commit, stage, work
    from tfrecorder.reading.batches import Batches, batches
    from tfrecorder.reading.column_info import ColumnInfo
    from tfrecorder.reading.commits import generations
    from tfrecorder.reading.frame import to_frame
    from tfrecorder.reading.info import DatasetInfo, info
    from tfrecorder.reading.records import Records
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
    from tfrecorder.streaming.stream import StreamResult, stream
    from tfrecorder.streaming.stream_source import StreamSource, Unusable
    from tfrecorder.validation.validate import validate
    from tfrecorder.verification.faults import VerificationReport
    from tfrecorder.verification.repair import RepairResult, repair
    from tfrecorder.verification.verify import verify

#: Public names whose modules are imported on first use.
_LAZY = {
    "ColumnInfo": "tfrecorder.reading.column_info",
    "DataflowJob": "tfrecorder.runners.dataflow.job",
    "DatasetInfo": "tfrecorder.reading.info",
    "JobStatus": "tfrecorder.runners.dataflow.job",
    "LoadOptions": "tfrecorder.loading.options",
    "Throughput": "tfrecorder.loading.throughput",
    "TrainingPosition": "tfrecorder.loading.training",
    "append": "tfrecorder.conversion.append",
    "compact": "tfrecorder.conversion.compact",
    "undo": "tfrecorder.conversion.undo",
    "UndoResult": "tfrecorder.conversion.undo",
    "StreamResult": "tfrecorder.streaming.stream",
    "StreamSource": "tfrecorder.streaming.stream_source",
    "Unusable": "tfrecorder.streaming.stream_source",
    "stream": "tfrecorder.streaming.stream",
    "Batches": "tfrecorder.reading.batches",
    "batches": "tfrecorder.reading.batches",
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
    "PartResult": "tfrecorder.parts",
    "commit": "tfrecorder.parts",
    "stage": "tfrecorder.parts",
    "work": "tfrecorder.parts",
    "convert": "tfrecorder.conversion.convert",
    "infer_schema": "tfrecorder.sources.inference",
    "generations": "tfrecorder.reading.commits",
    "to_frame": "tfrecorder.reading.frame",
    "info": "tfrecorder.reading.info",
    "inspect": "tfrecorder.inspection.inspect",
    "load": "tfrecorder.loading.load",
    "parse_example": "tfrecorder.format.example",
    "preview": "tfrecorder.inspection.preview",
    "Preview": "tfrecorder.inspection.preview",
    "Records": "tfrecorder.reading.records",
    "repair": "tfrecorder.verification.repair",
    "status": "tfrecorder.output.status",
    "validate": "tfrecorder.validation.validate",
    "verify": "tfrecorder.verification.verify",
    "ConversionResult": "tfrecorder.output.result",
    "ConversionStatus": "tfrecorder.output.status",
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
    "UndoResult",
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
    "undo",
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
