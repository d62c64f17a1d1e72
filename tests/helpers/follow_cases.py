"""What the tests of following share: elements, and an append."""

from __future__ import annotations

from typing import Any

import pandas as pd

import tfrecorder
from helpers.growing_cases import QUIET

#: Elements by which a record is known.
IDS: dict[str, Any] = {"inputs": "all", "decode": False, "batch_size": 5}


def append(rows: pd.DataFrame, directory: str = "out") -> None:
    tfrecorder.append(rows, directory, **QUIET)
