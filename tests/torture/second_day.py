"""A dataset's life by chance: what is called in any order, and killed at any of its writes.

A plain dict is the model: the label, split and bytes of each image by its name.  After each step
all readers, TFDS's too, must find what it says.  A kill is what `torture.kills` calls one: the
files as they were before one change to the directory, and nothing else of the process.
"""

from __future__ import annotations

import dataclasses
import re
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import hypothesis
import pandas as pd
import pytest
from helpers.agreement import agree, of_records, of_tfds
from helpers.growing_cases import drawn, manifest
from helpers.streaming_cases import TO_ITS_END
from hypothesis import HealthCheck, Phase, settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from support import rejects

import tfrecorder
from tfrecorder.errors import DatasetError, OutputError
from torture.counts import Count
from torture.kills import Disk
from torture.model import BROKEN, IMAGES, Earlier, State, name_of

QUIET: dict[str, Any] = {"progress": False}

#: When an operation is killed: before the change that so far into all of its changes comes.
KILLS = st.none() | st.none() | st.floats(0, 1, exclude_max=True)
LABELS = st.sampled_from(["ant", "bee", "cat", "dog"])
CHOSEN = st.lists(st.integers(0, 99), min_size=1, max_size=3).map(tuple)
ROWS = st.lists(
    st.tuples(st.integers(0, IMAGES - 1), LABELS, st.sampled_from(["TRAIN", "TRAIN", "TEST"])),
    min_size=1,
    max_size=6,
    unique_by=lambda row: row[0],
)


class Feed:
    """Images as bytes, as many as there are by now: a source of a stream."""

    name = "feed"

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._rows = rows

    def rows(self, position: Any) -> Iterator[tuple[Mapping[str, Any], Any]]:
        for number in range(position or 0, len(self._rows)):
            yield self._rows[number], number + 1

    def wait(self, seconds: float) -> None:
        pass


