"""Conversions from and to a bucket of which one request in twenty fails in passing."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pandas as pd
from helpers.public_types import ConversionResult
from services.gcs.control import Gcs, in_process
from support import PHOTOS, forget_services

import tfrecorder
from torture.counts import Count, demand, lost_rows

#: The share of all requests that fail, one way or another.
SHARE = 0.05
KINDS = (
    {"kind": "status", "status": 408},
    {"kind": "status", "status": 429},
    {"kind": "status", "status": 503},
    {"kind": "reset"},
    {"kind": "cut"},
    {"kind": "page"},
    {"kind": "empty", "operation": "download"},
    {"kind": "bare"},
    {"kind": "flip", "bare": True, "operation": "download"},
)

CALM, DISTURBED = "gs://bkt/calm", "gs://bkt/disturbed"


def disturb(rounds: int, rows: int, folder: Path, seed: int = 0) -> list[Count]:
    """Convert `rows` images that often, with other faults each time; nothing may be lost.

    Raises:
        BrokenError: the dataset is another than without faults, or a row is lost.
    """
    failed = retries = lost = 0
    with in_process() as gcs, patch.dict(os.environ, gcs.environment()), client_of_its_own():
        gcs.create_bucket("bkt")
        table = _make_table(gcs, rows)
        tfrecorder.convert(table, CALM, num_shards=6)
        for number in range(rounds):
            result, count = _disturbed(gcs, table, seed + number)
            failed, retries = failed + count, retries + result.retries
            demand(
                gcs.files(DISTURBED) == gcs.files(CALM), f"seed {seed + number}: the bytes differ"
            )
            lost += _lost(gcs, folder / str(number), rows)
    note = f"{failed:,} requests failed; reading took {retries:,} further attempts"
    return [Count("faults of a bucket", rounds, rounds * rows, lost, note)]


@contextlib.contextmanager
def client_of_its_own() -> Iterator[None]:
    """A process keeps its client, which other tests must not meet."""
    forget_services()
    try:
        yield
    finally:
        forget_services()


def _make_table(gcs: Gcs, rows: int) -> pd.DataFrame:
    for row in range(rows):
        gcs.put(f"gs://bkt/in/{row}.jpg", PHOTOS[row % len(PHOTOS)].read_bytes())
    uris = [f"gs://bkt/in/{row}.jpg" for row in range(rows)]
    labels = [PHOTOS[row % len(PHOTOS)].parent.name for row in range(rows)]
    return pd.DataFrame({"split": "TRAIN", "image_uri": uris, "label": labels})


def _disturbed(gcs: Gcs, table: pd.DataFrame, seed: int) -> tuple[ConversionResult, int]:
    """A conversion among faults, and how many requests failed."""
    gcs.forget_requests()
    for number, kind in enumerate(KINDS):  # each hits requests of its own
        gcs.inject(probability=SHARE / len(KINDS), seed=seed * len(KINDS) + number, **kind)
    try:
        result = tfrecorder.convert(table, DISTURBED, num_shards=6, overwrite=True)
    finally:
        gcs.mend()
    assert isinstance(result, ConversionResult)
    return result, gcs.count(outcome="408|429|503|reset|cut")


def _lost(gcs: Gcs, folder: Path, rows: int) -> int:
    folder.mkdir(parents=True)
    for name, data in gcs.files(DISTURBED).items():
        (folder / name).write_bytes(data)
    return lost_rows(folder, rows)
