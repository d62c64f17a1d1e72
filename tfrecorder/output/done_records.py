"""Done-records beside the shards until their commit: whether a shard is whole, and as noted."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping

from tfrecorder import storage
from tfrecorder.errors import OutputError
from tfrecorder.format import layout
from tfrecorder.format.done_records import DoneRecord
from tfrecorder.format.layout import Shard
from tfrecorder.reading.commits import newest_commit

#: Shards and the files next to them, by their names below an output directory.
Files = Mapping[str, storage.Description]

#: Of so many shards each file is asked for; of more of them, the folders are listed, on a bucket
#: with a request per 1,000 files.  A batch of a stream has no more, and may be the 10,000th.
FEW_SHARDS = 4


def list_output(output_dir: str, shards: Collection[Shard]) -> Files:
    """What there is of some shards in an output directory."""
    if len(shards) <= FEW_SHARDS:
        names = [n for s in shards for n in (*s.files, s.waiting, s.done)]
        paths = [os.path.join(output_dir, name) for name in names]
        described = storage.each(storage.describe, paths, output_dir)
        return {name: file for name, file in zip(names, described, strict=True) if file is not None}
    return list_folders(output_dir)


#: The folders that the files of shards are in.
FOLDERS = ("", layout.WAITING, layout.INDEX, layout.TABLES, layout.DONE)


def list_folders(output_dir: str, folders: Collection[str] = FOLDERS) -> Files:
    """What there is of all shards in an output directory, or in some folders of it."""

    def files_of(folder: str) -> Files:
        files = storage.descriptions(os.path.join(output_dir, folder) if folder else output_dir)
        return {os.path.join(folder, name): file for name, file in files.items()}

    listed = storage.each(files_of, folders, output_dir)
    return {name: file for files in listed for name, file in files.items()}


def shard_fault(files: Files, shard: Shard, done: DoneRecord) -> str | None:
    """Why a shard in a listed directory is not what its done-record says; None if it is.

    It may wait for the commit, or be in its place already.
    """
    file = files.get(shard.waiting) or files.get(shard.file)
    if file is None:
        return f"{shard.file} is missing"
    if file.size != done.bytes:
        return f"{shard.file} has {file.size:,} bytes, but {done.bytes:,} were written"
    if not file.is_of(done.bytes, done.crc32c):
        return f"{shard.file} has the CRC32C {file.crc32c:08x}, not {done.crc32c:08x}"
    for name, path in shard.beside.items():
        beside = files.get(path)
        # After a power failure a file may lack its bytes.
        if beside is None or (done.records and not beside.size):
            return f"{path} is missing"
        if not beside.is_of(done.beside_bytes.get(name, beside.size), done.beside[name]):
            return f"{path} is not as it was written with the shard"
    return None


def read_done(
    output_dir: str, shard: Shard, plan_digest: str, files: Files | None = None
) -> DoneRecord | None:
    """The done-record of a shard whose file is whole, or None if it must be written (again).

    Args:
        files: the directory, if it was listed.
    """
    path = os.path.join(output_dir, shard.done)
    with storage.failing_as(OutputError, path):
        data = storage.unless_missing(lambda: storage.read_bytes(path))
    try:
        done = DoneRecord.from_json(data or b"")
    except ValueError:  # missing, or after a power failure without its bytes
        return None
    if done.plan != plan_digest:
        return None
    if files is None:
        with storage.failing_as(OutputError, f"{output_dir}/{shard.file}"):
            files = list_output(output_dir, [shard])
    return None if shard_fault(files, shard, done) else done


def read_all_done(
    output_dir: str, shards: Collection[Shard], plan_digest: str
) -> dict[Shard, DoneRecord | None]:
    """`read_done` for many shards; those without a done-record are not looked up."""
    files = list_output(output_dir, shards)
    begun = [shard for shard in shards if shard.done in files]

    def read(shard: Shard) -> DoneRecord | None:
        return read_done(output_dir, shard, plan_digest, files)

    records = storage.each(read, begun, output_dir)
    return {**dict.fromkeys(shards), **dict(zip(begun, records, strict=True))}


def committed_done(output_dir: str, plan_digest: str) -> dict[Shard, DoneRecord]:
    """The done-records of the newest commit if it is that of a plan; else none."""
    newest = newest_commit(output_dir, plan=plan_digest)
    return {} if newest is None else newest.done
