"""Writes photographs in the formats of others, each as its own documentation shows it.

A writer takes the CSV of the photographs and a folder `out`, imports what it needs, and returns the
function that is timed.  All keep the bytes of the files as they are, and the number of the label.
"""

from __future__ import annotations

import os
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import harness
from harness import Numbers, Timed
from writing import read_rows

#: Of each split, in lower case: the paths and the numbers of the labels.
Splits = dict[str, list[tuple[str, int]]]


def read_splits(source: str) -> Splits:
    rows = read_rows(source)
    numbers = {label: at for at, label in enumerate(sorted({label for _, _, label in rows}))}
    splits: Splits = {}
    for split, path, label in rows:
        splits.setdefault(split.lower(), []).append((path, numbers[label]))
    return splits


def _timed(source: str, out: str, write: Callable[[Splits], None], files: str = "*") -> Timed:
    """The timed function of a writer; `files` are those that the training reads."""
    bytes_in = sum(os.path.getsize(path) for _, path, _ in read_rows(source))

    def run() -> Numbers:
        splits = read_splits(source)
        os.makedirs(out)
        write(splits)
        written = [path for path in Path(out).rglob(files) if path.is_file()]
        return {
            "images": sum(len(rows) for rows in splits.values()),
            "bytes_in": bytes_in,
            "bytes_out": sum(path.stat().st_size for path in written),
        }

    return run


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def tar(source: str, out: str) -> Timed:
    """The floor: files into one file, and nothing known of them."""

    def write(splits: Splits) -> None:
        for split, rows in splits.items():
            with tarfile.open(f"{out}/{split}.tar", "w") as archive:
                for path, _ in rows:
                    archive.add(path, arcname=os.path.basename(path))

    return _timed(source, out, write)


def beam(source: str, out: str, workers: int = 1) -> Timed:
    """One element an image, on the runner that tfrecorder uses too, in so many threads."""
    import apache_beam
    import tensorflow  # noqa: F401  # imported before the time starts, as the others are
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner
    from PIL import Image  # noqa: F401

    options = PipelineOptions(
        ["--direct_running_mode=multi_threading", f"--direct_num_workers={workers}"]
        if workers > 1
        else []
    )

    def write(splits: Splits) -> None:
        with apache_beam.Pipeline(runner=FnApiRunner(), options=options) as pipeline:
            for split, rows in splits.items():
                examples = (
                    pipeline
                    | f"{split}: rows" >> apache_beam.Create(rows)
                    | f"{split}: examples" >> apache_beam.Map(as_example)
                )
                examples | f"{split}: files" >> apache_beam.io.WriteToTFRecord(
                    f"{out}/{split}", file_name_suffix=".tfrecord"
                )

    return _timed(source, out, write)


def as_example(row: tuple[str, int]) -> bytes:
    """A photograph as a serialized tf.train.Example, with what Pillow reads in its header."""
    path, label = row
    return example(_read(path), label)


def example(data: bytes, label: int) -> bytes:
    """The same of the bytes of a photograph."""
    import io

    import tensorflow as tf
    from PIL import Image

    image = Image.open(io.BytesIO(data))

    def as_int(value: int) -> tf.train.Feature:
        return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))

    encoded = tf.train.Feature(bytes_list=tf.train.BytesList(value=[data]))
    feature = {
        "image/encoded": encoded,
        "image/height": as_int(image.height),
        "image/width": as_int(image.width),
        "image/class/label": as_int(label),
    }
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


def tfds(source: str, out: str) -> Timed:
    """A builder of TFDS.  Its own ImageFolder writes nothing: it only reads files in folders."""
    from tensorflow_datasets import core, features

    labels = len({label for _, _, label in read_rows(source)})

    class Photographs(core.GeneratorBasedBuilder):
        VERSION = core.Version("1.0.0")

        def _info(self) -> Any:
            return core.DatasetInfo(
                builder=self,
                features=features.FeaturesDict(
                    {
                        "image": features.Image(encoding_format="jpeg"),
                        "label": features.ClassLabel(num_classes=labels),
                    }
                ),
                supervised_keys=("image", "label"),
            )

        def _split_generators(self, dl_manager: Any) -> Any:
            return {
                split: self._generate_examples(rows) for split, rows in read_splits(source).items()
            }

        def _generate_examples(self, rows: list[tuple[str, int]]) -> Any:
            for path, label in rows:
                yield os.path.basename(path), {"image": path, "label": label}

    def write(splits: Splits) -> None:
        Photographs(data_dir=out).download_and_prepare()

    return _timed(source, out, write, "*.tfrecord*")


def webdataset(source: str, out: str, per_shard: int = 1000) -> Timed:
    import webdataset

    def write(splits: Splits) -> None:
        for split, rows in splits.items():
            with webdataset.ShardWriter(f"{out}/{split}-%06d.tar", maxcount=per_shard) as sink:
                for path, label in rows:
                    sink.write({"__key__": Path(path).stem, "jpg": _read(path), "cls": label})

    return _timed(source, out, write)


def mds(source: str, out: str) -> Timed:
    from streaming import MDSWriter

    def write(splits: Splits) -> None:
        columns = {"image": "bytes", "label": "int"}
        for split, rows in splits.items():
            with MDSWriter(out=f"{out}/{split}", columns=columns) as writer:
                for path, label in rows:
                    writer.write({"image": _read(path), "label": label})

    return _timed(source, out, write)


def litdata(source: str, out: str) -> Timed:
    """All splits in one call: each starts its worker processes anew."""
    # Where its workers put what they then move to the output: to the same disk.
    os.environ["DATA_OPTIMIZER_CACHE_FOLDER"] = f"{out}-cache"
    import litdata

    def write(splits: Splits) -> None:
        litdata.optimize(
            fn=as_record,
            inputs=[row for rows in splits.values() for row in rows],
            output_dir=out,
            chunk_bytes="64MB",
            num_workers=harness.cores(),
        )

    return _timed(source, out, write)


def as_record(row: tuple[str, int]) -> dict[str, Any]:
    """A photograph as LitData's workers take it."""
    path, label = row
    return {"image": _read(path), "label": label}


def huggingface(source: str, out: str, folder: str) -> Timed:
    """`folder` has the photographs of the CSV as split/label/file; `embed_table_storage` puts
    their bytes into the table, as `push_to_hub` does, where Parquet would hold only their paths.
    """
    from datasets import load_dataset
    from datasets.table import embed_table_storage

    def write(splits: Splits) -> None:
        found = load_dataset("imagefolder", data_dir=folder, cache_dir=f"{out}/cache")
        for split, images in found.items():
            arrow = images.with_format("arrow")
            embedded = arrow.map(embed_table_storage, batched=True, keep_in_memory=True)
            embedded.with_format(None).to_parquet(f"{out}/{split}.parquet")

    return _timed(source, out, write, "*.parquet")


def array_record(source: str, out: str, options: str = "group_size:1") -> Timed:
    """`group_size:1`, as Grain asks for; by default it compresses."""
    from array_record.python.array_record_module import ArrayRecordWriter

    def write(splits: Splits) -> None:
        for split, rows in splits.items():
            writer = ArrayRecordWriter(f"{out}/{split}.array_record", options)
            for path, label in rows:
                writer.write(pickle.dumps((_read(path), label)))
            writer.close()

    return _timed(source, out, write)
