"""Requests and answers, as both the service and its socket see them."""

from __future__ import annotations

import dataclasses
import json
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from services.gcs.objects import Refused


@dataclass(frozen=True)
class Request:
    """A request as it came; names of headers in lower case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    @classmethod
    def of(cls, method: str, uri: str, headers: Mapping[str, str], body: bytes) -> Request:
        path, _, query = uri.partition("?")
        pairs = urllib.parse.parse_qsl(query, keep_blank_values=True)
        lower = {key.lower(): value for key, value in headers.items()}
        return cls("GET" if method == "HEAD" else method, path, dict(pairs), lower, body)

    def caller(self) -> str:
        """Whose token it brings, which on the loopback is a name; "" without one."""
        return self.headers.get("authorization", "").removeprefix("Bearer ")

    @property
    def is_download(self) -> bool:
        return self.query.get("alt") == "media" or "/storage/v1/" not in self.path


@dataclass(frozen=True)
class Answer:
    """A response, ready to send."""

    status: int
    body: bytes = b""
    content_type: str = "application/json; charset=UTF-8"
    headers: tuple[tuple[str, str], ...] = ()


def ok(value: Any) -> Answer:
    return Answer(200, json.dumps(value).encode())


def error(refused: Refused, request: Request) -> Answer:
    """Errors are JSON, but for downloads, where the service answers plain words."""
    if request.is_download:
        return Answer(refused.status, refused.message.encode(), "text/html; charset=UTF-8")
    told = {"message": refused.message, "domain": "global", "reason": refused.reason}
    body = {"code": refused.status, "message": refused.message, "errors": [told]}
    return dataclasses.replace(ok({"error": body}), status=refused.status)
