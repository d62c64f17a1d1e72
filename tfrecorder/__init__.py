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
from tfrecorder.errors import missing_explained as _missing_explained
from tfrecorder.version import __version__ as __version__

if TYPE_CHECKING:
    from tfrecorder.conversion.append import append as append
    from tfrecorder.conversion.compact import compact as compact
    from tfrecorder.conversion.convert import convert as convert
    from tfrecorder.conversion.undo import UndoResult as UndoResult, undo as undo
    from tfrecorder.errors import (
        DatasetError as DatasetError,
        ImagesUnreachableError as ImagesUnreachableError,
        OptionError as OptionError,
        OutputError as OutputError,
        PackageError as PackageError,
        RejectedError as RejectedError,
        RunnerError as RunnerError,
        SourceError as SourceError,
        TfrecorderError as TfrecorderError,
        UnreachableError as UnreachableError,
        ValidationError as ValidationError,
    )
    from tfrecorder.format.example import parse_example as parse_example
    from tfrecorder.inspection.inspect import inspect as inspect
    from tfrecorder.inspection.preview import Preview as Preview, preview as preview
    from tfrecorder.loading.load import load as load
    from tfrecorder.loading.options import LoadOptions as LoadOptions
    from tfrecorder.loading.throughput import Throughput as Throughput, benchmark as benchmark
    from tfrecorder.loading.training import TrainingPosition as TrainingPosition
    from tfrecorder.options.convert import ConvertOptions as ConvertOptions
    from tfrecorder.output.result import ConversionResult as ConversionResult
    from tfrecorder.output.status import ConversionStatus as ConversionStatus, status as status
    from tfrecorder.parts import (
        PartResult as PartResult,
        commit as commit,
        stage as stage,
        work as work,
    )
    from tfrecorder.reading.batches import Batches as Batches, batches as batches
    from tfrecorder.reading.column_info import ColumnInfo as ColumnInfo
    from tfrecorder.reading.commits import generations as generations
    from tfrecorder.reading.frame import to_frame as to_frame
    from tfrecorder.reading.info import DatasetInfo as DatasetInfo, info as info
    from tfrecorder.reading.records import Records as Records
    from tfrecorder.runners.dataflow.job import DataflowJob as DataflowJob, JobStatus as JobStatus
    from tfrecorder.schema.kinds import (
        Boxes as Boxes,
        Bytes as Bytes,
        Ignore as Ignore,
        Image as Image,
        Label as Label,
        Labels as Labels,
        Mask as Mask,
        Number as Number,
        Schema as Schema,
        Split as Split,
        Text as Text,
    )
    from tfrecorder.sources.inference import infer_schema as infer_schema
    from tfrecorder.streaming.stream import StreamResult as StreamResult, stream as stream
    from tfrecorder.streaming.stream_source import (
        StreamSource as StreamSource,
        Unusable as Unusable,
    )
    from tfrecorder.validation.validate import validate as validate
    from tfrecorder.verification.faults import VerificationReport as VerificationReport
    from tfrecorder.verification.repair import RepairResult as RepairResult, repair as repair
    from tfrecorder.verification.verify import verify as verify

#: The modules of public names, which are imported when a name is first used.
_MODULES = {
    "errors": "DatasetError ImagesUnreachableError OptionError OutputError PackageError "
    "RejectedError RunnerError SourceError TfrecorderError UnreachableError ValidationError",
    "options.convert": "ConvertOptions",
    "conversion.append": "append",
    "conversion.compact": "compact",
    "conversion.convert": "convert",
    "conversion.undo": "UndoResult undo",
    "format.example": "parse_example",
    "inspection.inspect": "inspect",
    "inspection.preview": "Preview preview",
    "loading.load": "load",
    "loading.options": "LoadOptions",
    "loading.throughput": "Throughput benchmark",
    "loading.training": "TrainingPosition",
    "output.result": "ConversionResult",
    "output.status": "ConversionStatus status",
    "parts": "PartResult commit stage work",
    "reading.batches": "Batches batches",
    "reading.column_info": "ColumnInfo",
    "reading.commits": "generations",
    "reading.frame": "to_frame",
    "reading.info": "DatasetInfo info",
    "reading.records": "Records",
    "runners.dataflow.job": "DataflowJob JobStatus",
    "schema.kinds": "Boxes Bytes Ignore Image Label Labels Mask Number Schema Split Text",
    "sources.inference": "infer_schema",
    "streaming.stream": "StreamResult stream",
    "streaming.stream_source": "StreamSource Unusable",
    "validation.validate": "validate",
    "verification.faults": "VerificationReport",
    "verification.repair": "RepairResult repair",
    "verification.verify": "verify",
}
_LAZY = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = sorted([*_LAZY, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'tfrecorder' has no attribute {name!r}")
    with _missing_explained():
        return getattr(import_module(f"tfrecorder.{_LAZY[name]}"), name)


def __dir__() -> list[str]:
    return __all__
