"""Overwrites that are killed before every single change that they make, on a disk and on a bucket.

After each kill the old dataset stands, or the new one, or every reader names the command that
completes the exchange of the two; the next call completes it, to the bytes of a conversion into an
empty directory.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from gcs.control import Gcs, in_process
from support import photo_frame, public_files

import tfrecorder
from tfrecorder import DatasetError, TfrecorderError
from torture.counts import Count, demand
from torture.faults import client_of_its_own
from torture.steps import Moment, convert_until

#: The old dataset and the new one share some names of shards and not others, and only the old one
#: has names for its classes.
OLD, NEW = {"num_shards": {"TRAIN": 3, "TEST": 2}}, {"num_shards": {"TRAIN": 3, "TEST": 1}}

OLD_ROWS, NEW_ROWS = 20, 17

#: What lies there too: a desktop's file, and somebody's note where nobody should put one.
FOREIGN = (".DS_Store", "_tfrecorder/note.txt")


@dataclass(frozen=True)
class Pair:
    """Two datasets that nobody disturbed, and what the second is made of.

    Attributes:
        old: a finished dataset, with foreign files.
        new: the one that is to take its place, in another directory.
        table: the CSV of the new one.
    """

    old: Path
    new: Path
    table: Path


def make_pair(folder: Path) -> Pair:
    pair = Pair(folder / "old", folder / "new", folder / "new.csv")
    folder.mkdir(parents=True)
    frame = photo_frame(OLD_ROWS)
    frame.loc[15:, "split"] = "TEST"
    tfrecorder.convert(frame, pair.old, progress=False, **OLD)
    for name in FOREIGN:
        (pair.old / name).write_text("mine")
    frame = frame.iloc[OLD_ROWS - NEW_ROWS :].assign(label=range(NEW_ROWS))
    frame.to_csv(pair.table, index=False)
    tfrecorder.convert(pair.table, pair.new, progress=False, **NEW)
    return pair


def files_of(directory: Path) -> dict[str, bytes]:
    """All files of a dataset, those of its private folder too, but what passes or is foreign."""
    found = {}
    for path in directory.rglob("*"):
        name = str(path.relative_to(directory))
        if path.is_file() and name not in (*FOREIGN, "_tfrecorder/lock"):
            found[name] = path.read_bytes()
    return found


def state(out: Path | str, public: dict[str, bytes], pair: Pair) -> str:
    """What a reader finds: "old", "new", or "between".

    Args:
        public: the files outside the private folder.

    Raises:
        BrokenError: something else.
    """
    whole = {name: public_files(getattr(pair, name)) for name in ("old", "new")}
    del whole["old"][".DS_Store"]
    found = {name: data for name, data in public.items() if name != ".DS_Store"}
    if "dataset_info.json" in found:
        names = [name for name, wanted in whole.items() if wanted == found]
        demand(names, f"{out} is committed, and is neither the old dataset nor the new one")
        demand(
            tfrecorder.info(out).records == {"old": OLD_ROWS, "new": NEW_ROWS}[names[0]],
            f"{out}: info",
        )
        return names[0]
    for name, data in found.items():
        known = [one[name] for one in whole.values() if name in one]
        demand(data in known, f"{out}: {name} is not whole")
    try:
        tfrecorder.info(out)
    except DatasetError as error:
        demand(f"`tfrecorder repair {out}`" in str(error), str(error))
        return "between"
    raise AssertionError(f"{out} is opened without its commit")


def check_completed(out: Path, pair: Pair) -> None:
    """The new dataset, byte for byte, its private files too, and what is foreign."""
    made, wanted = files_of(out), files_of(pair.new)
    differing = [name for name in made.keys() | wanted.keys() if made.get(name) != wanted.get(name)]
    demand(not differing, f"{out}: after the next call these files differ: {differing}")
    for name in FOREIGN:
        demand((out / name).read_text() == "mine", f"{out}: {name} is not as it was")
    folders = {path.relative_to(out) for path in out.rglob("*") if path.is_dir()}
    demand(
        folders == {path.relative_to(pair.new) for path in pair.new.rglob("*") if path.is_dir()},
        f"{out}: folders {folders}",
    )


def complete(out: Path | str, found: str, pair: Pair, by_repair: bool) -> None:
    """The next call, after a kill that left this behind."""
    if found == "between" and by_repair:
        tfrecorder.repair(out, progress=False)
    elif found != "new":
        convert(pair, out)


def convert(pair: Pair, out: Path | str) -> None:
    tfrecorder.convert(pair.table, out, progress=False, overwrite=True, **NEW)


def kill_once(moment: Moment, pair: Pair, out: Path, by_repair: bool = False) -> str:
    """Overwrite, kill, look, complete, compare; what was found after the kill, "" without one."""
    shutil.copytree(pair.old, out)
    killed = convert_until(moment, str(pair.table), str(out), overwrite=True, **NEW)
    found = state(out, public_files(out), pair)
    complete(out, found, pair, by_repair)
    if found != "new":  # else folders may be left over, which go with the next overwrite
        check_completed(out, pair)
    demand(state(out, public_files(out), pair) == "new", f"{out}: not the new dataset")
    shutil.rmtree(out)
    return found if killed else ""


def kill_everywhere(folder: Path) -> list[str]:
    """Kill before each change in turn; what was found after each kill.

    Raises:
        BrokenError: a promise was broken; the directory is left in `folder` as it was found.
    """
    pair = make_pair(folder / "pair")
    found: list[str] = []
    while one := kill_once(Moment(len(found)), pair, folder / "out", by_repair=len(found) % 2 == 1):
        found.append(one)
    return found


def kill_again_and_again(folder: Path, changes: int = 1) -> list[str]:
    """Kill an exchange after so many changes, and again whoever goes on with it, to its end."""
    pair, out = make_pair(folder / "pair"), folder / "out"
    shutil.copytree(pair.old, out)
    found: list[str] = []
    # Before the old commit is gone; right after; and from then on each process makes `changes`.
    commit = "dataset_info.json"
    moments = iter([Moment(0, commit), Moment(1, commit)])
    while "new" not in found:  # from there on the same call would begin once more
        moment = next(moments, Moment(changes))
        if not convert_until(moment, str(pair.table), str(out), overwrite=True, **NEW):
            check_completed(out, pair)
        found.append(state(out, public_files(out), pair))
    return found


# --------------------------------------------------------------------------------- on a bucket

BUCKET_OUT = "gs://bkt/sets/out"


def refuse_once(gcs: Gcs, answered: int, pair: Pair, by_repair: bool = False) -> str:
    """The same on a bucket that refuses every request but so many; "" if that was enough."""
    for name in gcs.names(f"{BUCKET_OUT}/"):
        gcs.delete(f"gs://bkt/{name}")
    gcs.put_folder(BUCKET_OUT, pair.old)
    gcs.inject("status", status=403, object="bkt/sets/out*", spared=answered)
    refused = True
    try:
        convert(pair, BUCKET_OUT)
        refused = False
    except TfrecorderError:
        pass
    finally:
        gcs.mend()
    found = state(BUCKET_OUT, gcs.files(BUCKET_OUT), pair)
    complete(BUCKET_OUT, found, pair, by_repair)
    names = gcs.names(f"{BUCKET_OUT}/")
    made = {name.removeprefix("sets/out/"): gcs.get(f"gs://bkt/{name}") for name in names}
    demand(all(made.pop(name) == b"mine" for name in FOREIGN), "what is foreign was touched")
    made.pop("_tfrecorder/lock", None)
    if found == "new":  # what is left over goes with the next overwrite
        made = {name: data for name, data in made.items() if "/next/" not in name}
    demand(made == files_of(pair.new), f"{answered} requests answered: other files or bytes")
    return found if refused else ""


def refuse_everywhere(folder: Path, step: int = 1) -> list[str]:
    """A bucket that refuses from each request on in turn; what was found after each time."""
    pair = make_pair(folder / "pair")
    found: list[str] = []
    with in_process() as gcs, patch.dict(os.environ, gcs.environment()), client_of_its_own():
        gcs.create_bucket("bkt")
        while one := refuse_once(gcs, len(found) * step, pair, by_repair=len(found) % 2 == 1):
            found.append(one)
    return found


# ---------------------------------------------------------------------------------- the report


def overwrite(folder: Path) -> list[Count]:
    """Everything, and the counts.

    Raises:
        BrokenError: a promise was broken; the directory is left in `folder` as it was found.
    """
    attacks = {
        "overwrites killed before each change": kill_everywhere,
        "overwrites killed after each change": kill_again_and_again,
        "overwrites on a bucket that refuses": refuse_everywhere,
    }
    counts = []
    for number, (name, attack) in enumerate(attacks.items()):
        found = attack(folder / str(number))
        note = ", ".join(f"{found.count(one)} {one}" for one in ("old", "between", "new"))
        counts.append(Count(name, len(found), len(found) * NEW_ROWS, 0, f"found after it: {note}"))
    return counts
