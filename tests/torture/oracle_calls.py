"""The steps of a dataset's life: what is called, and what must follow by the model."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

import tfrecorder
from tfrecorder import TfrecorderError
from tfrecorder.schema import Image, Label, Schema, Split, Text
from torture.kills import Files
from torture.oracle import must, read
from torture.oracle_life import Call, Life, Skipped, called
from torture.oracle_model import LABELS, SPLITS, Row, State

QUIET: dict[str, Any] = {"progress": False}


class AnyLife(Life):
    """A life of any steps, each a method."""

    def table(self, rows: Sequence[Row]) -> pd.DataFrame:
        frame = pd.DataFrame(
            {"split": [row.split for row in rows], "label": [row.label for row in rows]}
        )
        if not self.kind.bare:
            frame["image_uri"] = [self.sources.cell(row.name) for row in rows]
        if self.kind.captions:
            frame["caption"] = [self.sources.caption(row) for row in rows]
        return frame

    @property
    def base(self) -> dict[str, str]:
        """The folder of the pictures, where tables name them from there."""
        return {"base": str(self.sources.folder)} if self.kind.relative else {}

    def _plain(self, rows: Sequence[Row]) -> Sequence[Row]:
        """Rows without pictures have the same values wherever they stand: these are their names."""
        if not self.kind.bare:
            return rows
        return [Row(row.name, LABELS[int(row.name[-2:]) % 3], row.split) for row in rows]

    @property
    def options(self) -> dict[str, Any]:
        """Of what begins a dataset."""
        options: dict[str, Any] = {**QUIET}
        if self.kind.bare:
            options["schema"] = Schema(split=Split(), label=Label(), caption=Text())
        elif self.kind.captions:
            options["schema"] = Schema(
                split=Split(), image_uri=Image(), label=Label(), caption=Text()
            )
        if self.kind.raw:
            options |= {"image_format": "raw", "image_size": 8}
        return options

    def convert(self, rows: Sequence[Row], shards: int) -> Call:
        if self.state is not None:
            raise Skipped
        rows = self._plain(rows)
        options = {**self.options, **self.base, "num_shards": shards, "max_reject_fraction": 1.0}
        call = partial(tfrecorder.convert, self.table(rows), str(self.out), **options)
        after = dataclasses.replace(State().added(rows, self.sources), grown=False)
        self._demand_records(after)
        refused = self._mostly_rejects(after, rows)
        return Call(call, after, (), anew=True, may_refuse=refused, rows=rows)

    def overwrite(self, rows: Sequence[Row], shards: int, everything: bool) -> Call:
        state = self.now
        rows = self._plain(rows)
        options = {**self.options, **self.base, "num_shards": shards, "max_reject_fraction": 1.0}
        options["overwrite"] = "all" if everything else True
        call = partial(tfrecorder.convert, self.table(rows), str(self.out), **options)
        begun = State()
        if not everything:
            begun = State(gone=state.gone, gone_files=state.gone_files, maybe=state.maybe)
        after = dataclasses.replace(begun.added(rows, self.sources), grown=False)
        self._demand_records(after)
        refused = (state.grown and not everything) or self._mostly_rejects(after, rows)
        return Call(call, after, (), order="any", may_refuse=refused, anew=True, rows=rows)

    def append(
        self,
        rows: Sequence[Row],
        shards: int,
        duplicates: str = "name",
        readmit: bool = False,
        retry: bool = False,
    ) -> Call:
        state = self.now
        rows = self._plain(rows)
        if duplicates == "keep":
            rows = [row for row in rows if row.name not in state.rejects]
            rows = [self._as_it_is(row) for row in rows]
        if retry:  # two attempts in two splits would be in both
            rows = [row._replace(split=state.rejects.get(row.name, row.split)) for row in rows]
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
        after = state.added(rows, self.sources, readmit=readmit, duplicates=duplicates, retry=retry)
        is_copy = duplicates == "content"
        self.named_again = {row.name for row in rows if is_copy and row.name not in after.gone}
        return Call(
            call,
            after,
            (*self.additions, ("append", state)),
            may_refuse=self._mostly_rejects(after, rows),
            twice=duplicates != "keep",
            rows=rows,
        )

    def stream(self, count: int) -> Call:
        state = self.state or State()
        count = max(count, state.position)
        new = self._plain([self._fed(number) for number in range(state.position, count)])
        if self.state is None and not new:
            raise Skipped
        options = {"until_idle": 0, **(self.options if self.state is None else QUIET)}
        fed = self._plain([self._fed(number) for number in range(count)])
        feed = Feed([self.table([row]).iloc[0].to_dict() for row in fed])
        call = partial(tfrecorder.stream, feed, str(self.out), **options)
        after = dataclasses.replace(
            state.added(new, self.sources, duplicates="keep"), position=count
        )
        earlier = () if self.state is None else (*self.additions, ("stream", state))
        if self.state is not None and new and after.records == state.records:
            raise Skipped  # a batch of which all rows stay out
        return Call(call, after, earlier, rows=new)

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
        rows = self._plain(rows)
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
            rows=rows,
        )

    def own_table(self, rows: Sequence[Row]) -> Call:
        """The dataset's own table, with the labels of these rows."""
        state = self.now
        table = tfrecorder.to_frame(str(self.out))
        changed = []
        for row in rows:
            fact = state.records.get(row.name)
            if fact is not None and fact.copies == 1 and not self.kind.bare:
                changed.append(self._as_it_is(row)._replace(label=row.label))
        labels = {row.name: row.label for row in changed}
        if labels:
            names = map(self.sources.name, table["image_uri"])
            pairs = zip(names, table["label"], strict=True)
            table["label"] = [labels.get(name, label) for name, label in pairs]
        after = state.corrected(changed, self.sources, "keep")
        call = partial(tfrecorder.update, table, str(self.out), **QUIET)
        return Call(call, after, (("update", state),))

    def remove(
        self,
        names: Sequence[str],
        by_row: bool = False,
        before: Sequence[str] = (),
        copies: bool = False,
    ) -> Call:
        """Remove records.

        Args:
            before: names of what was removed before.
            copies: what has the same bytes goes too, also as what was removed before.
        """
        state = self.now
        gone: list[str] = []
        same: list[str] = []
        names = [name for name in names if name in state.names]
        if by_row:
            names = [n for n in names if n in state.records and state.records[n].copies == 1]
        if not names:
            raise Skipped
        where: dict[str, Any] = {"image_uri": [self.sources.uri(name) for name in names]}
        if self.kind.bare:
            where = {"caption": [self.sources.caption(Row(name, "", "")) for name in names]}
        if by_row:
            found = read(self.out)
            assert found is not None
            of_name = {self.name_of(one): one.number for one in found.records}
            where = {"row": [of_name[name] for name in names]}
        elif not self.kind.bare:
            gone = [name for name in before if name in state.gone - state.maybe - state.names]
            where["image_uri"] += [self.sources.uri(name) for name in gone]
        if copies and not self.kind.bare:
            named = [*(name for name in names if name in state.records), *gone]
            data = {self.sources.stored[name] for name in named if name in self.sources.stored}
            same = [n for n in state.records if self.sources.stored[n] in data and n not in names]
        after = state.without([*names, *same], self.sources)
        self._demand_records(after)
        options = {"copies": copies, **QUIET}
        call = partial(tfrecorder.remove, str(self.out), where, **options)
        return Call(call, after, (), order="kept", copies=frozenset(same))

    def compact(self, shards: int | None, drop: Sequence[str] = ()) -> Call:
        state = self.now
        drop = [name for name in drop if name in state.records]
        options = {"num_shards": shards, **QUIET} if shards else {**QUIET}
        if drop and self.kind.bare:
            raise Skipped
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
        if name in self.sources.files or self.kind.bare:
            raise Skipped
        self.sources.appear(name)

    def repair(self, of: str, place: float, damage: str, killed: float | None = None) -> None:
        """A file is lost or damaged, and made again."""
        if self.state is None:
            raise Skipped
        before = self.disk.files()
        files = sorted(file for file in before if of in ("everything", kind_of(file)))
        if not files:
            raise Skipped
        file = files[int(place * len(files))]
        if of == "everything":
            shutil.rmtree(self.out / "_tfrecorder")
        else:
            spoil(self.out / file, damage)
        if self.disk.files() == before:
            raise Skipped  # a half of nothing
        try:
            is_noticed = not called(partial(tfrecorder.verify, str(self.out), progress=False)).ok
        except TfrecorderError:
            is_noticed = True
        if not is_noticed:
            must(of in ("private", "before", "commits"), f"verify does not notice {file}: {damage}")
            self.disk.restore(before)
            self.calls["unnoticed"] += 1
            return
        try:
            lost = self._repaired(killed)
        except TfrecorderError as error:
            must(self._may_be_lost(of), f"{file}: {type(error).__name__}: {error}")
            self.disk.restore(before)
            self.calls["not repaired"] += 1
            return
        self._must_be_repaired(file, before, lost)
        if lost:
            self.has_losses = True
            self.calls["losses"] += 1

    def _repaired(self, killed: float | None) -> set[str]:
        """Repair it, killed or not; what is lost by the words of the result."""
        repair = partial(tfrecorder.repair, str(self.out), progress=False)
        if killed is None:
            return {*called(repair).lost}
        with self.disk.recorded() as states:
            lost = {*called(repair).lost}
        if states:
            self.disk.restore(states[int(killed * len(states))])
        return lost | {*called(repair).lost}

    def _must_be_repaired(self, file: str, before: Files, lost: Collection[str]) -> None:
        """What is public has the bytes that it had; if nothing is lost, all that is ours too."""
        after = self.disk.files()
        # Tables of rows without pictures do not know their folder any more, which says nothing.
        ours = ("index/", "removed/") if self.kind.bare else ("index/", "removed/", "tables/")
        same = tuple(f"_tfrecorder/{folder}" for folder in ours if not lost)
        if not lost and not self.kind.bare:
            same += tuple(name for name in after if name.startswith("_tfrecorder/commits/"))
        others = sorted(
            name
            for name in {*before, *after}
            if before.get(name) != after.get(name)
            and (name.startswith(same) or not name.startswith("_tfrecorder/"))
        )
        must(not others, f"after the repair of {file} these are others: {others}")

    def _may_be_lost(self, of: str) -> bool:
        """True if nothing else says what a file held."""
        if self.has_losses or of in ("removed", "before", "everything"):
            return True
        # Pictures that came as bytes are in their records alone.
        has_fed = any(name.startswith("fed") for name in self.now.records)
        return of == "shard" and has_fed and not self.kind.bare

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
