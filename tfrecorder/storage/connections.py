"""How requests are made: over kept-alive connections, as which account, and who pays.

They go by `http.client`, with the proxy and certificates set: a GET of 88 KB takes a third of the
CPU that `requests` needs, and two thirds of what urllib3 needs.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import http.client
import io
import os
import select
import socket
import ssl
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import SplitResult

from tfrecorder.storage.store import TransientError, UnreadableError, too_large

#: The variable that names the project to bill for requests to requester-pays buckets, the same as
#: in GDAL.  Google's own tools take it as an option of each command.
USER_PROJECT = "GS_USER_PROJECT"

NO_CREDENTIALS = (
    "there are no Google Cloud credentials: run `gcloud auth application-default login`, or set "
    "GOOGLE_APPLICATION_CREDENTIALS to a service account's key file"
)

NO_USER_PROJECT = (
    f"the reader of this bucket pays for it: set {USER_PROJECT} to the Google Cloud project to "
    "bill, in which you have the role Service Usage Consumer"
)

#: Variables that name a file or folder of certificates; the first one set is used.
_BUNDLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")

#: Seconds after which an idle connection is not used again: the other side may have closed it.
IDLE = 4

#: Bytes a second that the body of an answer must have, beyond the time that any has.
SLOWEST = 10_000


class _Timed(io.RawIOBase):
    """What a socket receives, while there is time.

    `http.client` reads a line, the size of a chunk and all trailers in one call each.  So a server
    that sends a byte a minute, or lines without end, is noticed here alone.

    Attributes:
        until: when the time ends, on the clock of `time.monotonic`; at first, once it has been as
            long as the socket waits for any part.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._raw = sock.makefile("rb", buffering=0)
        self._longest = sock.gettimeout() or 0
        self.until = time.monotonic() + self._longest

    def makefile(self, mode: str) -> io.BufferedReader:
        """What `http.client` asks a socket for."""
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self.until - time.monotonic()
        if left <= 0:
            raise TimeoutError("its bytes come too slowly")
        wait = min(left, self._longest)
        if wait != self._sock.gettimeout():
            self._sock.settimeout(wait)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class Answer(http.client.HTTPResponse):
    """A response that ends in time: its headers have as long as the socket waits for any part."""

    def __init__(
        self,
        sock: Any,
        *args: Any,
        **options: Any,
    ) -> None:
        self._timed = _Timed(sock)
        timed: Any = self._timed
        super().__init__(timed, *args, **options)

    def pieces(
        self,
        seconds: float,
        most: float,
    ) -> Iterator[bytes]:
        """The body, which has so many seconds and those that its bytes take at `SLOWEST`.

        Raises:
            UnreadableError: it has more than `most` bytes.
            TransientError: it is not whole.
            OSError, http.client.HTTPException: it is too slow, or is cut.
        """
        wanted = self.length
        size = 0
        began = time.monotonic()
        while True:  # also of nothing is the end read, or the connection would not be kept
            if max(size, wanted or 0) > most:
                raise too_large(max(size, wanted or 0))
            self._timed.until = began + seconds + size / SLOWEST
            data = self.read1(2**18) if wanted is None else self.read(2**18)
            if not data:
                break
            size += len(data)
            paused = time.monotonic()
            yield data
            began += time.monotonic() - paused
        if wanted not in (None, size):
            raise TransientError(f"received {size:,} of {wanted:,} bytes")


#: Sends a request (method, path, headers); the response can be read inside the block.
Send = Callable[[str, str, dict[str, str]], AbstractContextManager[Answer]]


def is_idle(connection: http.client.HTTPConnection, since: float) -> bool:
    """Whether a kept connection may be used again: what has come unasked is no answer."""
    waiting = select.poll()
    waiting.register(connection.sock, select.POLLIN)
    return time.monotonic() - since < IDLE and not waiting.poll(0)


@dataclass(frozen=True)
class Access:
    """How requests are made.

    Attributes:
        account: the service account to act as, preceded by its delegates, separated by commas;
            None for the account that google-auth finds.
        user_project: the project billed for requests to requester-pays buckets; None for none.
        private_hosts: images are read over http(s) from private addresses too.
        signed: for uris on the web without their signatures, these uris with them.
    """

    account: str | None = None
    user_project: str | None = None
    private_hosts: bool = False
    signed: dict[str, str] = field(
        default_factory=dict,
        compare=False,
        repr=False,
    )


_ACCESS: ContextVar[Access | None] = ContextVar("access", default=None)


def access() -> Access:
    """How this thread accesses files: as set by `accessing`, else by the environment."""
    return _ACCESS.get() or Access(user_project=os.environ.get(USER_PROJECT) or None)


@contextlib.contextmanager
def accessing(chosen: Access) -> Iterator[None]:
    """A block that makes its requests this way, as do the threads it starts."""
    before = _ACCESS.set(chosen)
    try:
        yield
    finally:
        _ACCESS.reset(before)


def acting_as(
    account: str | None, private_hosts: bool = False
) -> contextlib.AbstractContextManager[None]:
    """A block whose requests are made as another account; None for the caller's own.

    Args:
        private_hosts: in it private addresses are read over http(s) too.
    """
    private_hosts = private_hosts or access().private_hosts
    changed = dataclasses.replace(access(), account=account, private_hosts=private_hosts)
    return accessing(changed)


