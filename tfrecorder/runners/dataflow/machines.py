"""How many machines a job starts with, and how many shards each writes at a time."""

from __future__ import annotations

import math
import re
import warnings

from tfrecorder.options.convert import ConvertOptions
from tfrecorder.plan.plan import Plan
from tfrecorder.runners.dataflow.settings import Settings
from tfrecorder.writing.shards import SIDE_BY_SIDE

#: Cores of the machine that Dataflow uses for a batch job if none is named: n1-standard-1.
DEFAULT_CORES = 1

#: A machine's disk in GB if no size is named (with Dataflow's shuffle, which is its default), and
#: how much of it the system takes.
DEFAULT_DISK_GB, SYSTEM_GB = 25, 15

#: About how many images a core loads, checks and writes per second (docs/performance.md).
CORE_RATE = 200

#: Seconds of work to give the first machines: it takes some minutes until there are others.
FIRST_SECONDS = 600

#: Reads per second that a bucket serves at first; this can double every 20 minutes.
#: Source: https://cloud.google.com/storage/docs/request-rate
BUCKET_RATE = 5000


def cores_of(machine_type: str | None) -> int | None:
    """The virtual CPUs of a machine type of Compute Engine; None if its name does not say.

    >>> [cores_of(name) for name in (None, "n2-standard-8", "n1-custom-4-15360", "a2-highgpu-1g")]
    [1, 8, 4, None]
    """
    if machine_type is None:
        return DEFAULT_CORES
    found = re.search(r"custom-(\d+)-\d+", machine_type) or re.search(r"-(\d+)$", machine_type)
    return int(found[1]) if found else None


def shards_at_a_time(settings: Settings, options: ConvertOptions) -> int | None:
    """Shards that a machine writes at a time; None if only Dataflow knows its cores.

    Two per core, so that the next one's images are loaded while the last upload ends; fewer if its
    disk cannot hold them, because a shard stays there until it is uploaded.
    """
    cores = cores_of(settings.machine_type)
    if cores is None:
        return None
    free = max(1, (settings.disk_gb or DEFAULT_DISK_GB) - SYSTEM_GB) * 10**9
    return max(1, min(SIDE_BY_SIDE * cores, free // options.shard_bytes))


def first_machines(plan: Plan, settings: Settings, options: ConvertOptions) -> int | None:
    """Machines to start with; None if the user decides, or only Dataflow can.

    The graph of a job holds only shard numbers, which say nothing about the work, so by default
    Dataflow starts with one machine.  We ask for enough to write everything in ten minutes, but not
    for more than the bucket serves at first, the shards keep busy, or `max_num_workers` allows.
    """
    cores = cores_of(settings.machine_type)
    if cores is None or settings.workers(options) is not None:
        return None
    enough = math.ceil(plan.rows / (CORE_RATE * FIRST_SECONDS * cores))
    served = BUCKET_RATE // (CORE_RATE * cores)
    busy = math.ceil(len(plan.shards) / cores)
    return max(1, min(enough, served, busy, settings.max_workers or enough))


def warn_of_rate(settings: Settings, options: ConvertOptions) -> None:
    """Warn if the machines that the user wants read faster than a bucket can serve at first."""
    cores, machines = cores_of(settings.machine_type), settings.workers(options)
    if cores is None or machines is None or machines * cores * CORE_RATE <= BUCKET_RATE:
        return
    warnings.warn(
        f"num_workers={machines}: that many machines with {cores} cores read about "
        f"{machines * cores * CORE_RATE:,} images a second, but a bucket serves about "
        f"{BUCKET_RATE:,} at first, and will make them wait. Start with "
        f"{max(1, BUCKET_RATE // (CORE_RATE * cores))}; Dataflow adds more as the job runs.",
        stacklevel=2,
    )
