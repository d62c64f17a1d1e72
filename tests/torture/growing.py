"""Appends, compactions, and overwrites of generations, killed before each change that they make.

After each kill the generations before the append stand untouched, and all of its rows are there or
none; the same call then completes it, to the bytes of an append that nobody disturbed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from gcs.control import Gcs, in_process
from support import photo_frame

import tfrecorder
from tfrecorder import DatasetError, TfrecorderError
from torture.counts import Count, demand
from torture.faults import client_of_its_own
from torture.steps import Moment, convert_until

#: Rows of generation 0, of generation 1, and of the table that is appended, the first rows of which
#: are there already.
FIRST, SECOND, TABLE = 12, 4, 24
NEW_ROWS = TABLE - FIRST - SECOND

WHAT = {"num_shards": 2, "max_reject_fraction": 0.5}
OPTIONS = {**WHAT, "progress": False}
QUIET = {"num_shards": 2, "progress": False}
BUCKET_OUT = "gs://bkt/sets/out"


@dataclass(frozen=True)
class Grown:
    """A dataset before and after an append that nobody disturbed.

    Attributes:
        before: of two generations.
        after: of three.
        table: the CSV that was appended.
        fresh: the table alone, converted.
        compacted: the three generations as one.
    """

    before: Path
    after: Path
    table: Path
    fresh: Path
    compacted: Path


def make_grown(folder: Path) -> Grown:
    folder.mkdir(parents=True)
    names = ("before", "after", "table.csv", "fresh", "compacted")
    grown = Grown(*(folder / name for name in names))
    frame = photo_frame(TABLE)
    frame.loc[20:, "split"] = "TEST"
    frame.loc[22:, "label"] = "a new class"
    frame.loc[18, "image_uri"] = str(folder / "missing.jpg")
    frame.to_csv(grown.table, index=False)
    tfrecorder.convert(frame[:FIRST], grown.before, **OPTIONS)
    tfrecorder.append(frame[: FIRST + SECOND], grown.before, **OPTIONS)
    shutil.copytree(grown.before, grown.after)
    tfrecorder.append(grown.table, grown.after, **OPTIONS)
    tfrecorder.convert(grown.table, grown.fresh, **OPTIONS)
    tfrecorder.compact(grown.after, grown.compacted, **QUIET)
    return grown


def files_of(directory: Path) -> dict[str, bytes]:
    """All files of a dataset, those of its private folders too, but its lock."""
    paths = [path for path in directory.rglob("*") if path.is_file() and path.name != "lock"]
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths}


def state(out: Path | str, found: dict[str, bytes], grown: Grown) -> str:
    """What a reader finds: "before" or "after".

    Raises:
        BrokenError: something else, or a file of an earlier generation was touched.
    """
    for name, data in files_of(grown.before).items():
        demand(found.get(name) == data, f"{out}: {name} was touched")
    info = tfrecorder.info(out)
    names = {2: "before", 3: "after"}
    demand(len(info.generations) in names, f"{out}: {len(info.generations)} generations")
    name = names[len(info.generations)]
    wanted = FIRST + SECOND + (NEW_ROWS - 1 if name == "after" else 0)
    demand(info.records == wanted, f"{out}: {info.records} records {name} the append")
    demand(tfrecorder.verify(out, progress=False).ok, f"{out}: verify finds faults {name} it")
    return name


def check_completed(found: dict[str, bytes], grown: Grown, out: Path | str) -> None:
    wanted = files_of(grown.after)
    differing = [name for name in found.keys() | wanted if found.get(name) != wanted.get(name)]
    demand(not differing, f"{out}: after the same call these files differ: {differing}")


def kill_append(moment: Moment, grown: Grown, out: Path) -> str:
    """Append, kill, look, append again, compare; what was found after the kill, "" without one."""
    shutil.copytree(grown.before, out)
    killed = convert_until(moment, str(grown.table), str(out), "append", **WHAT)
    found = state(out, files_of(out), grown)
    again = tfrecorder.append(grown.table, out, **OPTIONS)
    demand((again.rows_there == TABLE) == (found == "after"), f"{out}: rows went in twice")
    check_completed(files_of(out), grown, out)
    shutil.rmtree(out)
    return found if killed else ""


def kill_overwrite(moment: Moment, grown: Grown, out: Path) -> str:
    """The same of an overwrite, by which all generations go."""
    shutil.copytree(grown.after, out)
    killed = convert_until(moment, str(grown.table), str(out), overwrite=True, **WHAT)
    found = _state_of_overwrite(out, grown)
    if found != "new":
        tfrecorder.convert(grown.table, out, overwrite=True, **OPTIONS)
    demand(_state_of_overwrite(out, grown) == "new", f"{out}: not the new dataset")
    demand(not (out / "appended").exists(), f"{out}: generations are left over")
    shutil.rmtree(out)
    return found if killed else ""


def kill_compact(moment: Moment, grown: Grown, out: Path) -> str:
    """The same of a compaction, which changes nothing of what it copies."""
    before = files_of(grown.after)
    killed = convert_until(moment, str(grown.after), str(out), "compact", num_shards=2)
    committed = (out / "dataset_info.json").exists()
    if committed:
        demand(tfrecorder.verify(out, progress=False).ok, f"{out}: verify finds faults")
    tfrecorder.compact(grown.after, out, num_shards=2, progress=False)
    differing = files_of(out).items() ^ files_of(grown.compacted).items()
    demand(not differing, f"{out}: other files or bytes: {sorted({name for name, _ in differing})}")
    demand(files_of(grown.after) == before, f"{grown.after}: the old dataset was touched")
    shutil.rmtree(out)
    return "" if not killed else "after" if committed else "before"


def _state_of_overwrite(out: Path, grown: Grown) -> str:
    try:
        generations = len(tfrecorder.info(out).generations)
    except DatasetError as error:
        demand("`tfrecorder repair" in str(error), str(error))
        return "between"
    demand(generations in (1, 3), f"{out}: {generations} generations")
    whole, files = grown.after if generations == 3 else grown.fresh, files_of(out)
    for name, data in files_of(whole).items():
        demand(files.get(name) == data, f"{out}: {name} is of another dataset")
    return "old" if generations == 3 else "new"


def refuse_append(gcs: Gcs, answered: int, grown: Grown) -> str:
    """An append to a bucket that refuses every request but so many; "" if that was enough."""
    for name in gcs.names(f"{BUCKET_OUT}/"):
        gcs.delete(f"gs://bkt/{name}")
    gcs.put_folder(BUCKET_OUT, grown.before)
    gcs.inject("status", status=403, object="bkt/sets/out*", spared=answered)
    refused = True
    try:
        tfrecorder.append(grown.table, BUCKET_OUT, **OPTIONS)
        refused = False
    except TfrecorderError:
        pass
    finally:
        gcs.mend()
    found = state(BUCKET_OUT, _in_bucket(gcs), grown)
    tfrecorder.append(grown.table, BUCKET_OUT, **OPTIONS)
    check_completed(_in_bucket(gcs), grown, BUCKET_OUT)
    return found if refused else ""


def _in_bucket(gcs: Gcs) -> dict[str, bytes]:
    names = [name for name in gcs.names(f"{BUCKET_OUT}/") if not name.endswith("/lock")]
    return {name.removeprefix("sets/out/"): gcs.get(f"gs://bkt/{name}") for name in names}


def refuse_everywhere(folder: Path, step: int = 1) -> list[str]:
    """A bucket that refuses from each request on in turn; what was found after each time."""
    grown = make_grown(folder / "material")
    found: list[str] = []
    with in_process() as gcs, patch.dict(os.environ, gcs.environment()), client_of_its_own():
        gcs.create_bucket("bkt")
        while one := refuse_append(gcs, len(found) * step, grown):
            found.append(one)
    return found


def kill_everywhere(folder: Path, kill: Callable[[Moment, Grown, Path], str]) -> list[str]:
    """Kill before each change in turn; what was found after each kill.

    Raises:
        BrokenError: a promise was broken; the directory is left in `folder` as it was found.
    """
    grown = make_grown(folder / "material")
    found: list[str] = []
    while one := kill(Moment(len(found)), grown, folder / "out"):
        found.append(one)
    return found


def grow(folder: Path) -> list[Count]:
    """Everything, and the counts."""
    attacks: dict[str, Callable[[Path], list[str]]] = {
        "appends killed before each change": lambda at: kill_everywhere(at, kill_append),
        "overwrites of generations, killed too": lambda at: kill_everywhere(at, kill_overwrite),
        "compactions, killed too": lambda at: kill_everywhere(at, kill_compact),
        "appends to a bucket that refuses": refuse_everywhere,
    }
    counts = []
    for number, (name, attack) in enumerate(attacks.items()):
        found = attack(folder / str(number))
        note = ", ".join(f"{found.count(one)} {one}" for one in dict.fromkeys(found))
        counts.append(Count(name, len(found), len(found) * TABLE, 0, note))
    return counts
