"""Beam's runners by name, and the form of their options: everything that works without Beam."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfrecorder.core.option import is_whole, spelled

#: The runner if none is named; where Beam is not installed, it is this process.
DIRECT = "DirectRunner"

#: The runners known by name, each with its class.
RUNNERS = {
    DIRECT: "apache_beam.runners.direct.direct_runner.DirectRunner",
    "DataflowRunner": "apache_beam.runners.dataflow.dataflow_runner.DataflowRunner",
    "DaskRunner": "apache_beam.runners.dask.dask_runner.DaskRunner",
    "FlinkRunner": "apache_beam.runners.portability.flink_runner.FlinkRunner",
    "PortableRunner": "apache_beam.runners.portability.portable_runner.PortableRunner",
    "PrismRunner": "apache_beam.runners.portability.prism_runner.PrismRunner",
    "SparkRunner": "apache_beam.runners.portability.spark_runner.SparkRunner",
}

#: Options of a conversion that Beam has too.
OWN = ("project", "region", "num_workers")

#: Options of Beam that a conversion refuses, and why.
REFUSED = {
    "runner": "give it by its own option.",
    "streaming": "a conversion is not a streaming pipeline; leave it out.",
    "save_main_session": "the pipeline needs nothing from your session, which may hold a whole "
    "frame; leave it out.",
    "no_wait_until_finish": "a job that nobody waits for ends with its launcher on most runners; "
    "leave it out. With the DataflowRunner, the handle of the job is returned at once.",
    "template_location": "it makes a template instead of running the job; leave it out.",
    "output_executable_path": "it makes a file instead of running the job; leave it out.",
    "update": "it replaces a running streaming job, and a conversion is not one; leave it out.",
    "dry_run": "it keeps the job from running; leave it out.",
}

#: Beam's options for a job on Dataflow, but for the account that we too act as.
OF_DATAFLOW = """
    autoscaling_algorithm create_from_snapshot dataflow_endpoint dataflow_kms_key
    dataflow_service_option dataflow_service_options disk_provisioned_iops
    disk_provisioned_throughput_mibps disk_size_gb disk_type
    element_processing_timeout_minutes enable_artifact_caching
    enable_hot_key_logging enable_streaming_engine flexrs_goal
    gcp_oauth_scope gcp_oauth_scopes job_name label labels machine_type max_num_workers
    min_cpu_platform network no_auth no_use_public_ips project region
    sdk_container_image sdk_harness_container_image_overrides service_account_email
    staging_location subnetwork temp_location transform_name_mapping
    use_public_ips worker_disk_type worker_harness_container_image worker_machine_type
    worker_region worker_zone zone
"""

#: Options that only the DirectRunner refuses.
REFUSED_LOCALLY = {
    **dict.fromkeys(OF_DATAFLOW.split(), "it has no effect without the DataflowRunner."),
    **dict.fromkeys(
        ("direct_num_workers", "direct_running_mode", "num_workers"),
        "the DirectRunner's worker processes are set by the conversion's own number of workers.",
    ),
}


def canonical_runner(name: str) -> str:
    """A runner's name as we write it, given in upper or lower case or as a path into Beam.

    >>> canonical_runner("daskrunner"), canonical_runner("apache_beam.runners.DataflowRunner")
    ('DaskRunner', 'DataflowRunner')
    >>> canonical_runner("my.module.MyRunner")
    'my.module.MyRunner'
    """
    of_beam = name.startswith("apache_beam.runners.")
    wanted = name.rpartition(".")[2] if of_beam else name
    for runner in RUNNERS:
        if wanted.lower() == runner.lower():
            return runner
    return name


def plain_name(name: str) -> str:
    """The name of a Beam option, without what a command line adds.

    >>> plain_name("--dask-npartitions")
    'dask_npartitions'
    """
    return name.lstrip("-").replace("-", "_")


def check_form(value: Any) -> str | None:
    """What is wrong with the form of `runner_options`, as an option check; None if nothing is.

    `runners/beam_options.py` checks whether Beam has such options.
    """
    if not isinstance(value, Mapping):
        return (
            "give a dict of Beam's options, such as "
            f"{spelled('runner_options', {'machine_type': 'n1-standard-4'})}."
        )
    plain = set()
    for name, given in value.items():
        if not isinstance(name, str) or not plain_name(name):
            return f"{name!r} is not an option's name."
        if plain_name(name) in plain:
            return f"{plain_name(name)!r} is given more than once."
        plain.add(plain_name(name))
        if given == "":
            return f"{name} is empty: give a value, or leave it out."
        if not _is_plain(given):
            return f"{name}={given!r}: give text, a number, True, False, or a list of these."
    return None


def _is_plain(value: Any) -> bool:
    if isinstance(value, Mapping):  # an option in JSON
        return all(isinstance(name, str) and _is_plain(item) for name, item in value.items())
    if isinstance(value, (list, tuple)):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, (str, bool, float)) or is_whole(value)


def refusal(
    name: str,
    value: Any,
    runner: str,
) -> str | None:
    """Why a conversion refuses an option of Beam, or None if it does not.

    >>> refusal("streaming", True, "DaskRunner")
    'a conversion is not a streaming pipeline; leave it out.'
    """
    if value in (None, False, "false"):
        return None
    if runner == DIRECT and name in REFUSED_LOCALLY:
        return REFUSED_LOCALLY[name]
    return REFUSED.get(name)
