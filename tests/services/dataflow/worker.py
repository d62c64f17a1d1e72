"""A worker of the loopback Dataflow: it gets what was staged, installs it and runs the pipeline.

python worker.py FOLDER PROCESSES        within the worker's own environment
"""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

#: What Beam's container runs for each extra package (sdks/python/container/piputil.go): first the
#: package alone, then once more with all that it requires.
_ROUNDS = (["--upgrade", "--force-reinstall", "--no-deps"], [])
#: What the container starts for each core, and how often the service tries a bundle.
WORKER = "apache_beam.runners.worker.sdk_worker_main"
ATTEMPTS = 4

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
    from services.dataflow import image

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


def start(python: Path, folder: Path, processes: int) -> subprocess.Popen[str]:
    """Run the pipeline, in a process group of its own.

    Of the launcher's variables it has those that name the loopback servers, which a real worker
    does not need.

    Args:
        processes: of workers that Beam's own container would start; 0 runs it all in one process.
    """
    env = {name: value for name, value in os.environ.items() if name != "GS_USER_PROJECT"}
    command = [str(python), "-I", __file__, str(folder), str(processes)]
    return subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, start_new_session=True, cwd=folder, env=env
    )


def run(folder: Path, processes: int) -> None:
    """Run the pipeline to its end, as often as the service would."""
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.portability import python_urns
    from apache_beam.portability.api import beam_runner_api_pb2 as api
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner

    urn, payload, attempts = python_urns.EMBEDDED_PYTHON, b"", 1
    if processes:
        from services.dataflow.twice import Twice

        command = f"exec {shlex.quote(sys.executable)} -I -m {WORKER}"
        urn, payload, attempts = python_urns.SUBPROCESS_SDK, command.encode(), ATTEMPTS
    for left in reversed(range(attempts)):
        pipeline = api.Pipeline.FromString((folder / "pipeline.pb").read_bytes())
        for environment in pipeline.components.environments.values():
            environment.urn, environment.payload = urn, payload
            del environment.dependencies[:]
        runner = Twice(processes) if processes else FnApiRunner()
        try:
            runner.run_via_runner_api(pipeline, PipelineOptions([])).wait_until_finish()
            break
        except RuntimeError:  # a lost worker among them
            if not left:
                raise
            with open(folder / "failures", "a") as file:
                file.write(f"{traceback.format_exc()}\n")


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parents[2]))
    run(Path(sys.argv[1]), int(sys.argv[2]))
