"""A dataset's life: how its steps are called, killed and judged; `oracle_calls` has the steps."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import random
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import tfrecorder
from tfrecorder import TfrecorderError
from torture import oracle_readers
from torture.kills import Disk, Files, lasting
from torture.oracle import Contents, Record, Search, WrongError, check_beside, must, read
from torture.oracle_model import Fact, Kind, Row, Sources, State

#: Within which a call ends: seconds of CPU time, and seconds on a machine that does much else.
CPU_SECONDS = 20
SECONDS = 300

#: TFDS is asked after every so many steps.
OF_TFDS = 25

#: With this a result says that what was removed is not kept out.
MAY_RETURN = "may come in again"

#: With this a result says that copies of what was removed may have stayed.
NOT_COMPARED = "not compared"

#: Says what is begun and not committed.
PLAN = "_tfrecorder/plan.json"

#: Steps by which something is removed for good.
REMOVING = ("update", "own_table", "remove", "compact")

#: What can be taken back, with what the dataset was before it; the next one last.
Earlier = tuple[tuple[str, State], ...]


class EndlessError(BaseException):
    """A call does not end.  It is no Exception, so that nothing but us takes it."""


class Skipped(Exception):
    """A step that makes no sense here: in a life that was made shorter."""


@dataclasses.dataclass(frozen=True)
class Step:
    """A call, as data.

    Attributes:
        name: of a method of `Life`.
        given: its arguments.
        killed: before which of its changes it is killed, as their share; None lets it end.
        again: after a kill the same call comes again; otherwise `undo` does.
        tried: a dry run comes first.
        looked: after a kill `status`, `verify` and `repair` come first.
    """

    name: str
    given: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    killed: float | None = None
    again: bool = True
    tried: bool = False
    looked: bool = False

    def __str__(self) -> str:
        values = ", ".join(f"{name}={_shown(value)}" for name, value in self.given.items())
        words = f"{self.name}({values})"
        if self.killed is not None:
            then = "again" if self.again else "undo"
            then = f"repair, {then}" if self.looked else then
            words += f"  # killed at {self.killed:.3f}, then {then}"
        return words


def _shown(value: Any) -> str:
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], Row):
        return repr([":".join(map(str, row)) for row in value])
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
        rows: of its table.
        optional: names of which rows may come in or stay out.
        copies: names that go as copies of others, if their bytes are known.
    """

    run: Callable[..., object]
    after: State
    earlier: Earlier
    order: str = "prefix"
    may_refuse: bool = False
    must_refuse: bool = False
    twice: bool = True
    anew: bool = False
    rows: Sequence[Row] = ()
    optional: frozenset[str] = frozenset()
    copies: frozenset[str] = frozenset()


