"""A pandas frame of images in, a training-ready TFRecord dataset out, in one line.

It checks every image before training does, loses no row, and continues where it was interrupted.
Its readers are fast, in TensorFlow, Keras, PyTorch and JAX.

    >>> import pandas as pd, tfrecorder
    >>> df = pd.read_csv("photos.csv")                  # split,image_uri,label  # doctest: +SKIP
    >>> df.tensorflow.to_tfrecord(output_dir="out")      # checked, sharded  # doctest: +SKIP
    >>> train = tfrecorder.load("out", "TRAIN", batch_size=32, image_size=224)  # doctest: +SKIP

Write a dataset:
    validate       every problem of a table at once, before anything is written
    infer_schema   the schema that a source would be read with
    convert        a table or a folder of images to a dataset, also as df.tensorflow.to_tfrecord
    append         more rows, into a finished dataset
    update         a finished dataset as a table says it now: corrected labels, new rows
    remove         some of its records, for good
    stream         what keeps arriving in a folder, a Kafka topic or a source of yours
    compact        fewer and larger shards, also without some of the records
    undo           give up what was begun, or take back the newest addition or correction
    status         how far a conversion is

Read it:
    load           tf.data, for model.fit
    Records        any record by its number, without TensorFlow
    batches        NumPy batches for any framework, without TensorFlow
    parse_example  one record's bytes as a dict
    to_frame       a pandas frame again
    benchmark      how fast a split is read
    generations    the commits that `at=` can name
    history        what was done to a dataset

Give it to others:
    card           croissant.json, README.md and a table of the records, in the directory
    export         COCO, a CSV, a folder of labels, or WebDataset

Look at it and check it:
    info           splits, counts, classes, columns, sizes
    inspect        the first records as a table, and their images as files
    duplicates     images that occur more than once, also as near copies
    suspects       labels that a model's probabilities contradict
    preview        pictures, plots, findings, duplicates and leakage, on one page
    verify         every byte, against what was written
    repair         write the damaged files again

Modules:
    schema         Schema, and the kinds of columns: Image, Label, Split, Boxes, …
    parts          stage, work, commit: a conversion on many machines without Beam
    streaming      StreamSource and Unusable, for a source of your own
    torch          batches of tensors, and a sampler for DataLoader
    keras          TrainingPosition, which resumes a training
    errors         all errors; TfrecorderError is their base, and ValidationError has a report

Importing the package registers `df.tensorflow`.  It loads neither TensorFlow nor Apache Beam: each
function imports what it needs when it is called.
"""

from __future__ import annotations

from tfrecorder.cli import process as _process  # noqa: F401  (before the others)

# isort: split
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pandas as _pd

from tfrecorder.errors import missing_explained as _missing_explained
from tfrecorder.version import __version__ as __version__

if TYPE_CHECKING:
    from tfrecorder import (
        errors as errors,
        keras as keras,
        parts as parts,
        schema as schema,
        streaming as streaming,
        torch as torch,
    )
    from tfrecorder.accessor import TensorFlowAccessor
    from tfrecorder.conversion.append import append as append
    from tfrecorder.conversion.compact import compact as compact
    from tfrecorder.conversion.convert import convert as convert
    from tfrecorder.conversion.remove import remove as remove
    from tfrecorder.conversion.undo import undo as undo
    from tfrecorder.conversion.update import update as update
    from tfrecorder.conversion.validate import validate as validate
    from tfrecorder.errors import (
        TfrecorderError as TfrecorderError,
        ValidationError as ValidationError,
    )
    from tfrecorder.exports.card import card as card
    from tfrecorder.exports.export import export as export
    from tfrecorder.format.example import parse_example as parse_example
    from tfrecorder.inspection.duplicates import duplicates as duplicates
    from tfrecorder.inspection.inspect import inspect as inspect
    from tfrecorder.inspection.preview import preview as preview
    from tfrecorder.inspection.suspects import suspects as suspects
    from tfrecorder.loading.load import load as load
    from tfrecorder.loading.throughput import benchmark as benchmark
    from tfrecorder.output.status import status as status
    from tfrecorder.reading.batches import batches as batches
    from tfrecorder.reading.commits import generations as generations, history as history
    from tfrecorder.reading.frame import to_frame as to_frame
    from tfrecorder.reading.info import info as info
    from tfrecorder.reading.records import Records as Records
    from tfrecorder.sources.inference import infer_schema as infer_schema
    from tfrecorder.streaming.stream import stream as stream
    from tfrecorder.verification.repair import repair as repair
    from tfrecorder.verification.verify import verify as verify

#: The module of each public name, which is imported when the name is first used.
_HOMES = {
    "Records": "reading.records",
    "TfrecorderError": "errors",
    "ValidationError": "errors",
    "append": "conversion.append",
    "batches": "reading.batches",
    "benchmark": "loading.throughput",
    "card": "exports.card",
    "duplicates": "inspection.duplicates",
    "export": "exports.export",
    "compact": "conversion.compact",
    "convert": "conversion.convert",
    "generations": "reading.commits",
    "history": "reading.commits",
    "infer_schema": "sources.inference",
    "info": "reading.info",
    "inspect": "inspection.inspect",
    "load": "loading.load",
    "parse_example": "format.example",
    "preview": "inspection.preview",
    "remove": "conversion.remove",
    "repair": "verification.repair",
    "status": "output.status",
    "stream": "streaming.stream",
    "suspects": "inspection.suspects",
    "to_frame": "reading.frame",
    "undo": "conversion.undo",
    "update": "conversion.update",
    "validate": "conversion.validate",
    "verify": "verification.verify",
}
_MODULES = ("errors", "parts", "schema", "streaming")

#: Not in the list: a star import would put them in the place of the frameworks, and `help` would
#: import Keras.
_OF_FRAMEWORKS = ("keras", "torch")


@_pd.api.extensions.register_dataframe_accessor("tensorflow")  # type: ignore[type-var]
def _accessor(frame: _pd.DataFrame) -> TensorFlowAccessor:
    """Methods of a frame of images: `to_tfrecord`, `validate`, `preview`."""
    from tfrecorder.accessor import TensorFlowAccessor

    return TensorFlowAccessor(frame)


__all__ = sorted([*_HOMES, *_MODULES, "__version__"])


def __getattr__(name: str) -> Any:
    with _missing_explained():
        if name in _HOMES:
            return getattr(import_module(f"tfrecorder.{_HOMES[name]}"), name)
        if name in _MODULES or name in _OF_FRAMEWORKS:
            return import_module(f"tfrecorder.{name}")
    raise AttributeError(f"module 'tfrecorder' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
