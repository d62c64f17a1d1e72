"""Dataset directories made by somebody hostile, given to every command that opens one.

Nothing in them is unpickled or evaluated, no path and no link in them leads out of the directory,
and each command ends, within seconds and little memory, in a result or in one clear error.
"""

from __future__ import annotations

import functools
import json
import os
import pickle
import random
import resource
import shutil
import struct
import tempfile
import traceback
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import google_crc32c
import pyarrow as pa
import pyarrow.parquet as pq
from support import CSV

import tfrecorder
from tfrecorder import TfrecorderError
from torture import hostile_links
from torture.children import Child, DiedError, FailedError, HungError
from torture.counts import Count, demand
from torture.sandbox import Sandbox, listing, sandbox

#: Seconds for one command on one directory, on a busy machine; and the bytes of address space that
#: its process may take beyond what it has at the start.
SECONDS = 60.0
MEMORY = 2**31

#: Values that stand where something else is expected.
NASTY: tuple[Any, ...] = (
    *(None, True, -1, 0, 10**7, 10**12, 2**63, 10**400, 1e308, float("nan"), "", "x", [], {}),
    *("../../victim", "/etc/passwd", "\0", "\ud800", "%s{0.__class__}", "9" * 5000),
    *([[]], [None], {"": None}, {"../../victim": 1}, {"TRAIN": 10**12}, [{"file": "../victim"}]),
)


class Trap:
    """Unpickled, it makes a file."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, ("pwned",)


def payloads() -> dict[str, bytes]:
    """Files to stand in the place of any file."""
    json_trap = {"py/object": "os.mkdir", "__reduce__": ["os.mkdir", ["pwned"]], "__class__": "x"}
    return {
        "empty": b"",
        "pickle": pickle.dumps(Trap()),
        "old pickle": b"cos\nmkdir\n(S'pwned'\ntR.",
        "python": b"__import__('os').mkdir('pwned')",
        "yaml": b"!!python/object/apply:os.mkdir ['pwned']",
        "json of python": json.dumps(json_trap).encode(),
        "deep": b"[" * 200_000,
        "deep objects": b'{"a":' * 200_000,
        "list": b"[]",
        "number": b"7",
        "null": b"null",
        "text": b'"x"',
        "object": b"{}",
        "long number": b"9" * 100_000,
        "nan": b"NaN",
        "not utf-8": b"\xff\xfe\x00",
        "random": random.Random(0).randbytes(5000),
        "xml": b'<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>',
        "zip": b"PK\3\4" + bytes(100),
    }


def _special(path: Path) -> dict[str, Any]:
    return {
        "gone": lambda: None,
        "pipe": functools.partial(os.mkfifo, path),
        "endless": functools.partial(os.symlink, "/dev/zero", path),
        "circle": functools.partial(os.symlink, path.name, path),
        "folder": path.mkdir,
        "elsewhere": functools.partial(os.symlink, "/etc/passwd", path),
    }


@functools.cache
def _packed() -> dict[str, bytes]:
    """Compressed files of other tools, of at most a megabyte or so, each with one record."""
    found = {}
    for name, size, mebibytes in (("bomb", 2**30, 1024), ("lie", 2**30, 0), ("end", 2**27, 1)):
        for kind, wbits in (("gzip", 31), ("zlib", 15)):
            pack = zlib.compressobj(1, wbits=wbits)
            parts = [pack.compress(_header(size))]
            parts += [pack.compress(bytes(2**20)) for _ in range(mebibytes)]
            found[f"{kind} {name}"] = b"".join([*parts, pack.flush()])
    return found


def _header(size: int) -> bytes:
    """What stands before a record of so many bytes: its length, and that length's masked CRC."""
    length = struct.pack("<Q", size)
    crc = google_crc32c.value(length)
    return length + struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) % 2**32)


