"""Clients of obstore for S3 and Azure Blob Storage: endpoints, credentials and timeouts."""

from __future__ import annotations

import os
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple

from tfrecorder.errors import refuse_missing
from tfrecorder.storage.store import UnreadableError
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

    def rejected(self, words: str, missing: bool) -> UnreadableError:
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
        store.from_url(place, client_options=limits | http, retry_config=_NO_RETRIES, **settings)
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
