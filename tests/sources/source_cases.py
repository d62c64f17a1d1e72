"""A source as a conversion sees it: the inner law of what becomes of each row, without its image.

A user sees it in records, which need an image each; these tests have no images, or millions of
texts.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from helpers.public_types import ConvertOptions

from tfrecorder.plan.make_plan import fingerprint
from tfrecorder.schema import Schema
from tfrecorder.sources.inference import inferred
from tfrecorder.sources.source import read_source
from tfrecorder.sources.table import Source
from tfrecorder.validation.report import build_report
from tfrecorder.validation.rules import Checked, check_source

#: What pandas reads, whatever the file holds: an encoding was given.
BY_PANDAS = "utf-8-sig"


def source_of(source: Any, **options: Any) -> Source:
    """The table that a source is, or a SourceError."""
    return read_source(source, ConvertOptions(**options))


def schema_of(source: Any, **options: Any) -> Schema:
    """The schema that is inferred from a source."""
    return inferred(source, ConvertOptions(**options))


def judged(source: Source) -> Checked:
    """A source with the report on it, and its rows by splits."""
    return check_source(source)


def report_of(checked: Checked) -> pd.DataFrame:
    """What was found, a row for each problem."""
    return build_report(checked.findings)


def digest_of(checked: Checked) -> str:
    """What says that two sources are the same."""
    return fingerprint(checked.frame["split"], checked.values)


def large_from_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take small files for large ones, which Arrow reads."""
    monkeypatch.setattr("tfrecorder.sources.files.ARROW_BYTES", 0)
