"""A conversion leaves the user's logging as it was, and Beam's chatter out of the terminal."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator

import pandas as pd
import pytest
from support import CSV, run

import tfrecorder
from tfrecorder.errors import RejectedError


def configuration() -> dict[str, object]:
    """What a user may have set: of the root logger, and of all that exist."""
    root = logging.getLogger()
    found: dict[str, object] = {
        "": (root.level, list(root.handlers), list(root.filters), root.disabled),
        "off": logging.root.manager.disable,
        "class": logging.getLoggerClass(),
    }
    for name, logger in logging.root.manager.loggerDict.items():
        if isinstance(logger, logging.Logger):
            handlers = list(logger.handlers)
            found[name] = (logger.level, handlers, logger.propagate, logger.disabled)
    return found


@pytest.fixture
def own_configuration() -> Iterator[None]:
    before = logging.getLogger().level
    logging.getLogger().setLevel(logging.DEBUG)
    logging.getLogger("apache_beam.runners").setLevel(logging.ERROR)
    logging.getLogger("mine").addHandler(logging.NullHandler())
    yield
    logging.getLogger().setLevel(before)
    logging.getLogger("apache_beam.runners").setLevel(logging.NOTSET)


@pytest.mark.slow
def test_logging_is_as_it_was(frame: pd.DataFrame, own_configuration: None) -> None:
    tfrecorder.convert(frame, "warm_up")  # whatever is imported may make loggers of its own
    before = configuration()
    tfrecorder.convert(frame, "out")
    with pytest.raises(RejectedError):
        tfrecorder.convert(CSV, "raised", check="header", max_pixels=1)
    assert configuration() == before


def test_nothing_is_logged_to_a_user_who_logs_everything(frame, caplog) -> None:
    with caplog.at_level(logging.DEBUG), warnings.catch_warnings():
        warnings.simplefilter("error")
        tfrecorder.convert(frame, "out")
    assert [record for record in caplog.records if record.name.startswith("apache_beam")] == []


@pytest.mark.slow
def test_a_level_that_the_user_set_for_beam_is_heeded(frame, caplog) -> None:
    with caplog.at_level(logging.INFO, logger="apache_beam"):
        tfrecorder.convert(frame, "out")
        assert logging.getLogger("apache_beam").level == logging.INFO
    assert [record for record in caplog.records if record.name.startswith("apache_beam")]


SCRIPT = """
import logging, sys
before = (logging.root.level, list(logging.root.handlers))
import tfrecorder
tfrecorder.convert(sys.argv[1], "out", num_workers=int(sys.argv[2]))
assert (logging.root.level, list(logging.root.handlers)) == before
logging.basicConfig(format="mine: %(message)s")
logging.warning("heard")
"""


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_script_prints_only_what_it_prints_itself(workers: int) -> None:
    ended = run("-c", SCRIPT, CSV, workers)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "mine: heard\n")
