"""Bad disks and bad company: full, read-only or unreadable, mounted late, images that vanish, and
several conversions at once in one directory.

Each ends in one clear error or a list of rejects; then, when the disk is well again, the same call
gives the very files that an undisturbed conversion gives; or the very records, if some were
rejects first.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
from support import PHOTOS, done_shards, error_of, public_files, records, rejects, wait_for

import tfrecorder
from tfrecorder.errors import ImagesUnreachableError, OutputError
from torture.counts import Count, demand, lost_rows
from torture.crashes import check_killed
from torture.material import LATE, OPTIONS, Material, convert, digests
from torture.processes import holds_lock, start_command, wait_while_running

BLOCK = 4096


class CannotMountError(Exception):
    """This user, or this container, may mount nothing."""


@contextlib.contextmanager
def mounted(where: Path, *arguments: str) -> Iterator[None]:
    """A file system at a folder, which is made.

    Args:
        arguments: of `mount`, but for the folder.

    Raises:
        CannotMountError: it is not allowed.
    """
    where.mkdir(exist_ok=True)
    ended = subprocess.run(["mount", *arguments, str(where)], capture_output=True, text=True)
    if ended.returncode:
        raise CannotMountError(f"cannot mount: {ended.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", str(where)], check=True)


def small_disk(where: Path, size: int) -> contextlib.AbstractContextManager[None]:
    """A file system in memory of so many bytes, in blocks of `BLOCK`."""
    return mounted(where, "-t", "tmpfs", "-o", f"size={size}", "tmpfs")


def size_on_disk(directory: Path) -> int:
    """Bytes of the blocks that a directory takes on a `small_disk`."""
    files = [path.stat().st_size for path in directory.rglob("*") if path.is_file()]
    return sum(-(-size // BLOCK) * BLOCK for size in files)


def check_whole(out: Path, material: Material) -> int:
    """Compare a finished directory with the undisturbed one; gives the rows lost."""
    demand(public_files(out) == public_files(material.whole), f"{out}: other bytes")
    return lost_rows(out, material.rows)


def check_grown(out: Path, whole: Path, rows: int) -> int:
    """The same of a dataset that got some of its rows later: they are in shards of their own."""
    mine, theirs = _described(out), _described(whole)
    demand(mine == theirs, f"{out}: other files than {whole}")
    for split in ("train", "validation", "test"):
        if list(whole.glob(f"{split}-*.tfrecord")):
            demand(_by_row(out, split) == _by_row(whole, split), f"{out}: other records of {split}")
    demand(tfrecorder.verify(out, progress=False).ok, f"{out}: `verify` finds faults")
    return lost_rows(out, rows)


def _described(out: Path) -> dict[str, bytes]:
    """The public files that do not say in which shards the records are."""
    files = public_files(out)
    del files["dataset_info.json"]
    return {name: data for name, data in files.items() if not name.endswith(".tfrecord")}


def _by_row(out: Path, split: str) -> list[dict[str, Any]]:
    return sorted(records(out, split), key=lambda record: int(record["image/source_id"]))


def _partial(out: Path, material: Material) -> str:
    if not out.exists():
        return ""
    return check_killed(out, {}, digests(material.whole), digests(material.written))


# -------------------------------------------------------------------------------------- the disk


def fill_disks(material: Material, times: int, folder: Path, seed: int = 0) -> Count:
    """Convert to disks of many sizes, each too small; then give them room and go on."""
    whole, lost, full = size_on_disk(material.whole), 0, 0
    rng = random.Random(seed)
    for number in range(times):
        # Evenly over all that is written, and often near its end, where the commit is.
        share = number / times if number % 2 else 1 - rng.random() ** 3 / 4
        size = max(BLOCK, int(whole * share) // BLOCK * BLOCK)
        where = folder / f"disk-{number}"
        with small_disk(where, size):
            out = where / "out"
            with contextlib.suppress(tfrecorder.TfrecorderError):
                convert(material.table, out, OPTIONS)
                continue  # it had room: what is written for a moment only is not in `whole`
            full += 1
            words = error_of(OutputError, material.table, out, **OPTIONS)
            demand("cannot be written: No space left on device" in words, f"{size}: {words}")
            demand("\n" not in words, f"{size}: {words}")
            broken = _partial(out, material)
            demand(not broken, f"a disk of {size} bytes: {broken}")
            subprocess.run(["mount", "-o", "remount,size=1g", str(where)], check=True)
            convert(material.table, out, OPTIONS)
            lost += check_whole(out, material)
    return Count("full disks", full, full * material.rows, lost)


def limit_files(material: Material, times: int, folder: Path) -> Count:
    """Convert where no file may be larger than some limit, which needs no right to mount."""
    largest = max(path.stat().st_size for path in material.whole.rglob("*") if path.is_file())
    folder.mkdir(exist_ok=True)
    lost = 0
    for number in range(times):
        limit = largest * number // times
        out = folder / f"limit-{number}"
        before = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))"
        arguments = ["convert", str(material.table), str(out), "--num-shards", "6"]
        # Not into a file: it may not be larger than the limit either.
        process = start_command(arguments, subprocess.PIPE, before)
        _, said = process.communicate(timeout=300)
        words = said.decode()
        demand(process.returncode == 1, f"limit {limit}: exit code {process.returncode}: {words}")
        demand("cannot be written: File too large" in words, f"limit {limit}: {words}")
        demand(len(words.splitlines()) == 1, f"limit {limit}: {words}")
        broken = _partial(out, material)
        demand(not broken, f"a limit of {limit} bytes: {broken}")
        convert(material.table, out, OPTIONS)
        lost += check_whole(out, material)
        shutil.rmtree(out)
    return Count("files that may not grow", times, times * material.rows, lost)


def lock_disk(material: Material, folder: Path) -> Count:
    """Convert to a disk that is read-only from the start, or since a part was written."""
    folder.mkdir(exist_ok=True)
    where, lost = folder / "disk", 0
    with small_disk(where, 2**30):
        out = where / "out"
        for number in range(2):
            subprocess.run(["mount", "-o", "remount,ro", str(where)], check=True)
            before = digests(where)
            for options in (OPTIONS, {**OPTIONS, "overwrite": True}):
                words = error_of(OutputError, material.table, out, **options)
                demand("cannot be written: Read-only file system" in words, words)
            demand(digests(where) == before, "a read-only disk has changed")
            subprocess.run(["mount", "-o", "remount,rw", str(where)], check=True)
            if number == 0:
                shutil.copytree(material.written, out)
                next(out.glob("_tfrecorder/done/*")).unlink()
        convert(material.table, out, OPTIONS)
        lost += check_whole(out, material)
    return Count("read-only disks", 4, material.rows, lost)


# ------------------------------------------------------------------------------------ the images


def mount_late(material: Material, folder: Path) -> Count:
    """Convert while the disk with the images is not mounted, or one of its folders; then mount it.

    The images lie under a folder to which they are bound only for the rerun.
    """
    where, late = folder / "mnt", folder / "late"
    where.mkdir(parents=True)
    images = material.table.parent
    frame = pd.read_csv(material.table)
    frame["image_uri"] = f"{where}/" + frame["image_uri"]
    words = error_of(ImagesUnreachableError, frame, folder / "out", **OPTIONS)
    demand("Is a disk not mounted?" in words, words)
    demand(not list(folder.glob("out/_tfrecorder/plan*")), "something was staged")
    with mounted(where, "--bind", str(images)):
        late.mkdir()
        with mounted(where / LATE, "--bind", str(late)):
            first = tfrecorder.convert(frame, folder / "out", progress=False, **OPTIONS)
        again = {**OPTIONS, "retry_rejects": True, "progress": False}
        result = tfrecorder.append(frame, folder / "out", **again)
    away = len(list((images / LATE).iterdir()))
    demand(first.rejects.get("read/not_found") == away, f"{first.rejects}, not {away} away")
    demand(result.rejects.get("read/not_found") is None, f"{result.rejects} after the rerun")
    lost = lost_rows(folder / "out", len(frame))
    return Count("disks mounted late", 2, 2 * len(frame), lost, f"{away} rows came back")


def unmount_midway(material: Material, times: int, seconds: float, folder: Path) -> Count:
    """Unmount the disk with the images while they are converted; mount it again some time later."""
    images, where, lost = material.table.parent, folder / "mnt", 0
    where.mkdir(parents=True)
    for number in range(times):
        out = folder / f"midway-{number}"
        flags = ["--num-shards", "6", "--num-threads", "1"]
        with mounted(where, "--bind", str(images)):
            table = str(where / material.table.name)
            process = start_command(["convert", table, str(out), *flags], folder / "said")
            after = 1 + number % 4
            wait_while_running(process, lambda out=out, after=after: done_shards(out) >= after)
            subprocess.run(["umount", "--lazy", str(where)], check=True)
            time.sleep(seconds)
            subprocess.run(["mount", "--bind", str(images), str(where)], check=True)
            process.wait()
        demand(process.returncode == 0, (folder / "said").read_text())
        lost += check_whole(out, material)
        shutil.rmtree(out)
    return Count("disks unmounted meanwhile", times, times * material.rows, lost)


def vanish(material: Material, times: int, folder: Path) -> Count:
    """Remove an image between planning and writing; then bring it back."""
    images, lost = material.table.parent, 0
    folder.mkdir(exist_ok=True)
    for number in range(times):
        out = folder / f"vanish-{number}"
        flags = ["--num-shards", "6", "--num-threads", "1"]
        process = start_command(["convert", str(material.table), str(out), *flags], folder / "said")
        wait_while_running(process, lambda out=out: (out / "_tfrecorder/tmp").exists())
        wait_for(lambda out=out: (out / "_tfrecorder/plan.json").exists())
        last = pq.read_table(out / "_tfrecorder/plan.parquet").to_pylist()[-1 - number]
        row, name = int(last["image/source_id"]), last["image/filename"]
        (images / name).rename(folder / "vanished")
        process.wait()
        (folder / "vanished").rename(images / name)
        demand(process.returncode == 0, (folder / "said").read_text())
        listed = rejects(out)
        found = listed[listed["row"] == row]
        reasons = found["reason"].tolist()
        demand(reasons == ["not_found: No such file or directory"], f"row {row}: {reasons}")
        lost += lost_rows(out, material.rows)
        tfrecorder.append(material.table, out, retry_rejects=True, progress=False, **OPTIONS)
        lost += check_grown(out, material.whole, material.rows)
        shutil.rmtree(out)
    return Count("images that vanish after planning", times, 2 * times * material.rows, lost)


@contextlib.contextmanager
def as_nobody() -> Iterator[None]:
    """Be a user for whom permissions count, which root passes over.

    Nothing should be imported within: the packages may lie where only root can read.
    """
    if os.getuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def lock_images() -> Count:
    """Convert images of which a folder may not be read; then may be."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        locked = folder / "open/locked"
        locked.mkdir(parents=True)
        uris = [f"open/{number:02d}.jpg" for number in range(36)]
        uris += [f"open/locked/{number:02d}.jpg" for number in range(4)]
        for number, uri in enumerate(uris):
            shutil.copy(PHOTOS[number], folder / uri)
        frame = pd.DataFrame({"image_uri": [str(folder / uri) for uri in uris], "label": "x"})
        tfrecorder.convert(frame, folder / "whole", num_shards=3)
        locked.chmod(0)
        with as_nobody():
            result = tfrecorder.convert(frame, folder / "out", num_shards=3)
        demand(result.rejects == {"read/no_permission": 4}, str(result.rejects))
        locked.chmod(0o755)
        locked.parent.chmod(0)
        with as_nobody():
            words = error_of(ImagesUnreachableError, frame, folder / "none")
        demand("Permission denied" in words, words)
        locked.parent.chmod(0o755)
        with as_nobody():
            tfrecorder.append(frame, folder / "out", num_shards=3, retry_rejects=True)
        lost = check_grown(folder / "out", folder / "whole", len(frame))
        return Count("unreadable folders", 2, 2 * len(frame), lost)


