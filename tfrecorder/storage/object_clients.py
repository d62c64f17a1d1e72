"""Clients of obstore for S3 and Azure Blob Storage: settings, and what a failed request means.

Settings are endpoints, credentials and timeouts.

A failure means what the service's code says, else the exception's type and the status.  obstore's
exceptions have neither status nor code, only a type and a message of object_store (Rust) that
contains the response's status and body.  So these two are taken out of the message.  If it holds
neither, and the type is the general one, the connection failed.  Missing credentials and a redirect
to another region can only be told from the words.
Sources: https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html and
https://learn.microsoft.com/rest/api/storageservices/blob-service-error-codes
"""

from __future__ import annotations

import html
import os
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple

from tfrecorder.errors import refuse_missing
from tfrecorder.storage.store import (
    OtherStandsError,
    TransientError,
    UnreadableError,
    is_transient,
    may_pass,
)
from tfrecorder.storage.uris import scheme

_S3 = ("s3", "s3a")

#: The schemes that obstore serves.
SCHEMES = (*_S3, "az", "abfs", "abfss")

#: Whose credentials are missing or refused, and what to do.
_AWS = ("AWS", "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
_AZURE = (
    "Azure",
    "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or AZURE_USE_AZURE_CLI=true to "
    "use the login of `az login`; AZURE_SKIP_SIGNATURE=true reads public data",
)

FORKED = (
    "this process was forked from one that had used the storage before, and cannot use it: start "
    "worker processes with 'spawn' (in PyTorch's DataLoader multiprocessing_context='spawn')"
)

#: Time limits of short requests: for the connection, for each wait for a part of the response, and
#: in total.
_SHORT = {"connect_timeout": "10 seconds", "read_timeout": "60 seconds", "timeout": "1 hour"}

#: Time limits of uploads, where the response comes only after the last byte is sent.
_UPLOAD = {"connect_timeout": "10 seconds", "timeout": "15 minutes"}

#: We do our own retries, as for every store.
_NO_RETRIES = {"max_retries": 0}

#: If one of these is set, the environment names its AWS credentials or wants none, and we do not
#: ask botocore.
_NAMED = ("AWS_ACCESS_KEY_ID", "AWS_SKIP_SIGNATURE")
_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
_ENDPOINTS = {
    True: ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    False: ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}

#: botocore renews credentials before they expire; this is how often we ask it again.
_KEPT = timedelta(minutes=10)

#: The process that made the clients.  The threads behind all clients belong to that process: in a
#: fork of it every request would wait forever.
_process: int | None = None


class Client(NamedTuple):
    """A bucket or container, accessed in one way.

    Attributes:
        short: obstore's client for everything but uploads.
        uploads: the one for uploads, which may take minutes.
        unsigned: there are no credentials, so only public objects can be read.
        credentials: whose they are, and what to do if there are none.
    """

    short: Any
    uploads: Any
    unsigned: bool
    credentials: tuple[str, str]

    def rejected(
        self,
        words: str,
        missing: bool,
    ) -> UnreadableError:
        """The error for credentials that are missing or refused, with the service's words."""
        whose, remedy = self.credentials
        fault = f"there are no {whose} credentials"
        if not missing:
            fault = f"the {whose} credentials are refused"
        return UnreadableError("no_credentials", f"{fault}: {remedy} ({words})")


def connect(place: str) -> Client:
    """A client for a bucket or container such as "s3://bucket"; makes no request to the service.

    Raises:
        UnreadableError: the environment names credentials or settings that cannot be used.
        obstore's errors: likewise.
    """
    global _process
    from obstore.store import AzureStore, S3Store

    is_s3 = scheme(place) in _S3
    settings = _of_profile() if is_s3 else {}
    store: Any = S3Store if is_s3 else AzureStore
    named = next(filter(None, map(os.environ.get, _ENDPOINTS[is_s3])), "")
    http = {"allow_http": True} if named.lower().startswith("http://") else {}
    short, uploads = (
        store.from_url(
            place,
            client_options=limits | http,
            retry_config=_NO_RETRIES,
            **settings,
        )
        for limits in (_SHORT, _UPLOAD)
    )
    _process = os.getpid()
    unsigned = bool(settings.get("skip_signature"))
    return Client(short, uploads, unsigned, _AWS if is_s3 else _AZURE)


def check_packages(kind: str) -> None:
    """Raise a PackageError unless the packages for files of a scheme are installed."""
    if kind in _S3:
        refuse_missing("botocore")
    refuse_missing("obstore", "s3" if kind in _S3 else "az")


def refuse_forks() -> None:
    """Raise an UnreadableError in a process forked from one that has clients."""
    if _process is not None and _process != os.getpid():
        raise UnreadableError("wrong_setup", FORKED)


def _of_profile() -> dict[str, Any]:
    """The AWS settings that botocore knows and object_store does not.

    These come from profiles in files, single sign-on, roles to assume and their regions.  They also
    show whether there are any credentials; without them only public objects can be read.
    """
    if any(os.environ.get(name) for name in _NAMED):
        return {}
    import botocore.session
    from botocore.exceptions import BotoCoreError

    try:
        session = botocore.session.Session()
        region = session.get_config_variable("region")
        credentials = session.get_credentials()
        if credentials is not None:
            credentials.get_frozen_credentials()
    except BotoCoreError as error:
        raise UnreadableError("no_credentials", f"{_AWS[1]} ({error})") from error
    settings = {}
    if region and not any(os.environ.get(name) for name in _REGIONS):
        settings["region"] = region
    if credentials is None:
        return {**settings, "skip_signature": True}

    def current() -> dict[str, Any]:
        frozen = credentials.get_frozen_credentials()
        return {
            "access_key_id": frozen.access_key,
            "secret_access_key": frozen.secret_key,
            "token": frozen.token,
            "expires_at": datetime.now(timezone.utc) + _KEPT,
        }

    return {**settings, "credential_provider": current}


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
    from obstore.exceptions import BaseError

    if not isinstance(error, (BaseError, FileNotFoundError, NotImplementedError)):
        return TransientError(str(error)) if may_pass(error) else None
    text, _, causes = str(error).partition("\n\nDebug source:")
    status, code, words = _answer(text)
    meant = _meaning(error, text, status, code)
    if meant == "passing":
        # The system's message in object_store's debug text, for people; empty if it has none.
        cause = causes.partition('message: "')[2].partition('"')[0]
        return TransientError(words if status or code else cause or words)
    if meant == "other":
        return OtherStandsError(words)
    if meant in _SETUP:
        return UnreadableError("wrong_setup", f"{_SETUP[meant]} ({words})")
    is_denied = meant == "no_permission" and client.unsigned
    if is_denied or meant in ("credentials", "no_credentials"):
        return client.rejected(words, missing=client.unsigned or meant == "no_credentials")
    return UnreadableError(meant or "read_failed", words)


def _meaning(
    error: Exception,
    text: str,
    status: int,
    code: str,
) -> str:
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
    from obstore.exceptions import BaseError

    if not isinstance(error, (BaseError, ValueError)):
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


def _line(text: str) -> str:
    """The first line of a message, without the prefix that object_store puts on every failure."""
    words = (text.strip() or "no reason was given").splitlines()[0]
    return words.rpartition(" - ")[2][:300].rstrip(". ")
