"""A training's position in the order of an epoch, and which places each host reads next.

A position is the next place, and is the same on every host.  In each step a host reads
`batch_size` places, so all hosts together read `batch_size * world` places, one host's after the
other's.  Where fewer are left, the hosts divide them so that each has some.  Steps are counted from
the position where a run begins, so any batch size and any number of hosts can continue from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from tfrecorder.core.arrays import balanced_part
from tfrecorder.core.option import is_whole
from tfrecorder.errors import OptionError
from tfrecorder.reading.order import Order

#: The version of the form and of the order: code that computes another order has another number.
VERSION = 2


@dataclass(frozen=True)
class Position:
    """How much of a split has been read, as a value.

    Attributes:
        fingerprint: of the split's records, and of how they are chosen.
        split: its name.
        mode: of the order, "stored", "exact" or "blocks".
        seed: of the order and of augmentation.
        epoch: the current epoch, from 0.
        next: the first place of that epoch that was not read yet.
        generation: the last one of the dataset, from 0.
    """

    fingerprint: str
    split: str
    mode: str
    seed: int
    epoch: int = 0
    next: int = 0
    generation: int = 0

    def to_json(self) -> dict[str, Any]:
        """As JSON values, to be saved with the model."""
        return {"version": VERSION, **asdict(self)}

    def next_epoch(self) -> Position:
        """The beginning of the next epoch."""
        return replace(self, epoch=self.epoch + 1, next=0)

    def with_saved(
        self,
        state: Mapping[str, Any],
        records: int,
        *,
        since: int,
        takes_seed: bool,
    ) -> Position:
        """This position, moved to the one that `to_json` saved in an earlier run.

        Args:
            state: what `to_json` returned.
            records: of the split.
            since: the generation that began the numbering of the records.
            takes_seed: take over that run's seed; otherwise the seeds must be the same.

        Raises:
            OptionError: it is not a position, or is one in other records or in another order.
        """
        words = "`load_state_dict`: "
        here = self.to_json()
        if not isinstance(state, Mapping) or {*state} != {*here}:
            raise OptionError(
                f"{words}{state!r} is not what `state_dict()` returned; give exactly that."
            )
        # NumPy's integers, into which some checkpoints turn ours, become Python's.
        state = {**state}
        for name, value in state.items():
            if is_whole(value):
                state[name] = int(value)
        for name, most in _LARGEST.items():
            if not is_whole(state[name]) or not 0 <= state[name] <= most:
                raise OptionError(
                    f"{words}{name}: {state[name]!r} is not a whole number from 0 to {most}; give "
                    "exactly what `state_dict()` returned."
                )
        for name, remedy in _REMEDIES.items():
            if name == "seed" and takes_seed:
                continue
            if state[name] != here[name]:
                if name == "fingerprint" and state["generation"] < since:
                    remedy = f"generation {since} removed, moved or replaced records since then"
                    remedy += "; begin a new epoch"
                elif name == "fingerprint" and state["generation"] != self.generation:
                    remedy += f", as it was then: `at={state['generation']}`"
                elif name == "fingerprint":
                    remedy = _what_differs(str(state[name]), self.fingerprint) or remedy
                raise OptionError(
                    f"{words}the position was saved with `{name}={state[name]!r}`, but this run "
                    f"has {here[name]!r}; {remedy}."
                )
        if state["next"] > records:
            raise OptionError(f"{words}next={state['next']} is beyond the {records:,} records.")
        return replace(
            self,
            seed=state["seed"],
            epoch=state["epoch"],
            next=state["next"],
        )


#: The largest value of each number of a position.
_LARGEST = dict.fromkeys(("version", "epoch", "next", "generation"), 2**53) | {"seed": 2**32 - 1}

_REMEDIES = {
    "version": "continue with the tfrecorder that saved it, or begin a new epoch",
    "fingerprint": "the records differ; give the dataset that the run began with",
    "split": "give the split that the run began with",
    "mode": "give the shuffle that the run began with",
    "seed": "give the seed that the run began with",
}


def _what_differs(saved: str, here: str) -> str | None:
    """What to give again, if both runs read the same datasets, but choose from them otherwise."""
    data, *choice = saved.split(" ")
    own, *own_choice = here.split(" ")
    differ = {*choice} ^ {*own_choice}
    if data != own or not differ:
        return None
    names = {word.partition(":")[0] for word in differ}
    options = {
        "where": "`where` and `classes`",
        "balance": "`balance`, `epoch_size` and the weights of datasets",
    }
    words = " and ".join(options[name] for name in options if name in names)
    return f"give the {words} of the run, or begin its epoch anew: `set_epoch`"


@dataclass(frozen=True)
class Share:
    """Which places of each step this host reads.

    All hosts take equally many steps, and each has at least one place in every step.  Where the
    last step would have fewer places than hosts, it divides the places of the step before evenly
    with it.

    Attributes:
        records: of an epoch.
        batch_size: of this host, the same on each.
        rank: of this host, from 0.
        world: number of hosts.
        drop_remainder: leave out the last places if they do not fill a step of all hosts.
            Otherwise the hosts divide them: one host has at most one more than another.
        pad: fill the last step with places of the epoch's beginning.
    """

    records: int
    batch_size: int
    rank: int = 0
    world: int = 1
    drop_remainder: bool = False
    pad: bool = False

    @property
    def step(self) -> int:
        """Places of a whole step of all hosts."""
        return self.batch_size * self.world

    @property
    def padded(self) -> int:
        """How many places of the last step `pad` leaves real, of all hosts; 0 for all of them."""
        return self.records % self.step if self.pad else 0

    def steps(self, start: int) -> int:
        """The steps from a place to the end of the epoch.

        >>> Share(100, batch_size=8, rank=0, world=4).steps(0)
        4
        """
        left = self.records - start
        return left // self.step if self.drop_remainder else -(-left // self.step)

    def starts(self, start: int) -> Iterator[int]:
        """Where the steps from a place to the end of the epoch begin."""
        for _ in range(self.steps(start)):
            yield start
            start = self.after(start)

    def places(self, start: int) -> range:
        """This host's places in the step that begins at a place.

        With `pad`, those from `records` on are filled up.

        >>> Share(100, batch_size=8, rank=1, world=4).places(32)
        range(40, 48)
        >>> [len(Share(97, 8, rank, world=4).places(64)) for rank in range(4)]
        [4, 4, 4, 5]
        >>> [len(Share(97, 8, rank, world=4).places(81)) for rank in range(4)]
        [4, 4, 4, 4]
        """
        size = self._size(start)
        if size == self.step:
            first = start + self.rank * self.batch_size
            return range(first, first + self.batch_size)
        first, end = balanced_part(size, self.rank, self.world)
        return range(start + first, start + end)

    def after(self, start: int) -> int:
        """The place after the step that begins at a place."""
        return min(start + self._size(start), self.records)

    def _size(self, start: int) -> int:
        """The places of the step that begins at a place."""
        left = self.records - start
        if self.pad or left == self.step or left >= self.step + self.world:
            return self.step
        if left < self.step:
            return left
        # Fewer places than hosts would be left.  With one place each, nothing can be divided.
        return self.step if self.drop_remainder or self.batch_size == 1 else -(-left // 2)

    def refuse_empty(
        self,
        split: str,
        start: int = 0,
    ) -> None:
        """Refuse an epoch in which this host or another has no batch, or an empty one.

        Args:
            split: its name.
            start: the place where a loop begins; what is left of an epoch may have no step.

        Raises:
            OptionError: there is no step, or one with fewer places than hosts.
        """
        left = self.records - start
        of_hosts = f" in each of {self.world} processes" if self.world > 1 else ""
        counts = f"{left:,} record{'s' * (left != 1)}"
        if not self.steps(start) and not start:
            raise OptionError.of(
                "batch_size",
                self.batch_size,
                f"an epoch of {split} has no step, as {counts} cannot fill a batch{of_hosts}. Give "
                "a smaller one, or `drop_remainder=False`.",
            )
        if self.pad or self.drop_remainder:
            return
        if 0 < left < self.world:
            remedy = "Read in fewer processes"
        elif self.batch_size == 1 and left % self.world:
            remedy = "Give a `batch_size` of 2 or more, whose last steps divide what is left"
        else:
            return
        raise OptionError.of(
            "shard",
            (self.rank, self.world),
            f"{counts} of {split} cannot give each of {self.world} processes one in every step, "
            f"with `batch_size={self.batch_size}`. {remedy}, or with `pad=True` of `batches`, "
            "which repeats records and says which.",
        )


#: Steps whose numbers are computed together: for one batch, NumPy's calls take ten times the work.
_AT_ONCE = 16


class Step(NamedTuple):
    """The records of this host's batch.

    Attributes:
        numbers: of the records.
        epoch: they are read in.
        start: the place where the step of all hosts begins.
        real: how many of the first numbers are no repetition by `pad`; None without `pad`.
    """

    numbers: list[int]
    epoch: int
    start: int
    real: int | None

    @property
    def mask(self) -> np.ndarray | None:
        """True for each real record, bool of [n]; None without `pad`."""
        return None if self.real is None else np.arange(len(self.numbers)) < self.real


def steps_of(
    order: Order,
    share: Share,
    start: int,
) -> Iterator[Step]:
    """The batches of this host, from a place to the end of the epoch."""
    starts = share.starts(start)
    while some := [*islice(starts, _AT_ONCE)]:
        places = [share.places(begin) for begin in some]
        of_all = np.array([place for of_step in places for place in of_step])
        numbers = iter(order.numbers(of_all % share.records).tolist())
        for begin, of_step in zip(some, places, strict=True):
            real = None
            if share.pad:
                real = len(range(of_step.start, min(of_step.stop, share.records)))
            yield Step([*islice(numbers, len(of_step))], order.epoch, begin, real)
