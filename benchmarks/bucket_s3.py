"""S3 by obstore and by fsspec (s3fs), against moto's server on loopback: CPU a request.

    bucket.py --s3 [--quick] [--rounds N]

Both are asked as a conversion and a reader ask, through `tfrecorder.storage`, with 16 threads where
requests go out side by side:

    get         an image of 88 KB, whole
    size        its size
    range       256 KiB of a shard
    put         a done-record of 1 KB
    upload      a shard of 8 MB
    convert     a photograph, from s3:// to s3://, `check="header"`

moto is Python, and far slower than its clients: seconds say nothing, the client's CPU seconds do.
They are by the slope between two numbers of requests, so that imports and connections count in
neither.  The clients take turns, every second round backwards.
"""

from __future__ import annotations

import contextlib
import os
import sys
from argparse import Namespace
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import harness
import psutil
from harness import Case, Numbers, Timed

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

THREADS = 16
CLIENTS = {"obstore": ("obstore", "moto"), "fsspec": ("s3fs", "moto")}
#: Of each kind of work, two numbers of requests.
SIZES = {
    "get": (500, 2500),
    "size": (500, 2500),
    "range": (500, 2500),
    "put": (500, 2500),
    "upload": (4, 20),
    "convert": (400, 1600),
}
IMAGE, RANGE, RECORD, SHARD = 88_000, 2**18, 1_000, 8_000_000


def measure(kind: str, client: str, requests: int) -> Timed:
    """One kind of work by one client, against a server that already holds what is read."""
    from services.objects.control import s3_in_process

    from tfrecorder.storage import files

    stack = contextlib.ExitStack()
    server = stack.enter_context(s3_in_process())
    server.create_bucket("bkt")
    os.environ.update(server.environment())
    os.environ["AWS_DEFAULT_REGION"] = "us-east-1"  # which is botocore's name for it
    if client == "fsspec":
        files._REMOTE["s3"] = _fsspec_store()
    work = _WORK[kind](server, requests)
    process = next(
        one for one in psutil.Process().children() if "services.objects.server" in one.cmdline()
    )

    def run() -> Numbers:
        with stack:  # its CPU is counted with ours once it has ended
            before = sum(process.cpu_times()[:2])
            work()
            return {"requests": requests, "server_cpu": sum(process.cpu_times()[:2]) - before}

    return run


def _fsspec_store() -> Any:
    from tfrecorder.storage import fsspec_store

    fsspec_store._WHOLE_UPLOADS |= {"s3"}
    return fsspec_store.FsspecStore("s3")


def _each(ask: Callable[[int], object], requests: int) -> Callable[[], None]:
    def run() -> None:
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(ask, range(requests)))

    return run


def _get(server: Any, requests: int) -> Callable[[], None]:
    from tfrecorder import storage

    server.put("s3://bkt/in.jpg", os.urandom(IMAGE))
    return _each(lambda _: storage.read_bytes("s3://bkt/in.jpg"), requests)


def _size(server: Any, requests: int) -> Callable[[], None]:
    from tfrecorder import storage

    # s3fs keeps what it has learned of a folder it has listed; here it has listed none.
    server.put("s3://bkt/in.jpg", b"x")
    return _each(lambda _: storage.size("s3://bkt/in.jpg"), requests)


def _range(server: Any, requests: int) -> Callable[[], None]:
    from tfrecorder import storage

    server.put("s3://bkt/shard", os.urandom(SHARD))
    places = SHARD // RANGE

    def run() -> None:
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(read, range(THREADS)))

    def read(first: int) -> None:
        with storage.open_seekable("s3://bkt/shard") as file:
            for number in range(first, requests, THREADS):
                file.seek(number % places * RANGE)
                file.read(RANGE)

    return run


def _put(server: Any, requests: int) -> Callable[[], None]:
    from tfrecorder import storage

    return _each(
        lambda number: storage.publish_bytes("s3://bkt", str(number), b"x" * RECORD), requests
    )


def _upload(server: Any, requests: int) -> Callable[[], None]:
    from tfrecorder import storage

    data = os.urandom(SHARD)

    def run() -> None:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(put, range(requests)))

    def put(number: int) -> None:
        storage.publish_bytes("s3://bkt", str(number % 4), data)

    return run


def _convert(server: Any, requests: int) -> Callable[[], None]:
    import apache_beam  # noqa: F401  the import is not timed

    import tfrecorder

    photos = sorted(ROOT.glob("samples/photos/*/*.jpg"))
    rows = ["split,image_uri,label"]
    for number in range(requests):
        photo = photos[number % len(photos)]
        server.put(f"s3://bkt/in/{number}.jpg", photo.read_bytes())
        rows.append(f"TRAIN,in/{number}.jpg,{photo.parent.name}")
    server.put("s3://bkt/data.csv", "\n".join(rows).encode())

    def run() -> None:
        tfrecorder.convert(
            "s3://bkt/data.csv",
            "s3://bkt/out",
            check="header",
            num_threads=THREADS,
            num_shards=2,
            progress=False,
        )

    return run


_WORK: dict[str, Callable[[Any, int], Callable[[], None]]] = {
    "get": _get,
    "size": _size,
    "range": _range,
    "put": _put,
    "upload": _upload,
    "convert": _convert,
}


def main(chosen: Namespace) -> bool:
    sizes = {
        kind: (few // 4, many // 4) if chosen.quick else (few, many)
        for kind, (few, many) in SIZES.items()
    }
    cases = [
        Case(
            f"{kind}, {client}, {requests}",
            "bucket_s3:measure",
            {"kind": kind, "client": client, "requests": requests},
            requires=CLIENTS[client],
        )
        for kind in SIZES
        for requests in sizes[kind]
        for client in CLIENTS
    ]
    results = harness.run_rounds(cases, chosen.rounds or (1 if chosen.quick else 3), chosen.data)
    by_name = {result.case.name: result for result in results if not result.skipped}

    def slope(kind: str, client: str) -> float:
        """Milliseconds of the client's CPU that a request more takes."""
        found = [by_name.get(f"{kind}, {client}, {requests}") for requests in sizes[kind]]
        few, many = ((one.median("cpu") - one.median("server_cpu")) if one else 0 for one in found)
        return 1e3 * (many - few) / (sizes[kind][1] - sizes[kind][0])

    rows = [["ms of CPU a request", *CLIENTS, "obstore / fsspec"]]
    for kind in SIZES:
        ours, theirs = slope(kind, "obstore"), slope(kind, "fsspec")
        ratio = f"{ours / theirs:.2f}" if theirs else "-"
        rows.append([kind, f"{ours:.2f}", f"{theirs:.2f}", ratio])
    return harness.report("bucket_s3", results, {"by the slope": rows})
