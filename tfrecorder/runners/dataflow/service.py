"""The part of Dataflow's own interface that a running job needs: ask, read its messages, cancel.

It uses the REST interface directly, not Beam, whose clients for it change between versions.  The
handle of a job is then a few words, and can be recreated in another process or on another day.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tfrecorder import storage
from tfrecorder.errors import RunnerError
from tfrecorder.runners.dataflow.settings import ENDPOINT

SCOPE = "https://www.googleapis.com/auth/cloud-platform"

#: Retries of a request, seconds between them, and the answers that are retried.
RETRIES = 5
BACKOFF = 0.5
_PASSING = (429, 500, 502, 503, 504)
TIMEOUT = 60


class ServiceAwayError(RunnerError):
    """Dataflow cannot be reached, or fails in a way that may pass."""


@dataclass(frozen=True)
class JobAddress:
    """Where to ask about one job.

    Attributes:
        job_id: as Dataflow gave it.
        project: of Google Cloud.
        region: of the job.
        endpoint: the address of Dataflow.
        no_auth: ask without credentials.
        impersonate: service accounts to act as, the last one by way of those before it.
    """

    job_id: str
    project: str
    region: str
    endpoint: str = field(default=ENDPOINT, repr=False, kw_only=True)
    no_auth: bool = field(default=False, repr=False, kw_only=True)
    impersonate: str | None = field(default=None, repr=False, kw_only=True)

    @property
    def service_url(self) -> str:
        """The job in Dataflow's own interface."""
        place = f"projects/{self.project}/locations/{self.region}/jobs/{self.job_id}"
        return f"{self.endpoint.rstrip('/')}/v1b3/{place}"


def ask_job(address: JobAddress) -> dict[str, Any]:
    """The job, as Dataflow describes it: currentState, createTime, …

    Raises:
        RunnerError: Dataflow cannot be reached, or does not answer for this job.
    """
    return _request(address, "GET", "")


def request_cancel(address: JobAddress) -> None:
    """Ask Dataflow to stop a job.

    Raises:
        RunnerError: as `ask_job`.
    """
    _request(address, "PUT", "", body={"requestedState": "JOB_STATE_CANCELLED"})


def error_messages(address: JobAddress) -> Iterator[str]:
    """What the job reports as errors, oldest first.

    Raises:
        RunnerError: as `ask_job`.
    """
    query = {"minimumImportance": "JOB_MESSAGE_ERROR"}
    while True:
        page = _request(address, "GET", "/messages", query)
        for message in page.get("jobMessages", []):
            if message.get("messageImportance") == "JOB_MESSAGE_ERROR":
                yield message.get("messageText", "")
        if not page.get("nextPageToken"):
            return
        query = {**query, "pageToken": page["nextPageToken"]}


def _request(
    address: JobAddress,
    method: str,
    path: str,
    query: Mapping[str, str] | None = None,
    body: Any = None,
) -> dict[str, Any]:
    import requests
    from google.auth.exceptions import GoogleAuthError

    try:
        with _session(address) as session:
            answer = session.request(
                method, address.service_url + path, params=query, json=body, timeout=TIMEOUT
            )
    except (requests.RequestException, GoogleAuthError) as error:
        reason = f"Dataflow cannot be asked about job {address.job_id}: {error}"
        raise ServiceAwayError(reason) from error
    if answer.status_code != 200:
        kind = ServiceAwayError if answer.status_code in _PASSING else RunnerError
        raise kind(
            f"Dataflow does not answer for job {address.job_id} of project {address.project!r} in "
            f"{address.region!r}: {answer.status_code} {_reason(answer)}"
        )
    return dict(answer.json())


def _session(address: JobAddress) -> Any:
    """A connection that retries passing failures; cancelling twice does no harm."""
    import requests
    from requests.adapters import HTTPAdapter
    from urllib3.util import Retry

    if address.no_auth:
        session = requests.Session()
    else:
        from google.auth.transport.requests import AuthorizedSession

        session = AuthorizedSession(storage.find_credentials(address.impersonate, [SCOPE]))
    retry = Retry(
        RETRIES,
        backoff_factor=BACKOFF,
        status_forcelist=_PASSING,
        allowed_methods=("GET", "PUT"),
        raise_on_status=False,
    )
    for scheme in ("https://", "http://"):
        session.mount(scheme, HTTPAdapter(max_retries=retry))
    return session


def _reason(answer: Any) -> str:
    try:
        return str(answer.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return str(answer.reason)
