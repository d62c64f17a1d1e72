"""A bucket that is away for a while: in the midst of reading, of writing, of the commit.

What passes within the patience costs time and nothing else.  What does not ends in one line, and
the same call then completes the dataset, to the bytes of an undisturbed conversion.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from unittest.mock import patch

import pandas as pd
from services.gcs.control import Gcs, in_process
from services.gcs.door import Door, door
from support import PHOTOS, forget_services, patience, wait_for

import tfrecorder
from tfrecorder.errors import UnreachableError
from torture.counts import Count, demand

KINDS = ("429", "503", "reset", "gone", "page")

#: By the name of a moment, what is asked for then; it is slowed down, to be met in its middle.
MOMENTS = {
    "reading": {"operation": "download", "object": "bkt/in/*"},
    "writing": {"operation": "upload|start|piece", "object": "bkt/out/*.tfrecord"},
    "commit": {"operation": "upload", "object": "bkt/out/features.json"},
}
SECONDS = (25, 100, 600)

CALM, OUT = "gs://bkt/calm", "gs://bkt/out"
SHARDS = 4


@dataclass(frozen=True)
class Outage:
    """When a bucket is away, and how that looks.

    Attributes:
        kind: one of `KINDS`.
        moments: of `MOMENTS`, one after the other: at each the bucket goes away.
        seconds: for how long each time, or until the conversion has ended.
    """

    kind: str
    moments: tuple[str, ...]
    seconds: float


@dataclass(frozen=True)
class Bucket:
    """A server with a table of images and the calm dataset of them, behind a door."""

    gcs: Gcs
    door: Door
    table: pd.DataFrame

    @property
    def calm(self) -> dict[str, bytes]:
        return self.gcs.files(CALM)


def make_bucket(gcs: Gcs, before: Door, rows: int) -> Bucket:
    """Images and their undisturbed dataset, in a bucket that this process reaches by a door."""
    gcs.create_bucket("bkt")
    uris = [f"gs://bkt/in/{row}.jpg" for row in range(rows)]
    for row, uri in enumerate(uris):
        gcs.put(uri, PHOTOS[row % len(PHOTOS)].read_bytes())
    labels = [PHOTOS[row % len(PHOTOS)].parent.name for row in range(rows)]
    table = pd.DataFrame({"split": "TRAIN", "image_uri": uris, "label": labels})
    tfrecorder.convert(table, CALM, num_shards=SHARDS)
    return Bucket(gcs, before, table)


def endure(bucket: Bucket, outage: Outage) -> float:
    """Convert while the bucket goes away; gives the seconds that it took, of the first call.

    Raises:
        BrokenError: a row is lost or rejected, another byte is written, or the words are not right.
    """
    bucket.gcs.forget_requests()
    over = threading.Event()
    going = threading.Thread(target=_go_away, args=(bucket, outage, over), daemon=True)
    going.start()
    began = time.monotonic()
    try:
        result = tfrecorder.convert(bucket.table, OUT, num_shards=SHARDS)
        rejects = result.rejects
        demand(outage.seconds < patience().seconds, f"{outage}: no error")
    except UnreachableError as error:
        demand(outage.seconds > patience().seconds, f"{outage}: {error}")
        _check_words(str(error), outage)
        rejects = None
    finally:
        took = time.monotonic() - began
        over.set()
        going.join()
    if rejects is None:
        left = bucket.gcs.files(OUT)
        demand("dataset_info.json" not in left, f"{outage}: a commit without the bucket")
        demand(left.items() <= bucket.calm.items(), f"{outage}: a file that is not whole")
        rejects = tfrecorder.convert(bucket.table, OUT, num_shards=SHARDS).rejects
    demand(not rejects, f"{outage}: {rejects}")
    demand(bucket.gcs.files(OUT) == bucket.calm, f"{outage}: other bytes")
    return took


def _check_words(words: str, outage: Outage) -> None:
    demand("gs://bkt/" in words and "could not be reached for" in words, f"{outage}: {words}")
    demand("run the same conversion again to continue" in words, f"{outage}: {words}")
    demand("\n" not in words and "running" not in words, f"{outage}: {words}")


def _go_away(bucket: Bucket, outage: Outage, over: threading.Event) -> None:
    for moment in outage.moments:
        meant = MOMENTS[moment]
        bucket.gcs.inject("stall", seconds=0.3, times=SHARDS, **meant)
        # The look before the launch reads some images too.
        seen = 0 if moment != "reading" else len(bucket.table)
        wait_for(lambda seen=seen, meant=meant: over.is_set() or bucket.gcs.count(**meant) > seen)
        bucket.gcs.mend()
        _shut(bucket, outage.kind)
        over.wait(outage.seconds)
        bucket.gcs.mend()
        if outage.kind == "gone":
            bucket.door.open()


def _shut(bucket: Bucket, kind: str) -> None:
    if kind == "gone":
        bucket.door.shut()
    elif kind in ("reset", "page"):
        bucket.gcs.inject(kind)
    else:
        bucket.gcs.inject("status", status=int(kind))


def endure_alone(outage: Outage, rows: int) -> float:
    """`endure` with its own server, for a process that does nothing else."""
    with in_process() as gcs, door(gcs) as before:
        environment = {**gcs.environment(), "STORAGE_EMULATOR_HOST": before.url}
        with patch.dict(os.environ, environment):
            forget_services()
            return endure(make_bucket(gcs, before, rows), outage)


def outlast(rows: int, seconds: Sequence[float] = SECONDS, at_once: int = 4) -> list[Count]:
    """Every kind of outage at every moment, each as long as that, many at a time.

    Raises:
        BrokenError: as `endure`.
    """
    counts = []
    for length in seconds:
        kinds = [Outage(*one, length) for one in itertools.product(KINDS, zip(MOMENTS))]
        with ProcessPoolExecutor(at_once, mp_context=get_context("spawn")) as pool:
            took = list(pool.map(endure_alone, kinds, itertools.repeat(rows)))
        note = f"{', '.join(KINDS)}; reading, writing, commit; {max(took):.0f} s at most"
        counts.append(
            Count(f"a bucket away for {length:g} s", len(kinds), len(kinds) * rows, 0, note)
        )
    return counts