def attacks(clean: Path, known: frozenset[str] = frozenset()) -> Iterator[tuple[str, str]]:
    """(file or folder, attack) for all of a dataset but what is known; `apply` makes the attack."""
    for attack in hostile_links.attacks(clean):
        if not known or (attack[0] not in known and (clean / attack[0]).is_file()):
            yield attack
    for name in sorted(_files(clean) - known):
        path = clean / name
        yield from ((name, f"payload {kind}") for kind in payloads())
        yield from ((name, f"special {kind}") for kind in _special(path))
        if name.endswith(".json"):
            document = json.loads(path.read_bytes())
            for place in _places(document):
                yield from ((name, json.dumps(["value", place, i])) for i in range(len(NASTY)))
        if name.endswith(".parquet"):
            yield from ((name, f"parquet {kind}") for kind in _parquets(path))
        if name.endswith(".tfrecord"):
            yield from ((name, f"packed {kind}") for kind in _packed())


def _files(folder: Path) -> frozenset[str]:
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name != "lock")
    return frozenset(str(path.relative_to(folder)) for path in paths)


def _places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[list[Any]]:
    """The way to every value within a JSON document."""
    items = value.items() if isinstance(value, dict) else ()
    for key, inner in enumerate(value) if isinstance(value, list) else items:
        yield [*above, key]
        yield from _places(inner, (*above, key))


def _parquets(path: Path) -> dict[str, pa.Table]:
    """What may stand in the place of the rows of a plan, or of a shard."""
    table = pq.read_table(path)
    rows = len(table)
    victim = pa.array(["../../victim"] * rows)
    found = {
        "other columns": pa.table({"a": [1, 2]}),
        "no rows": table.slice(0, 0),
        "numbers as text": table.set_column(0, "image/source_id", victim),
        "paths that lead out": table.set_column(1, "image/filename", victim),
        "devices": table.set_column(1, "image/filename", pa.array(["/dev/zero"] * rows)),
        "nothing": table.set_column(1, "image/filename", pa.nulls(rows, pa.string())),
        "huge numbers": table.set_column(0, "image/source_id", pa.array([2**62] * rows)),
        "lists": table.set_column(3, "image/class/text", pa.array([["x"]] * rows)),
        "another base": table.replace_schema_metadata(
            (table.schema.metadata or {}) | {"tfrecorder.source/base": "/etc"}
        ),
    }
    for place, name in enumerate(table.schema.names):
        if name.startswith("tfrecorder.record/") and table.schema.types[place] == pa.int64():
            for number in (-1, 2**62, 10**9):
                odd = table.set_column(place, name, pa.array([number] * rows))
                found[f"{name} of {number}"] = odd
    return found


def apply(attack: tuple[str, str], clean: Path, out: Path) -> None:
    """Make a copy of a dataset with one file or folder of it attacked."""
    file, how = attack
    shutil.copytree(clean, out)
    path = out / file
    if how.startswith("link "):
        hostile_links.apply(how, path, out)
        return
    data, tables = path.read_bytes(), _parquets(path) if how.startswith("parquet ") else {}
    path.unlink()
    if how.startswith("payload "):
        path.write_bytes(payloads()[how.removeprefix("payload ")])
    elif how.startswith("special "):
        _special(path)[how.removeprefix("special ")]()
    elif how.startswith("packed "):
        for kept in out.iterdir():  # nothing else says what the file is
            shutil.rmtree(kept) if kept.is_dir() else kept.unlink()
        path.write_bytes(_packed()[how.removeprefix("packed ")])
    elif how.startswith("parquet "):
        pq.write_table(tables[how.removeprefix("parquet ")], path)
    else:
        _, place, number = json.loads(how)
        document = json.loads(data)
        inner = functools.reduce(lambda value, key: value[key], place[:-1], document)
        inner[place[-1]] = NASTY[number]
        path.write_text(json.dumps(document))


# --------------------------------------------------------------------------------- the commands


