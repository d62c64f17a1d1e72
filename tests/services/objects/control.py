"""Running loopback servers of S3 and Azure in a test's hands: objects, faults, what was asked."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import http.client
import json
import re
import shutil
import subprocess
import sys
import urllib.parse
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from typing import Any

from support import wait_for

_TESTS = Path(__file__).parents[2]

#: Of Azurite, for everybody.
ACCOUNT = "devstoreaccount1"
ACCOUNT_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

#: moto reads a signature for who it is, and does not prove it.
_CREDENTIAL = "Credential=tests/20260101/us-east-1/s3/aws4_request"
_SIGNED = {"Authorization": f"AWS4-HMAC-SHA256 {_CREDENTIAL}, SignedHeaders=host, Signature=0"}


@dataclass(frozen=True)
class S3:
    """moto's S3.  What is asked for here is not counted, but hit by faults."""

    url: str

    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "loopback",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
        }

    def _ask(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> bytes:
        return _answer(self.url, method, path, body, {**_SIGNED, **(headers or {})})

    def create_bucket(self, bucket: str) -> None:
        self._ask("PUT", f"/{bucket}")

    def put(self, uri: str, data: bytes, public: bool = False) -> None:
        """Store an object, which only who signs may read where it is not public."""
        headers = {"x-amz-acl": "public-read"} if public else {}
        self._ask("PUT", _path(uri), data, headers)

    def put_folder(self, uri: str, folder: Path) -> None:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.put(f"{uri}/{path.relative_to(folder).as_posix()}", path.read_bytes())

    def get(self, uri: str) -> bytes:
        return self._ask("GET", _path(uri))

    def names(self, uri: str) -> list[str]:
        """The names of all objects whose name begins so, sorted; of at most 1,000."""
        bucket, _, prefix = uri.partition("://")[2].partition("/")
        query = urllib.parse.urlencode({"list-type": "2", "max-keys": "1000", "prefix": prefix})
        tree = ElementTree.fromstring(self._ask("GET", f"/{bucket}?{query}"))
        return sorted(one.text or "" for one in tree.iter() if one.tag.endswith("}Key"))

    def files(self, uri: str) -> dict[str, bytes]:
        """The objects right below a folder, by their last name."""
        start = uri.partition("://")[2].partition("/")[2].rstrip("/") + "/"
        last = [name[len(start) :] for name in self.names(f"{uri.rstrip('/')}/")]
        return {name: self.get(f"{uri.rstrip('/')}/{name}") for name in last if "/" not in name}

    def inject(self, kind: str, **matching: Any) -> None:
        """Bring about a fault.

        Args:
            kind: "status", "drop" (of the connection) or "stall".
            matching: method ("PUT|POST"), path (a pattern), status, body, seconds, times, and
                after: the request is done, and its answer is lost.
        """
        fault: dict[str, Any] = {"method": "*", "path": "*", "status": 503, "body": ""}
        fault |= {"seconds": 0, "times": None, "after": False, "kind": kind, **matching}
        self._ask("POST", "/_test/fault", json.dumps(fault).encode())

    def refuse(self, status: int, code: str, **matching: Any) -> None:
        """Answer as S3 does with this status and code."""
        body = f"<Error><Code>{code}</Code><Message>Injected.</Message></Error>"
        self.inject("status", status=status, body=body, **matching)

    def mend(self) -> None:
        self._ask("POST", "/_test/mend")

    def forget_requests(self) -> None:
        self._ask("POST", "/_test/forget")

    def requests(self) -> list[tuple[str, str, str]]:
        """All that was asked: method, path, and the header Authorization."""
        asked = json.loads(self._ask("POST", "/_test/asked"))
        return [tuple(one) for one in asked if one[2] != _SIGNED["Authorization"]]

    def count(self, method: str, path: str = "") -> int:
        return sum(
            asked == method and where.startswith(path) for asked, where, _ in self.requests()
        )

    def reset(self) -> None:
        self._ask("POST", "/_test/reset")  # first: faults would hit the other
        self._ask("POST", "/moto-api/reset")


def _path(uri: str) -> str:
    return "/" + urllib.parse.quote(uri.partition("://")[2])


def _answer(
    url: str, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
) -> bytes:
    if headers is None:
        headers = {}
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc, timeout=60)
    with contextlib.closing(connection):
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        answer = response.read()
    if response.status == 404:
        raise KeyError(answer.decode())
    if response.status >= 300:
        raise ValueError(answer.decode())
    return answer


@contextlib.contextmanager
def s3_in_process() -> Iterator[S3]:
    """moto in its own process, which ends with this one, however this one ends."""
    command = [sys.executable, "-m", "services.objects.server"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen(command, cwd=_TESTS, start_new_session=True, text=True, **pipes)
    try:
        assert process.stdout is not None
        yield S3(process.stdout.readline().strip())
    finally:
        process.communicate(timeout=30)


@dataclass(frozen=True)
class Azure:
    """Azurite, Microsoft's emulator."""

    url: str

    def environment(self) -> dict[str, str]:
        return {
            "AZURE_STORAGE_ENDPOINT": f"{self.url}/{ACCOUNT}",
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": ACCOUNT_KEY,
        }

    def create_container(self, name: str) -> None:
        """Source: https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key"""
        date, version = formatdate(usegmt=True), "2021-12-02"
        signed = f"PUT{chr(10) * 12}x-ms-date:{date}\nx-ms-version:{version}\n"
        signed += f"/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
        key = base64.b64decode(ACCOUNT_KEY)
        mac = base64.b64encode(hmac.digest(key, signed.encode(), hashlib.sha256)).decode()
        headers = {"x-ms-date": date, "x-ms-version": version, "Content-Length": "0"}
        headers["Authorization"] = f"SharedKey {ACCOUNT}:{mac}"
        _answer(self.url, "PUT", f"/{ACCOUNT}/{name}?restype=container", headers=headers)


def azurite() -> str | None:
    """The command of Azurite; None where it is not installed."""
    return shutil.which("azurite-blob")


@contextlib.contextmanager
def azure_in_process(folder: Path) -> Iterator[Azure]:
    """Azurite in its own process."""
    options = ("--blobPort", "0", "--inMemoryPersistence", "--skipApiVersionCheck")
    words = folder / "azurite.txt"
    with open(words, "wb") as log:
        command = [azurite() or "", *options, "--disableTelemetry"]
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    try:
        wait_for(lambda: process.poll() is not None or "http://" in words.read_text())
        found = re.search(r"http://\S+", words.read_text())
        assert found is not None, words.read_text()
        yield Azure(found[0])
    finally:
        process.terminate()
        process.wait(60)
