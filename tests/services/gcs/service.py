"""What the service answers to each request, without a socket: the JSON API, uploads, downloads."""

from __future__ import annotations

import functools
import json
import re
import urllib.parse
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from services.gcs.access import Rule
from services.gcs.faults import Fault, Journal
from services.gcs.messages import Answer, Request, error, ok
from services.gcs.objects import Preconditions, Refused, Store, StoredObject, compose
from services.gcs.uploads import Sessions, described, parse_multipart

_BUCKET = r"/storage/v1/b/(?P<bucket>[^/]+)"
_OBJECT = r"(?:/download)?" + _BUCKET + r"/o/(?P<name>[^/]+)"
_COPY = r"/(?P<how>rewriteTo|copyTo)/b/(?P<to>[^/]+)/o/(?P<as>[^/]+)"
#: Which function of `Service` answers what; the first that fits.
_ROUTES = [
    (method, re.compile(path), what)
    for method, path, what in (
        ("POST", "/upload" + _BUCKET + "/o", "upload"),
        ("PUT", "/upload" + _BUCKET + "/o", "piece"),
        ("DELETE", "/upload" + _BUCKET + "/o", "cancel"),
        ("GET", _BUCKET, "bucket"),
        ("GET", _BUCKET + "/iam/testPermissions", "permissions"),
        ("GET", _BUCKET + "/o", "list"),
        ("POST", "/storage/v1/b", "create_bucket"),
        ("GET", _OBJECT, "object"),
        ("DELETE", _OBJECT, "delete"),
        ("POST", _OBJECT + "/compose", "compose"),
        ("POST", _OBJECT + _COPY, "copy"),
        # The second is TensorFlow's own, whatever the key file says.
        ("POST", "/token|/oauth2/v4/token", "token"),
        ("POST", "/v1/projects/-/serviceAccounts/(?P<account>[^/:]+):generateAccessToken", "act"),
        # The older API, which TensorFlow downloads by.
        ("GET", "/(?!storage/|upload/|download/)(?P<bucket>[^/]+)/(?P<name>.+)", "plain"),
    )
]


@dataclass(frozen=True)
class Call:
    """A request that was understood: what it is for, which object it is about, how it is done."""

    operation: str
    target: str
    act: Callable[[], Answer]

    def answer(self, request: Request) -> Answer:
        try:
            return self.act()
        except Refused as refused:
            return error(refused, request)
        except (ValueError, KeyError) as broken:
            return error(Refused(400, "invalid", repr(broken)), request)


def _refused(operation: str, target: str, answer: Answer) -> Call:
    """A request that is counted, and gets this answer whatever stands on the bucket."""
    return Call(operation, target, lambda: answer)


