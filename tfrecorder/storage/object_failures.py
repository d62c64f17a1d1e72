"""What a failed obstore request means, from the type and message of its exception.

The message is from object_store (Rust), and contains the response's status and body.
Sources: https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html and
https://learn.microsoft.com/rest/api/storageservices/blob-service-error-codes
"""

from __future__ import annotations

import html
import re

from tfrecorder.storage.object_clients import Client
from tfrecorder.storage.store import (
    OtherStandsError,
    TransientError,
    UnreadableError,
    is_transient,
    may_pass,
)

#: How object_store reports an unsuccessful response: its status and body.
_STATUS = re.compile(r"status code: (\d{3}) ?([^:\n]*)(?::\s*(.*))?", re.DOTALL)
_DELETION = re.compile(r"DeleteObjects request failed for key .*?: (?P<words>.*) \(code: (\w+)\)")

_NOT_IMPLEMENTED = 501

#: Codes in the body of a response, whatever its status is.
_PASSING = frozenset(
    ("InternalError", "SlowDown", "ServiceUnavailable", "RequestTimeout", "OperationAborted")
    + ("ConditionalRequestConflict", "ServerBusy", "OperationTimedOut")
)
_OF_CREDENTIALS = frozenset(
    ("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken")
    + ("TokenRefreshRequired", "AuthenticationFailed", "InvalidAuthenticationInfo")
    + ("NoAuthenticationInformation", "RequestTimeTooSkewed")
)
_OF_REGION = frozenset(("AuthorizationHeaderMalformed", "PermanentRedirect"))

_REGION = "set AWS_REGION to the region of the bucket"
_UNCONDITIONAL = "this server does not support conditional writes: set AWS_CONDITIONAL_PUT=disabled"

#: The places where object_store looks for credentials if the environment names none.
_METADATA = re.compile(
    r"169\.254\.|fd00:ec2|metadata\.google|External \w+ credential|azure cli", re.I
)

#: Failures of the connection, before or during a response, and responses of a gateway.
_ON_THE_WAY = re.compile(
    r"HTTP error|response body|error sending|error decoding|connection|timed out"
    r"|Got invalid \w+ response|metadata from headers|non-partial response",
    re.I,
)

#: The system's message in a chain of causes, in Rust's debug format.
_CAUSE = re.compile(r'message: "([^"]+)"')


def meaning(error: Exception, client: Client) -> Exception | None:
    """Our error for a failure of obstore or the connection; None for any other failure."""
    from obstore import exceptions

    if not isinstance(error, (exceptions.BaseError, FileNotFoundError, NotImplementedError)):
        return TransientError(str(error)) if may_pass(error) else None
    text, _, causes = str(error).partition("\n\nDebug source:")
    status, code, words = _answer(text)
    if code in _PASSING or (is_transient(status) and status != _NOT_IMPLEMENTED):
        return TransientError(words)
    if isinstance(error, (exceptions.AlreadyExistsError, exceptions.PreconditionError)):
        return OtherStandsError(words)
    if isinstance(error, FileNotFoundError):
        return UnreadableError("not_found", words)
    if isinstance(error, exceptions.InvalidPathError):
        return UnreadableError("bad_name", words)
    if code in _OF_REGION or "without LOCATION" in text:
        return UnreadableError("wrong_setup", f"{_REGION} ({words})")
    if status == _NOT_IMPLEMENTED:
        return UnreadableError("wrong_setup", f"{_UNCONDITIONAL} ({words})")
    if _METADATA.search(text):
        return client.missing(words)
    if status == 401 or code in _OF_CREDENTIALS:
        return client.missing(words) if client.unsigned else client.refused(words)
    if (
        status == 403
        or isinstance(error, exceptions.PermissionDeniedError)
        or code == "AccessDenied"
    ):
        if client.unsigned:
            return client.missing(words)
        return UnreadableError("no_permission", words)
    if not status and _ON_THE_WAY.search(text):
        cause = _CAUSE.search(causes)
        return TransientError(cause[1] if cause else words)
    return UnreadableError("read_failed", words)


def unusable(error: Exception) -> Exception | None:
    """Our error if the environment's settings make a client impossible; None for another fault."""
    from obstore import exceptions

    if not isinstance(error, (exceptions.BaseError, ValueError)):
        return None
    text = str(error).partition("\n\nDebug source:")[0]
    return UnreadableError("wrong_setup", _line(text.rpartition(" error: ")[2]))


def _answer(text: str) -> tuple[int, str, str]:
    """A response's status (0 without one), the code in its body, and a line of words.

    >>> _answer("… status code: 503 Service Unavailable: <Error><Code>SlowDown</Code>"
    ...     "<Message>Reduce your rate.</Message></Error>")
    (503, 'SlowDown', '503 SlowDown: Reduce your rate')
    >>> _answer("… status code: 404 Not Found: ")
    (404, '', '404 Not Found')
    """
    if deletion := _DELETION.search(text):
        return 0, deletion[2], f"{deletion[2]}: {deletion['words'].rstrip('.')}"
    found = _STATUS.search(text)
    if found is None:
        code = _tag("Code", text)  # an error body with the status 200
        return 0, code, _line(text)
    status, reason, body = int(found[1]), found[2].strip(), found[3] or ""
    code, message = _tag("Code", body), _tag("Message", body)
    words = f"{code}: {_line(message)}" if message else code or reason or "no reason was given"
    return status, code, f"{status} {words}"


def _tag(name: str, text: str) -> str:
    found = re.search(rf"<{name}>(.*?)</{name}>", text, re.DOTALL)
    return html.unescape(found[1]).strip() if found else ""


def _line(text: str) -> str:
    """The first line of a message, without the prefix that object_store puts on every failure."""
    words = (text.strip() or "no reason was given").splitlines()[0]
    return words.rpartition(" - ")[2][:300].rstrip(". ")