def find_credentials(account: str | None, scopes: Sequence[str]) -> Any:
    """The google-auth credentials from the environment, or those of the account to act as.

    Raises:
        google.auth.exceptions.DefaultCredentialsError: there are none.
    """
    import google.auth
    from google.auth import impersonated_credentials

    credentials: Any = google.auth.default(scopes=scopes)[0]
    if account is not None:
        *delegates, target = account.split(",")
        credentials = impersonated_credentials.Credentials(
            source_credentials=credentials,
            target_principal=target,
            delegates=delegates,
            target_scopes=list(scopes),
        )
    credentials.refresh = _waited_for()(credentials.refresh)
    return credentials


@contextlib.contextmanager
def _waited_for() -> Iterator[None]:
    """A refresh of a token; google-auth takes an answer that is not JSON, of a gateway, for one."""
    try:
        yield
    except (LookupError, TypeError, ValueError) as error:
        raise TransientError("what came back is not a token") from error


def sender(endpoint: str, timeout: tuple[float, float]) -> Send:
    """A function that makes requests over kept-alive connections; threads may share it.

    A connection is kept if its response was read to the end.  There are as many open connections
    as threads making requests at the same time.

    Args:
        endpoint: of the service, such as "https://storage.googleapis.com".
        timeout: seconds for a connection, and for each wait for a part of a response.

    Raises:
        UnreadableError: the environment names a proxy that cannot be used.

    The function raises OSError and http.client.HTTPException, also inside its block.
    """
    connect = _connector(urllib.parse.urlsplit(endpoint), timeout[0])
    kept: list[tuple[http.client.HTTPConnection, float, int]] = []

    def connection() -> http.client.HTTPConnection:
        # No lock needed: `pop` and `append` are atomic.  The latest connection is reused first.
        with contextlib.suppress(IndexError):
            while True:
                idle, since, process = kept.pop()
                # A fork has its parent's connections too: two that read one would mix answers.
                if process == os.getpid() and is_idle(idle, since):
                    return idle
                idle.close()
        opened = connect()
        opened.response_class = Answer
        opened.connect()
        return opened

    @contextlib.contextmanager
    def send(
        method: str,
        path: str,
        headers: dict[str, str],
    ) -> Iterator[Answer]:
        used = connection()
        try:
            used.sock.settimeout(timeout[1])
            used.request(method, path, headers=headers)
            response = cast(Answer, used.getresponse())
            yield response
            if response.isclosed() and used.sock is not None:
                kept.append((used, time.monotonic(), os.getpid()))
                return
        except BaseException:
            used.close()
            raise
        used.close()

    return send


def _connector(endpoint: SplitResult, timeout: float) -> Callable[[], http.client.HTTPConnection]:
    """A function that makes unopened connections, with the configured proxy and certificates."""
    host = endpoint.hostname or ""
    if endpoint.scheme != "https":
        return lambda: http.client.HTTPConnection(host, endpoint.port, timeout=timeout)
    proxy = _proxy(endpoint)
    context = certificates()
    asked = endpoint if proxy is None else proxy
    port = endpoint.port if proxy is None else proxy.port or 80

    def connect() -> http.client.HTTPConnection:
        name = asked.hostname or ""
        opened = http.client.HTTPSConnection(name, port, timeout=timeout, context=context)
        if proxy is not None:
            opened.set_tunnel(host, endpoint.port, _authorization(proxy))
        return opened

    return connect


def _proxy(endpoint: SplitResult) -> SplitResult | None:
    proxies = urllib.request.getproxies()
    kind = endpoint.scheme if proxies.get(endpoint.scheme) else "all"
    named = proxies.get(kind)
    if not named or urllib.request.proxy_bypass(endpoint.hostname or ""):
        return None
    address = named if "://" in named else f"http://{named}"
    with contextlib.suppress(ValueError):  # an unclosed bracket, or a port that is not a number
        proxy = urllib.parse.urlsplit(address)
        if proxy.scheme == "http" and proxy.port != 0:
            return proxy
    spoken, _, place = address.partition("://")
    raise UnreadableError(
        "read_failed",
        f"{kind}_proxy={spoken}://{place.rpartition('@')[2]} cannot be used: give one as "
        f"http://HOST:PORT, or name {endpoint.hostname} in no_proxy",
    )


def _authorization(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    parts = (urllib.parse.unquote(part or "") for part in (proxy.username, proxy.password))
    encoded = base64.b64encode(":".join(parts).encode()).decode()
    return {"Proxy-Authorization": f"Basic {encoded}"}


def certificates() -> ssl.SSLContext:
    import certifi

    variable = next((name for name in _BUNDLES if os.environ.get(name)), "")
    named = os.environ.get(variable, certifi.where())
    is_folder = os.path.isdir(named)
    try:
        return ssl.create_default_context(
            cafile=None if is_folder else named,
            capath=named if is_folder else None,
        )
    except OSError as error:
        raise UnreadableError(
            "read_failed",
            f"{variable}={named} has no certificates: name a file with some, or unset it",
        ) from error
