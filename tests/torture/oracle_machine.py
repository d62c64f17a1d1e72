"""Lives of datasets by chance, judged after each call by a reader that no one here can please.

A life is a list of steps, all data: what failed is printed, can be lived again, and is made
shorter as long as it fails.  `torture.oracle` reads what is there, `torture.oracle_model` says what
must be there, `torture.oracle_readers` asks the package's readers.

    PYTHONPATH=tests python -m torture.oracle_machine --calls 1000 --seed 7
    PYTHONPATH=tests python -m torture.oracle_machine --life 7:12
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

if __name__ == "__main__":
    sys.modules["apache_beam"] = None  # type: ignore[assignment]  # which takes 10 times as long

import pandas as pd

import tfrecorder
from tfrecorder import TfrecorderError
from tfrecorder.schema import Image, Label, Schema, Split, Text
from torture import oracle_readers
from torture.kills import Disk, Files
from torture.oracle import Contents, Search, WrongError, check_beside, must, read
from torture.oracle_model import (
    BROKEN,
    FED,
    IMAGES,
    LABELS,
    MISSING,
    SIBLING,
    SPLITS,
    TWIN,
    Fact,
    Kind,
    Row,
    Sources,
    State,
)

QUIET: dict[str, Any] = {"progress": False}

#: Seconds within which a call ends.
PATIENCE = 20

#: TFDS is asked after every so many steps.
OF_TFDS = 25

#: Steps of a life, at most.
STEPS = 25

#: Steps by which something is removed for good.
REMOVING = ("update", "remove", "compact")

#: What can be taken back, with what the dataset was before it; the next one last.
Earlier = tuple[tuple[str, State], ...]


class EndlessError(BaseException):
    """A call does not end.  It is no Exception, so that nothing but us takes it."""


class Skipped(Exception):  # noqa: N818  (it is no error)
    """A step that makes no sense here: in a life that was made shorter."""


@dataclasses.dataclass(frozen=True)
class Step:
    """A call, as data.

    Attributes:
        name: of a method of `Life`.
        given: its arguments.
        killed: before which of its changes it is killed, as their share; None lets it end.
        again: after a kill the same call comes again; otherwise `undo` does.
    """

    name: str
    given: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    killed: float | None = None
    again: bool = True

    def __str__(self) -> str:
        values = ", ".join(f"{name}={_shown(value)}" for name, value in self.given.items())
        words = f"{self.name}({values})"
        if self.killed is not None:
            words += f"  # killed at {self.killed:.3f}, then {'again' if self.again else 'undo'}"
        return words


def _shown(value: Any) -> str:
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], Row):
        return "[" + ", ".join(f"{row.name}:{row.label}:{row.split}:{row.text}" for row in value) + "]"
    return repr(value)


@dataclasses.dataclass(frozen=True)
class Call:
    """A call that changes a dataset, and what must follow.

    Attributes:
        run: the call.
        after: what the dataset holds then.
        earlier: what can be taken back then.
        order: what stays of the order of records: "prefix", "kept", "same" or "any".
        may_refuse: it may raise an error of ours, and then changes nothing.
        must_refuse: it must.
        twice: it may be called again after its commit: nothing more changes.
        anew: rows may get other numbers.
    """

    run: Callable[[], object]
    after: State
    earlier: Earlier
    order: str = "prefix"
    may_refuse: bool = False
    must_refuse: bool = False
    twice: bool = True
    anew: bool = False


class Life:
    """A dataset, from its first call."""

    def __init__(self, disk: Disk, kind: Kind, search: Search) -> None:
        self.disk, self.kind, self._search = disk, kind, search
        self.out = Path(disk.out)
        shutil.rmtree(self.out, ignore_errors=True)
        images = self.out.parent / "images"
        shutil.rmtree(images, ignore_errors=True)
        self.sources = Sources(images, kind)
        #: What it holds; None before there is a dataset.
        self.state: State | None = None
        #: What `undo` takes back, the next one last.
        self.earlier: Earlier = ()
        #: A file was lost for good: calls may refuse to go on, but may not do anything wrong.
        self.has_losses = False
        #: A kill left files, before anything was begun.
        self.is_untidy = False
        #: What was removed, whichever call did it, and did not come back.
        self.removed: set[str] = set()
        #: Captions that each picture ever had.
        self._captions: dict[str, set[bytes]] = {}
        #: How often something was called.
        self.calls: Counter[str] = Counter()
        self.steps = 0

    @property
    def now(self) -> State:
        if self.state is None:
            raise Skipped
        return self.state

    @property
    def additions(self) -> Earlier:
        """What can still be taken back after a further commit."""
        return tuple(one for one in self.earlier if one[0] != "update")

    # ---------------------------------------------------------------------------- how it is called

    def live(self, step: Step) -> None:
        """Do a step, and look at all of the dataset afterwards.

        Raises:
            WrongError: what is there is not what must be there.
            EndlessError: it does not end.
            Skipped: it makes no sense here.
        """
        before = self.state or State()
        with limited(PATIENCE):
            call = getattr(self, step.name)(**step.given)
            if call is not None:
                self._run(step, call)
        self.steps += 1
        self.calls[step.name if step.killed is None else f"{step.name}, killed"] += 1
        now = self.state or State()
        if step.name in REMOVING:
            self.removed |= before.names - now.names
        self.removed -= now.names
        with limited(PATIENCE):
            self._judge(random.Random(self.steps))

    def _run(self, step: Step, call: Call) -> None:
        states: list[Files] = []
        files = self.disk.files()
        try:
            if step.killed is None:
                call.run()
            else:
                with self.disk.recorded() as states:
                    call.run()
        except TfrecorderError as error:
            self._refused(call, error, files)
            return
        except Exception as error:
            raise WrongError(f"{type(error).__name__}: {error}") from error
        must(not call.must_refuse, "it must be refused, and is not")
        if step.killed is None or not states:
            self._follow(call)
            self.is_untidy = False
            return
        self._kill(step, call, states[int(step.killed * len(states))])

    def _refused(self, call: Call, error: TfrecorderError, files: Files) -> None:
        """A call that raised an error changed nothing."""
        must(str(error).strip(), "an error without words")
        if not (call.may_refuse or call.must_refuse or self.has_losses):
            raise WrongError(f"{type(error).__name__}: {error}") from error
        self.calls["refused"] += 1
        if "_tfrecorder/plan.json" in {*self.disk.files()} - {*files}:
            tfrecorder.undo(str(self.out))
            self.earlier = self.additions

    def _follow(self, call: Call) -> None:
        """Take what a call must have made for what is there, unless it made no commit."""
        contents = read(self.out)
        must(contents is not None, "there is no dataset")
        assert contents is not None
        before = self.state
        if before is not None and contents.commit == self._commit:
            must(holds(before) == holds(call.after), "no commit, and something should change")
            self.state = dataclasses.replace(
                call.after, order=before.order, numbers=before.numbers, grown=before.grown
            )
            return
        self.earlier = call.earlier
        self._take(contents, call)

    def _take(self, contents: Contents, call: Call) -> None:
        """The order and the numbers of records become those that are found, if they may."""
        before, after = self.state or State(), call.after
        name_of = self.sources.name
        order = {
            split: [name_of(record.uri) for record in records]
            for split, records in contents.splits.items()
        }
        numbers = {record.number: name_of(record.uri) for record in contents.records}
        if call.order == "same":
            old, known = after.order, after.numbers
        else:
            old, known = before.order, {} if call.anew else before.numbers
        for split, names in old.items():
            now = [*order.get(split, ())]
            if call.order == "same":
                must(now == [*names], f"{split}: the records are {now}, and were {[*names]}")
            elif call.order == "prefix":
                must(now[: len(names)] == [*names], f"{split}: {now}, and before {[*names]}")
            elif call.order == "kept":
                stay = {n for n, fact in after.records.items() if fact.split == split}
                kept = [name for name in names if name in stay]
                must(now[: len(kept)] == kept, f"{split}: {now}, and before {[*names]}")
        for number, name in numbers.items():
            of_before = known.get(number, name)
            must(of_before == name, f"row {number} is {name}, and was {of_before}")
        if not call.anew:
            new = {name: number for number, name in numbers.items()}
            for number, name in before.numbers.items():
                still = name in before.records and name in after.records
                if still and after.records[name].copies == 1 and name in new:
                    there = [n for n, of in before.numbers.items() if of == name]
                    must(new[name] in there, f"{name} was row {there}, and is {new[name]}")
                del number
        self.state = dataclasses.replace(after, order=order, numbers={**known, **numbers})

    @property
    def _commit(self) -> int:
        return self._last_commit

    _last_commit = -1

    # ------------------------------------------------------------------------------------ killed

    def _kill(self, step: Step, call: Call, files: Files) -> None:
        """Go back to a moment at which the call might have been killed, and end what it began."""
        self.disk.restore(files)
        contents = read(self.out)
        is_committed = contents is not None and contents.commit > self._last_commit
        if is_committed:
            assert contents is not None
            self._must_hold(contents, call.after, "after a kill")
        elif contents is not None:
            must(self.state is not None, "a dataset before its commit")
            assert self.state is not None
            self._must_hold(contents, self.state, "after a kill")
        else:
            fresh = self.state is None
            must(fresh or step.name in ("overwrite", "undo"), "there is no dataset after a kill")
        is_pending = (self.out / "_tfrecorder/plan.json").exists()
        if is_committed:
            self.earlier = call.earlier
            self._take(contents, call)
            self._last_commit = contents.commit
        if step.again and (call.twice or not is_committed):
            try:
                call.run()
            except TfrecorderError as error:
                if not is_committed:
                    raise WrongError(f"again, {type(error).__name__}: {error}") from error
            except Exception as error:
                raise WrongError(f"again, {type(error).__name__}: {error}") from error
            if not is_committed:
                self._follow(call)
            elif is_pending or step.name != "undo":
                self._look_again(call)
            self.is_untidy = False
            return
        if not is_pending:
            self.is_untidy = not is_committed
            return
        try:
            tfrecorder.undo(str(self.out))
        except TfrecorderError as error:
            must(is_committed, f"undo of what was killed: {error}")
        else:
            must(not is_committed or step.name == "undo", "undo took back what was just committed")
            if step.name == "undo" and not is_committed:
                self._follow(call)
            elif not is_committed:
                self._given_up()
        self.is_untidy = False

    def _look_again(self, call: Call) -> None:
        contents = read(self.out)
        assert contents is not None
        if contents.commit != self._last_commit and call.anew:
            self._take(contents, call)

    def _given_up(self) -> None:
        """What was pending is given up, perhaps by a commit that changes nothing."""
        contents = read(self.out)
        if contents is None:
            must(self.state is None, "there is no dataset after undo")
            return
        must(self.state is not None, "a dataset after undo")
        if contents.commit != self._last_commit:
            self.earlier = self.additions

    # --------------------------------------------------------------------------------- what is so

    def _judge(self, chance: random.Random) -> None:
        contents = read(self.out)
        if contents is None:
            must(self.state is None, "there is no dataset")
            return
        must(self.state is not None, "there is a dataset")
        state = self.now
        self._last_commit = contents.commit
        self._must_hold(contents, state, "the reader")
        for split, records in contents.splits.items():
            names = [self.sources.name(record.uri) for record in records]
            must(names == [*state.order.get(split, ())], f"{split}: another order: {names}")
        listed = {self.sources.name(uri) for uri in contents.rejects}
        must(listed == {*state.rejects}, f"rejects are {listed}, and not {[*state.rejects]}")
        if self.is_untidy:
            return
        check_beside(self.out, contents)
        try:
            columns = ["caption"] if self.kind.captions else []
            oracle_readers.compare(self.out, contents, chance, columns)
            if self.steps % OF_TFDS == OF_TFDS - 1:
                oracle_readers.compare_tfds(self.out, contents)
            gone = sorted(map(self.sources.uri, self.removed))
            verified = tfrecorder.verify(str(self.out), absent=gone or None, progress=False)
        except WrongError:
            raise
        except Exception as error:
            raise WrongError(f"a reader: {type(error).__name__}: {error}") from error
        self._must_lack(state)
        must(verified.ok, f"verify says: {verified}")

    def _must_lack(self, state: State) -> None:
        """Nothing of what was removed is in any file."""
        kept = {value for name in state.names for value in self.sources.values(name)}
        for name, fact in state.records.items():
            self._captions.setdefault(name, set()).add(fact.caption.encode())
        wanted = {}
        for name in sorted(self.removed):
            values = [value for value in self.sources.values(name) if value not in kept]
            captions = [text for text in self._captions.get(name, ()) if text]
            wanted[name] = [f"{name}.png".encode(), *values, *captions]
        found = self._search.find(self.out, wanted) if wanted else []
        must(not found, "; ".join(found))

    def _must_hold(self, contents: Contents, state: State, where: str) -> None:
        """The independent reader finds what the model has."""
        found: dict[str, list[Fact]] = {}
        for record in contents.records:
            fact = Fact(record.name, record.split, record.image, record.text("caption"))
            found.setdefault(self.sources.name(record.uri), []).append(fact)
            must(record.uri == self.sources.uri(self.sources.name(record.uri)), record.uri)
        lost = sorted(state.records.keys() - found.keys())
        more = sorted(found.keys() - state.records.keys())
        must(not lost, f"{where}: {lost} are not there")
        must(not more, f"{where}: {more} are there")
        for name, fact in state.records.items():
            one = dataclasses.replace(fact, copies=1)
            must(len(found[name]) == fact.copies, f"{where}: {name} is there {len(found[name])} times")
            for other in found[name]:
                must(other == one, f"{where}: {name} is {_told(other)}, and not {_told(one)}")

    # -------------------------------------------------------------------------------- what is done

    def table(self, rows: Sequence[Row]) -> pd.DataFrame:
        frame = pd.DataFrame(
            {
                "split": [row.split for row in rows],
                "image_uri": [self.sources.cell(row.name) for row in rows],
                "label": [row.label for row in rows],
            }
        )
        if self.kind.captions:
            frame["caption"] = [self.sources.caption(row) for row in rows]
        return frame

    @property
    def base(self) -> dict[str, str]:
        """The folder of the pictures, where tables name them from there."""
        return {"base": str(self.sources.folder)} if self.kind.relative else {}

    @property
    def options(self) -> dict[str, Any]:
        """Of what begins a dataset."""
        options: dict[str, Any] = {**QUIET}
        if self.kind.captions:
            options["schema"] = Schema(
                split=Split(), image_uri=Image(), label=Label(), caption=Text()
            )
        if self.kind.raw:
            options |= {"image_format": "raw", "image_size": 8}
        return options

    def convert(self, rows: Sequence[Row], shards: int) -> Call:
        if self.state is not None:
            raise Skipped
        options = {**self.options, **self.base, "num_shards": shards, "max_reject_fraction": 1.0}
        call = partial(tfrecorder.convert, self.table(rows), str(self.out), **options)
        after = dataclasses.replace(State().added(rows, self.sources), grown=False)
        self._demand_records(after)
        return Call(call, after, (), anew=True, may_refuse=self._mostly_rejects(after, rows))

    def overwrite(self, rows: Sequence[Row], shards: int, everything: bool) -> Call:
        state = self.now
        options = {**self.options, **self.base, "num_shards": shards, "max_reject_fraction": 1.0}
        options["overwrite"] = "all" if everything else True
        call = partial(tfrecorder.convert, self.table(rows), str(self.out), **options)
        begun = State() if everything else State(gone=state.gone, gone_files=state.gone_files)
        after = dataclasses.replace(begun.added(rows, self.sources), grown=False)
        self._demand_records(after)
        refused = (state.grown and not everything) or self._mostly_rejects(after, rows)
        return Call(call, after, (), order="any", may_refuse=refused, anew=True)

    def append(
        self,
        rows: Sequence[Row],
        shards: int,
        duplicates: str = "name",
        readmit: bool = False,
        retry: bool = False,
    ) -> Call:
        state = self.now
        if duplicates == "keep":
            rows = [row for row in rows if row.name not in state.rejects]
            rows = [self._as_it_is(row) for row in rows]
        if not rows:
            raise Skipped
        options = {
            "num_shards": shards,
            "duplicates": duplicates,
            "readmit": readmit,
            "max_reject_fraction": 1.0,
            **self.base,
            **QUIET,
        }
        if retry:
            options["retry_rejects"] = True
        call = partial(tfrecorder.append, self.table(rows), str(self.out), **options)
        after = state.added(
            rows, self.sources, readmit=readmit, duplicates=duplicates, retry=retry
        )
        return Call(
            call,
            after,
            (*self.additions, ("append", state)),
            may_refuse=self._mostly_rejects(after, rows),
            twice=duplicates != "keep",
        )

    def stream(self, count: int) -> Call:
        state = self.state or State()
        count = max(count, state.position)
        new = [self._fed(number) for number in range(state.position, count)]
        if self.state is None and not new:
            raise Skipped
        options = {"until_idle": 0, **(self.options if self.state is None else QUIET)}
        feed = Feed([self.table([self._fed(n)]).iloc[0].to_dict() for n in range(count)])
        call = partial(tfrecorder.stream, feed, str(self.out), **options)
        after = dataclasses.replace(
            state.added(new, self.sources, duplicates="keep"), position=count
        )
        earlier = () if self.state is None else (*self.additions, ("stream", state))
        if self.state is not None and new and after.records == state.records:
            raise Skipped  # a batch of which all rows stay out
        return Call(call, after, earlier)

    def update(
        self,
        rows: Sequence[Row],
        missing: str = "keep",
        readmit: bool = False,
        shards: int | None = 1,
    ) -> Call:
        state = self.now
        rows = [
            row
            for row in rows
            if row.name not in state.records or state.records[row.name].copies == 1
        ]
        rows = [row for row in rows if not row.name.startswith("fed") or row.name in state.records]
        if not rows:
            raise Skipped
        options = {
            "missing": missing,
            "readmit": readmit,
            "max_reject_fraction": 1.0,
            **self.base,
            **QUIET,
        }
        if shards is not None:
            options["num_shards"] = shards
        call = partial(tfrecorder.update, self.table(rows), str(self.out), **options)
        corrected = state.corrected(rows, self.sources, missing)
        after = corrected.added(rows, self.sources, readmit=readmit)
        self._demand_records(after)
        renumbers = state.renumbers(after)
        return Call(
            call,
            after,
            () if renumbers else (("update", state),),
            order="kept" if renumbers else "prefix",
            may_refuse=self._mostly_rejects(after, rows),
        )

    def remove(self, names: Sequence[str], by_row: bool = False) -> Call:
        state = self.now
        names = [name for name in names if name in state.names]
        if by_row:
            names = [n for n in names if n in state.records and state.records[n].copies == 1]
        if not names:
            raise Skipped
        where: dict[str, Any] = {"image_uri": [self.sources.uri(name) for name in names]}
        if by_row:
            found = read(self.out)
            assert found is not None
            of_uri = {self.sources.name(one.uri): one.number for one in found.records}
            where = {"row": [of_uri[name] for name in names]}
        after = state.without(names, self.sources)
        self._demand_records(after)
        call = partial(tfrecorder.remove, str(self.out), where, **QUIET)
        return Call(call, after, (), order="kept")

    def compact(self, shards: int | None, drop: Sequence[str] = ()) -> Call:
        state = self.now
        drop = [name for name in drop if name in state.records]
        options = {"num_shards": shards, **QUIET} if shards else {**QUIET}
        if drop:
            options["drop"] = [self.sources.uri(name) for name in drop]
        after = state.without(drop, self.sources)
        self._demand_records(after)
        call = partial(tfrecorder.compact, str(self.out), **options)
        return Call(call, after, (), order="any")

    def undo(self) -> Call:
        state = self.now
        call = partial(tfrecorder.undo, str(self.out))
        if not self.earlier:
            return Call(call, state, (), must_refuse=True)
        kind, after = self.earlier[-1]
        earlier = () if kind == "update" else self.earlier[:-1]
        return Call(call, after, earlier, order="same", twice=False)

    def appear(self, name: str) -> None:
        """The file of a reject is there from now on."""
        if name in self.sources.files:
            raise Skipped
        self.sources.appear(name)

    def repair(self, of: str, place: float, damage: str) -> None:
        """A file is lost or damaged, and made again."""
        _ = self.now
        before = self.disk.files()
        files = sorted(file for file in before if kind_of(file) == of)
        if of == "everything":
            files = sorted(file for file in before if file.startswith("_tfrecorder/"))
        if not files:
            raise Skipped
        file = files[int(place * len(files))]
        if of == "everything":
            shutil.rmtree(self.out / "_tfrecorder")
        else:
            spoil(self.out / file, damage)
        try:
            noticed = not tfrecorder.verify(str(self.out), progress=False).ok
        except TfrecorderError:
            noticed = True
        except Exception as error:
            raise WrongError(f"verify, {file}: {type(error).__name__}: {error}") from error
        if not noticed:
            self.disk.restore(before)
            self.calls["unnoticed"] += 1
            return
        try:
            result = tfrecorder.repair(str(self.out), progress=False)
        except TfrecorderError as error:
            must(self._may_be_lost(file, of), f"{file}: {type(error).__name__}: {error}")
            self.disk.restore(before)
            self.calls["not repaired"] += 1
            return
        except Exception as error:
            raise WrongError(f"repair, {file}: {type(error).__name__}: {error}") from error
        after = self.disk.files()
        others = sorted(
            name
            for name in {*before, *after}
            if not name.startswith("_tfrecorder/") and before.get(name) != after.get(name)
        )
        if not result.lost:
            private = ("commits/", "tables/", "index/", "removed/")
            others += sorted(
                name
                for name in {*before, *after}
                if name.startswith(tuple(f"_tfrecorder/{one}" for one in private))
                and before.get(name) != after.get(name)
            )
        must(not others, f"after the repair of {file} these are others: {others}")
        if result.lost:
            self.has_losses = True
            self.calls["losses"] += 1

    def _may_be_lost(self, file: str, of: str) -> bool:
        """True if nothing else says what a file held."""
        if self.has_losses or of in ("removed", "before", "everything"):
            return True
        # Pictures that came as bytes are in their records alone.
        return of == "shard" and any(name.startswith("fed") for name in self.now.records)

    # ------------------------------------------------------------------------------------- helpers

    def _demand_records(self, after: State) -> None:
        if not after.records:
            raise Skipped

    def _mostly_rejects(self, after: State, rows: Sequence[Row]) -> bool:
        """True if so many of the new rows give no record that nothing may be begun."""
        before = self.state or State()
        good = after.records.keys() - before.records.keys()
        tried = {row.name for row in rows} & after.rejects.keys()
        return 3 * len(tried) > len(good) + len(tried)

    def _as_it_is(self, row: Row) -> Row:
        """A row with the values that its record has."""
        fact = self.now.records.get(row.name)
        if fact is None:
            return row
        texts = {self.sources.caption(row._replace(text=n)): n for n in range(4)}
        return Row(row.name, fact.label, fact.split, texts[fact.caption])

    def _fed(self, number: int) -> Row:
        """A row of the stream."""
        return Row(f"fed-{number:02d}", LABELS[number % 3], SPLITS[number % 5 % 2])


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


def _told(fact: Fact) -> tuple[str, str, str, str]:
    return fact.label, fact.split, fact.data[-60:-50].hex(), fact.caption


def holds(state: State) -> tuple[Any, ...]:
    return {**state.records}, {*state.rejects}


def kind_of(file: str) -> str:
    """Which kind of file it is, by its name below the directory."""
    folder, _, rest = file.removeprefix("_tfrecorder/").partition("/")
    if not file.startswith("_tfrecorder/"):
        return "shard" if file.endswith(".tfrecord") else "public"
    return folder if rest else "private"


def spoil(path: Path, damage: str) -> None:
    data = path.read_bytes()
    path.unlink()  # other names of the file keep what they have
    if damage == "cut":
        path.write_bytes(data[: len(data) // 2])
    elif damage == "flip":
        place = len(data) // 3
        flipped = bytes([data[place] ^ 16]) if data else b"x"
        path.write_bytes(data[:place] + flipped + data[place + 1 :])


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """A block that ends within some seconds.

    Raises:
        EndlessError: it does not.
    """

    def end(*_: Any) -> None:
        raise EndlessError(f"it does not end within {seconds} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# ----------------------------------------------------------------------------------- by chance

#: How often each step is drawn, where all are.
WEIGHTS = {
    "append": 14,
    "append_again": 4,
    "retry": 4,
    "stream": 7,
    "overwrite_same": 5,
    "overwrite": 4,
    "labels": 8,
    "move_shards": 10,
    "move_some": 6,
    "missing": 7,
    "remove": 9,
    "compact": 6,
    "drop": 3,
    "undo": 11,
    "repair": 12,
}


class Chance:
    """Draws the steps of a life."""

    def __init__(self, seed: str, weights: Mapping[str, int] = WEIGHTS) -> None:
        self.random = random.Random(seed)
        self._names, self._weights = [*weights], [*weights.values()]
        #: The splits of new rows.
        self._splits = self.random.choice((("TRAIN", "TEST"), ("TRAIN", "TRAIN", *SPLITS)))

    def step(self, life: Life) -> Step:
        """The next step of a life."""
        draw, state = self.random, life.state
        if state is None:
            step = self._stream(life) if draw.random() < 0.1 else self._convert()
        else:
            (name,) = draw.choices(self._names, self._weights)
            step = getattr(self, f"_{name}")(life)
        if step.name in ("repair", "appear") or draw.random() > 0.15:
            return step
        return dataclasses.replace(step, killed=draw.random(), again=draw.random() < 0.6)

    def rows(
        self, most: int, rejects: float = 0.2, labels: Sequence[str] = LABELS, least: int = 1
    ) -> list[Row]:
        """Rows of any pictures that are in files."""
        draw = self.random
        good = [n for n in range(IMAGES) if f"img-{n:02d}" not in (*MISSING, BROKEN)]
        names = [f"img-{n:02d}" for n in draw.sample(good, draw.randint(least, most))]
        if len(names) > 3 and draw.random() < rejects:
            names.append(draw.choice([*MISSING, BROKEN]))
        draw.shuffle(names)
        return [
            Row(name, draw.choice(labels), draw.choice(self._splits))
            for name in names
        ]

    def of_state(self, state: State) -> list[Row]:
        """Rows as the dataset has them."""
        rows = [Row(name, fact.label, fact.split) for name, fact in state.records.items()]
        rows += [Row(name, "ant", split) for name, split in state.rejects.items()]
        return rows

    def some(self, names: Sequence[str], most: int) -> list[str]:
        many = min(len(names), self.random.randint(1, most))
        return self.random.sample(sorted(names), many)

    def _convert(self) -> Step:
        draw = self.random
        labels = draw.sample(LABELS[:4], draw.randint(1, 3))
        rows = self.rows(16, labels=labels, least=4)
        return Step("convert", {"rows": rows, "shards": draw.choice((1, 1, 2, 3))})

    def _append(self, life: Life) -> Step:
        draw = self.random
        given = {"rows": self.rows(8), "shards": draw.randint(1, 2)}
        (kind,) = draw.choices(("", "keep", "content", "readmit"), (6, 1, 1, 2))
        if kind == "readmit":
            given["readmit"] = True
        elif kind:
            given["duplicates"] = kind
        return Step("append", given)

    def _append_again(self, life: Life) -> Step:
        """What is there, or was, and some more."""
        rows = self._all_of(life)
        names = {row.name for row in rows}
        rows += [row for row in self.rows(3) if row.name not in names]
        self.random.shuffle(rows)
        (duplicates,) = self.random.choices(("name", "content", "keep"), (6, 2, 1))
        return Step("append", {"rows": rows, "shards": 1, "duplicates": duplicates})

    def _retry(self, life: Life) -> Step:
        absent = [name for name in MISSING if name not in life.sources.files]
        if absent and self.random.random() < 0.4:
            return Step("appear", {"name": self.random.choice(absent)})
        names = {*life.now.rejects}
        rows = [Row(name, "bee", "TRAIN") for name in sorted(names)]
        rows += [row for row in self.rows(4, rejects=0) if row.name not in names]
        return Step("append", {"rows": rows, "shards": 1, "retry": True})

    def _stream(self, life: Life) -> Step:
        position = life.state.position if life.state else 0
        return Step("stream", {"count": min(FED, position + self.random.randint(1, 4))})

    def _all_of(self, life: Life) -> list[Row]:
        """Rows of what is there, and of what was."""
        rows = self.of_state(life.now)
        names = {row.name for row in rows}
        rows += [Row(name, "cat", "TRAIN") for name in sorted(life.now.gone - names)]
        return [row for row in rows if not row.name.startswith("fed")]

    def _overwrite_same(self, life: Life) -> Step:
        """A table of what is there and of what was, as before."""
        rows = self._all_of(life) or self.rows(5)
        self.random.shuffle(rows)
        everything = life.now.grown and self.random.random() < 0.8
        shards = self.random.randint(1, 3)
        return Step("overwrite", {"rows": rows, "shards": shards, "everything": everything})

    def _overwrite(self, life: Life) -> Step:
        draw = self.random
        rows = self.rows(10, labels=draw.sample(LABELS, 2), least=3)
        everything = life.now.grown or draw.random() < 0.3
        return Step("overwrite", {"rows": rows, "shards": draw.randint(1, 3), "everything": everything})

    def _changed(self, rows: Sequence[Row], share: float) -> list[Row]:
        """Some rows get another label, and another caption."""
        draw = self.random
        return [
            row._replace(label=draw.choice(LABELS), text=draw.randint(0, 3))
            if draw.random() < share
            else row
            for row in rows
        ]

    def _labels(self, life: Life) -> Step:
        rows = self._changed(self.of_state(life.now), self.random.choice((0.1, 0.3, 1)))
        return self._update(life, rows)

    def _move_shards(self, life: Life) -> Step:
        """All rows of some shards, or of a split, go to another split."""
        draw, rows = self.random, self.of_state(life.now)
        contents = read(life.out)
        records = contents.records if contents else []
        shards = sorted({record.shard for record in records})
        chosen = {*draw.sample(shards, draw.randint(1, min(2, len(shards))))}
        if draw.random() < 0.5:  # the whole split
            split = draw.choice(sorted({record.split for record in records}))
            chosen = {record.shard for record in records if record.split == split}
        names = {life.sources.name(one.uri) for one in records if one.shard in chosen}
        to = draw.choice(SPLITS)
        rows = [row._replace(split=to) if row.name in names else row for row in rows]
        if draw.random() < 0.3:
            rows = [row for row in rows if row.name in names]
        draw.shuffle(rows)
        share = draw.choice((0, 0, 0.2, 1))
        rows = [self._changed([row], share)[0] if row.name in names else row for row in rows]
        return self._update(life, rows, more=0.1)

    def _move_some(self, life: Life) -> Step:
        rows = self.of_state(life.now)
        names = {*self.some([row.name for row in rows], 4)}
        to = self.random.choice(SPLITS)
        rows = [row._replace(split=to) if row.name in names else row for row in rows]
        return self._update(life, self._changed(rows, 0.1))

    def _missing(self, life: Life) -> Step:
        rows = self.of_state(life.now)
        left = {*self.some([row.name for row in rows], 4)}
        rows = [row for row in rows if row.name not in left]
        return self._update(life, self._changed(rows, 0.1), missing="remove")

    def _update(
        self, life: Life, rows: Sequence[Row], more: float = 0.5, missing: str = "keep"
    ) -> Step:
        draw, names = self.random, {row.name for row in rows}
        rows = [*rows]
        if draw.random() < more:
            rows += [row for row in self.rows(3) if row.name not in names]
        if draw.random() < 0.5:
            draw.shuffle(rows)
        given = {"rows": rows, "missing": missing, "shards": draw.choice((None, 1, 2))}
        if draw.random() < 0.15:
            given["readmit"] = True
        return Step("update", given)

    def _remove(self, life: Life) -> Step:
        names = self.some([*life.now.names], 3)
        return Step("remove", {"names": names, "by_row": self.random.random() < 0.3})

    def _compact(self, life: Life) -> Step:
        return Step("compact", {"shards": self.random.choice((None, 1, 2, 3))})

    def _drop(self, life: Life) -> Step:
        shards = self.random.choice((None, 1, 2))
        return Step("compact", {"shards": shards, "drop": self.some([*life.now.records], 2)})

    def _undo(self, life: Life) -> Step:
        return Step("undo")

    def _repair(self, life: Life) -> Step:
        kinds = ("shard", "public", "tables", "index", "commits", "removed", "private", "everything")
        (of,) = self.random.choices(kinds, (5, 3, 5, 3, 3, 1, 1, 0.5))
        damage = self.random.choice(("delete", "delete", "flip", "cut"))
        return Step("repair", {"of": of, "place": self.random.random(), "damage": damage})


@dataclasses.dataclass(frozen=True)
class Failure:
    """A life that went wrong.

    Attributes:
        seed: of the life.
        calls: how many were made before, in all lives.
    """

    seed: str
    kind: Kind
    steps: Sequence[Step]
    words: str
    calls: int

    def __str__(self) -> str:
        steps = "\n".join(f"  {step}" for step in self.steps)
        return f"life {self.seed}, {self.kind}, call {self.calls}:\n{steps}\n-> {self.words}"


class Lives:
    """Many lives, one after another, in one folder."""

    def __init__(self, folder: Path, weights: Mapping[str, int] = WEIGHTS) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._disk, self._weights, self._search = Disk(folder), weights, Search()
        self.calls: Counter[str] = Counter()
        self.made = 0

    def live(self, seed: str, most: int = STEPS) -> Failure | None:
        """A life by chance.

        Args:
            most: steps.

        Returns:
            None if all went well.
        """
        chance = Chance(seed, self._weights)
        kind = Kind.by(chance.random)
        life = Life(self._disk, kind, self._search)
        steps: list[Step] = []
        try:
            while life.steps < most:
                if life.has_losses and chance.random.random() < 0.2:
                    break
                try:
                    step = chance.step(life)
                except Skipped:
                    continue
                steps.append(step)
                try:
                    life.live(step)
                except Skipped:
                    steps.pop()
        except (WrongError, EndlessError) as error:
            words = f"{type(error).__name__}: {error}"
            return Failure(seed, kind, steps, words, self.made + len(steps))
        finally:
            self.calls += life.calls
            self.made += life.steps
        return None

    def again(self, failure: Failure, steps: Sequence[Step]) -> Failure | None:
        """A life of these steps; None if it goes well."""
        life, done = Life(self._disk, failure.kind, self._search), list[Step]()
        try:
            for step in steps:
                done.append(step)
                try:
                    life.live(step)
                except Skipped:
                    done.pop()
        except (WrongError, EndlessError) as error:
            words = f"{type(error).__name__}: {error}"
            return Failure(failure.seed, failure.kind, done, words, failure.calls)
        return None

    def shorter(self, failure: Failure, seconds: float = 60) -> Failure:
        """The same failure in fewer steps, as far as leaving out steps and rows leads."""
        end = time.monotonic() + seconds
        if "EndlessError" in failure.words:
            return failure  # each try would take that long
        best = self.again(failure, failure.steps) or failure
        size = max(1, len(best.steps) // 2)
        while time.monotonic() < end:
            found = self._first(best, _with_fewer_steps(best.steps, size), end)
            if found is not None:
                best = found
            elif size > 1:
                size //= 2
            else:
                found = self._first(best, _with_fewer_rows(best.steps), end)
                if found is None:
                    break
                best = found
        return best

    def _first(
        self, failure: Failure, tries: Iterator[Sequence[Step]], end: float
    ) -> Failure | None:
        """The first of some lives that fails as well."""
        for steps in tries:
            if time.monotonic() > end:
                break
            found = self.again(failure, steps)
            if found is not None:
                return found
        return None


def _with_fewer_steps(steps: Sequence[Step], size: int) -> Iterator[Sequence[Step]]:
    """All steps but some that follow each other; the last one stays."""
    for start in range(0, len(steps) - 1, size):
        stop = min(start + size, len(steps) - 1)
        yield [*steps[:start], *steps[stop:]]


def _with_fewer_rows(steps: Sequence[Step]) -> Iterator[Sequence[Step]]:
    """The same steps, one of them without its kill, or with fewer rows or names."""
    for place, step in enumerate(steps):
        others = []
        if step.killed is not None:
            others.append(dataclasses.replace(step, killed=None))
        for name in ("rows", "names", "drop"):
            values = [*step.given.get(name, ())]
            for size in sorted({len(values) // 2, 1} - {0}, reverse=True):
                for start in range(0, len(values), size):
                    fewer = {**step.given, name: values[:start] + values[start + size :]}
                    others.append(dataclasses.replace(step, given=fewer))
        for other in others:
            yield [*steps[:place], other, *steps[place + 1 :]]


def main(arguments: Sequence[str]) -> int:
    """Live until so many calls were made, or something is wrong."""
    parser = argparse.ArgumentParser(prog="torture.oracle_machine")
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--seed", default="0")
    parser.add_argument("--life", help="one life, by its seed")
    parser.add_argument("--only", default="", help="steps that are drawn, separated by commas")
    parser.add_argument("--most", type=int, default=STEPS, help="steps of a life")
    parser.add_argument("--seconds", type=float, default=60, help="to make a failure shorter")
    parser.add_argument("--go-on", action="store_true", help="after a failure too")
    given = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    only = given.only.split(",") if given.only else [*WEIGHTS]
    folder = Path(tempfile.mkdtemp(prefix="oracle-"))
    lives = Lives(folder, {name: WEIGHTS[name] for name in only})
    began, number, failed = time.monotonic(), 0, 0
    while lives.made < given.calls:
        seed = given.life or f"{given.seed}:{number}"
        number += 1
        failure = lives.live(seed, given.most)
        if failure is not None:
            failed += 1
            print(f"WRONG, {lives.shorter(failure, given.seconds)}", flush=True)
            if not given.go_on or "EndlessError" in failure.words:
                print(f"{lives.made} calls, {time.monotonic() - began:.0f} s", flush=True)
                os._exit(1)  # a thread of what does not end would keep us
        if given.life:
            break
    shutil.rmtree(folder)
    counts = ", ".join(f"{name} {count}" for name, count in sorted(lives.calls.items()))
    print(f"{lives.made} calls in {number} lives, {time.monotonic() - began:.0f} s: {counts}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
