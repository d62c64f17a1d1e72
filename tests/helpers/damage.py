"""What tests of verify and repair share: a dataset with everything in it, and ways to harm it.

The inner law: `forge` makes plan, done-records and commit agree on other bytes, so that a test sees
which of them a reader believes.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import google_crc32c
import pandas as pd
import pyarrow.parquet as pq
from support import PHOTOS, SAMPLES, examples, serialized

import tfrecorder
from tfrecorder.format.documents import seal, unseal
from tfrecorder.format.done_records import DoneRecord
from tfrecorder.format.example import encode_parts
from tfrecorder.format.manifest import FileSums
from tfrecorder.format.plan import Plan, PlannedRow
from tfrecorder.format.tfrecord import frame
from tfrecorder.schema.fields import primary_image
from tfrecorder.schema.keys import SOURCE_ID
from tfrecorder.writing.manifest import manifest_of
from tfrecorder.writing.public_files import dataset_info_json

SPLITS = ["TRAIN"] * 8 + ["VALIDATION", "VALIDATION", "TEST"]
SHARD = "train-00000.tfrecord"
MANIFEST = "_tfrecorder/commits/00000.json"
TABLE = "_tfrecorder/tables/train-00000.parquet"


def make_dataset(folder: Path) -> Path:
    """A dataset of photographs, other formats, rejects and a suspect, from `folder/images`."""
    images = folder / "images"
    images.mkdir()
    for photo in (*PHOTOS[:24], *sorted(SAMPLES.glob("mixed/*"))):
        shutil.copy(photo, images / f"{photo.parent.name}-{photo.name}")
    data = PHOTOS[30].read_bytes()
    (images / "cut.jpg").write_bytes(data[: len(data) // 2])
    middle = len(data) // 2
    (images / "zeroes.jpg").write_bytes(data[:middle] + bytes(500) + data[middle + 500 :])
    uris = [path.name for path in sorted(images.iterdir())] + ["missing.jpg"]
    table = pd.DataFrame({"image_uri": uris, "label": [uri.split("-")[0][:5] for uri in uris]})
    table["split"] = [SPLITS[row % len(SPLITS)] for row in range(len(table))]
    table.to_csv(images / "images.csv", index=False)
    out = folder / "out"
    shards = {"TRAIN": 3, "VALIDATION": 2, "TEST": 1}
    result = tfrecorder.convert(images / "images.csv", out, num_shards=shards, progress=False)
    assert set(result.rejects) == {"read/not_found", "check/truncated"}
    assert result.suspects >= 1
    return out


def all_files(out: Path) -> dict[str, bytes]:
    """Every file of a dataset directory, but for the lock, with its bytes."""
    return {
        str(path.relative_to(out)): path.read_bytes()
        for path in sorted(out.rglob("*"))
        if path.is_file() and path.name != "lock"
    }


def restore(out: Path, files: dict[str, bytes]) -> None:
    """Bring a directory back to what it was."""
    for path in out.rglob("*"):
        if path.is_file() and str(path.relative_to(out)) not in files:
            path.unlink()
    for name, data in files.items():
        if not (out / name).exists() or (out / name).read_bytes() != data:
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).write_bytes(data)


def reseal(path: Path, change: Callable[[dict[str, Any]], None], name: str = "crc32c") -> None:
    """Change the values of a document, and its own checksum: as nobody but us writes it."""
    values = unseal(path.read_bytes())
    change(values)
    path.write_bytes(seal(values, name))


def plan_of(out: str | Path) -> Plan:
    """What was planned for a directory that was converted once."""
    return Plan.of(unseal(Path(out, MANIFEST).read_bytes()))


def rows_of(out: str | Path, shard: int) -> list[PlannedRow]:
    """The rows that were planned for a shard, in its order."""
    plan = plan_of(out)
    image = primary_image(plan.fields)
    rows = pq.read_table(Path(out, plan.layout.shards[shard].table)).to_pylist()
    uri = "" if image is None else image.uri_key
    return [PlannedRow(row[SOURCE_ID], row.get(uri, ""), row) for row in rows]


def planned(out: Path, shard: int) -> list[tuple[int, str]]:
    """The number and the image of each row that was planned for a shard."""
    return [(row.row, row.image_uri) for row in rows_of(out, shard)]


def flip(data: bytes, at: int, by: int) -> bytes:
    """Bytes with one of them changed."""
    return data[:at] + bytes([data[at] ^ by]) + data[at + 1 :]


def framed(path: Path) -> list[bytes]:
    """The records of a shard, each with its framing."""
    return [b"".join(frame([data])) for data in serialized(path)]


def forge(out: Path, change: Callable[[list[dict[str, Any]]], None], shard: str = SHARD) -> None:
    """Change the records of a shard as a wrong writer would: checksums, index and commit agree."""
    found = examples(out / shard)
    change(found)
    records = [b"".join(frame(encode_parts(example))) for example in found]
    (out / shard).write_bytes(b"".join(records))
    agree(out, shard, [len(record) for record in records])


def agree(out: Path, shard: str, sizes: list[int]) -> None:
    """Make the index, the done-record and the commit say what a shard's file holds.

    With "" for the shard, make the commit say what the done-records do.
    """
    values = unseal((out / MANIFEST).read_bytes())
    plan = Plan.of(values)
    records = [DoneRecord(**value) for value in values["done"]]
    done = dict(zip(plan.layout.shards, records, strict=True))
    for one, found in done.items():
        if one.file == shard:
            offsets = [sum(sizes[:place]) for place in range(len(sizes))]
            lines = zip(offsets, sizes, strict=True)
            index = "".join(f"{offset} {size}\n" for offset, size in lines)
            (out / one.index_file).write_text(index)
            data = (out / shard).read_bytes()
            crc = google_crc32c.value(data)
            beside = {**found.beside, "index": google_crc32c.value(index.encode())}
            beside_bytes = {**found.beside_bytes, "index": len(index)}
            done[one] = dataclasses.replace(
                found, bytes=len(data), crc32c=crc, beside=beside, beside_bytes=beside_bytes
            )
    lists = {name: FileSums(**sums) for name, sums in values["lists"].items()}
    manifest = manifest_of(plan, done, None, lists)
    (out / MANIFEST).write_bytes(manifest.to_json())
    info = dataset_info_json(plan, done, None, manifest.dataset)
    (out / "dataset_info.json").write_bytes(info)


def edit_done(out: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the values of the first shard's done-record, and the manifest's own checksum."""
    reseal(out / MANIFEST, lambda manifest: change(manifest["done"][0]))
