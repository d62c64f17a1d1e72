"""What adds to a dataset and what rewrites it, ended before any change that it makes to a name.

By SIGKILL or by Ctrl-C on a disk, and by a bucket that refuses.  Then readers find the dataset
before it or after it, by the public files alone.  The same call completes it, to the bytes of one
that nobody disturbed; or `undo` abandons it, and it can be made anew.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from helpers.public_types import ConversionResult
from services.gcs.control import Gcs, in_process
from support import PHOTOS, photo_frame, serialized

import tfrecorder
from tfrecorder import TfrecorderError
from torture.counts import Count, demand
from torture.faults import client_of_its_own
from torture.steps import Moment, convert_until

ROWS = 24
OPTIONS = {"num_shards": 2, "max_reject_fraction": 0.5}
BUCKET_OUT = "gs://bkt/sets/out"


@dataclass(frozen=True)
class Change:
    """One change to a dataset.

    Attributes:
        verb: a function of the package.
        source: its first argument; None for the dataset itself.
        before: the dataset that is changed; None if the change makes one.
        after: the dataset after a change that nobody disturbed.
        options: of the call.
    """

    verb: str
    source: Path | None
    before: Path | None
    after: Path
    options: Mapping[str, Any] = field(default_factory=dict)

    def make(self, out: Path | str) -> ConversionResult:
        where = (out,) if self.source is None else (self.source, out)
        return getattr(tfrecorder, self.verb)(*where, progress=False, **self.options)

    def complete(self, out: Path | str, found: str, files: Mapping[str, bytes]) -> None:
        """Make it again; but what nothing is left of would be overwritten once more."""
        is_done = found == "after" and "_tfrecorder/plan.json" not in files
        if not (is_done and "overwrite" in self.options):
            self.make(out)


def make_changes(folder: Path) -> dict[str, Change]:
    """By name; each of a dataset of two generations with a reject, whose image is there by now."""
    folder.mkdir(parents=True)
    frame = photo_frame(ROWS).assign(label=["brick", "cat"] * (ROWS // 2))
    frame.loc[8:11, "split"] = frame.loc[20:, "split"] = "TEST"
    frame.loc[3, "image_uri"] = str(folder / "late.jpg")
    more, known, before = folder / "more.csv", folder / "known.csv", folder / "before"
    frame.to_csv(more, index=False)
    frame[:16].to_csv(known, index=False)
    tfrecorder.convert(frame[:12], before, progress=False, **OPTIONS)
    tfrecorder.append(known, before, progress=False, **OPTIONS)
    shutil.copy(PHOTOS[-1], folder / "late.jpg")
    changes = {
        "append": Change("append", more, before, folder / "append", OPTIONS),
        "retry_rejects": Change(
            "append", known, before, folder / "retry", {**OPTIONS, "retry_rejects": True}
        ),
        "compact in place": Change("compact", None, before, folder / "compact", {"num_shards": 1}),
        "compact": Change("compact", before, None, folder / "elsewhere", {"num_shards": 1}),
        "overwrite": Change(
            "convert", more, before, folder / "overwrite", {**OPTIONS, "overwrite": "all"}
        ),
    }
    for change in changes.values():
        if change.before is not None:
            shutil.copytree(change.before, change.after)
        change.make(change.after)
    return changes


def files_of(directory: Path) -> dict[str, bytes]:
    """All files of a dataset, those of its private folders too, but its lock."""
    paths = [path for path in directory.rglob("*") if path.is_file() and path.name != "lock"]
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths}


def public_records(files: Mapping[str, bytes], folder: Path) -> Counter[bytes]:
    """The records of a dataset as another tool reads it: the shards that its commit lists.

    Raises:
        BrokenError: a shard is missing, or has more or fewer records than the commit says.
    """
    found: Counter[bytes] = Counter()
    folder.mkdir(exist_ok=True)
    for split in json.loads(files["dataset_info.json"])["splits"]:
        for number, length in enumerate(split["shardLengths"]):
            name = split["filepathTemplate"].format(
                SPLIT=split["name"], SHARD_INDEX=f"{number:05d}", FILEFORMAT="tfrecord"
            )
            demand(name in files, f"{name} is listed and missing")
            (folder / "shard").write_bytes(files[name])
            read = serialized(folder / "shard")
            demand(len(read) == int(length), f"{name} has {len(read)} records, not {length}")
            found.update(read)
    return found


def state(files: Mapping[str, bytes], out: Path | str, change: Change, folder: Path) -> str:
    """What readers find: "before" or "after".

    Raises:
        BrokenError: something else.
    """
    if change.before is None and "dataset_info.json" not in files:
        return "before"
    commit = tfrecorder.generations(out)[0]
    sides = {"before": change.before, "after": change.after}
    sides = {name: side for name, side in sides.items() if side is not None}
    fitting = [name for name, side in sides.items() if tfrecorder.generations(side)[0] == commit]
    demand(len(fitting) == 1, f"{out} is at commit {commit}")
    side = sides[fitting[0]]
    found = public_records(files, folder)
    demand(found == public_records(files_of(side), folder), f"{out} is not as {fitting[0]} it")
    demand(tfrecorder.info(out).records == found.total(), f"{out}: info counts others")
    return fitting[0]


def _placeless(files: Mapping[str, bytes]) -> dict[str, Any]:
    """Files with manifests without what says where the dataset is."""
    manifests = {name: json.loads(files[name]) for name in files if "/commits/" in name}
    for values in manifests.values():
        for key in ("base", "remote", "crc32c", "begun"):
            values.pop(key, None)
        undone = [values["log_undone"]] if "log_undone" in values else []
        for entry in (values["log"], *values.get("log_before", ()), *undone):
            entry.pop("when", None)
    return {**files, **manifests}


def check_completed(files: Mapping[str, bytes], out: Path | str, change: Change) -> None:
    found, wanted = _placeless(files), _placeless(files_of(change.after))
    differing = [name for name in found.keys() | wanted if found.get(name) != wanted.get(name)]
    demand(not differing, f"{out}: after the same call these files differ: {sorted(differing)}")


def end(change: Change, moment: Moment, folder: Path, abandons: bool = False) -> str:
    """Make a change, end it, look, and make it again; what was found, "" if it was not ended.

    Args:
        folder: for the dataset; new.
        abandons: abandon what is pending before it is made again.

    Raises:
        BrokenError: a promise was broken; the dataset is left in `folder` as it was found.
    """
    out = folder / "out"
    folder.mkdir(parents=True)

    def public(directory: Path) -> Counter[bytes]:
        return public_records(files_of(directory), folder / "aside")

    if change.before is not None:
        shutil.copytree(change.before, out)
    source = change.source and str(change.source)
    ended = convert_until(moment, source, str(out), change.verb, **change.options)
    found = state(files_of(out), out, change, folder / "aside")
    pending = (out / "_tfrecorder/plan.json").exists()
    if abandons and pending and found == "before" and change.before is not None:
        tfrecorder.undo(out)
        demand(public(out) == public(change.before), f"{out}: undo changed it")
        change.make(out)
        demand(public(out) == public(change.after), f"{out} is another")
        globbed = Counter(data for path in out.glob("*.tfrecord") for data in serialized(path))
        demand(globbed == public(out), f"{out}: a glob finds others")
    else:
        change.complete(out, found, files_of(out))
        check_completed(files_of(out), out, change)
    if 0:
        demand(tfrecorder.verify(out, progress=False).ok, f"{out}: verify finds faults")
    shutil.rmtree(folder)
    return found if ended else ""


def end_everywhere(
    folder: Path, change: Change, sent: int = signal.SIGKILL, abandons: bool = False
) -> list[str]:
    """End a change before each of its changes of a name in turn; what was found each time."""
    ends = (
        end(change, Moment(number, sent=sent), folder / str(number), abandons)
        for number in itertools.count()
    )
    return list(itertools.takewhile(bool, ends))


def refuse(gcs: Gcs, answered: int, change: Change, folder: Path) -> str:
    """A change in a bucket that refuses every request but so many; "" if that was enough."""
    for name in gcs.names(f"{BUCKET_OUT}/"):
        gcs.delete(f"gs://bkt/{name}")
    if change.before is not None:
        gcs.put_folder(BUCKET_OUT, change.before)
    gcs.inject("status", status=403, object="bkt/sets/out*", spared=answered)
    refused = True
    try:
        change.make(BUCKET_OUT)
        refused = False
    except TfrecorderError:
        pass
    finally:
        gcs.mend()
    found = state(_in_bucket(gcs), BUCKET_OUT, change, folder)
    change.complete(BUCKET_OUT, found, _in_bucket(gcs))
    check_completed(_in_bucket(gcs), BUCKET_OUT, change)
    return found if refused else ""


def _in_bucket(gcs: Gcs) -> dict[str, bytes]:
    names = [name for name in gcs.names(f"{BUCKET_OUT}/") if not name.endswith("/lock")]
    return {name.removeprefix("sets/out/"): gcs.get(f"gs://bkt/{name}") for name in names}


def refuse_everywhere(folder: Path, change: Change, step: int = 1) -> list[str]:
    """A bucket that refuses from each request on in turn; what was found after each time."""
    folder.mkdir(parents=True)
    with in_process() as gcs, patch.dict(os.environ, gcs.environment()), client_of_its_own():
        gcs.create_bucket("bkt")
        ends = (
            refuse(gcs, number, change, folder / "aside") for number in itertools.count(0, step)
        )
        return list(itertools.takewhile(bool, ends))


def grow(folder: Path) -> list[Count]:
    """Everything, and the counts."""
    changes = make_changes(folder / "material")
    counts = []
    for name, change in changes.items():
        at = folder / name
        kinds = {
            "killed": partial(end_everywhere, at / "killed", change),
            "ended by Ctrl-C": partial(end_everywhere, at / "int", change, sent=signal.SIGINT),
            "killed and abandoned": partial(end_everywhere, at / "undo", change, abandons=True),
            "refused by a bucket": partial(refuse_everywhere, at / "bucket", change),
        }
        for how, attack in kinds.items():
            found = attack()
            note = ", ".join(f"{found.count(one)} {one}" for one in dict.fromkeys(found))
            counts.append(Count(f"{name}, {how}", len(found), len(found) * ROWS, 0, note))
    return counts