# ----------------------------------------------------------------------------------- the company


def convert_at_once(material: Material, times: int, folder: Path) -> Count:
    """Start several conversions and a repair into one directory: one of them gets it."""
    folder.mkdir(exist_ok=True)
    lost = refused = 0
    for number in range(times):
        out = folder / f"company-{number}"
        command = ["convert", str(material.table), str(out), "--num-shards", "6"]
        first = start_command(command, folder / "first")
        wait_while_running(first, lambda out=out, first=first: holds_lock(first, out))
        others = [start_command(command, folder / f"other-{i}") for i in range(2)]
        for i, other in enumerate(others):
            other.wait()
            words = (folder / f"other-{i}").read_text()
            if other.returncode == 0:  # it came late, and only read the result
                continue
            demand(other.returncode == 1, f"two conversions at once: {words}")
            demand("another conversion is writing this directory" in words, words)
            refused += 1
        first.wait()
        demand(first.returncode == 0, (folder / "first").read_text())
        lost += check_whole(out, material)
        shutil.rmtree(out)
    return Count("conversions at once", refused, times * material.rows, lost, "all but one refused")


def torment(material: Material, folder: Path, often: int) -> list[Count]:
    """Every attack of this module; what needs a right to mount is left out where there is none.

    Args:
        often: how often to make those that can be made often.
    """
    folder.mkdir(parents=True)
    attacks: dict[str, Callable[[], Count]] = {
        "full disks": lambda: fill_disks(material, 2 * often, folder),
        "files that may not grow": lambda: limit_files(material, often, folder / "limits"),
        "read-only disks": lambda: lock_disk(material, folder / "locked"),
        "disks mounted late": lambda: mount_late(material, folder / "late"),
        "disks unmounted meanwhile": lambda: unmount_midway(material, often, 20, folder / "midway"),
        "unreadable folders": lock_images,
        "images that vanish after planning": lambda: vanish(material, often, folder / "vanish"),
        "conversions at once": lambda: convert_at_once(material, often, folder / "company"),
    }
    counts = []
    for name, attack in attacks.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                counts.append(attack())
        except CannotMountError as error:
            counts.append(Count(name, 0, 0, 0, f"not made: {error}"))
    shutil.rmtree(folder)
    return counts