def open_all(out: str) -> list[str]:
    """Give a directory to every command; gives what went wrong, in words.

    Runs in its own process, which may not take much more memory than it has.
    """
    _limit_memory()
    broken = []
    commands = {
        "info": lambda: str(tfrecorder.info(out)),
        "status": lambda: str(tfrecorder.status(out)),
        "generations": lambda: tfrecorder.generations(out),
        "load": lambda: [len(ds) for ds in tfrecorder.load(out).values()],
        "verify": lambda: str(tfrecorder.verify(out, progress=False)),
        "repair": lambda: str(tfrecorder.repair(out, progress=False)),
        "append": lambda: tfrecorder.append(CSV, out, retry_rejects=True, progress=False),
        "overwrite": lambda: tfrecorder.convert(CSV, out, overwrite=True, progress=False),
    }
    for name, run in commands.items():
        try:
            run()
        except TfrecorderError as error:
            if not str(error):
                broken.append(f"{name}: {type(error).__name__} without words")
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            words = f"{type(error).__name__}: {str(error)[:100]} ({where.filename}:{where.lineno})"
            broken.append(f"{name}: {words}")
    return broken


@functools.cache
def _limit_memory() -> None:
    """Let the process grow by `MEMORY` from here, all that it needs being loaded."""
    with tempfile.TemporaryDirectory() as folder:
        tfrecorder.convert(CSV, f"{folder}/out", progress=False)
        tfrecorder.load(f"{folder}/out", "TRAIN")
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))


def poison(folder: Path, share: float = 1.0, seed: int = 0) -> list[Count]:
    """Attack every file of a dataset in every way, or a share of the ways, and open it.

    Raises:
        BrokenError: an error that is not ours, a crash, a hang, or a change elsewhere.
    """
    broken: list[str] = []
    tried = 0
    rng = random.Random(seed)
    with sandbox(folder) as box, Child("torture.hostile_directories:open_all", SECONDS) as child:
        clean = folder / "images" / "clean"
        tfrecorder.convert(CSV, clean, num_shards={"TRAIN": 2}, progress=False)
        begun = clean.with_name("begun")  # all its shards are done, and only its commit is missing
        tfrecorder.parts.stage(CSV, begun, num_shards={"TRAIN": 2})
        tfrecorder.parts.work(begun, progress=False)
        for name in ("victim", "victim-00000-of-00001.tfrecord", "work/victim"):
            (folder / name).write_text("mine")
        for dataset in (clean, begun):
            shutil.copytree(dataset, box.out)
            sound = child.ask(str(box.out))  # the first use also makes files of Keras at home
            demand(not sound, f"a sound directory: {sound}")
            shutil.rmtree(box.out)
        other, finished = hostile_links.make_other(clean), _files(clean)
        for name in _files(begun) - finished:
            shutil.copyfile(begun / name, other / name)
        for dataset, known in ((clean, frozenset[str]()), (begun, finished)):
            for attack in attacks(dataset, known):
                # Of links there are few: all of them are tried where a fifth of the rest is.
                if rng.random() >= share * (5 if attack[1].startswith("link ") else 1):
                    continue
                tried += 1
                broken += _open(attack, dataset, box, child)
    demand(not broken, "\n".join(broken))
    shutil.rmtree(folder)
    return [Count("hostile dataset directories", tried, 8 * tried, 0, "eight commands on each")]


def _open(attack: tuple[str, str], clean: Path, box: Sandbox, child: Child) -> list[str]:
    out = box.folder / "work" / "out"
    apply(attack, clean, out)
    before = listing(box.folder, out)
    try:
        broken = child.ask(str(out))
    except (DiedError, FailedError, HungError) as error:
        broken = [str(error)]
    after = listing(box.folder, out)
    changed = [name for name in before.keys() | after.keys() if before.get(name) != after.get(name)]
    if changed:
        broken.append(f"changed outside: {changed}")
    if not out.is_symlink() and out.exists():
        shutil.rmtree(out)
    return [f"{attack[0]}, {attack[1]}: {words}" for words in broken]
