"""Which of a training's processes this one is, and what of the machine is its own.

Frameworks and launchers state it; nothing is imported to find out.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import sys
from typing import NamedTuple

from tfrecorder.core.threads import cores, memory_limit
from tfrecorder.errors import OptionError

#: The seed of several processes that were given none: all of them need one order.  It is the one
#: of torch's `DistributedSampler`.
COMMON_SEED = 0

_TORCHRUN = ("RANK", "WORLD_SIZE")
#: `srun` sets the second; in a batch script alone there is only SLURM_NTASKS, for one process.
_SLURM = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS")


class Rank(NamedTuple):
    """A process among those that divide the records.

    >>> Rank(1, 4, "by RANK and WORLD_SIZE"), str(Rank(1, 4))
    ((1, 4) by RANK and WORLD_SIZE, '`shard=(1, 4)`')
    """

    rank: int
    world: int
    source: str = ""

    def __repr__(self) -> str:
        return f"({self.rank}, {self.world}) {self.source}".rstrip()

    def __str__(self) -> str:
        return f"`shard=({self.rank}, {self.world})` {self.source}".rstrip()


def this_rank() -> Rank:
    """This process, as what is connected states it, or else the environment.

    Raises:
        OptionError: the environment is wrong; or this is a worker of a `DataLoader`, in each of
            which the same records would be read.
    """
    loaders = sys.modules.get("torch.utils.data")
    if loaders and loaders.get_worker_info() is not None:
        raise OptionError.of(
            "shard",
            None,
            "each worker of a DataLoader would read the same records. Give `num_workers=0` to the "
            "DataLoader, as threads read already; or `shard`, with another rank in each worker.",
        )
    rank = _connected()
    if rank is None and any(map(os.environ.get, _TORCHRUN)):
        rank = _stated(*_TORCHRUN)
    if rank is None and _has_slurm_tasks():
        rank = _stated(*_SLURM)
    return rank or Rank(0, 1, "for a process that is alone")


#: The divisions that were said.
_told: set[Rank] = set()


def say_divided(rank: Rank, records: int) -> None:
    """Say once, in the first process, that each reads a part of these records, and what to do.

    A trainer that divides them too would leave most of them out, and cannot always be seen.
    """
    if rank.world == 1 or rank.rank or not rank.source or rank in _told:
        return
    _told.add(rank)
    logging.getLogger("tfrecorder").warning(
        "each of %d processes reads about %s of %s records, divided %s; "
        "`shard=(0, 1)` reads all of them in each",
        rank.world,
        f"{records // rank.world:,}",
        f"{records:,}",
        rank.source,
    )


def _connected() -> Rank | None:
    torch = sys.modules.get("torch.distributed")
    jax = sys.modules.get("jax")
    if torch and torch.is_available() and torch.is_initialized():
        return Rank(torch.get_rank(), torch.get_world_size(), "by torch.distributed")
    if jax and jax.distributed.is_initialized():
        return Rank(jax.process_index(), jax.process_count(), "by jax.distributed")
    return None


def _stated(*names: str) -> Rank | None:
    texts = [os.environ.get(name) or "" for name in names]
    if texts == ["", "1"]:
        return None
    rank, world = (int(text) if text.isascii() and text.isdigit() else -1 for text in texts)
    if 0 <= rank < world:
        return Rank(rank, world, f"by {' and '.join(names)}")
    given = ", ".join(
        f"{name}={text!r}" if text else f"no {name}"
        for name, text in zip(names, texts, strict=True)
    )
    raise OptionError.of(
        "shard",
        None,
        f"the environment has {given}, which is no rank from 0 among a number of processes. Set "
        "both rightly, or connect the processes first, or give `shard=(rank, world)`; "
        "`shard=(0, 1)` reads all records in this process.",
    )


def _has_slurm_tasks() -> bool:
    return _number("SLURM_STEP_NUM_TASKS") > 1


def _number(name: str) -> int:
    """The number that begins a variable, such as "4(x2)"; 0 without one."""
    match = re.match("[0-9]+", os.environ.get(name, ""))
    return int(match[0]) if match else 0


def ranks_here() -> int:
    """How many processes of the training share this machine."""
    if local := _number("LOCAL_WORLD_SIZE"):
        return local
    if _has_slurm_tasks():
        return max(1, _number("SLURM_STEP_TASKS_PER_NODE"))
    loopback = os.environ.get("MASTER_ADDR") in ("127.0.0.1", "localhost")
    if loopback and "LOCAL_RANK" in os.environ:  # Lightning states no more
        rank = _connected()
        return max(1, rank.world if rank else _number("WORLD_SIZE"))
    return 1


def cores_of_rank() -> int:
    """The cores of this process: its part of those that the processes here may use."""
    own = _number("SLURM_CPUS_PER_TASK")
    if own and _has_slurm_tasks() and not _number("LOCAL_WORLD_SIZE"):
        return min(own, cores())  # a task may be bound to its own cores, and see no others
    return max(1, cores() // ranks_here())


def memory_of_rank() -> int:
    """The bytes of this process: its part of what the processes here may use."""
    return memory_limit() // ranks_here()


def seed_of(given: int | None, world: int) -> int:
    """The seed of an order: the given one, else a random one that no other process needs."""
    if given is not None:
        return int(given)
    return secrets.randbits(32) if world == 1 else COMMON_SEED
