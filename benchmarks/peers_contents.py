"""Reads the images back out of what each writer wrote, and says whether they are the same.

A writer that copied only paths, or encoded the images anew, would make a comparison false.
"""

from __future__ import annotations

import importlib
import os
import pickle
import re
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from harness import Numbers, Timed
from writing import read_rows

#: Names of TFRecord files: ours, Beam's, and TFDS's.
RECORDS = re.compile(r"\.tfrecord(-\d+-of-\d+)?$")


def of_source(source: str) -> Numbers:
    """What the output of every writer must hold."""
    return _digest(Path(path).read_bytes() for _, path, _ in read_rows(source))


def written(writer: str, contents: str, arguments: dict[str, Any], out: str, source: str) -> Timed:
    """Run a writer ("module:function") and read back what it wrote."""
    module, function = writer.split(":")
    write = getattr(importlib.import_module(module), function)(source=source, out=out, **arguments)

    def run() -> Numbers:
        write()
        return _digest(CONTENTS[contents](out))

    return run


def _digest(images: Iterable[bytes]) -> Numbers:
    count = size = crcs = 0
    for image in images:
        count, size = count + 1, size + len(image)
        crcs += zlib.crc32(image)  # a sum, because writers may change the order
    return {"images": count, "image_bytes": size, "crcs": crcs}


def _tar(out: str) -> Iterator[bytes]:
    for path in Path(out).glob("*.tar"):
        with tarfile.open(path) as archive:
            for member in archive:
                if member.name.endswith(".jpg"):
                    file = archive.extractfile(member)
                    assert file is not None, member.name
                    yield file.read()


def _tfrecord(out: str) -> Iterator[bytes]:
    import tensorflow as tf

    found = [path for path in Path(out).rglob("*") if RECORDS.search(path.name)]
    for path in found:
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            feature = tf.train.Example.FromString(record).features.feature
            key = "image/encoded" if "image/encoded" in feature else "image"
            yield feature[key].bytes_list.value[0]


def _mds(out: str) -> Iterator[bytes]:
    from streaming import LocalDataset

    for split in os.listdir(out):
        found = LocalDataset(local=f"{out}/{split}")
        yield from (found[at]["image"] for at in range(len(found)))


def _litdata(out: str) -> Iterator[bytes]:
    from litdata import StreamingDataset

    yield from (record["image"] for record in StreamingDataset(out))


def _parquet(out: str) -> Iterator[bytes]:
    import pyarrow.parquet

    for path in Path(out).glob("*.parquet"):
        for batch in pyarrow.parquet.ParquetFile(path).iter_batches(100, columns=["image"]):
            yield from (image["bytes"] for image in batch.column(0).to_pylist())


def _array_record(out: str) -> Iterator[bytes]:
    from array_record.python.array_record_module import ArrayRecordReader

    for path in Path(out).glob("*.array_record"):
        reader = ArrayRecordReader(str(path))
        for at in range(reader.num_records()):
            yield pickle.loads(reader.read([at])[0])[0]
        reader.close()


CONTENTS: dict[str, Callable[[str], Iterator[bytes]]] = {
    "tar": _tar,
    "tfrecord": _tfrecord,
    "mds": _mds,
    "litdata": _litdata,
    "parquet": _parquet,
    "array_record": _array_record,
}
