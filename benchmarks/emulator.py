"""The package gcp-storage-emulator as a process, answering many requests at once.

    emulator.py     prints its address, and ends when its standard input does

By itself it answers one request at a time; here it has a thread for each.  That in turn does not
suit the copy of all metadata that it makes after every upload and in memory never reads: it fails
where another upload is under way, so it is left out.  Tests here ask more of an emulator than this
one does (see `tests/services/gcs/server.py`); a conversion does not.
"""

from __future__ import annotations

import contextlib
import http.client
import http.server
import logging
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PACKAGE = "gcp_storage_emulator"


class Emulator:
    """A running emulator with the bucket bkt."""

    def __init__(self, url: str, process: subprocess.Popen[str]) -> None:
        self.url, self.pid = url, process.pid

    def environment(self) -> dict[str, str]:
        """The variables with which google-cloud-storage talks to it."""
        return {"STORAGE_EMULATOR_HOST": self.url, "GOOGLE_CLOUD_PROJECT": "loopback"}

    def put(self, uri: str, data: bytes) -> None:
        """Store an object of bkt."""
        name = urllib.parse.quote(uri.removeprefix("gs://bkt/"), safe="")
        connection = http.client.HTTPConnection(urllib.parse.urlsplit(self.url).netloc)
        with contextlib.closing(connection):
            connection.request(
                "POST", f"/upload/storage/v1/b/bkt/o?uploadType=media&name={name}", data
            )
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()


@contextlib.contextmanager
def in_process() -> Iterator[Emulator]:
    """An emulator in its own process."""
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, Path(__file__)], text=True, **pipes)
    try:
        assert process.stdout is not None
        yield Emulator(process.stdout.readline().strip(), process)
    finally:
        process.communicate(timeout=10)


def main() -> None:
    from gcp_storage_emulator import server
    from gcp_storage_emulator.storage import Storage

    Storage._write_config_to_file = lambda self: None
    server.server.HTTPServer = http.server.ThreadingHTTPServer
    http.server.ThreadingHTTPServer.request_queue_size = 256
    logging.disable(logging.CRITICAL)
    with server.create_server("127.0.0.1", 0, in_memory=True, default_bucket="bkt") as running:
        print(f"http://127.0.0.1:{running._api._httpd.server_address[1]}", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
