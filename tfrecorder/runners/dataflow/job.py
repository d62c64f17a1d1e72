"""The handle of a job on Dataflow: ask about it, wait for it, stop it, see what it made.

It asks Dataflow's own REST interface, not Beam, whose clients for it change between versions.  So
it is a few words, and can be recreated in another process or on another day.
"""

from __future__ import annotations

import contextlib
import dataclasses
import html
import math
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tfrecorder import storage
from tfrecorder.display.messages import command
from tfrecorder.display.tables import OneLine
from tfrecorder.errors import RunnerError, TfrecorderError
from tfrecorder.format import layout
from tfrecorder.output.directory import is_in_place
from tfrecorder.output.result import ConversionResult, read_result
from tfrecorder.output.status import ConversionStatus, read_failure, status
from tfrecorder.reading.commits import newest_commit
from tfrecorder.storage import UnreadableError
from tfrecorder.storage.gcs_requests import answer_words

#: Dataflow's address; Beam's option `dataflow_endpoint` names another.
ENDPOINT = "https://dataflow.googleapis.com"

#: Seconds between two looks at a job: at first, the factor after each look, and at most.
FIRST_LOOK = 0.5
LONGER = 1.5
LAST_LOOK = 10.0

#: Seconds that `wait` keeps asking a service that does not answer: the job runs without it.
LONGEST_AWAY = 20 * 60

#: States that a job does not leave.
ENDED = frozenset(("DONE", "FAILED", "CANCELLED", "UPDATED", "DRAINED"))

SCOPE = "https://www.googleapis.com/auth/cloud-platform"

#: Retries of a request, seconds between them, and the answers that are retried.
RETRIES = 5
BACKOFF = 0.5
_PASSING = (429, 500, 502, 503, 504)
TIMEOUT = 60

_CONSOLE = "https://console.cloud.google.com/dataflow/jobs"

_GO_ON = "Shards that are done are kept: run the same conversion again to continue."


class ServiceAwayError(RunnerError):
    """Dataflow cannot be reached, or fails in a way that may pass."""


@dataclass(frozen=True, repr=False)
class JobStatus(OneLine):
    """A job at one moment.

    Attributes:
        state: Dataflow's word: QUEUED, PENDING, RUNNING, DONE, FAILED, CANCELLING, CANCELLED, …
        seconds: from the start of the job to now, or to its end.
        conversion: how far the conversion is, read from the output directory.
    """

    state: str
    seconds: float
    conversion: ConversionStatus

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    def __str__(self) -> str:
        return f"{self._headline()}\n{self.conversion}"

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(self._headline())}</p>{self.conversion._repr_html_()}"

    def _headline(self) -> str:
        return f"{self.state} after {self.seconds:,.0f} s"


