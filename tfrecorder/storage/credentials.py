"""How files are accessed: which account asks Google Cloud and who pays, and what the web may be."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from tfrecorder.storage.store import TransientError

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
    signed: dict[str, str] = field(default_factory=dict, compare=False, repr=False)


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
