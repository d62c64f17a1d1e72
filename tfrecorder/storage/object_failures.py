"""What a failed obstore request means: by the service's code, the exception's type and the status.

obstore's exceptions have neither status nor code, only a type and a message of object_store (Rust)
that contains the response's status and body.  So these two are taken out of the message.  If it
holds neither, and the type is the general one, the connection failed.  Missing credentials and a
redirect to another region can only be told from the words.
Sources: https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html and
https://learn.microsoft.com/rest/api/storageservices/blob-service-error-codes
"""

from __future__ import annotations

import html

from obstore import exceptions

from tfrecorder.storage.object_clients import Client
from tfrecorder.storage.store import (
    OtherStandsError,
    TransientError,
    UnreadableError,
    is_transient,
    may_pass,
)

#: What a failure means, by the code in the body of the response, the name of the exception's type,
#: or the status; the first of these that is here decides.
_MEANINGS: dict[str | int, str] = {
    name: meaning
    for meaning, names in {
        "passing": "InternalError SlowDown ServiceUnavailable RequestTimeout OperationAborted "
        "ConditionalRequestConflict ServerBusy OperationTimedOut",
        "credentials": "InvalidAccessKeyId SignatureDoesNotMatch ExpiredToken InvalidToken "
        "TokenRefreshRequired AuthenticationFailed InvalidAuthenticationInfo UnauthenticatedError "
        "NoAuthenticationInformation RequestTimeTooSkewed",
        "region": "AuthorizationHeaderMalformed PermanentRedirect",
        "no_permission": "AccessDenied PermissionDeniedError",
        "other": "AlreadyExistsError PreconditionError",
        "not_found": "FileNotFoundError NotFoundError",
        "bad_name": "InvalidPathError",
    }.items()
    for name in names.split()
} | {401: "credentials", 403: "no_permission", 501: "unconditional"}

#: What to set up, by what a failure means.
_SETUP = {
    "region": "set AWS_REGION to the region of the bucket",
    "unconditional": "this server does not support conditional writes: set "
    "AWS_CONDITIONAL_PUT=disabled",
}

#: What object_store says, in lower case, where none of these decides: of a redirect to the bucket's
#: region, and of the places where it looks for credentials if the environment names none.
_SAID = {
    "region": ("without location",),
    "no_credentials": (
        "169.254.",
        "fd00:ec2",
        "metadata.google",
        "external account credential",
        "external aws credential",
        "external azure credential",
        "azure cli",
    ),
}


def meaning(error: Exception, client: Client) -> Exception | None:
    """Our error for a failure of obstore or the connection; None for any other failure."""
    if not isinstance(error, (exceptions.BaseError, FileNotFoundError, NotImplementedError)):
        return TransientError(str(error)) if may_pass(error) else None
    text, _, causes = str(error).partition("\n\nDebug source:")
    status, code, words = _answer(text)
    meant = _meaning(error, text, status, code)
    if meant == "passing":
        return TransientError(words if status or code else _cause(causes) or words)
    if meant == "other":
        return OtherStandsError(words)
    if meant in _SETUP:
        return UnreadableError("wrong_setup", f"{_SETUP[meant]} ({words})")
    is_denied = meant == "no_permission" and client.unsigned
    if is_denied or meant in ("credentials", "no_credentials"):
        return client.rejected(words, missing=client.unsigned or meant == "no_credentials")
    return UnreadableError(meant or "read_failed", words)


def _meaning(error: Exception, text: str, status: int, code: str) -> str:
    """A meaning of `_MEANINGS` or `_SAID`; empty if nothing says what it is."""
    kind = type(error).__name__
    meant = next((_MEANINGS[key] for key in (code, kind, status) if key in _MEANINGS), "")
    if meant not in ("", "credentials", "no_permission"):
        return meant
    if is_transient(status):
        return "passing"
    for said, places in _SAID.items():
        if any(place in text.lower() for place in places):
            return said
    # Without an answer of the service: the connection failed, or what came back was a gateway's.
    return meant or ("passing" if kind == "GenericError" and not status and not code else "")


def unusable(error: Exception) -> Exception | None:
    """Our error if the environment's settings make a client impossible; None for another fault."""
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
    >>> _answer("DeleteObjects request failed for key a: Access Denied (code: AccessDenied)")
    (0, 'AccessDenied', 'AccessDenied: Access Denied')
    """
    if text.endswith(")") and " (code: " in text:  # a removal of many names
        said, _, code = text[:-1].rpartition(" (code: ")
        words = said.partition(" for key ")[2].partition(": ")[2]
        return 0, code, f"{code}: {words.rstrip('.')}"
    answer = text.partition("status code: ")[2]
    if not answer[:3].isdecimal():  # an error body with the status 200, or no answer
        return 0, _tag("Code", text), _line(text)
    line, _, body = answer.partition(":")
    status = int(line[:3])
    reason = line[3:].strip()
    code = _tag("Code", body)
    message = _tag("Message", body)
    words = f"{code}: {_line(message)}" if message else code or reason or "no reason was given"
    return status, code, f"{status} {words}"


def _tag(name: str, text: str) -> str:
    """What an element of this name holds."""
    _, _, behind = text.partition(f"<{name}>")
    inner, end, _ = behind.partition(f"</{name}>")
    return html.unescape(inner).strip() if end else ""


def _cause(causes: str) -> str:
    """The system's message in object_store's debug text, for people; empty if it has none."""
    return causes.partition('message: "')[2].partition('"')[0]


def _line(text: str) -> str:
    """The first line of a message, without the prefix that object_store puts on every failure."""
    words = (text.strip() or "no reason was given").splitlines()[0]
    return words.rpartition(" - ")[2][:300].rstrip(". ")
