"""The launch: wheels and pipeline go to the staging bucket, and Dataflow starts a job from them.

`Settings` are what Dataflow itself and the checks before it need of the options.
"""

from __future__ import annotations

import re
import tempfile
import uuid
from dataclasses import dataclass
from datetime import datetime, timezone

from tfrecorder import storage
from tfrecorder.errors import OptionError, RunnerError, is_installed
from tfrecorder.format.plan import Plan
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.runners import beam_options
from tfrecorder.runners.beam_patches import credentials_looked_for
from tfrecorder.runners.dataflow.job import ENDPOINT, DataflowJob
from tfrecorder.runners.dataflow.wheels import stage_wheels, worker_machine
from tfrecorder.schema.fields import primary_image
from tfrecorder.storage.store import TransientError
from tfrecorder.writing.worker import Task

#: The folder of the output's bucket for the job's files, unless the user names a place.
STAGING = "tfrecorder-staging"


#: What to do about each refusal of the service, by its code; a string to format with the settings.
_REMEDIES = {
    400: "Correct the option that it names.",
    401: "Renew the credentials, with `gcloud auth application-default login`.",
    403: "Is the Dataflow API enabled in project {0.project!r}, and may this account start jobs "
    "there and write to {0.staging_location}? docs/dataflow.md says what to set up.",
    404: "Is there a project {0.project!r}, and has Dataflow a region {0.region!r}?",
    409: "A job of that name runs already: wait for it, or give another job_name.",
}


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
    def of(
        cls,
        output_dir: str,
        options: ConvertOptions,
    ) -> Settings:
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

    >>> bucket_of("gs://bucket/photos")
    'bucket'
    """
    return path.removeprefix("gs://").partition("/")[0]


def _staging(output_dir: str) -> str | None:
    if storage.scheme(output_dir) != "gs" or not bucket_of(output_dir):
        return None
    return f"gs://{bucket_of(output_dir)}/{STAGING}"


def launch(
    plan: Plan,
    output_dir: str,
    options: ConvertOptions,
) -> DataflowJob:
    """Start a job on Dataflow that follows a staged plan to its commit.

    Returns at once: the job no longer needs this process.

    Args:
        plan: as it is staged in the directory.
        output_dir: the dataset directory, on a bucket, where the plan is staged.
        options: of the conversion; `checks.check` has found no fault with them.

    Returns:
        The handle of the job.

    Raises:
        OptionError: Beam refuses an option; nothing was uploaded.
        RunnerError: a wheel could not be made or downloaded, the upload failed, or Dataflow refused
            the job.
    """
    import apache_beam as beam
    from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions
    from google.api_core.exceptions import GoogleAPICallError, TooManyRequests

    from tfrecorder.writing import pipeline

    settings = Settings.of(output_dir, options)
    mark = uuid.uuid4().hex
    with tempfile.TemporaryDirectory(prefix="tfrecorder-") as folder:
        flags = flags_of(output_dir, options, settings)
        given = PipelineOptions(flags).get_all_options()
        machine = worker_machine(given["machine_type"])
        wheels = stage_wheels(folder, machine, given["extra_packages"] or (), _extras(plan))
        flags += [f"--extra_package={path}" for path in wheels]
        try:
            pipe = beam.Pipeline("DataflowRunner", PipelineOptions(flags))
        except ValueError as error:
            raise OptionError.of("runner_options", ..., str(error)) from error
        with storage.acting_as(None):  # workers have their own account, and act as no other
            # Threads 0: the worker decides, as for a remote source.
            task = Task.of(plan, output_dir, threads=options.num_threads or 0, launch=mark)
        pipeline.build(pipe, len(plan.layout.shards), task, options.max_reject_fraction)
        # A copy of the options drops this one, so that workers never have it (apache-beam 2.77).
        # That includes the copies that a pipeline makes of its options, also to test itself.
        pipe.options.view_as(GoogleCloudOptions).impersonate_service_account = settings.impersonate
        tests_itself = "AUTO" if settings.impersonate is None else False

        def start() -> str:
            try:
                with credentials_looked_for():
                    return str(pipe.run(test_runner_api=tests_itself).job_id())
            except TooManyRequests as error:
                raise TransientError(str(error).rstrip(".")) from error

        try:
            job_id = storage.retried(start, f"Dataflow in {settings.region}")
        except (GoogleAPICallError, OSError) as error:
            remedy = _REMEDIES.get(getattr(error, "code", 403), _REMEDIES[403]).format(settings)
            raise RunnerError(
                f"the job was not started: {str(error).rstrip('.')}. {remedy}"
            ) from error
    return DataflowJob(
        job_id=job_id,
        project=str(settings.project),
        region=str(settings.region),
        output_dir=output_dir,
        endpoint=settings.endpoint,
        no_auth=settings.no_auth,
        impersonate=settings.impersonate,
        launch=mark,
        commit=plan.commit,
        plan=plan.digest,
    )


def _extras(plan: Plan) -> list[str]:
    """The packages of our extras that the workers need.

    Only a worker sees which images are HEIC, so what reads them goes along if it is installed.
    """
    packages = []
    if any(field.masks_key for field in plan.fields):
        packages.append("pycocotools")
    if primary_image(plan.fields) is not None and is_installed("pillow_heif"):
        packages.append("pillow_heif")
    return packages


def flags_of(
    output_dir: str,
    options: ConvertOptions,
    settings: Settings,
) -> list[str]:
    """Arguments for Beam's `PipelineOptions`: ours, then the user's, which win."""
    # Beam would pickle the whole notebook for a pipeline that needs nothing from it.
    flags = [f"--job_name={_job_name(output_dir)}", "--no_save_main_session"]
    if options.num_workers is not None:
        flags.append(f"--num_workers={options.num_workers}")
    flags += beam_options.beam_flags(options)
    places = ("project", "region", "temp_location", "staging_location")
    return flags + [f"--{name}={getattr(settings, name)}" for name in places]


def _job_name(output_dir: str) -> str:
    """A name that shows the dataset, and differs from launch to launch."""
    folder = output_dir.rstrip("/").rpartition("/")[2]
    name = re.sub("[^a-z0-9]+", "-", folder.lower()).strip("-")[:24].strip("-")
    now = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S")
    mark = uuid.uuid4().hex[:4]
    return f"tfrecorder-{name or 'dataset'}-{now}-{mark}"
