"""After any history each file of a dataset is lost or damaged in turn, and `repair` is called.

Either every file comes back to the byte, or what is not known any more stands in the newest
manifest.  Public files keep every byte in any case, and `verify` finds no fault.
"""

from __future__ import annotations

import fnmatch
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from helpers.damage import all_files, flip
from helpers.streaming_cases import TO_ITS_END
from PIL import Image
from support import public_files

import tfrecorder
from tfrecorder.errors import SourceError
from torture.counts import Count, demand

QUIET: dict[str, Any] = {"progress": False, "max_reject_fraction": 1.0}

#: Rows of the first conversion, and of each append.
FIRST, MORE = 10, 4

SPLITS = ("TRAIN", "TRAIN", "TEST")


@dataclass(frozen=True)
class Rows:
    """Numbered images in a folder, tables of them with relative uris, and a dataset beside it."""

    folder: Path

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def draw(self, count: int) -> None:
        """Small images that differ; every third is a PNG, one is none, and one is a suspect."""
        (self.folder / "images").mkdir(parents=True)
        random = np.random.default_rng(7)
        for number in range(count):
            pixels = random.integers(0, 256, (8, 9, 3), np.uint8)
            Image.fromarray(pixels).save(self.folder / "images" / self.name(number))
        broken, odd = self.folder / "images" / self.name(1), self.folder / "images" / self.name(3)
        broken.write_bytes(b"no image")
        data = odd.read_bytes()
        odd.write_bytes(data[:-2] + b"more" + data[-2:])

    def name(self, number: int) -> str:
        return f"{number}.{'png' if number % 3 == 2 else 'jpg'}"

    def frame(self, first: int, count: int) -> pd.DataFrame:
        numbers = range(first, first + count)
        return pd.DataFrame(
            {
                "split": [SPLITS[number % 3] for number in numbers],
                "image_uri": [self.name(number) for number in numbers],
                "label": [("ant", "bee")[number % 2] for number in numbers],
            }
        )

    def table(self, frame: pd.DataFrame) -> str:
        """The table as a CSV in the folder of the images, from which its uris start."""
        path = self.folder / "images" / "table.csv"
        frame.to_csv(path, index=False)
        return str(path)

    # ------------------------------------------------------------------------------- the steps

    def convert(self, count: int = FIRST, **options: Any) -> None:
        shards = {"TRAIN": 2, "TEST": 1}
        table = self.table(self.frame(0, count))
        tfrecorder.convert(table, self.out, **{"num_shards": shards, **QUIET, **options})

    def append(self, first: int = FIRST, **options: Any) -> Any:
        options = {"num_shards": 1, **QUIET, **options}
        return tfrecorder.append(self.table(self.frame(first, MORE)), self.out, **options)

    def stream(self, first: int = FIRST, as_bytes: bool = False, **options: Any) -> None:
        rows = self.frame(first, MORE).to_dict("records")
        for row in rows:
            path = self.folder / "images" / row["image_uri"]
            name = f"fed/{row['image_uri']}"
            row["image_uri"] = {"bytes": path.read_bytes(), "path": name} if as_bytes else str(path)
        tfrecorder.stream(Feed(rows), self.out, **{**TO_ITS_END, **options})

    def update(self, **options: Any) -> None:
        """The first three rows get another label."""
        table = self.frame(0, FIRST)
        table.loc[:2, "label"] = "cat"
        tfrecorder.update(self.table(table), self.out, **{**QUIET, **options})

    def move(self) -> None:
        """All rows of a shard go to another split, and one comes from there."""
        table = self.frame(0, FIRST)
        table.loc[table["split"] == "TEST", "split"] = "TRAIN"
        table.loc[0, "split"] = "TEST"
        tfrecorder.update(self.table(table), self.out, **QUIET)

    def remove(self, *numbers: int) -> None:
        names = [self.name(number) for number in numbers]
        tfrecorder.remove(self.out, {"image_uri": names}, progress=False)

    def compact(self, *numbers: int) -> None:
        names = [self.name(number) for number in numbers]
        tfrecorder.compact(self.out, drop=names or None, num_shards=2, progress=False)

    def undo(self) -> None:
        tfrecorder.undo(self.out)


class Feed:
    """A source of a stream with an order."""

    name = "feed"

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._rows = rows

    def rows(self, position: Any) -> Iterator[tuple[Mapping[str, Any], Any]]:
        for number in range(position or 0, len(self._rows)):
            yield self._rows[number], number + 1

    def wait(self, seconds: float) -> None:
        pass


#: What became of a dataset, each step after a conversion of `FIRST` rows.
HISTORIES: dict[str, tuple[Callable[[Rows], None], ...]] = {
    "converted": (),
    "appended twice": (Rows.append, lambda rows: rows.append(FIRST + MORE)),
    "streamed": (Rows.stream, Rows.append),
    "streamed as bytes": (lambda rows: rows.stream(as_bytes=True),),
    "updated": (Rows.append, Rows.update),
    "moved": (Rows.move,),
    "removed": (Rows.append, lambda rows: rows.remove(0, 11)),
    "removed by its table": (Rows.append, lambda rows: rows.update(missing="remove")),
    "let in again": (lambda rows: rows.remove(0, 2), lambda rows: rows.append(0, readmit=True)),
    "appended after a removal": (lambda rows: rows.remove(0, 2), Rows.append),
    "compacted": (Rows.append, Rows.compact),
    "compacted after a removal": (lambda rows: rows.remove(0, 2), Rows.compact),
    "dropped": (Rows.append, lambda rows: rows.compact(0, 11)),
    "overwritten": (lambda rows: rows.remove(0, 2), lambda rows: rows.convert(8, overwrite=True)),
    "overwritten whole": (Rows.append, lambda rows: rows.convert(8, overwrite="all")),
    "append undone": (Rows.append, lambda rows: rows.append(FIRST + MORE), Rows.undo),
    "stream undone": (Rows.append, lambda rows: rows.stream(FIRST + MORE), Rows.undo),
    "update undone": (Rows.append, Rows.update, Rows.undo),
}

