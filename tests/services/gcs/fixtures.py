"""Fixtures of the tests on gs://.  A test file asks for them with

pytest_plugins = ["services.gcs.fixtures"]
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support import forget_services

from services.gcs.control import Gcs, in_process
from services.gcs.tls_proxy import TlsProxy, tls_proxy


@pytest.fixture(scope="session")
def gcs_process() -> Iterator[Gcs]:
    """A loopback server in its own process; one for all tests."""
    with in_process() as server:
        yield server


@pytest.fixture
def gcs(gcs_process: Gcs, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gcs]:
    """A loopback server with one empty bucket, bkt, to which this process and its children talk."""
    gcs_process.reset()
    gcs_process.create_bucket("bkt")
    for key, value in gcs_process.environment().items():
        monkeypatch.setenv(key, value)
    # A process keeps its client, which other tests must not meet.
    forget_services()
    yield gcs_process
    forget_services()


@pytest.fixture(scope="session")
def tls(gcs_process: Gcs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsProxy]:
    """The loopback server again, as all of googleapis.com: for TensorFlow's own reader."""
    with tls_proxy(gcs_process, tmp_path_factory.mktemp("tls")) as proxy:
        yield proxy
