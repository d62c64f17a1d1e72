"""Where a job will run: the options that Dataflow itself and the checks before it need."""

from __future__ import annotations

from dataclasses import dataclass

from tfrecorder import storage
from tfrecorder.options.convert import ConvertOptions

#: Dataflow's address; Beam's option `dataflow_endpoint` names another.
ENDPOINT = "https://dataflow.googleapis.com"

#: The folder of the output's bucket for the job's files, unless the user names a place.
STAGING = "tfrecorder-staging"


@dataclass(frozen=True)
class Settings:
    """Where a job runs.

    Attributes:
        project: the Google Cloud project; None if nobody named one.
        region: of the workers; None if nobody named one.
        temp_location: where Beam and Dataflow keep files of the job; None if it is not known.
        staging_location: where Beam uploads to.
        endpoint: the address of Dataflow.
        no_auth: ask without credentials, for a service on loopback.
        impersonate: service accounts to act as, written as for Beam's impersonate_service_account.
    """

    project: str | None
    region: str | None
    temp_location: str | None
    staging_location: str | None
    endpoint: str
    no_auth: bool
    impersonate: str | None

    @classmethod
    def of(cls, output_dir: str, options: ConvertOptions) -> Settings:
        """The settings of a conversion.  Beam's own names in `runner_options` count as well."""
        given = options.runner_options or {}
        temp = given.get("temp_location") or given.get("staging_location") or _staging(output_dir)
        return cls(
            project=options.project or given.get("project"),
            region=options.region or given.get("region"),
            temp_location=temp,
            staging_location=given.get("staging_location") or temp,
            endpoint=given.get("dataflow_endpoint") or ENDPOINT,
            no_auth=given.get("no_auth") in (True, "true", "True"),
            impersonate=options.account,
        )


def bucket_of(path: str) -> str:
    """The bucket of a gs:// path.

    >>> bucket_of("gs://bucket/flowers")
    'bucket'
    """
    return path.removeprefix("gs://").partition("/")[0]


def _staging(output_dir: str) -> str | None:
    if storage.scheme(output_dir) != "gs" or not bucket_of(output_dir):
        return None
    return f"gs://{bucket_of(output_dir)}/{STAGING}"
