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
    SourceError,
    TfrecorderError,
    ValidationError,
)
from tfrecorder.options import ConvertOptions
from tfrecorder.version import __version__

if TYPE_CHECKING:
    from tfrecorder.conversion import convert
    from tfrecorder.faults import VerificationReport
    from tfrecorder.load_options import LoadOptions
    from tfrecorder.reader import load
    from tfrecorder.repairing import RepairResult, repair
    from tfrecorder.result import ConversionResult
    from tfrecorder.summary import DatasetInfo, info
    from tfrecorder.throughput import Throughput, benchmark
    from tfrecorder.training import TrainingPosition
    from tfrecorder.validation import validate
    from tfrecorder.verification import verify

#: Public names whose modules are imported on first use.
_LAZY = {
    "DatasetInfo": "tfrecorder.summary",
    "LoadOptions": "tfrecorder.load_options",
    "Throughput": "tfrecorder.throughput",
    "TrainingPosition": "tfrecorder.training",
    "benchmark": "tfrecorder.throughput",
    "convert": "tfrecorder.conversion",
    "info": "tfrecorder.summary",
    "load": "tfrecorder.reader",
    "repair": "tfrecorder.repairing",
    "validate": "tfrecorder.validation",
    "verify": "tfrecorder.verification",
    "ConversionResult": "tfrecorder.result",
    "RepairResult": "tfrecorder.repairing",
    "VerificationReport": "tfrecorder.faults",
}

__all__ = [
    "ConversionResult",
    "ConvertOptions",
    "DatasetError",
    "DatasetInfo",
    "ImagesUnreachableError",
    "LoadOptions",
    "OptionError",
    "OutputError",
    "RejectedError",
    "RepairResult",
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
    "load",
    "repair",
    "validate",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'tfrecorder' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return __all__