class Life:
    """A dataset, from its first call."""

    def __init__(self, disk: Disk, kind: Kind) -> None:
        self.disk, self.kind, self._search = disk, kind, Search()
        self.out = Path(disk.out)
        shutil.rmtree(self.out, ignore_errors=True)
        images = self.out.parent / "images"
        shutil.rmtree(images, ignore_errors=True)
        self.sources = Sources(images, kind)
        #: The number of its newest commit; -1 before there is one.
        self.commit = -1
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
        #: What a call named since, and left out as the copy of another: its notes say so.
        self.named_again: set[str] = set()
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
        self.named_again = set()
        with limited():
            call = getattr(self, step.name)(**step.given)
            if call is not None:
                self._run(step, call)
        self.steps += 1
        self.calls[step.name if step.killed is None else f"{step.name}, killed"] += 1
        now = self.state or State()
        if step.name in REMOVING:
            self.removed |= before.names - now.names
        self.removed -= now.names | self.named_again
        with limited():
            self._judge(random.Random(self.steps))

    def _run(self, step: Step, call: Call) -> None:
        files = self.disk.files()
        if step.tried:
            self._try(call, files)
        states: list[Files] = []
        recorded = nullcontext(states) if step.killed is None else self.disk.recorded()
        try:
            with recorded as states:
                result = called(call.run)
        except TfrecorderError as error:
            self._refused(call, error, files)
            return
        must(not call.must_refuse, "it must be refused, and is not")
        call = self._warned(call, step) if MAY_RETURN in str(result) else call
        call = self._not_compared(call) if NOT_COMPARED in str(result) else call
        if step.killed is None or not states:
            self._follow(call)
        else:
            self._kill(step, call, states[int(step.killed * len(states))])

    def _try(self, call: Call, files: Files) -> None:
        """A dry run writes nothing."""
        with contextlib.suppress(TfrecorderError):
            called(partial(call.run, dry_run=True))
        others = sorted(lasting(self.disk.files()).items() ^ lasting(files).items())
        must(not others, f"a dry run wrote {[name for name, _ in others]}")

    def _refused(self, call: Call, error: TfrecorderError, files: Files) -> None:
        """A call that raised an error changed nothing; what it may have begun is given up."""
        must(str(error).strip(), "an error without words")
        may = call.may_refuse or call.must_refuse or self.has_losses
        must(may, f"{type(error).__name__}: {error}")
        self.calls["refused"] += 1
        if PLAN in self.disk.files().keys() - files.keys():
            try:
                called(partial(tfrecorder.undo, str(self.out)))
            except TfrecorderError as other:
                raise WrongError(f"{error}, and undo: {other}") from other
            self._given_up(self._read())

    def _warned(self, call: Call, step: Step) -> Call:
        """A call after which what was removed may come back, since it said so."""
        before, after = self.now, call.after
        if step.name not in REMOVING:
            return dataclasses.replace(call, optional=before.gone)
        new = after.gone - before.gone
        files = {self.sources.files.get(name, b"") for name in new} - before.gone_files
        after = dataclasses.replace(
            after,
            gone=before.gone & after.gone,
            gone_files=after.gone_files - files,
            maybe=after.maybe | new,
        )
        return dataclasses.replace(call, after=after)

    def _not_compared(self, call: Call) -> Call:
        """A removal after which copies may have stayed, since it said so."""
        stayed = {*self._names(self._read().records)} & call.copies
        records = {name: self.now.records[name] for name in stayed}
        after = dataclasses.replace(
            call.after,
            records={**call.after.records, **records},
            gone=call.after.gone - stayed,
        )
        return dataclasses.replace(call, after=after)

    def _settled(self, call: Call, contents: Contents) -> Call:
        """A call with or without what may come back, as it is found."""
        before = self.state or State()
        optional = (before.maybe | call.optional) - before.names
        rows = [row for row in call.rows if row.name in optional]
        if not rows:
            return call
        found = {*self._names(contents.records), *map(self.sources.name, contents.rejects)}
        after = call.after
        out = [row.name for row in rows if row.name not in found]
        after = dataclasses.replace(
            after,
            records={name: fact for name, fact in after.records.items() if name not in out},
            rejects={name: split for name, split in after.rejects.items() if name not in out},
        )
        come = [row for row in rows if row.name in found]
        after = after.added(come, self.sources, readmit=True)
        after = dataclasses.replace(after, maybe=after.maybe - found)
        return dataclasses.replace(call, after=after)

    def _follow(self, call: Call) -> None:
        """The model follows a call that ended, which may have found nothing to do."""
        contents = self._read()
        call = self._settled(call, contents)
        before = self.state
        if before is None or contents.commit != self.commit:
            self._take(contents, call)
            return
        is_same = (before.records, before.rejects) == (call.after.records, call.after.rejects)
        must(is_same, "no commit, and something should change")
        gone = {"gone": call.after.gone, "gone_files": call.after.gone_files}
        self.state = dataclasses.replace(before, position=call.after.position, **gone)

    def _take(self, contents: Contents, call: Call) -> None:
        """The order and the numbers of records become those that are found, if they may."""
        before, after = self.state or State(), call.after
        order = {split: self._names(records) for split, records in contents.splits.items()}
        known = {} if call.anew else before.numbers
        if call.order == "same":
            before = after
        for split, names in before.order.items():
            if call.order == "any":
                break
            stay = [*names]
            if call.order == "kept":
                there = {n for n, fact in after.records.items() if fact.split == split}
                stay = [name for name in names if name in there]
            now = order.get(split, [])
            words = f"{split}: the records are {now}, and were {[*names]}"
            must(now[: len(stay)] == stay, words)
            must(call.order != "same" or len(now) == len(stay), words)
        numbers = dict(known)
        for record in contents.records:
            name = self.name_of(record)
            of_before = known.get(record.number, name)
            must(of_before == name, f"row {record.number} is {name}, and was {of_before}")
            numbers[record.number] = name
            stays = name in before.records and after.records[name].copies == 1
            of_name = [number for number, of in known.items() if of == name]
            is_new = stays and of_name and record.number not in of_name
            must(not is_new, f"{name} was row {of_name}, and is {record.number}")
        self.earlier, self.commit = call.earlier, contents.commit
        self.is_untidy = False
        before_it = after.sizes if call.order in ("prefix", "same") else {}
        sizes = {**before_it, contents.commit: _sizes_of(contents)}
        self.state = dataclasses.replace(after, order=order, numbers=numbers, sizes=sizes)

    def _given_up(self, contents: Contents) -> None:
        """What was begun is given up, perhaps by a commit that changes nothing."""
        if contents.commit != self.commit:
            self.earlier, self.commit = self.additions, contents.commit
            sizes = {**self.now.sizes, contents.commit: _sizes_of(contents)}
            self.state = dataclasses.replace(self.now, sizes=sizes)

    def _read(self) -> Contents:
        contents = read(self.out)
        must(contents is not None, "there is no dataset")
        assert contents is not None
        return contents

    def _names(self, records: Sequence[Record]) -> list[str]:
        return [self.name_of(record) for record in records]

    def name_of(self, record: Record) -> str:
        """The name of what a record was made of."""
        return self.sources.name(record.uri, record.text("caption"))

    # ------------------------------------------------------------------------------------ killed

    def _kill(self, step: Step, call: Call, files: Files) -> None:
        """Go back to a moment at which the call might have been killed, and end what it began."""
        self.disk.restore(files)
        is_committed = self._look(step, call)
        if step.looked:
            self._look_on()
            is_committed = is_committed or self._look(step, call)  # `repair` ends an undo
        is_pending = (self.out / PLAN).exists()
        try:
            if step.again and (call.twice or not is_committed):
                called(call.run)
            elif is_pending:
                called(partial(tfrecorder.undo, str(self.out)))
            else:
                self.is_untidy = not is_committed
                return
        except TfrecorderError as error:  # what it is about is gone already, or was committed
            must(is_committed, f"after a kill, {type(error).__name__}: {error}")
        else:
            is_undone = is_committed and not step.again and step.name != "undo"
            must(not is_undone, "undo took back what was just committed")
            self._after_kill(step, call, is_committed)
        self.is_untidy = False

    def _look_on(self) -> None:
        """What only looks, and what has nothing to repair, neither fails nor ends what is begun."""
        for look in (tfrecorder.status, tfrecorder.verify, tfrecorder.repair):
            options = {} if look is tfrecorder.status else {"progress": False}
            with contextlib.suppress(TfrecorderError):
                called(partial(look, str(self.out), **options))

    def _look(self, step: Step, call: Call) -> bool:
        """True if a call that was killed had committed; the dataset is the old one or the new."""
        contents, state = read(self.out), self.state
        if contents is None:
            may_part = state is None or step.name in ("overwrite", "undo")
            must(may_part, "there is no dataset after a kill")
            return False
        if contents.commit > self.commit:
            call = self._settled(call, contents)
            self._must_hold(contents, call.after, "after a kill")
            self._take(contents, call)
            return True
        must(state is not None, "there is a dataset before its commit")
        self._must_hold(contents, self.now, "after a kill")
        return False

    def _after_kill(self, step: Step, call: Call, is_committed: bool) -> None:
        """The model follows the call that ended what was killed."""
        if not is_committed and (step.again or step.name == "undo"):
            self._follow(call)
            return
        contents = read(self.out)
        if contents is None:  # of a conversion that is given up
            must(self.state is None, "there is no dataset after undo")
        elif not is_committed:
            self._given_up(contents)
        elif contents.commit != self.commit:  # the same overwrite, or compaction, once more
            self._take(contents, self._settled(call, contents))

    # --------------------------------------------------------------------------------- what is so

    def _judge(self, chance: random.Random) -> None:
        contents = read(self.out)
        if contents is None:
            must(self.state is None, "there is no dataset")
            return
        must(self.state is not None, "there is a dataset")
        state = self.now
        self.commit = contents.commit
        self._must_hold(contents, state, "the reader")
        for split, records in contents.splits.items():
            names = self._names(records)
            must(names == [*state.order.get(split, ())], f"{split}: another order: {names}")
        listed = {self.sources.name(uri) for uri in contents.rejects}
        must(listed == {*state.rejects}, f"rejects are {listed}, and not {[*state.rejects]}")
        if self.is_untidy:
            return
        check_beside(self.out, contents)
        one = None if self.has_losses else chance.choice([*state.sizes])
        columns = ["caption"] if self.kind.captions else []
        gone = sorted({*map(self.sources.uri, self.removed)} - {""})
        options = {"absent": gone or None, "records": True, "progress": False}
        verify = partial(tfrecorder.verify, str(self.out), **options)
        try:
            called(partial(oracle_readers.compare, self.out, contents, chance, columns))
            if one is not None:
                called(partial(oracle_readers.compare_at, self.out, contents, one, state.sizes))
            if self.steps % OF_TFDS == OF_TFDS - 1:
                called(partial(oracle_readers.compare_tfds, self.out, contents))
            verified = called(verify)
        except TfrecorderError as error:
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
            name = self.name_of(record)
            found.setdefault(name, []).append(fact)
            must(record.uri == self.sources.uri(name), record.uri)
        lost = sorted(state.records.keys() - found.keys())
        more = sorted(found.keys() - state.records.keys())
        must(not lost, f"{where}: {lost} are not there")
        must(not more, f"{where}: {more} are there")
        for name, fact in state.records.items():
            one = dataclasses.replace(fact, copies=1)
            must(
                len(found[name]) == fact.copies,
                f"{where}: {name} is there {len(found[name])} times",
            )
            for other in found[name]:
                must(other == one, f"{where}: {name} is {_told(other)}, and not {_told(one)}")


