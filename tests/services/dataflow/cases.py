"""What the tests on Dataflow share: where the photographs are, and the options of a job."""

from __future__ import annotations

from typing import Any

from services.dataflow.endpoint import Dataflow

SOURCE, OUT = "gs://bkt/data/photos.csv", "gs://bkt/flowers"
SHARDS = {"TRAIN": 3, "VALIDATION": 2, "TEST": 1}


def settings(service: Dataflow | None = None, **more: Any) -> dict[str, Any]:
    """The options of a job on the loopback."""
    given = service.runner_options() if service else {}
    given |= more.pop("runner_options", {})
    place = {"runner": "DataflowRunner", "project": "loopback", "region": "us-central1"}
    return {**place, "num_shards": SHARDS, "runner_options": given, **more}