class Service:
    """The state of one server, and its answers."""

    def __init__(self, store: Store | None = None) -> None:
        self.store = store or Store()
        self.sessions = Sessions(self.store)
        self.journal = Journal()
        self.rules: dict[str, Rule] = {}
        self.callers: Counter[tuple[str, str]] = Counter()

    def understand(self, request: Request) -> Call:
        for method, pattern, what in _ROUTES:
            found = pattern.fullmatch(request.path)
            if found and method == request.method:
                names = {k: urllib.parse.unquote(v) for k, v in found.groupdict().items()}
                return self._call(what, request, names)
        what = f"{request.method} {request.path}"
        return Call("other", what, lambda: self._unknown(request))

    def _call(self, what: str, request: Request, names: dict[str, str]) -> Call:
        call = self._granted_call(what, request, names)
        self.callers[request.caller(), call.operation] += 1
        rule = self.rules.get(names.get("bucket", ""))
        # Whoever has the address of a session may go on with it.
        if rule is None or call.operation in ("piece", "offset"):
            return call
        refused = rule.refusal(request, call.operation)
        if refused is None:
            return call
        return _refused(call.operation, call.target, error(refused, request))

    def _granted_call(self, what: str, request: Request, names: dict[str, str]) -> Call:
        bucket, name = names.get("bucket", ""), names.get("name", "")
        target = f"{bucket}/{name}" if name else bucket
        if what in ("object", "plain"):
            if what == "plain" or request.is_download:
                return Call("download", target, lambda: self._download(request, bucket, name))
            return Call("metadata", target, lambda: self._metadata(request, bucket, name))
        if what == "upload" and "upload_id" not in request.query:
            return self._upload(request, bucket)
        if what in ("upload", "piece", "cancel"):
            return self._piece(what, request)
        if what == "list":
            prefix = request.query.get("prefix", "")
            return Call("list", f"{bucket}/{prefix}", lambda: self._list(request, bucket))
        act = getattr(self, f"_{what}")
        operation = what if what in ("bucket", "delete", "compose", "copy") else "other"
        return Call(operation, target, lambda: act(request, names))

    def _upload(self, request: Request, bucket: str) -> Call:
        """An upload by one request, or the start of one by several."""
        how, kind, data = request.query.get("uploadType"), "", None
        try:
            said = {}
            if how == "resumable":
                said = json.loads(request.body) if request.body.strip() else {}
                kind = request.headers.get("x-upload-content-type", "")
            elif how == "multipart":
                said, kind, data = parse_multipart(request.headers["content-type"], request.body)
            else:
                kind, data = request.headers.get("content-type", ""), request.body
            upload = described(bucket, request.query, said, kind)
        except Refused as refused:
            return _refused("upload", bucket, error(refused, request))
        target = f"{bucket}/{upload.name}"
        if data is not None:
            whole = data
            return Call("upload", target, lambda: ok(self.store.put(upload, whole).resource()))

        def start() -> Answer:
            host = request.headers["host"]
            secure = "https" if host.split(":")[0].endswith(".googleapis.com") else "http"
            where = f"{secure}://{host}/upload/storage/v1/b/{urllib.parse.quote(bucket)}/o"
            session = f"?uploadType=resumable&upload_id={self.sessions.start(upload)}"
            return Answer(200, headers=(("Location", where + session),))

        return Call("start", target, start)

    def _piece(self, what: str, request: Request) -> Call:
        upload_id = request.query.get("upload_id", "")
        try:
            upload = self.sessions.upload(upload_id)
        except Refused as refused:
            return _refused("piece", "", error(refused, request))
        target = f"{upload.bucket}/{upload.name}"
        if what == "cancel":
            return Call("other", target, lambda: self._cancel(upload_id))
        content_range = request.headers.get("content-range", "")
        told = request.headers.get("x-goog-hash", "")
        hashes = dict(part.strip().split("=", 1) for part in told.split(",") if part)

        def receive() -> Answer:
            got, size = self.sessions.receive(upload_id, content_range, hashes, request.body)
            if got:
                return ok(got.resource())
            return Answer(308, headers=(("Range", f"bytes=0-{size - 1}"),) if size else ())

        asks = content_range.startswith("bytes */") and not request.body
        return Call("offset" if asks else "piece", target, receive)

    def half_a_piece(self, request: Request) -> None:
        """Receive half of a piece, as where a connection breaks."""
        found = re.match(r"bytes (\d+)-", request.headers.get("content-range", ""))
        half = request.body[: len(request.body) // 2]
        if found and half:
            told = f"bytes {found[1]}-{int(found[1]) + len(half) - 1}/*"
            self.sessions.receive(request.query["upload_id"], told, {}, half)

    def _cancel(self, upload_id: str) -> Answer:
        self.sessions.cancel(upload_id)
        return Answer(499)

    def _object(self, request: Request, bucket: str, name: str) -> StoredObject:
        generation = request.query.get("generation")
        must = Preconditions.of(request.query)
        return self.store.get(bucket, name, must, int(generation) if generation else None)

    def _metadata(self, request: Request, bucket: str, name: str) -> Answer:
        told = self._object(request, bucket, name).resource()
        if "fields" not in request.query:
            return ok(told)
        wanted = request.query["fields"].split(",")
        if unknown := [field for field in wanted if field not in told]:
            raise Refused(400, "invalidParameter", f"Invalid field selection {unknown[0]}")
        return ok({field: told[field] for field in wanted})

    def _download(self, request: Request, bucket: str, name: str) -> Answer:
        found = self._object(request, bucket, name)
        size = len(found.data)
        headers = (
            # The default is that of an object that everybody may read.
            ("Cache-Control", found.cache_control or "public, max-age=3600"),
            ("X-Goog-Hash", f"crc32c={found.crc32c},md5={found.md5}"),
            ("X-Goog-Generation", str(found.generation)),
            ("X-Goog-Stored-Content-Encoding", "identity"),
            ("X-Goog-Stored-Content-Length", str(size)),
            ("Accept-Ranges", "bytes"),
        )
        wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", request.headers.get("range", ""))
        if wanted is None or wanted[0] == "bytes=-":
            return Answer(200, found.data, found.content_type, headers)
        first = int(wanted[1]) if wanted[1] else max(0, size - int(wanted[2]))
        end = min(size, int(wanted[2]) + 1) if wanted[1] and wanted[2] else size
        if first >= size:
            none = (*headers, ("Content-Range", f"bytes */{size}"))
            return Answer(416, b"The requested range cannot be satisfied.", "text/html", none)
        part = (*headers, ("Content-Range", f"bytes {first}-{end - 1}/{size}"))
        return Answer(206, found.data[first:end], found.content_type, part)

    def _bucket(self, request: Request, names: dict[str, str]) -> Answer:
        bucket = names["bucket"]
        self.store.bucket(bucket)
        more = {"location": "US", "storageClass": "STANDARD"}
        rule = self.rules.get(bucket)
        told = {"kind": "storage#bucket", "id": bucket, "name": bucket, **more}
        told |= {} if rule is None else rule.policies
        wanted = request.query.get("fields", ",".join(told)).split(",")
        return ok({name: value for name, value in told.items() if name in wanted})

    def _permissions(self, request: Request, names: dict[str, str]) -> Answer:
        self.store.bucket(names["bucket"])
        return ok({"permissions": [request.query["permissions"]]})

    def _create_bucket(self, request: Request, names: dict[str, str]) -> Answer:
        bucket = json.loads(request.body)["name"]
        self.store.create_bucket(bucket)
        return self._bucket(request, {"bucket": bucket})

    def _list(self, request: Request, bucket: str) -> Answer:
        page = self.store.list(bucket, request.query)
        told: dict[str, Any] = {"kind": "storage#objects"}
        if page.objects:
            chosen = re.search(r"items\(([\w,]+)\)", request.query.get("fields", ""))
            told["items"] = [
                {
                    key: value
                    for key, value in found.resource().items()
                    if chosen is None or key in chosen[1].split(",")
                }
                for found in page.objects
            ]
        if page.prefixes:
            told["prefixes"] = list(page.prefixes)
        if page.next_page:
            told["nextPageToken"] = page.next_page
        return ok(told)

    def _delete(self, request: Request, names: dict[str, str]) -> Answer:
        self.store.delete(names["bucket"], names["name"], Preconditions.of(request.query))
        return Answer(204)

    def _compose(self, request: Request, names: dict[str, str]) -> Answer:
        asked = json.loads(request.body)
        said = {**asked.get("destination", {}), "name": names["name"]}
        upload = described(names["bucket"], request.query, said, "")
        parts = [part["name"] for part in asked["sourceObjects"]]
        return ok(compose(self.store, upload, parts).resource())

    def _copy(self, request: Request, names: dict[str, str]) -> Answer:
        wanted = Preconditions.of_source(request.query)
        source = self.store.get(names["bucket"], names["name"], wanted)
        must = Preconditions.of(request.query)
        made = self.store.copy(source, names["to"], names["as"], must).resource()
        if names["how"] == "copyTo":
            return ok(made)
        size = {"totalBytesRewritten": made["size"], "objectSize": made["size"]}
        return ok({"kind": "storage#rewriteResponse", "done": True, "resource": made, **size})

    def _act(self, request: Request, names: dict[str, str]) -> Answer:
        """A token of another account: its name."""
        if not request.caller():
            raise Refused(401, "required", "Request is missing required authentication credential.")
        delegates = json.loads(request.body).get("delegates", ())
        by = ",".join([*delegates, request.caller()])
        self.callers[by, f"act as {names['account']}"] += 1
        return ok({"accessToken": names["account"], "expireTime": "2100-01-01T00:00:00Z"})

    def _token(self, request: Request, names: dict[str, str]) -> Answer:
        return ok({"access_token": "loopback", "expires_in": 3600, "token_type": "Bearer"})

    def _unknown(self, request: Request) -> Answer:
        raise Refused(404, "notFound", f"The loopback has no {request.method} {request.path}")

    def admin(self, request: Request) -> Answer:
        """What tests ask for through `gcs.control`: neither counted nor hit by faults."""
        what, bucket = request.path.rpartition("/")[2], request.query.get("bucket", "")
        if what == "bucket":
            self.store.create_bucket(bucket)
        elif what == "put":
            self.store.put(described(bucket, request.query, {}, ""), request.body)
        elif what == "get":
            found = self.store.get(bucket, request.query["name"])
            return Answer(200, found.data, found.content_type)
        elif what == "delete":
            self.store.delete(bucket, request.query["name"], Preconditions())
        elif what == "names":
            return ok(sorted(self.store.bucket(bucket)))
        elif what == "fault":
            self.journal.add(Fault(**json.loads(request.body)))
        elif what == "requests":
            return ok({"peak": self.journal.peak(), "answered": self.journal.answered()})
        elif what == "rule":
            rule = self.rules[bucket] = Rule(**json.loads(request.body))
            self.store.keeps[bucket] = functools.partial(rule.refuse_kept, bucket)
        elif what == "callers":
            return ok([[*key, count] for key, count in self.callers.items()])
        elif what == "forget_faults":
            self.journal.forget_faults()
        elif what == "forget_requests":
            self.journal.forget_requests()
        else:
            return self._unknown(request)
        return ok({})