def _told(fact: Fact) -> tuple[str, str, str, str]:
    return fact.label, fact.split, fact.data[-60:-50].hex(), fact.caption


def _sizes_of(contents: Contents) -> dict[str, int]:
    return {split: len(records) for split, records in contents.splits.items() if records}


def called(call: Callable[[], Any]) -> Any:
    """What a call returns.

    Raises:
        TfrecorderError: as it raises one.
        WrongError: it raises another.
    """
    try:
        return call()
    except (TfrecorderError, WrongError):
        raise
    except Exception as error:
        raise WrongError(f"{type(error).__name__}: {error}") from error


def _threads() -> str:
    """Where all threads are."""
    places = []
    for frame in sys._current_frames().values():
        stack = traceback.extract_stack(frame)[-12:]
        places.append(" < ".join(f"{Path(one.filename).name}:{one.lineno}" for one in stack[::-1]))
    return "; ".join(places)


@contextmanager
def limited() -> Iterator[None]:
    """A block that ends, whatever else this machine does.

    Raises:
        EndlessError: it does not.
    """
    cpu_before = time.process_time()
    looks = itertools.count(1)  # clocks jump where the machine itself was stopped

    def look(*_: Any) -> None:
        took = time.process_time() - cpu_before
        if next(looks) > SECONDS or took > CPU_SECONDS:
            raise EndlessError(f"it does not end ({took:.0f} s of CPU time): {_threads()}")

    handler = signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, 1, 1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
