"""A running loopback server in a test's hands: its objects, its faults, what it was asked."""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import json
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from services.gcs.faults import Fault, matches
from services.gcs.objects import Store
from services.gcs.server import ADMIN, serve
from services.gcs.service import Service

_TESTS = Path(__file__).parents[2]


@dataclasses.dataclass(frozen=True)
class Gcs:
    """A server, wherever it runs.  Nothing asked for here is counted or hit by a fault."""

    url: str

    def environment(self) -> dict[str, str]:
        """The variables with which google-cloud-storage and Beam talk to this server."""
        return {"STORAGE_EMULATOR_HOST": self.url, "GOOGLE_CLOUD_PROJECT": "loopback"}

    def create_bucket(self, bucket: str) -> None:
        self._ask("bucket", {"bucket": bucket})

    def put(self, uri: str, data: bytes) -> None:
        """Store an object."""
        self._ask("put", _place(uri), data)

    def put_folder(self, uri: str, folder: Path) -> None:
        """Store all files of a folder below a uri."""
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.put(f"{uri}/{path.relative_to(folder).as_posix()}", path.read_bytes())

    def get(self, uri: str) -> bytes:
        """An object's bytes.

        Raises:
            KeyError: there is no such object.
        """
        return self._ask("get", _place(uri))

    def delete(self, uri: str) -> None:
        """Remove an object."""
        self._ask("delete", _place(uri))

    def names(self, uri: str) -> list[str]:
        """The names of all objects whose name begins so, sorted."""
        place = _place(uri)
        names = json.loads(self._ask("names", {"bucket": place["bucket"]}))
        return [name for name in names if name.startswith(place["name"])]

    def files(self, uri: str) -> dict[str, bytes]:
        """The objects right below a folder, by their last name."""
        start = _place(uri)["name"].rstrip("/") + "/"
        last = [name[len(start) :] for name in self.names(uri) if name.startswith(start)]
        return {name: self.get(f"{uri.rstrip('/')}/{name}") for name in last if "/" not in name}

    def inject(self, kind: str, **matching: Any) -> None:
        """Bring about a fault: see `gcs.faults.Fault`."""
        self._ask("fault", {}, json.dumps(dataclasses.asdict(Fault(kind, **matching))).encode())

    def mend(self) -> None:
        """No fault from now on."""
        self._ask("forget_faults", {})

    def rule(self, bucket: str, **rule: Any) -> None:
        """Ask more of requests to a bucket: see `gcs.access.Rule`."""
        self._ask("rule", {"bucket": bucket}, json.dumps(rule).encode())

    def callers(self) -> dict[tuple[str, str], int]:
        """In whose name each operation was asked for, and how often; "" is nobody's.

        An operation "act as ACCOUNT" is the request for that account's token.
        """
        rows = json.loads(self._ask("callers", {}))
        return {(caller, operation): count for caller, operation, count in rows}

    def count(self, operation: str = "*", object: str = "*", outcome: str = "*") -> int:
        """How many requests were made; patterns as those of `gcs.faults.Fault`.

        Args:
            operation: a pattern of `gcs.faults.OPERATIONS`.
            object: a pattern of "bucket/name".
            outcome: a pattern of the status answered, or cut, reset or under way.
        """
        wanted = (operation, object, outcome)
        return sum(
            count for *answered, count in self.requests() if all(map(matches, answered, wanted))
        )

    def requests(self) -> list[tuple[str, str, str, int]]:
        """All that was asked: operation, object, outcome, and how often."""
        return [tuple(row) for row in json.loads(self._ask("requests", {}))["answered"]]

    def asked(self, object: str) -> set[str]:
        """Which objects, by a pattern of "bucket/name", anything was asked of."""
        return {name for _, name, *_ in self.requests() if matches(name, object)}

    def peak(self) -> int:
        """The most requests that were served at one time."""
        return json.loads(self._ask("requests", {}))["peak"]

    def forget_requests(self) -> None:
        """Count from zero."""
        self._ask("forget_requests", {})

    def reset(self) -> None:
        """As it was when it started."""
        self._ask("reset", {})

    def _ask(self, what: str, query: dict[str, str], body: bytes = b"") -> bytes:
        address = urllib.parse.urlsplit(self.url)
        connection = http.client.HTTPConnection(address.netloc, timeout=60)
        with contextlib.closing(connection):
            connection.request("POST", f"{ADMIN}{what}?{urllib.parse.urlencode(query)}", body)
            response = connection.getresponse()
            answer = response.read()
        if response.status == 404:
            raise KeyError(answer.decode())
        if response.status != 200:
            raise ValueError(answer.decode())
        return answer


def _place(uri: str) -> dict[str, str]:
    bucket, _, name = uri.removeprefix("gs://").partition("/")
    return {"bucket": bucket, "name": name}


@contextlib.contextmanager
def in_thread(store: Store | None = None) -> Iterator[Gcs]:
    """A server in this process."""
    url, server = serve(Service(store))
    try:
        yield Gcs(url)
    finally:
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def in_process() -> Iterator[Gcs]:
    """A server in its own process, which ends with this one, however this one ends."""
    command = [sys.executable, "-m", "services.gcs.server"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen(command, cwd=_TESTS, start_new_session=True, text=True, **pipes)
    try:
        assert process.stdout is not None
        yield Gcs(process.stdout.readline().strip())
    finally:
        process.communicate(timeout=10)
