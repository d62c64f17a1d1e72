"""What is in each dataset that is kept of form 4, and what a test finds in a copy of it."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from helpers.kept_datasets import (
    DATASETS,
    PHOTOS,
    SCHEMA,
    SUSPECT,
    WITH_BOXES,
    draw,
    name_of,
    odd_files,
    picture,
    pixels_of,
    rows,
    rows_with_boxes,
    suspect,
)
from support import examples, given_again, serialized

import tfrecorder
from tfrecorder import parse_example
from tfrecorder.schema import Schema

#: Bytes of a record in its shard beside its own: its length, and two checksums.
FRAMING = 16

#: The columns of a table with the number of a row, and with where its record is; -1 for a reject.
COLUMNS = ("image/source_id", "tfrecorder.record/offset", "tfrecorder.record/size")


@dataclass(frozen=True)
class Kept:
    """What is in a kept dataset, by the numbers of its pictures, and what tests do with it.

    Attributes:
        name: of its folder, behind `form-4-`.
        numbers: of its records.
        differs: what of a picture is otherwise than `row` says.
        undone: the records that `undo` leaves, all as `row` says; None if it takes nothing back.
        new: pictures that an append brings, of both splits.
        stays_out: pictures that were removed before.
        corrected: the picture that gets another label, and goes to another split.
        removed: the picture that is removed.
        as_bytes: pictures that came as bytes.
        pending: the pictures of the records once the operation that is staged there is completed.
        differs_then: what is otherwise than `row` says then.
    """

    name: str
    numbers: Sequence[int]
    differs: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    undone: Sequence[int] | None = None
    new: Sequence[int] = (30, 31, 32)
    stays_out: Sequence[int] = ()
    corrected: int = 4
    removed: int = 5
    as_bytes: Sequence[int] = ()
    pending: Sequence[int] = ()
    differs_then: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return DATASETS / f"form-4-{self.name}"

    @property
    def has_boxes(self) -> bool:
        return self.name == "boxes"

    @property
    def schema(self) -> Schema:
        return WITH_BOXES if self.has_boxes else SCHEMA

    def uri(self, number: int) -> str:
        return SUSPECT if self.name == "rejects" and number == 0 else name_of(number)

    def image(self, number: int) -> bytes:
        """What its record holds of a picture."""
        if self.name == "raw":
            return pixels_of(number)
        return suspect() if self.uri(number) == SUSPECT else picture(number)

    def table(self, numbers: Iterable[int]) -> pd.DataFrame:
        """A table of pictures, which are drawn into the working directory."""
        return rows_with_boxes(numbers) if self.has_boxes else rows(numbers)

    def known(self, numbers: Iterable[int]) -> pd.DataFrame:
        """A table of pictures that are in the dataset, with its values, at their places there.

        The places need not exist any more.
        """
        numbers = list(numbers)
        table = self.table(numbers)
        for at, number in enumerate(numbers):
            for column, value in self.differs.get(number, {}).items():
                table.loc[at, column] = value
        uris = [self.uri(number) for number in numbers]
        table["image_uri"] = [
            uri if number in self.as_bytes else f"{PHOTOS}/{uri}"
            for uri, number in zip(uris, numbers, strict=True)
        ]
        return table

    def draw_all(self) -> None:
        """All its sources, in the working directory."""
        draw(self.numbers)
        odd_files()


KEPT = (
    Kept("boxes", range(9), undone=range(6)),
    Kept(
        "stream",
        (0, 1, 2, 4, 5, 6, 7, 20, 21, 22),
        undone=(0, 1, 2, 4, 5, 20, 21, 22),
        as_bytes=(20, 21, 22),
    ),
    Kept("corrections", range(9), {0: {"label": "owl"}, 7: {"label": "fox"}}, undone=range(9)),
    Kept("removal", (0, *range(3, 10)), undone=(0, *range(3, 8)), stays_out=(1, 2)),
    Kept("raw", range(9), undone=range(7)),
    Kept(
        "moves",
        range(9),
        {
            0: {"split": "TEST"},
            3: {"split": "TEST"},
            5: {"split": "TRAIN", "label": "cat"},
            7: {"split": "TEST", "label": "owl"},
        },
    ),
    Kept("rejects", (0, *range(3, 9), 10), undone=(0, *range(3, 8))),
    Kept("undone", range(8), undone=range(6)),
    Kept("compacted", range(9), undone=range(8)),
    Kept("staged", range(6), undone=range(6), pending=range(10)),
    Kept("half-written", range(6), undone=range(6), pending=range(10)),
    Kept(
        "staged-correction",
        range(6),
        undone=range(6),
        pending=range(6),
        differs_then={3: {"label": "owl"}, 5: {"label": "owl"}},
    ),
)


#: What a dataset holds: the values of each record by its uri.
State = dict[str, dict[str, Any]]


def begin(kept: Kept) -> None:
    """A copy of the dataset in `out`, and all its sources beside it."""
    shutil.rmtree("out", ignore_errors=True)
    shutil.copytree(kept.folder, "out")
    kept.draw_all()


def values_of(kept: Kept, number: int, differs: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """What a record of a picture must hold."""
    (values,) = kept.table([number]).to_dict("records")
    values |= differs.get(number, {})
    return {**values, "image_uri": kept.uri(number), "image": kept.image(number)}


def state_of(kept: Kept, numbers: Iterable[int] | None = None, **changed: Any) -> State:
    """What the dataset must hold.

    Args:
        numbers: of the pictures, if they are not those that were kept.
        changed: what is otherwise in the picture that is corrected.
    """
    wanted = [*kept.numbers] if numbers is None else [*numbers]
    differs = {number: dict(of) for number, of in kept.differs.items()}
    differs[kept.corrected] = {**differs.get(kept.corrected, {}), **changed}
    return {kept.uri(number): values_of(kept, number, differs) for number in wanted}


def finished(kept: Kept) -> State:
    """What the dataset must hold once the operation that is staged in it is completed."""
    numbers = kept.pending
    return {kept.uri(number): values_of(kept, number, kept.differs_then) for number in numbers}


def found_in(out: str | Path, boxes: bool) -> State:
    """What the public files of a dataset hold."""
    found: State = {}
    for shard in sorted(Path(out).glob("*.tfrecord")):
        for record in examples(shard):
            uri = record["image/filename"][0].decode()
            assert uri not in found, f"{uri} is there twice"
            found[uri] = {
                "split": shard.name.split("-")[0].upper(),
                "image_uri": uri,
                "angle": float(record["angle"][0]),
                "image": record["image/encoded"][0],
                **(_boxes_of(record) if boxes else _label_of(record)),
            }
    return found


def _label_of(record: Mapping[str, Any]) -> dict[str, Any]:
    return {"label": record["image/class/text"][0].decode()}


def _boxes_of(record: Mapping[str, Any]) -> dict[str, Any]:
    sides = ("x_min", "y_min", "x_max", "y_max")
    of = {side: f"image/object/bbox/{side.replace('_', '')}" for side in sides}
    found = {side: [float(value) for value in record[key]] for side, key in of.items()}
    return {**found, "thing": [text.decode() for text in record["image/object/class/text"]]}


def numbers_in(out: str | Path) -> dict[str, int]:
    """The row number of each record, which no other row has, as a reject in the tables neither.

    Tables and indexes say where the records are.
    """
    numbers: dict[str, int] = {}
    of_rows: list[int] = []
    for shard in sorted(Path(out).glob("*.tfrecord")):
        places: dict[tuple[int, int], int] = {}
        offset = 0
        for data in serialized(shard):
            record = parse_example(data)
            size = len(data) + FRAMING
            number = places[offset, size] = int(record["image/source_id"][0])
            numbers[record["image/filename"][0].decode()] = number
            offset += size
        index = Path(out, f"_tfrecorder/index/{shard.name}.idx").read_text()
        assert index == "".join(f"{offset} {size}\n" for offset, size in places)
        table = pq.read_table(Path(out, f"_tfrecorder/tables/{shard.stem}.parquet"))
        rows = list(zip(*(table.column(name).to_pylist() for name in COLUMNS), strict=True))
        assert {(at, size): row for row, at, size in rows if size >= 0} == places
        of_rows += [row for row, *_ in rows]
    assert len({*of_rows}) == len(of_rows)
    return numbers


def check(kept: Kept, wanted: State, out: str = "out") -> None:
    """The dataset holds just this, its readers say so, and its rows have numbers of their own."""
    assert found_in(out, kept.has_boxes) == wanted
    assert tfrecorder.verify(out, progress=False).ok
    frame = given_again(out)
    numbers = numbers_in(out)
    columns = [column for column in frame if column != "image_uri"]
    for number, values in zip(frame.index, frame.to_dict("records"), strict=True):
        uri = values["image_uri"]
        assert {name: plain(values[name]) for name in columns} == {
            name: wanted[uri][name] for name in columns
        }
        assert number == numbers[uri]
    assert len(frame) == len(wanted)


def plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


def case_id(value: Any) -> str:
    return value.name if isinstance(value, Kept) else str(value)
