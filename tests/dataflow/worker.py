"""A worker of the loopback Dataflow: it gets what was staged, installs it and runs the pipeline.

python worker.py run FOLDER        within the worker's own environment
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

#: What Beam's container runs for each extra package (sdks/python/container/piputil.go): first the
#: package alone, then once more with all that it requires.
_ROUNDS = (["--upgrade", "--force-reinstall", "--no-deps"], [])
_PIP = ["install", "--no-cache-dir", "--disable-pip-version-check"]


def fetch(pipeline: bytes, get: Any, folder: Path) -> None:
    """Lay what the pipeline names, and the pipeline itself, into a folder."""
    from apache_beam.portability.api import beam_runner_api_pb2 as api

    folder.mkdir(parents=True)
    (folder / "pipeline.pb").write_bytes(pipeline)
    staged = folder / "staged"
    staged.mkdir()
    for environment in api.Pipeline.FromString(pipeline).components.environments.values():
        for artifact in environment.dependencies:
            url = api.ArtifactUrlPayload.FromString(artifact.type_payload).url
            role = api.ArtifactStagingToRolePayload.FromString(artifact.role_payload)
            (staged / role.staged_name).write_bytes(get(url))


def environment(stock_image: Path, folder: Path, environments: Path) -> Path:
    """The Python of a fresh environment with what was staged; one for the same staged files."""
    from dataflow import image

    packages = sorted((folder / "staged").iterdir())
    content = b"".join(hashlib.sha256(path.read_bytes()).digest() for path in packages)
    where = environments / hashlib.sha256(content).hexdigest()[:16]
    if not where.exists():
        growing = environments / folder.name
        _install(image.start(stock_image, growing), folder / "staged")
        growing.rename(where)
    return where / "bin" / "python"


def _install(python: Path, staged: Path) -> None:
    """What the container does before it starts Python; without a network."""
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": os.devnull}
    for name in (staged / "extra_packages.txt").read_text().splitlines():
        for how in _ROUNDS:
            pip = [sys.executable, "-m", "pip", "--python", str(python), *_PIP, *how]
            subprocess.run(
                [*pip, str(staged / name)],
                check=True,
                capture_output=True,
                text=True,
                env={**os.environ, **offline},
            )


def start(python: Path, folder: Path) -> subprocess.Popen[str]:
    """Run the pipeline, in a process group of its own."""
    command = [str(python), "-I", __file__, "run", str(folder)]
    return subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, start_new_session=True, cwd=folder
    )


def run(folder: Path) -> None:
    """Run the pipeline in this process and no other."""
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.portability import python_urns
    from apache_beam.portability.api import beam_runner_api_pb2 as api
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner

    pipeline = api.Pipeline.FromString((folder / "pipeline.pb").read_bytes())
    for environment in pipeline.components.environments.values():
        environment.urn, environment.payload = python_urns.EMBEDDED_PYTHON, b""
        del environment.dependencies[:]
    result = FnApiRunner().run_via_runner_api(pipeline, PipelineOptions([]))
    result.wait_until_finish()
    (folder / "counters.json").write_text(json.dumps(_counters(result.metrics().query())))


def _counters(found: Any) -> list[dict[str, Any]]:
    """Counters and distributions as the service gives them: as they stand, and tentatively."""
    metrics = []
    for one in (*found["counters"], *found["distributions"]):
        value = one.committed if one.committed is not None else one.attempted
        told: dict[str, Any] = {"scalar": value}
        if not isinstance(value, int):
            names = ("count", "sum", "min", "max")
            told = {"distribution": {name: getattr(value, name) for name in names}}
        context = {"namespace": one.key.metric.namespace, "step": one.key.step}
        for more in ({}, {"tentative": "true"}):
            name = {"name": one.key.metric.name, "origin": "user", "context": {**context, **more}}
            metrics.append({"name": name, **told})
    return metrics


if __name__ == "__main__":
    run(Path(sys.argv[2]))