WAYS = ("gone", "damaged")


def make(name: str, folder: Path) -> Rows:
    """The dataset with a history, and the images that it was made of."""
    rows = Rows(folder)
    rows.draw(FIRST + 2 * MORE)
    rows.convert()
    for step in HISTORIES[name]:
        step(rows)
    return rows


def lose(path: Path, way: str) -> None:
    """Lose a file or a folder, or change a byte in the middle of a file."""
    if path.is_dir():
        shutil.rmtree(path)
        return
    data = path.read_bytes()
    path.unlink()
    if way == "damaged":
        path.write_bytes(flip(data, len(data) // 2, 1))


def newest_of(out: Path) -> dict[str, Any]:
    """The newest manifest."""
    return json.loads(max(out.glob("_tfrecorder/commits/*.json")).read_text())


def losses_of(out: Path) -> dict[str, list[str]]:
    """What it says is lost."""
    return newest_of(out).get("losses", {})


def noted_in(out: Path) -> tuple[str, ...]:
    """What any manifest says is lost: an older one, what only an `undo` of a later one needs."""
    manifests = [json.loads(path.read_text()) for path in out.glob("_tfrecorder/commits/*.json")]
    return tuple(sorted({kind for one in manifests for kind in one.get("losses", {})}))


@dataclass(frozen=True)
class Cell:
    """A file of a dataset with a history, lost or damaged, and repaired.

    Attributes:
        history, file, way: as in `HISTORIES` and `WAYS`.
        fault: what is not as it must be; "" if all is.
        noted: what is noted as lost.
        changed: the files that are others than before.
    """

    history: str
    file: str
    way: str
    fault: str
    noted: tuple[str, ...]
    changed: tuple[str, ...]


def sweep(
    rows: Rows,
    history: str,
    pattern: str = "*",
    ways: Sequence[str] = WAYS,
    turns: bool = False,
) -> list[Cell]:
    """Lose each file of a dataset in turn, and all of `_tfrecorder`; it is as before in the end.

    Args:
        pattern: of the names of the files that are lost.
        turns: lose each file in one of the ways, and the next in the other; which is first differs
            from history to history.
    """
    kept = rows.folder / "kept"
    shutil.copytree(rows.out, kept)
    before = all_files(kept)
    # Nothing reads the manifest of what was taken back.
    unused = {f"_tfrecorder/commits/{number:05d}.json" for number in newest_of(kept)["skips"]}
    files = [name for name, data in before.items() if data and name not in unused]
    cells = []
    losses = []
    first = [*HISTORIES].index(history)
    for at, name in enumerate(fnmatch.filter(files, pattern), first):
        its_ways = [ways[at % len(ways)]] if turns else ways
        losses += [(name, way) for way in its_ways]
    if pattern == "*":
        losses.append(("_tfrecorder", "gone"))
    for file, way in losses:
        shutil.rmtree(rows.out)
        shutil.copytree(kept, rows.out)
        lose(rows.out / file, way)
        cells.append(_cell(rows, history, file, way, before))
    shutil.rmtree(rows.out)
    kept.rename(rows.out)
    return cells


def _cell(rows: Rows, history: str, file: str, way: str, before: Mapping[str, bytes]) -> Cell:
    out = rows.out
    public = {name: data for name, data in before.items() if "/" not in name}
    fault = ""
    try:
        result = tfrecorder.repair(out, progress=False)
    except SourceError as error:
        fault = "" if "came as bytes" in str(error) else f"SourceError: {error}"
        return Cell(history, file, way, fault, (), ())
    except Exception as error:
        return Cell(history, file, way, f"{type(error).__name__}: {error}", (), ())
    after = all_files(out)
    changed = tuple(name for name in {*before, *after} if before.get(name) != after.get(name))
    noted = noted_in(out)
    if public_files(out) != public:
        fault = "public files differ"
    elif not (report := tfrecorder.verify(out, progress=False)).ok:
        fault = f"verify: {report.found[0]}"
    elif changed and not (noted and result.lost):
        fault = f"lost without a word: {', '.join(sorted(changed))}"
    elif not changed and (noted or result.lost):
        fault = f"nothing is lost, but it says {noted} {result.lost}"
    elif again := tfrecorder.repair(out, progress=False).files:
        fault = f"repaired again: {again}"
    return Cell(history, file, way, fault, noted, changed)


def demand_repaired(cells: Sequence[Cell]) -> None:
    """Raise a BrokenError if a file is neither as before nor noted as lost."""
    broken = [cell for cell in cells if cell.fault]
    words = "\n".join(f"{one.history}: {one.file} {one.way}: {one.fault}" for one in broken)
    demand(cells and not broken, words)


def lose_each(folder: Path) -> list[Count]:
    """The whole matrix.

    Raises:
        BrokenError: a file is neither as before nor noted as lost.
    """
    cells = []
    for history in HISTORIES:
        cells += sweep(make(history, folder / history), history)
        shutil.rmtree(folder / history)
    demand_repaired(cells)
    restored = sum(not cell.changed for cell in cells)
    note = f"{restored} to the byte, {len(cells) - restored} noted as lost"
    return [Count("files of a dataset lost or damaged", len(cells), 0, 0, note)]
