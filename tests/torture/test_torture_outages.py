"""A bucket that is away for a while: the short form of `make torture`, with less patience."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from services.gcs.control import Gcs
from services.gcs.door import door
from support import shorten_patience, shorten_pauses

from torture.outages import KINDS, MOMENTS, Bucket, Outage, endure, make_bucket

pytest_plugins = ["services.gcs.fixtures"]

#: Seconds after which a bucket that stays away is given up.
PATIENCE = 2


@pytest.fixture
def bucket(gcs: Gcs, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    gcs.reset()
    with door(gcs) as before:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", before.url)
        shorten_pauses(monkeypatch, PATIENCE / 120)
        yield make_bucket(gcs, before, rows=80)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_no_row_is_lost_in_a_bucket_that_goes_away_and_comes_back(
    bucket: Bucket, kind: str
) -> None:
    took = endure(bucket, Outage(kind, tuple(MOMENTS), seconds=PATIENCE * 0.4))
    assert took > 3 * PATIENCE * 0.4, "it was away three times"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "moment"),
    [
        ("429", "reading"),
        ("gone", "reading"),
        ("503", "writing"),
        ("reset", "commit"),
        ("page", "commit"),
    ],
)
def test_a_bucket_that_stays_away_ends_in_one_line_and_the_same_call_completes(
    bucket: Bucket, kind: str, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_patience(monkeypatch, PATIENCE)
    took = endure(bucket, Outage(kind, (moment,), seconds=10 * PATIENCE))
    assert took > PATIENCE
