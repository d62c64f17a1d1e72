"""Conversion from and to gs://, beside the most that the same server can give.

    bucket.py [--data DIR] [--quick] [--rounds N]

The server is the tests' loopback storage, in a process of its own.  It shares two cores with its
client, so that what counts is whose CPU seconds an image takes: the server's own are shown beside
the client's.  With 16 threads each:

    plain GET       each image by the bare HTTP client of the standard library; nothing else
    client GET      each image by google-cloud-storage; nothing else
    header, decode  `tfrecorder.convert` from gs:// to gs://, with this `verify`
    …, 20 ms        the same where each image takes the server 20 ms, as a bucket in one's region
                    does: at most 16 / 0.02 s = 800 images/s for whoever asks with 16 threads
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import data as shared
import harness
import psutil
from harness import Case, Numbers, Result, Timed

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

THREADS = 16
SLOW_SECONDS = 0.02
CASES = ("plain GET", "client GET", "header", "decode", "plain GET, 20 ms", "decode, 20 ms")


def measure(kind: str, source: str, images: int) -> Timed:
    """One of the cases, against a server that already holds the images."""
    kind, _, slow = kind.partition(", ")
    import os

    from gcs.control import in_process

    started = in_process()
    server = started.__enter__()  # ends with this process
    os.environ.update(server.environment())
    server.create_bucket("bkt")
    rows = Path(source).read_text().splitlines()[1 : images + 1]
    uris = []
    for number, row in enumerate(rows):
        split, path, label = row.split(",")
        server.put(f"gs://bkt/in/{number}.jpg", Path(source).parent.joinpath(path).read_bytes())
        uris.append(f"{split},gs://bkt/in/{number}.jpg,{label}")
    server.put("gs://bkt/data.csv", "\n".join(["split,image_uri,label", *uris]).encode())
    if slow:
        server.inject("stall", seconds=SLOW_SECONDS, operation="download", object="bkt/in/*")
    work = {"plain GET": _plain, "client GET": _client}.get(kind) or _conversion(kind)
    other = _server_process()

    def run() -> Numbers:
        before = sum(other.cpu_times()[:2])
        work(server.url, len(rows))
        return {
            "images": len(rows),
            "server_cpu": sum(other.cpu_times()[:2]) - before,
            "gets": server.count("download", "bkt/in/*"),
            "atexit": started.__exit__(None, None, None) or 0,
        }

    return run


def _server_process() -> psutil.Process:
    return next(one for one in psutil.Process().children() if "gcs.server" in one.cmdline())


def _plain(url: str, images: int) -> None:
    import http.client
    import threading
    import urllib.parse
    from concurrent.futures import ThreadPoolExecutor

    own = threading.local()

    def get(number: int) -> None:
        if not hasattr(own, "connection"):
            own.connection = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc)
        path = f"/download/storage/v1/b/bkt/o/in%2F{number}.jpg?alt=media"
        own.connection.request("GET", path)
        own.connection.getresponse().read()

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(get, range(images)))


def _client(url: str, images: int) -> None:
    from concurrent.futures import ThreadPoolExecutor

    from tfrecorder import storage

    paths = [f"gs://bkt/in/{number}.jpg" for number in range(images)]
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(storage.read_bytes, paths))


def _conversion(verify: str) -> Callable[[str, int], None]:
    import apache_beam  # noqa: F401  the import is not timed

    import tfrecorder

    def run(url: str, images: int) -> None:
        tfrecorder.convert(
            "gs://bkt/data.csv",
            "gs://bkt/out",
            verify=verify,
            num_threads=THREADS,
            progress=False,
        )

    return run


def main(arguments: Sequence[str] | None = None) -> bool:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=harness.DATA)
    parser.add_argument("--quick", action="store_true", help="few images, few rounds")
    parser.add_argument("--rounds", type=int)
    chosen = parser.parse_args(arguments)
    sizes = (200, 600) if chosen.quick else (500, 4000)
    source = shared.listed(shared.photographs(chosen.data.resolve(), sizes[1]), sizes[1])
    cases = [
        Case(
            f"{kind} {size}",
            "bucket:measure",
            {"kind": kind, "source": str(source), "images": size},
        )
        for size in sizes
        for kind in CASES
    ]
    results = harness.run_rounds(cases, chosen.rounds or (2 if chosen.quick else 3), chosen.data)
    print(harness.table(results, ["seconds", "cpu", "server_cpu", "gets"]))
    lines = _slopes(results, sizes)
    print("\n" + "\n".join(lines))
    harness.save("bucket", results, verdicts=lines)
    return True


def _slopes(results: Sequence[Result], sizes: tuple[int, int]) -> list[str]:
    """Images a second, and CPU an image of the server and of the client, without fixed costs."""
    by_name = {result.case.name: result for result in results}
    lines = [f"{'by the slope':14s} {'images/s':>9s} {'ms CPU, client':>15s} {'server':>7s}"]
    for kind in CASES:
        small, large = (by_name[f"{kind} {size}"] for size in sizes)
        more = large.median("images") - small.median("images")
        seconds, total, server = (
            (large.median(key) - small.median(key)) / more
            for key in ("seconds", "cpu", "server_cpu")
        )
        client = total - server  # the server is a child of the case's process
        lines.append(f"{kind:14s} {1 / seconds:9,.0f} {client * 1e3:15.2f} {server * 1e3:7.2f}")
    return lines


if __name__ == "__main__":
    raise SystemExit(0 if main() else 1)
