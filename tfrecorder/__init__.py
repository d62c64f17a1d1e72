"""tfrecorder: a pandas frame of images in, a training-ready TFRecord dataset out.

    >>> import pandas as pd, tfrecorder
    >>> df = pd.read_csv("flowers.csv")                  # split,image_uri,label  # doctest: +SKIP
    >>> df.tensorflow.to_tfrecord(output_dir="out")      # doctest: +SKIP
    >>> train = tfrecorder.load("out")["TRAIN"]          # doctest: +SKIP

Importing the package registers `df.tensorflow` and loads neither TensorFlow nor Apache Beam: each
function brings in what it needs when it is called.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tfrecorder import accessor as _accessor  # noqa: F401  (registers df.tensorflow)
from tfrecorder.errors import (
    DatasetError,
    ImagesUnreachableError,
    OptionError,
    OutputError,
    RejectedError,
    RunnerError,
    SourceError,
    TfrecorderError,
    ValidationError,
)
from tfrecorder.options import ConvertOptions
from tfrecorder.version import __version__

if TYPE_CHECKING:
    from tfrecorder.checking.faults import VerificationReport
    from tfrecorder.checking.repairing import RepairResult, repair
    from tfrecorder.checking.verification import verify
    from tfrecorder.conversion import convert
    from tfrecorder.dataflow.job import DataflowJob, JobStatus
    from tfrecorder.following import ConversionStatus, status
    from tfrecorder.looking.inspection import inspect
    from tfrecorder.looking.previewing import Preview, preview
    from tfrecorder.reading.load import load
    from tfrecorder.reading.options import LoadOptions
    from tfrecorder.reading.summary import DatasetInfo, info
    from tfrecorder.reading.throughput import Throughput, benchmark
    from tfrecorder.reading.training import TrainingPosition
    from tfrecorder.result import ConversionResult
    from tfrecorder.validation import validate

#: Public names whose modules are imported on first use.
_LAZY = {
    "DataflowJob": "tfrecorder.dataflow.job",
    "DatasetInfo": "tfrecorder.reading.summary",
    "JobStatus": "tfrecorder.dataflow.job",
    "LoadOptions": "tfrecorder.reading.options",
    "Throughput": "tfrecorder.reading.throughput",
    "TrainingPosition": "tfrecorder.reading.training",
    "benchmark": "tfrecorder.reading.throughput",
    "convert": "tfrecorder.conversion",
    "info": "tfrecorder.reading.summary",
    "inspect": "tfrecorder.looking.inspection",
    "load": "tfrecorder.reading.load",
    "preview": "tfrecorder.looking.previewing",
    "Preview": "tfrecorder.looking.previewing",
    "repair": "tfrecorder.checking.repairing",
    "status": "tfrecorder.following",
    "validate": "tfrecorder.validation",
    "verify": "tfrecorder.checking.verification",
    "ConversionResult": "tfrecorder.result",
    "ConversionStatus": "tfrecorder.following",
    "RepairResult": "tfrecorder.checking.repairing",
    "VerificationReport": "tfrecorder.checking.faults",
}

__all__ = [
    "ConversionResult",
    "ConversionStatus",
    "ConvertOptions",
    "DataflowJob",
    "DatasetError",
    "DatasetInfo",
    "ImagesUnreachableError",
    "JobStatus",
    "LoadOptions",
    "OptionError",
    "OutputError",
    "Preview",
    "RejectedError",
    "RepairResult",
    "RunnerError",
    "SourceError",
    "TfrecorderError",
    "Throughput",
    "TrainingPosition",
    "ValidationError",
    "VerificationReport",
    "__version__",
    "benchmark",
    "convert",
    "info",
    "inspect",
    "load",
    "preview",
    "repair",
    "status",
    "validate",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'tfrecorder' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return __all__
