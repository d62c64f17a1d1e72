"""Fixtures of the tests on Dataflow.  A test file asks for them with

pytest_plugins = ["services.gcs.fixtures", "services.dataflow.fixtures"]
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support import CSV, SAMPLES

from services.dataflow.cases import SOURCE
from services.dataflow.endpoint import Dataflow, serve
from services.dataflow.image import make_image
from services.gcs.control import Gcs


@pytest.fixture(scope="session")
def stock_image(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What Beam's stock worker image holds; kept from one run of the tests to the next."""
    cache = getattr(request.config, "cache", None)
    return make_image(cache.mkdir("stock-image") if cache else tmp_path_factory.mktemp("image"))


@pytest.fixture(scope="session")
def environments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The environments of workers, one for the same staged files."""
    return tmp_path_factory.mktemp("environments")


@pytest.fixture
def dataflow(gcs: Gcs, stock_image: Path, environments: Path, tmp_path: Path) -> Iterator[Dataflow]:
    """A loopback Dataflow, whose workers reach the loopback gs://."""
    with serve(Dataflow(gcs, stock_image, environments, tmp_path / "workers")) as service:
        yield service


@pytest.fixture
def bucket(gcs: Gcs) -> Gcs:
    """The bundled photographs with their CSV on gs://bkt/data."""
    gcs.put(SOURCE, CSV.read_bytes())
    gcs.put_folder("gs://bkt/data/photos", SAMPLES / "photos")
    return gcs
