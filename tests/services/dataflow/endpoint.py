"""Dataflow's REST interface on loopback, as far as Beam and tfrecorder use it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import threading
import traceback
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from services.dataflow import worker
from services.gcs.control import Gcs

_JOBS = re.compile(
    r"/v1b3/projects/([^/]+)/locations/([^/]+)/jobs(?:/([^/]+)(/messages|/metrics)?)?"
)

#: The service's own measures of a job: core seconds, MiB seconds, and cores at present.
MEASURES = {"TotalVcpuTime": 7200, "TotalMemoryUsage": 8192 * 3600, "CurrentVcpuCount": 8}


@dataclass
class Job:
    """One job: what was asked for, and what became of it."""

    id: str
    asked: dict[str, Any]
    state: str = "JOB_STATE_PENDING"
    since: str = ""
    messages: list[str] = field(default_factory=list)
    process: subprocess.Popen[str] | None = None

    def options(self) -> dict[str, Any]:
        """The options that workers are given."""
        return self.asked["environment"]["sdkPipelineOptions"]["options"]

    def pool(self) -> dict[str, Any]:
        """The machines that were asked for."""
        [pool] = self.asked["environment"]["workerPools"]
        return pool


class Dataflow:
    """The service: it keeps jobs, and runs them as their workers would.

    Attributes:
        jobs: by id, in the order they were made.
        runs: whether jobs are run; else they stay pending.
        processes: of workers as Beam's container starts them, to which every bundle is given twice;
            0 runs a job in one process, which takes some seconds less.
        faults: statuses with which the next requests are answered.
        callers: whose tokens came with requests, "" for none.
    """

    def __init__(self, gcs: Gcs, stock_image: Path, environments: Path, folder: Path) -> None:
        self._gcs, self._folder = gcs, folder
        self._image, self._environments = stock_image, environments
        self._lock, self._installing = threading.Lock(), threading.Lock()
        self.jobs: dict[str, Job] = {}
        self.runs = True
        self.processes = 0
        self.faults: list[int] = []
        self.url = ""
        self._methods: list[str] = []
        self.callers: set[str] = set()

    def asked_for(self, method: str) -> int:
        """How many requests by this method were answered."""
        return self._methods.count(method)

    def runner_options(self) -> dict[str, Any]:
        """The options with which Beam and tfrecorder talk to this service."""
        return {"dataflow_endpoint": self.url, "no_auth": True}

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        self._methods.append(method)
        if self.faults:
            status = self.faults.pop(0)
            return status, _error(status, "an injected fault")
        found = _JOBS.fullmatch(urllib.parse.urlsplit(path).path)
        if not found:
            return 404, _error(404, f"no {method} {path}")
        if method == "POST":
            return 200, self._create(json.loads(body), found[1])
        job = self.jobs.get(found[3])
        if job is None:
            return 404, _error(404, f"(1f4): Information about job {found[3]} could not be found.")
        if found[4]:
            return 200, self._messages(job) if found[4] == "/messages" else _metrics()
        if method == "PUT":
            assert json.loads(body) == {"requestedState": "JOB_STATE_CANCELLED"}
            self._cancel(job)
        return 200, self._describe(job)

    def _create(self, asked: dict[str, Any], project: str) -> Any:
        job = Job(f"2026-01-01_00_00_00-{len(self.jobs) + 1}", asked)
        self._enter(job, "PENDING")
        self.jobs[job.id] = job
        if self.runs:
            threading.Thread(target=self._run, args=(job,), daemon=True).start()
        return {**self._describe(job), "clientRequestId": asked["clientRequestId"]}

    def _describe(self, job: Job) -> Any:
        made = {"createTime": "2026-01-01T00:00:00.5Z", "name": job.asked["name"]}
        return {"id": job.id, "currentState": job.state, "currentStateTime": job.since, **made}

    def _messages(self, job: Job) -> Any:
        with self._lock:
            told = [
                {"messageText": text, "messageImportance": "JOB_MESSAGE_ERROR"}
                for text in job.messages
            ]
        return {"jobMessages": told}

    def _enter(self, job: Job, state: str) -> None:
        job.state = f"JOB_STATE_{state}"
        job.since = datetime.now(timezone.utc).isoformat()

    def _cancel(self, job: Job) -> None:
        with self._lock:
            if job.state not in ("JOB_STATE_DONE", "JOB_STATE_FAILED"):
                self._enter(job, "CANCELLED")
                if job.process is not None:
                    _kill(job.process)

    def _run(self, job: Job) -> None:
        try:
            words = self._work(job)
        except Exception:
            words = traceback.format_exc()
        with self._lock:
            if job.state == "JOB_STATE_CANCELLED":
                return
            if words is not None:
                job.messages += [words, "Workflow failed."]
            self._enter(job, "DONE" if words is None else "FAILED")

    def _work(self, job: Job) -> str | None:
        """Run a job to its end; the words of its failure."""
        folder = self._folder / job.id
        worker.fetch(self._gcs.get(job.options()["pipelineUrl"]), self._gcs.get, folder)
        with self._installing:
            python = worker.environment(self._image, folder, self._environments)
        with self._lock:
            if job.state == "JOB_STATE_CANCELLED":
                return None
            self._enter(job, "RUNNING")
            job.process = worker.start(python, folder, self.processes)
        words = job.process.communicate()[1]
        return words if job.process.returncode else None

    def worker_processes(self, job: Job) -> list[int]:
        """The ids of a job's worker processes that live."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended meanwhile
                ours = job.process is not None and os.getpgid(int(path.name)) == job.process.pid
                if ours and worker.WORKER.encode() in (path / "cmdline").read_bytes():
                    found.append(int(path.name))
        return sorted(found)

    def failed_attempts(self, job: Job) -> str:
        """Why workers failed that the service replaced."""
        path = self._folder / job.id / "failures"
        return path.read_text() if path.exists() else ""

    def close(self) -> None:
        """No process of any job is left."""
        for job in self.jobs.values():
            if job.process is not None:
                _kill(job.process)


def _kill(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _metrics() -> Any:
    measures = [
        {"name": {"name": name, "origin": "dataflow/v1b3"}, "scalar": value}
        for name, value in MEASURES.items()
    ]
    return {"metrics": measures}


def _error(status: int, message: str) -> Any:
    return {"error": {"code": status, "message": message}}


@contextlib.contextmanager
def serve(service: Dataflow) -> Iterator[Dataflow]:
    """Answer for a service, from threads of this process."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

        def _handle(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            service.callers.add(self.headers.get("Authorization", "").removeprefix("Bearer "))
            status, answer = service.answer(self.command, self.path, body)
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = _handle

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    # Beam speaks REST, and without TLS, to an address that says localhost.
    service.url = f"http://localhost:{server.server_address[1]}"
    try:
        yield service
    finally:
        service.close()
        server.shutdown()
        server.server_close()
