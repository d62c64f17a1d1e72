"""A headless Chromium for tests, spoken to over a pipe: the DevTools protocol, no package needed.

Source: https://chromedevtools.github.io/devtools-protocol/ and, in Chromium, the switch
`--remote-debugging-pipe`: messages are JSON, ended by a NUL, read from descriptor 3 and written to
descriptor 4.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)

_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe"),
)
_TIMEOUT = 30.0


class Page:
    """One page of a browser.

    Attributes:
        errors: what the console, the loader or a script complained of.
        requests: the addresses that were asked for, but for data: ones.
    """

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self._buffer, self._last, self._session = b"", 0, ""
        self.errors: list[str] = []
        self.requests: list[str] = []

    def attach(self) -> None:
        """Make a new tab and listen to it."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        answer = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = answer["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command and its answer; what happens meanwhile is noted."""
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + _TIMEOUT
        while (answer := self._next(end)).get("id") != self._last:
            self._note(answer)
        assert "error" not in answer, answer["error"]
        return answer["result"]

    def open(self, path: Path, width: int, height: int = 900, dark: bool = False) -> None:
        """Load a file in a window of this size, and wait until all is there."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        size = {"width": width, "height": height, "deviceScaleFactor": 1}
        self.send("Emulation.setDeviceMetricsOverride", mobile=False, **size)
        self.send("Page.navigate", url=path.resolve().as_uri())
        end = time.monotonic() + _TIMEOUT
        while self.evaluate("document.readyState") != "complete":
            assert time.monotonic() < end, "the page does not load"
            time.sleep(0.02)

    def evaluate(self, script: str) -> Any:
        """The value of an expression on the page."""
        answer = self.send(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """Press Tab, Enter, Space or an arrow key, as a user does."""
        codes = {"Tab": 9, "Enter": 13, "Space": 32, "ArrowRight": 39}
        text = {"Enter": {"text": "\r"}, "Space": {"text": " "}}.get(key, {})
        event = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
        self.send("Input.dispatchKeyEvent", type="keyDown", **event, **text)
        self.send("Input.dispatchKeyEvent", type="keyUp", **event)

    def screenshot(self, path: Path, whole: bool = True) -> None:
        """The page as PNG, all of it or what the window shows."""
        answer = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))

    def _next(self, end: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._answers], [], [], max(end - time.monotonic(), 0))
            assert ready, "Chromium does not answer"
            data = os.read(self._answers, 1 << 20)
            assert data, "Chromium has ended"
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def _note(self, event: dict[str, Any]) -> None:
        method, told = event.get("method", ""), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(str(told["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning"):
            self.errors.append(str(told["args"]))
        elif method == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            self.errors.append(told["entry"]["text"])
        elif method == "Network.loadingFailed":
            self.errors.append(told["errorText"])
        elif method == "Network.requestWillBeSent":
            url = told["request"]["url"]
            if not url.startswith("data:"):
                self.requests.append(url)


@contextlib.contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """A page of a fresh Chromium whose profile is in a folder."""
    assert CHROMIUM, "Chromium is not installed"
    # A shell puts the pipes where Chromium wants them.
    plumbing = 'exec "$@" 3<&0 4>&1 </dev/null >/dev/null'
    process = subprocess.Popen(
        ["sh", "-c", plumbing, "sh", CHROMIUM, *_FLAGS, f"--user-data-dir={folder}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
    )
    assert process.stdin
    assert process.stdout
    try:
        page = Page(process.stdin.fileno(), process.stdout.fileno())
        page.attach()
        yield page
    finally:
        process.terminate()
        process.wait(timeout=_TIMEOUT)
        process.stdin.close()
        process.stdout.close()