class SecondDay(RuleBasedStateMachine):
    """Any operation after any other, killed or not."""

    #: Where the dataset is, and what keeps the states that its operations go through.
    disk: ClassVar[Disk]
    #: How often something was called, and how often it was killed.
    calls: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.out = self.disk.out
        shutil.rmtree(self.out, ignore_errors=True)
        folder = Path(self.out).parent
        self.paths = drawn(str(folder / "images"), IMAGES, (12, 10))
        Path(self.paths[BROKEN]).write_bytes(b"no image")
        fed = drawn(str(folder / "fed"), IMAGES, (14, 10))
        files = {f"feed/{number}": path for number, path in enumerate(fed)}
        files |= {path: path for path in self.paths}
        self.images = {name: Path(path).read_bytes() for name, path in files.items()}
        #: What is committed; None before there is a dataset.
        self.state: State | None = None
        #: What `undo` takes back, the next one last.
        self.earlier: Earlier = []
        #: What was killed before its commit, and must be completed or given up.
        self.pending: tuple[str, Callable[[], object], State, Earlier] | None = None
        #: An operation was killed after its commit, or before its plan was whole: its files stay.
        self.is_untidy = False
        #: What was killed after its commit, if its plan is still there.
        self.leftover = ""
        #: The rejects before the newest commit, which their list follows.
        self.rejects_before: frozenset[str] = frozenset()

    # --------------------------------------------------------------------------- how it is called

    @property
    def number(self) -> int:
        """Of the newest commit, even while it is set aside; -1 before there is one."""
        for name in ("dataset_info.json", "_tfrecorder/waiting/dataset_info.json"):
            if (path := Path(self.out, name)).exists():
                return int(re.findall(r"commit (\d+), plan", path.read_text())[0])
        return -1

    def run(
        self,
        name: str,
        call: Callable[[], object],
        after: State,
        earlier: Earlier,
        killed: float | None,
    ) -> None:
        """Call it, killed or not.

        Args:
            after: what the dataset then holds.
            earlier: what can be taken back then.
            killed: before which of its changes, as their share; None lets it end.
        """
        before, plan = self.number, self.plan
        self.call(name, call, killed)
        now = self.number
        # An overwrite gives up what is pending, by a commit of its own.
        is_another = now > before and manifest(self.out, now)["kind"] == "undo" != name
        if is_another:
            self._given_up(now)
        elif now == before and killed is None:  # there was nothing to do
            assert self.state is not None
            assert (after.records, after.rejects) == (self.state.records, self.state.rejects)
        elif now > before:
            self._committed(after, earlier, now)
        if self.plan is None:
            self.pending = None
        elif self.plan != plan and (now <= before or is_another):
            self.pending = (name, call, after, earlier)
        self.leftover = name if self.plan and self.pending is None else ""

    def _committed(self, after: State, earlier: Earlier, number: int) -> None:
        sizes = {**after.sizes, number: after.split_sizes}
        self.rejects_before = self.state.rejects if self.state else frozenset()
        self.state = dataclasses.replace(after, sizes=sizes)
        self.earlier, self.pending = earlier, None

    def _given_up(self, number: int) -> None:
        """What was pending is given up, by a commit of this number."""
        self._committed(self.now, self.additions, number)

    def call(self, name: str, call: Callable[[], object], killed: float | None) -> None:
        """Call it, and go back to one of the moments at which it might have been killed."""
        self.calls[name if killed is None else f"{name}, killed"] += 1
        if killed is None:
            call()
        else:
            with self.disk.recorded() as states:
                call()
            if states:
                self.disk.restore(states[int(killed * len(states))])
        self.is_untidy = killed is not None

    @property
    def plan(self) -> bytes | None:
        """What is begun, if anything is."""
        path = Path(self.out, "_tfrecorder/plan.json")
        return path.read_bytes() if path.exists() else None

    def table(self, rows: Sequence[tuple[int, str, str]]) -> pd.DataFrame:
        values = [
            (split, self.paths[number], label)
            if number != BROKEN
            else ("TRAIN", self.paths[BROKEN], "ant")
            for number, label, split in rows
        ]
        return pd.DataFrame(values, columns=["split", "image_uri", "label"])

    def fed(self, count: int) -> list[dict[str, Any]]:
        """The first rows of the feed."""
        labels, splits = ("ant", "bee", "elk"), ("TRAIN", "TRAIN", "TEST")
        names = [f"feed/{number}" for number in range(count)]
        cells = [{"bytes": self.images[name], "path": name} for name in names]
        return [
            {"image_uri": cell, "label": labels[n % 3], "split": splits[n % 5 % 3]}
            for n, cell in enumerate(cells)
        ]

    @property
    def now(self) -> State:
        assert self.state is not None
        return self.state

    @property
    def additions(self) -> Earlier:
        """What can still be taken back after a further commit."""
        return [one for one in self.earlier if one[0] != "update"]

    def is_there(self, cell: Mapping[str, Any]) -> bool:
        return name_of(cell) in self.now.records

    def names_of(self, chosen: Sequence[int]) -> list[str]:
        """Some of the records, by their places among all names."""
        names = sorted(self.now.records)
        return sorted({names[number % len(names)] for number in chosen})

    # -------------------------------------------------------------------------------- what is done

    @precondition(lambda self: self.state is None and self.pending is None)
    @rule(rows=ROWS, killed=KILLS)
    def convert(self, rows: Sequence[Any], killed: float | None) -> None:
        self._convert(rows, killed, False)

    @precondition(
        lambda self: self.state is not None and (self.pending is None or self.pending[0] != "undo")
    )
    @rule(rows=ROWS, killed=KILLS)
    def overwrite(self, rows: Sequence[Any], killed: float | None) -> None:
        """It gives up what is pending."""
        self._convert(rows, killed, "all")

    def _convert(self, rows: Sequence[Any], killed: float | None, overwrite: Any) -> None:
        rows = [row for row in rows if row[0] != BROKEN] or [(0, "ant", "TRAIN")]
        table = self.table(rows)
        options = {"overwrite": overwrite, "num_shards": 2, **QUIET}
        call = partial(tfrecorder.convert, table, self.out, **options)
        after = State().added(table, self.images)
        self.run("overwrite" if overwrite else "convert", call, after, [], killed)

    @precondition(lambda self: self.state is not None and self.pending is None)
    @rule(rows=ROWS, readmit=st.booleans(), killed=KILLS)
    def append(self, rows: Sequence[Any], readmit: bool, killed: float | None) -> None:
        table = self.table(rows)
        options = {"num_shards": 1, "max_reject_fraction": 1.0, "readmit": readmit, **QUIET}
        call = partial(tfrecorder.append, table, self.out, **options)
        after = self.now.added(table, self.images, readmit)
        if after.records == self.now.records and after.rejects != self.now.rejects:
            return  # rejects alone are refused
        self.run("append", call, after, [*self.additions, ("append", self.now)], killed)

    @precondition(lambda self: self.pending is None)
    @rule(more=st.integers(0, 4), killed=KILLS)
    def stream(self, more: int, killed: float | None) -> None:
        state = self.state or State()
        count = min(state.position + more, IMAGES)
        new = pd.DataFrame(self.fed(count)[state.position :], columns=list(self.fed(1)[0]))
        if self.state is None and not len(new):
            return
        call = partial(tfrecorder.stream, Feed(self.fed(count)), self.out, **TO_ITS_END)
        after = dataclasses.replace(state.added(new, self.images), position=count)
        earlier = [] if self.state is None else [*self.additions, ("stream", state)]
        self.run("stream", call, after, earlier, killed)

    @precondition(lambda self: self.state is not None and self.pending is None)
    @rule(
        rows=ROWS,
        fed=st.none() | LABELS,
        missing=st.sampled_from(["keep", "keep", "remove"]),
        readmit=st.booleans(),
        killed=KILLS,
    )
    def update(
        self,
        rows: Sequence[Any],
        fed: str | None,
        missing: str,
        readmit: bool,
        killed: float | None,
    ) -> None:
        """The rows, and those of the stream that are there with another label."""
        table = self.table(rows)
        if fed is not None:
            of_stream = [row for row in self.fed(IMAGES) if self.is_there(row["image_uri"])]
            more = pd.DataFrame(of_stream, columns=list(table)).assign(label=fed)
            table = pd.concat([table, more], ignore_index=True)
        after = self.now.updated(table, missing).added(table, self.images, readmit)
        new_classes = sorted({*after.classes} - {*self.now.classes})
        after = dataclasses.replace(after, classes=(*self.now.classes, *new_classes))
        if not after.records or after.rejects - self.now.rejects:
            return  # rejects alone are refused
        options = {"missing": missing, "readmit": readmit, "max_reject_fraction": 1.0, **QUIET}
        call = partial(tfrecorder.update, table, self.out, num_shards=1, **options)
        is_corrected = after.numbered == self.now.numbered
        self.run("update", call, after, [("update", self.now)] if is_corrected else [], killed)

    @precondition(lambda self: self.state is not None and self.pending is None)
    @rule(chosen=CHOSEN, killed=KILLS)
    def remove(self, chosen: Sequence[int], killed: float | None) -> None:
        names = self.names_of(chosen)
        if len(names) == len(self.now.records):
            return
        call = partial(tfrecorder.remove, self.out, {"image_uri": names}, **QUIET)
        self.run("remove", call, self.now.without(names), [], killed)

    @precondition(lambda self: self.state is not None and self.pending is None)
    @rule(shards=st.integers(1, 3), chosen=st.just(()) | CHOSEN, killed=KILLS)
    def compact(self, shards: int, chosen: Sequence[int], killed: float | None) -> None:
        names = self.names_of(chosen)
        if len(names) == len(self.now.records):
            return
        call = partial(tfrecorder.compact, self.out, num_shards=shards, drop=names or None, **QUIET)
        self.run("compact", call, self.now.without(names), [], killed)

    @precondition(lambda self: self.state is not None and self.pending is None)
    @rule(killed=KILLS)
    def undo(self, killed: float | None) -> None:
        """It takes the newest addition back, unless it first has to end what was killed."""
        call = partial(tfrecorder.undo, self.out)
        if self.leftover.startswith("undo"):
            self.call("undo", call, None)
        elif self.plan is not None or not self.earlier:
            words = "it was committed" if self.plan else "nothing was added|removed rows"
            with pytest.raises(DatasetError, match=words):
                call()
            self.is_untidy = False
        else:
            kind, after = self.earlier[-1]
            earlier = [] if kind == "update" else self.earlier[:-1]
            self.run("undo", call, after, earlier, killed)
            return
        self.leftover = ""

    @precondition(lambda self: self.pending is not None)
    @rule(killed=KILLS)
    def complete(self, killed: float | None) -> None:
        """The same call again."""
        assert self.pending is not None
        self.run(*self.pending, killed)

    @precondition(lambda self: self.pending is not None and self.pending[0] != "undo")
    @rule(killed=KILLS)
    def abandon(self, killed: float | None) -> None:
        """`undo` instead: the dataset is as it was before."""
        before = self.number
        self.call("undo of what is pending", partial(tfrecorder.undo, self.out), killed)
        if self.number > before:
            self._given_up(self.number)
            self.leftover = "undo of what is pending" if self.plan else ""
        elif self.plan is None:
            self.pending = None

    @precondition(lambda self: self.pending is not None and self.pending[0] != "undo")
    @rule()
    def begin_another(self) -> None:
        """It is refused, and says how to end what is pending."""
        table = self.table([(0, "ant", "TRAIN"), (1, "fox", "TEST")])
        with pytest.raises(OutputError, match="undo"):
            tfrecorder.convert(table, self.out, num_shards=5, **QUIET)

    # --------------------------------------------------------------------------------- what is so

    @invariant()
    def readers_agree(self) -> None:
        if self.state is None or not Path(self.out, "dataset_info.json").exists():
            assert self.state is None or self.pending, "there is no dataset"
            with pytest.raises(DatasetError):
                tfrecorder.info(self.out)
            return
        state = self.state
        is_tidy = not (self.pending or self.is_untidy)
        found = agree(self.out) if is_tidy else of_tfds(self.out)
        wanted: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
        for uri, (label, split, _) in state.records.items():
            wanted[split.lower()][uri, label] += 1
        pairs = {split: [(uri, text) for uri, _, text, _ in of] for split, of in found.items()}
        assert {split: Counter(of) for split, of in pairs.items()} == wanted
        numbered = {split.upper(): [uri for uri, _ in of] for split, of in pairs.items()}
        for split, names in state.numbered.items():
            assert numbered[split][: len(names)] == names, f"{split}: other numbers"
        self.state = dataclasses.replace(state, numbered=numbered)
        info = tfrecorder.info(self.out)
        assert tuple(info.class_names) == state.classes
        for split, records in found.items():
            assert [*of_records(self.out, split)] == records, f"{split}: ours reads others"
            images = tfrecorder.Records(self.out, split.upper(), inputs="all", decode=False)
            assert [one["image/encoded"] for one in images] == [
                state.records[uri][2] for uri, *_ in records
            ], f"{split}: other bytes"
        listed = rejects(self.out)["image_uri"] if Path(self.out, "rejects.csv").exists() else ()
        assert {*listed} in [state.rejects, *([self.rejects_before] if self.leftover else [])]
        self.generations_are_as_they_were(state, numbered)
        if is_tidy:
            absent = sorted(state.gone - state.records.keys() - state.rejects)
            verified = tfrecorder.verify(self.out, absent=absent or None, progress=False)
            assert verified.ok, str(verified)

    def generations_are_as_they_were(
        self, state: State, numbered: Mapping[str, Sequence[str]]
    ) -> None:
        assert {*tfrecorder.generations(self.out)} == {*state.sizes}
        for number, sizes in state.sizes.items():
            frame = tfrecorder.to_frame(self.out, at=number)
            for split, names in frame.groupby("split")["image_uri"]:
                assert [*names] == numbered[split][: sizes.get(split, 0)], f"at={number}: {split}"
            assert len(frame) == sum(sizes.values()), f"at={number}"


def live(folder: Path, calls: int, seed: int, steps: int = 12) -> Count:
    """Lives of a dataset, until so many operations were called.

    Args:
        steps: of a life, at most.

    Raises:
        AssertionError: readers find something else than the model; Hypothesis prints the life.
    """
    folder.mkdir(parents=True, exist_ok=True)
    SecondDay.disk, SecondDay.calls = Disk(folder), Counter()
    chosen = settings(
        max_examples=max(1, calls // steps),
        stateful_step_count=steps,
        deadline=None,
        database=None,
        print_blob=False,
        suppress_health_check=[*HealthCheck],
        phases=[Phase.generate],  # a life is short, and to shorten it further takes minutes
    )
    done = SecondDay.calls
    while done.total() < calls:
        run_state_machine_as_test(hypothesis.seed(seed)(SecondDay), settings=chosen)
        seed += 1
    note = ", ".join(f"{name} {count}" for name, count in sorted(done.items()))
    return Count("a dataset's life by chance", done.total(), 0, 0, note)
