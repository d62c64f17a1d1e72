"""Fixtures of the tests on s3:// and az://.  A test file asks for them with

pytest_plugins = ["services.objects.fixtures"]
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from support import forget_services

from services.objects.control import S3, Azure, azure_in_process, azurite, s3_in_process

_containers = itertools.count()


@pytest.fixture(scope="session")
def s3_process() -> Iterator[S3]:
    """moto's S3 in its own process; one for all tests."""
    with s3_in_process() as server:
        yield server


@pytest.fixture
def s3(s3_process: S3, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    """A loopback S3 with one empty bucket, bkt, to which this process and its children talk."""
    s3_process.reset()
    s3_process.create_bucket("bkt")
    yield from _alone(s3_process, monkeypatch)


@pytest.fixture(scope="session")
def azure_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azure]:
    if azurite() is None:
        pytest.skip("Azurite is not installed: npm install --global azurite")
    with azure_in_process(tmp_path_factory.mktemp("azurite")) as server:
        yield server


@pytest.fixture
def azure(azure_process: Azure, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The uri of an empty container of a loopback Azure, to which this process talks."""
    container = f"box{next(_containers)}"
    azure_process.create_container(container)
    for _ in _alone(azure_process, monkeypatch):
        yield f"az://{container}"


def _alone(server: S3 | Azure, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3 | Azure]:
    for key, value in server.environment().items():
        monkeypatch.setenv(key, value)
    # A process keeps its clients, which other tests must not meet.
    forget_services()
    yield server
    forget_services()