@dataclass(frozen=True, repr=False)
class DataflowJob(OneLine):
    """A conversion that runs on Dataflow, with or without the process that launched it.

    It holds only plain values, so it can be pickled, or recreated from what is known about the job.

    Attributes:
        job_id: as Dataflow gave it.
        project: of Google Cloud.
        region: of the job.
        output_dir: the dataset directory.
        endpoint: the address of Dataflow.
        no_auth: ask without credentials.
        impersonate: service accounts to act as, the last one by way of those before it.
        launch: marks what the workers of this launch leave in the directory; "" for any launch.
        commit: the number of the commit that it becomes.
        plan: the digest of its plan.

    Example:
        >>> job = tfrecorder.convert(..., runner="DataflowRunner", ...)  # doctest: +SKIP
        >>> print(job.status())                                          # doctest: +SKIP
        >>> result = job.result()                                        # doctest: +SKIP
    """

    job_id: str
    project: str
    region: str
    endpoint: str = field(
        default=ENDPOINT,
        repr=False,
        kw_only=True,
    )
    no_auth: bool = field(
        default=False,
        repr=False,
        kw_only=True,
    )
    impersonate: str | None = field(
        default=None,
        repr=False,
        kw_only=True,
    )
    output_dir: str
    launch: str = field(default="", repr=False)
    commit: int = field(default=0, repr=False)
    plan: str = field(default="", repr=False)

    @property
    def url(self) -> str:
        """The job's page in Google's console."""
        return f"{_CONSOLE}/{self.region}/{self.job_id}?project={self.project}"

    @property
    def service_url(self) -> str:
        """The job in Dataflow's own interface."""
        return (
            f"{self.endpoint.rstrip('/')}/v1b3/"
            f"projects/{self.project}/locations/{self.region}/jobs/{self.job_id}"
        )

    def as_dict(self) -> dict[str, Any]:
        """What identifies the job, as JSON values."""
        names = ("job_id", "project", "region", "output_dir", "url")
        return {name: getattr(self, name) for name in names}

    def status(self) -> JobStatus:
        """The job's state, from Dataflow, and its progress, from the output directory.

        Raises:
            RunnerError: Dataflow does not answer for this job.
            DatasetError: the directory no longer holds a conversion.
        """
        job = self._asked()
        with storage.acting_as(self.impersonate):
            conversion = status(self.output_dir)
        return JobStatus(_state(job), _seconds(job), conversion)

    def wait(self, timeout: float | None = None) -> JobStatus:
        """Wait for the end of the job.  Ctrl-C stops the waiting, not the job.

        If Dataflow does not answer, it keeps asking for twenty minutes.

        Args:
            timeout: the most seconds to wait; None waits without a limit.

        Returns:
            The status of the finished job.

        Raises:
            RejectedError, OutputError: the job failed for the reason that its workers noted.
            RunnerError: it failed for another reason, was cancelled, or Dataflow does not answer.
            TimeoutError: the job is still running.
        """
        try:
            state = self._last_state(math.inf if timeout is None else time.monotonic() + timeout)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"Waiting was interrupted; the job keeps running: {self.url}"
            ) from None
        if state != "DONE":
            raise self._failure(state)
        if not self._is_committed():
            raise RunnerError(
                f"job {self.job_id} is done, but {self.output_dir} does not hold its "
                f"{layout.COMMIT}: it was removed, or another conversion runs there."
            )
        return self.status()

    def _last_state(self, end: float) -> str:
        """The state in which the job ended; waits for it until a time on the monotonic clock."""
        answered = time.monotonic()
        pause = FIRST_LOOK
        state = "not known"
        while True:
            try:
                state = _state(self._asked())
                answered = time.monotonic()
            except ServiceAwayError as error:
                away = time.monotonic() - answered
                if away > LONGEST_AWAY:
                    raise RunnerError(
                        f"{error} It did not answer for {away / 60:.0f} minutes. The job itself "
                        f"may still be running: {self.url}"
                    ) from error
            if state in ENDED:
                return state
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"job {self.job_id} is still running ({state}): {self.url}")
            time.sleep(min(pause, left))
            pause = min(LAST_LOOK, pause * LONGER)

    def result(self) -> ConversionResult:
        """Wait for the end of the job, and return what it made.

        Raises:
            What `wait` raises.
        """
        seconds = self.wait().seconds
        with storage.acting_as(self.impersonate):
            result = read_result(self.output_dir, self.commit)
        return dataclasses.replace(result, seconds=seconds)

    def cancel(self) -> None:
        """Stop the job.  Shards that are done stay; the same conversion continues from them.

        Returns at once; the job is CANCELLED some minutes later.  A job that has ended stays as it
        is.

        Raises:
            RunnerError: Dataflow does not answer for this job.
        """
        if _state(self._asked()) not in ENDED:
            self._asked("PUT", json={"requestedState": "JOB_STATE_CANCELLED"})

    def __str__(self) -> str:
        return (
            f"Dataflow job {self.job_id} writes {self.output_dir}\n"
            f"{self.url}\n"
            "It keeps running without this process. Progress: "
            f"{command('status', self.output_dir)}"
        )

    def _repr_html_(self) -> str:
        url, name, place = map(html.escape, (self.url, self.job_id, self.output_dir))
        return f'<p>Dataflow job <a href="{url}">{name}</a> writes {place}</p>'

    def _is_committed(self) -> bool:
        try:
            with storage.acting_as(self.impersonate):
                newest = newest_commit(self.output_dir)
                return is_in_place(self.output_dir, newest, self.commit, self.plan)
        except UnreadableError as error:
            raise RunnerError(
                f"job {self.job_id} is done, but {self.output_dir} cannot be read: {error}."
            ) from error

    def _failure(self, state: str) -> TfrecorderError:
        """Why the job ended without a dataset."""
        if state == "CANCELLED":
            return RunnerError(f"job {self.job_id} was cancelled. {_GO_ON}")
        with contextlib.suppress(UnreadableError):  # Dataflow's own message is the next best
            with storage.acting_as(self.impersonate):
                noted = read_failure(self.output_dir)
            # The failure of an earlier launch is not the reason.
            if noted is not None and self.launch in ("", noted.launch):
                return noted.as_error()
        messages = list(self._error_messages())
        chosen = [message for message in messages if "Traceback" in message] or messages
        reason = "it gave no reason"
        if chosen and chosen[-1].strip():
            last = chosen[-1].strip().splitlines()[-1].strip()
            reason = last[:500].rstrip(".")
        return RunnerError(
            f"job {self.job_id} ended as {state}: {reason}. See {self.url}. {_GO_ON}"
        )

    def _error_messages(self) -> Iterator[str]:
        """What the job reports as errors, oldest first."""
        query = {"minimumImportance": "JOB_MESSAGE_ERROR"}
        while True:
            page = self._asked(path="/messages", params=query)
            for message in page.get("jobMessages", []):
                if message.get("messageImportance") == "JOB_MESSAGE_ERROR":
                    yield message.get("messageText", "")
            if not page.get("nextPageToken"):
                return
            query = {**query, "pageToken": page["nextPageToken"]}

    def _asked(
        self,
        method: str = "GET",
        path: str = "",
        **asked: Any,
    ) -> dict[str, Any]:
        """Dataflow's answer: without arguments the job with currentState, createTime, …

        Args:
            asked: as for `requests.request`.

        Raises:
            RunnerError: Dataflow cannot be reached, or does not answer for this job.
        """
        import requests
        from google.auth.exceptions import GoogleAuthError

        url = self.service_url + path
        try:
            with self._session() as session:
                answer = session.request(method, url, timeout=TIMEOUT, **asked)
        except (requests.RequestException, GoogleAuthError) as error:
            raise ServiceAwayError(
                f"Dataflow cannot be asked about job {self.job_id}: {error}"
            ) from error
        if answer.status_code != 200:
            kind = ServiceAwayError if answer.status_code in _PASSING else RunnerError
            raise kind(
                f"Dataflow does not answer for job {self.job_id} of project {self.project!r} in "
                f"{self.region!r}: {answer_words(answer.status_code, answer.text, answer.reason)}"
            )
        return dict(answer.json())

    def _session(self) -> Any:
        """A connection that retries passing failures; cancelling twice does no harm."""
        import requests
        from requests.adapters import HTTPAdapter
        from urllib3.util import Retry

        if self.no_auth:
            session = requests.Session()
        else:
            from google.auth.transport.requests import AuthorizedSession

            session = AuthorizedSession(storage.find_credentials(self.impersonate, [SCOPE]))
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


def _state(job: dict[str, Any]) -> str:
    # A job that was created a moment ago may have no state yet.
    return str(job.get("currentState", "JOB_STATE_PENDING")).removeprefix("JOB_STATE_")


def _seconds(job: dict[str, Any]) -> float:
    start = _time(job.get("createTime"))
    end = _time(job.get("currentStateTime")) if _state(job) in ENDED else time.time()
    return max(0.0, end - start) if start and end else 0.0


def _time(text: str | None) -> float | None:
    """A time as Dataflow writes it, in whole seconds since 1970."""
    match = re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", text or "")
    return datetime.fromisoformat(f"{match[0]}+00:00").timestamp() if match else None
