"""Conversion from and to gs://, next to the most that the same server can give.

    bucket.py [--data DIR] [--quick] [--rounds N] [--cases "NAME;NAME"]
    bucket.py --s3      S3 by obstore and by fsspec: see bucket_s3.py

The server is the tests' loopback storage, in its own process.  It shares two cores with its
client, so that what counts is whose CPU seconds an image takes: the server's own are shown next to
the client's.  With 16 threads each:

    plain GET       each image by the bare HTTP client of the standard library; nothing else
    plain copy      the same, and a thread more puts their bytes back, 300 images an object: what
                    the server gives to any conversion
    our GET         each image by `tfrecorder.storage`: credentials, checksum, retries; nothing else
    our size        each image's size, likewise; a conversion asks for at most 1,000
    header, decode  `tfrecorder.convert` from gs:// to gs://, with this `check`
    …, emulator     the same against the package gcp-storage-emulator; skipped where that is not
                    installed
    …, 20 ms        the same where each request takes the server 20 ms, as a bucket in one's region
                    does: whoever asks with 16 threads gets 16 / 0.02 s = 800 images/s

Rates and CPU are by the slope between two numbers of images, so that the first 1,000 sizes, the
look before the launch and the commit are in neither; they are the fixed seconds beside.  The
verdict compares a conversion with the plain copy of the same images: by the slope, and by the
seconds of the whole call with the larger number.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import sys
import threading
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bucket_s3
import data as shared
import emulator
import harness
import psutil
from harness import Case, Numbers, Result, Timed

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

THREADS = 16
SLOW_SECONDS = 0.02
PLAIN, COPY = "plain GET", "plain copy"
SLOW, EMULATOR = ", 20 ms", ", emulator"
COPIED = 300
SHARD = 1000
SWIFT = (PLAIN, COPY, "our GET", "our size", "header", "decode")
CASES = SWIFT + tuple(
    kind + server for server in (EMULATOR, SLOW) for kind in (PLAIN, COPY, "header", "decode")
)


def measure(kind: str, source: str, images: int) -> Timed:
    """One of the cases, against a server that already holds the images."""
    own = kind.partition(", ")[0]
    bare = {PLAIN: _plain, COPY: _copy, "our GET": _ours("read_bytes"), "our size": _ours("size")}
    work = bare.get(own) or _conversion(own)
    if kind.endswith(EMULATOR):
        return against_emulator(work, source, images)
    return against_server(work, source, images, kind.endswith(SLOW))


def against_server(
    work: Callable[[str, int], None], source: str, images: int, slow: bool = False
) -> Timed:
    """Times `work`, which gets the address of a server and how many images it holds.

    These are gs://bkt/in/NUMBER.jpg; the CSV gs://bkt/data.csv lists them.
    """
    from services.gcs.control import in_process

    stack = contextlib.ExitStack()
    server = stack.enter_context(in_process())
    server.create_bucket("bkt")
    rows = _fill(server, source, images)
    if slow:
        server.inject("stall", seconds=SLOW_SECONDS)
    process = next(
        one for one in psutil.Process().children() if "services.gcs.server" in one.cmdline()
    )

    def run() -> Numbers:
        with stack:  # its CPU is counted with ours once it has ended
            return {
                **_measured(work, server.url, rows, process),
                "gets": server.count("download", "bkt/in/*"),
                "sizes": server.count("metadata", "bkt/in/*"),
            }

    return run


def against_emulator(work: Callable[[str, int], None], source: str, images: int) -> Timed:
    """As `against_server`, with gcp-storage-emulator."""
    stack = contextlib.ExitStack()
    server = stack.enter_context(emulator.in_process())
    rows = _fill(server, source, images)

    def run() -> Numbers:
        with stack:
            return _measured(work, server.url, rows, psutil.Process(server.pid))

    return run


def _fill(server: Any, source: str, images: int) -> int:
    """Put the first images of a CSV, and their list; how many they are."""
    os.environ.update(server.environment())
    rows = Path(source).read_text().splitlines()[1 : images + 1]
    uris = []
    for number, row in enumerate(rows):
        _, path, label = row.split(",")
        server.put(f"gs://bkt/in/{number}.jpg", Path(source).parent.joinpath(path).read_bytes())
        uris.append(f"TRAIN,gs://bkt/in/{number}.jpg,{label}")
    server.put("gs://bkt/data.csv", "\n".join(["split,image_uri,label", *uris]).encode())
    return len(rows)


def _measured(
    work: Callable[[str, int], None], url: str, images: int, server: psutil.Process
) -> Numbers:
    before = sum(server.cpu_times()[:2])
    work(url, images)
    return {"images": images, "server_cpu": sum(server.cpu_times()[:2]) - before}


def _plain(url: str, images: int) -> None:
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(_getter(url), range(images)))


def _copy(url: str, images: int) -> None:
    get = _getter(url)
    with ThreadPoolExecutor(THREADS) as pool, ThreadPoolExecutor(1) as uploads:
        puts = []
        for first in range(0, images, COPIED):
            group = pool.map(get, range(first, min(first + COPIED, images)))
            puts.append(uploads.submit(_put, url, first, b"".join(group)))
        for put in puts:
            put.result()


def _getter(url: str) -> Callable[[int], bytes]:
    """What gets an image by its number, over a connection of each thread."""
    own = threading.local()

    def get(number: int) -> bytes:
        if not hasattr(own, "connection"):
            own.connection = _connection(url)
        path = f"/download/storage/v1/b/bkt/o/in%2F{number}.jpg?alt=media"
        own.connection.request("GET", path)
        return bytes(own.connection.getresponse().read())

    return get


def _put(url: str, number: int, data: bytes) -> None:
    connection = _connection(url)
    path = f"/upload/storage/v1/b/bkt/o?uploadType=media&name=copy/{number}"
    connection.request("POST", path, data, {"Content-Type": "application/octet-stream"})
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    connection.close()


def _connection(url: str) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc)


def _ours(request: str) -> Callable[[str, int], None]:
    """One request of `tfrecorder.storage` an image."""
    from tfrecorder import storage

    def run(url: str, images: int) -> None:
        paths = [f"gs://bkt/in/{number}.jpg" for number in range(images)]
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(getattr(storage, request), paths))

    return run


def _conversion(check: Any) -> Callable[[str, int], None]:
    import apache_beam  # noqa: F401  the import is not timed

    import tfrecorder

    def run(url: str, images: int) -> None:
        tfrecorder.convert(
            "gs://bkt/data.csv",
            "gs://bkt/out",
            check=check,
            num_threads=THREADS,
            # As of a large data set; the few images here would be cut into small ones.
            num_shards=max(1, images // SHARD),
            progress=False,
        )

    return run


def main(arguments: Sequence[str] | None = None) -> bool:
    parser = harness.parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="few images, few rounds")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--cases", default=";".join(CASES), help="only these, parted by ;")
    parser.add_argument("--s3", action="store_true", help="S3 by obstore and by fsspec instead")
    chosen = parser.parse_args(arguments)
    if chosen.s3:
        return bucket_s3.main(chosen)
    kinds = chosen.cases.split(";")
    if unknown := set(kinds) - set(CASES):
        parser.error(f"--cases: {sorted(unknown)} are none of {list(CASES)}")
    sizes = (200, 600) if chosen.quick else (2000, 8000)
    source = shared.listed(shared.photographs(chosen.data.resolve(), sizes[1]), sizes[1])
    cases = [
        Case(
            f"{kind} {size}",
            "bucket:measure",
            {"kind": kind, "source": str(source), "images": size},
            requires=(emulator.PACKAGE,) if kind.endswith(EMULATOR) else (),
        )
        for size in sizes
        for kind in kinds
    ]
    results = harness.run_rounds(cases, chosen.rounds or (2 if chosen.quick else 3), chosen.data)
    print(harness.table(results, ["seconds", "cpu", "server_cpu", "gets", "sizes"]))
    missing = {result.case.arguments["kind"] for result in results if result.skipped}
    found = {kind: by_slope(kind, results, sizes) for kind in kinds if kind not in missing}
    return harness.report("bucket", results, {"by the slope": _slopes(found)})


@dataclass(frozen=True)
class Slope:
    """What one image more takes.

    Attributes:
        seconds: by the clock.
        client: seconds of CPU, ours.
        server: likewise, the server's.
        fixed: seconds by the clock that any number of images takes.
        whole: seconds by the clock an image of the whole call, with the larger number.
    """

    seconds: float
    client: float
    server: float
    fixed: float
    whole: float


def by_slope(kind: str, results: Sequence[Result], sizes: tuple[int, int]) -> Slope:
    by_name = {result.case.name: result for result in results}
    small, large = (by_name[f"{kind} {size}"] for size in sizes)
    images = large.median("images")
    more = images - small.median("images")
    seconds, total, server = (
        (large.median(key) - small.median(key)) / more for key in ("seconds", "cpu", "server_cpu")
    )
    fixed = large.median("seconds") - images * seconds
    # The server is a child of the case's process.
    return Slope(seconds, total - server, server, fixed, large.median("seconds") / images)


def _slopes(found: Mapping[str, Slope]) -> list[list[str]]:
    """Images a second, CPU an image and cores in use on both sides, without fixed costs.

    A conversion is compared with what the same server gives to a plain copy in 16 threads.
    """
    rows = [["", "images/s", "of a plain copy", "ms CPU per image, ours", "the server's"]]
    rows[0] += ["cores in use, ours", "the server's", "fixed s"]
    for kind, one in found.items():
        bound = found.get(COPY + kind.removeprefix(kind.partition(",")[0]))
        compared = bound is not None and not kind.startswith(("plain", "our"))
        rows.append(
            [
                kind,
                f"{1 / one.seconds:,.0f}",
                f"{bound.seconds / one.seconds:.2f}" if bound and compared else "",
                f"{one.client * 1e3:.2f}",
                f"{one.server * 1e3:.2f}",
                f"{one.client / one.seconds:.2f}",
                f"{one.server / one.seconds:.2f}",
                harness.fixed_words(one.fixed),
            ]
        )
    return rows


if __name__ == "__main__":
    raise SystemExit(0 if main() else 1)
