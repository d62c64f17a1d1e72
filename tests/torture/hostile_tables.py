"""Hostile tables, folders and output directories, through the library and the command line."""

from __future__ import annotations

import gzip
import io
import os
import random
import shutil
import zipfile
from pathlib import Path

import pandas as pd
from support import PHOTOS, records

import tfrecorder
from torture.counts import Count, demand, lost_rows
from torture.hostile import (
    NAMES,
    try_data_uris,
    try_frames,
    try_labels,
    try_lists,
    try_numbers,
    try_paths,
)
from torture.sandbox import Ended, Sandbox, call, command, nothing_outside, sandbox

#: What must come of a table: so many rows; words of the one error; or, if None, any of the two.
Expected = int | str | None

HEAD = "split,image_uri,label\n"
GOOD = "".join(f"TRAIN,{path},cat\n" for path in PHOTOS[:20])
CAFE = HEAD + f"TRAIN,{PHOTOS[0]},café\n"


def tables() -> dict[str, tuple[bytes, Expected]]:
    """The bytes of CSV files by what is wrong with them, and what must come of each."""
    one = str(PHOTOS[0])
    wide = ",".join(f"c{number}" for number in range(100_000))
    values = "," * 99_999
    texts: dict[str, tuple[str, Expected]] = {
        "nothing": ("", "the file is empty"),
        "blank lines alone": ("\n" * 1000, None),
        "header alone": (HEAD, "no rows"),
        "a hundred thousand blank lines": (HEAD + "\n" * 100_000 + GOOD, 20),
        "byte-order mark": ("\ufeff" + HEAD + GOOD, 20),
        "byte-order mark, no header": ("\ufeff" + GOOD, 20),
        "two byte-order marks": ("\ufeff\ufeff" + HEAD + GOOD, None),
        "Windows line breaks": ((HEAD + GOOD).replace("\n", "\r\n"), 20),
        "mixed line breaks": (HEAD.replace("\n", "\r\n") + GOOD, 20),
        "Macintosh line breaks": ((HEAD + GOOD).replace("\n", "\r"), None),
        "no line break at the end": ((HEAD + GOOD).rstrip(), 20),
        "short rows": (HEAD + GOOD + "TRAIN\n", "the image is missing"),
        "long rows": (HEAD + GOOD + f"TRAIN,{one},cat,dog\n", "Expected 3 fields"),
        "rows of commas": (HEAD + GOOD + ",,\n", "the image is missing"),
        "100,000 columns": (f"{HEAD.strip()},{wide}\nTRAIN,{one},cat,{values}\n", 1),
        "100,000 values in a row": (HEAD + GOOD + f"TRAIN,{one},cat{values}\n", "Expected 3"),
        "100,000 values, no header": (f"TRAIN,{one},cat{values}x\n", "the label is missing"),
        "formulas": (HEAD + GOOD + f"TRAIN,{one},=HYPERLINK(0)\nTRAIN,{one},@SUM(1)\n", 22),
        "formula as image": (HEAD + GOOD + "TRAIN,=cmd|' /C calc'!A0,cat\n", 21),
        "shell as image": (HEAD + GOOD + "TRAIN,$(touch pwned),cat\n", 21),
        "open quote": (HEAD + GOOD + f'TRAIN,{one},"cat\n', "not a well-formed CSV"),
        "stray quotes": (HEAD + GOOD + f'TRAIN,{one},c"a"t\n', 21),
        "quotes of quotes": (HEAD + GOOD + f'TRAIN,{one},""""""""\n', 21),
        "a label of two megabytes": (HEAD + GOOD + f"TRAIN,{one},{'x' * 2**21}\n", 21),
        "a header of two megabytes": ("x" * 2**21 + "," + HEAD + GOOD, None),
        "NUL in a label": (HEAD + GOOD + f"TRAIN,{one},a\0b\n", None),
        "NUL in an image": (HEAD + GOOD + "TRAIN,a\0b.jpg,cat\n", None),
        "NULs after the end": (HEAD + GOOD + "\0" * 4096, None),
        "a column twice": ("image_uri,image_uri\na.jpg,b.jpg\n", "more than one column"),
        "a label twice": (f"image_uri,label,label\n{one},cat,dog\n", "more than one column"),
        "a label in quotes twice": (
            f'label,image_uri,"label"\na,{one},b\n',
            "more than one column",
        ),
        "a label twice, marked": (f"\ufefflabel,image_uri,label\na,{one},b\n", "more than one"),
        "a label and label.1": (f"image_uri,label,label.1\n{one},cat,dog\n", 1),
        "columns without names": (f"image_uri,label,,,\n{one},cat,,,\n", 1),
        "semicolons": ((HEAD + GOOD).replace(",", ";"), "separated by semicolons"),
        "tabs": ((HEAD + GOOD).replace(",", "\t"), "separated by tabs"),
        "a path as split": (HEAD + GOOD + f"../../x,{one},cat\n", "is not a split"),
        "JSON": ('{"image_uri": "a.jpg"}\n', None),
        "Python": ("__import__('os').system('touch pwned')\n", None),
        "HTML": ("<html><script>alert(1)</script></html>\n", None),
        "a pickle in text": ("cos\nsystem\n(S'touch pwned'\ntR.\n", None),
    }
    files: dict[str, tuple[bytes, Expected]] = {
        name: (text.encode(), expected) for name, (text, expected) in texts.items()
    }
    files["utf-16"] = (CAFE.encode("utf-16"), 1)
    for encoding in ("utf-32", "latin-1", "cp1252"):
        files[encoding] = (CAFE.encode(encoding), "is not UTF-8")
    for encoding in ("utf-16-le", "utf-16-be", "utf-32-le", "utf-7", "cp037"):
        files[encoding] = (CAFE.encode(encoding), None)
    files["shift-jis"] = ((HEAD + f"TRAIN,{one},猫\n").encode("shift-jis"), "is not UTF-8")
    files["half a character"] = ((HEAD + f"TRAIN,{one},é").encode()[:-1], "is not UTF-8")
    files["overlong"] = ((HEAD + f"TRAIN,{one},").encode() + b"\xc0\xaf\n", "is not UTF-8")
    files["a JPEG"] = (PHOTOS[0].read_bytes(), "is not UTF-8")
    files["random bytes"] = (random.Random(0).randbytes(10_000), None)
    files["gzip"] = (gzip.compress((HEAD + GOOD).encode()), 20)
    files["gzip, cut"] = (gzip.compress((HEAD + GOOD).encode())[:-20], "cannot be unpacked")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("../../pwned.csv", HEAD + GOOD)
    files["zip"] = (packed.getvalue(), None)
    return files


def try_tables(box: Sandbox) -> int:
    """Every table, through the library and the command line."""
    files = tables()
    for name, (data, expected) in files.items():
        table = box.images / "table.csv"
        table.write_bytes(data)
        for ways in ("library", "command"):
            with nothing_outside(box):
                if ways == "library":
                    ended = call(lambda table=table: tfrecorder.convert(table, box.out))
                else:
                    ended = command("convert", str(table), str(box.out))
            _compare(f"{name}, by the {ways}", ended, expected, box.out)
            shutil.rmtree(box.out, ignore_errors=True)
        with nothing_outside(box):
            command("validate", str(table))
    return 3 * len(files)


def _compare(name: str, ended: Ended, expected: Expected, out: Path) -> None:
    if ended.words:
        words = f"{name}: {ended.words[:500]}"
        demand(not isinstance(expected, int), words)
        demand(expected is None or expected in ended.words, f"{words}: not {expected!r}")
        demand(not (out / "dataset_info.json").exists(), f"{name}: refused, and yet committed")
        return
    demand(not isinstance(expected, str), f"{name}: converted, but it must be refused")
    if isinstance(expected, int):
        lost = lost_rows(out, expected)
        demand(lost == 0, f"{name}: {lost} rows are lost")


def try_sources(box: Sandbox) -> int:
    """What is neither a table nor a folder of images, as a source."""
    os.mkfifo(box.images / "pipe.csv")
    os.symlink("circle.csv", box.images / "circle.csv")
    os.symlink("nowhere", box.images / "broken.csv")
    (box.images / "empty").mkdir()
    (box.folder / "home/a.csv").write_text(HEAD + GOOD)
    names = ["pipe.csv", "circle.csv", "broken.csv", "empty", "missing.csv"]
    sources = [str(box.images / name) for name in names]
    sources += [
        "/dev/zero",
        "/dev/null",
        "/proc/self/mem",
        "",
        ".",
        "..",
        "~nobody/a.csv",
        "$HOME/a.csv",
    ]
    sources += ["a" * 300, "a/" * 3000, "\n", "-", "{0}", "*", "http://example.com/a.csv"]
    sources += ["https://example.com/a.csv", "ftp://x/y", "a\0b"]
    for source in sources:
        with nothing_outside(box):
            ended = call(lambda source=source: tfrecorder.convert(source, box.out))
            demand(ended.words, f"{source[:80]!r} was converted")
            if "\0" not in source:  # which no command line can pass on
                command("convert", "--", source, str(box.out))
                command("validate", "--", source)
        demand(not (box.out / "dataset_info.json").exists(), f"{source!r} was converted")
    return 3 * len(sources)


def try_outputs(box: Sandbox) -> int:
    """What is no place for a dataset, as an output directory."""
    frame = pd.DataFrame({"image_uri": [str(PHOTOS[0])], "label": "x"})
    table = box.images / "one.csv"
    frame.to_csv(table, index=False)
    (box.folder / "work/file").write_text("mine")
    os.mkfifo(box.folder / "work/pipe")
    os.symlink("circle", box.folder / "work/circle")
    (box.folder / "work/full").mkdir()
    (box.folder / "work/full/mine.txt").write_text("mine")
    refused = ["file", "file/out", "pipe", "pipe/out", "circle", "circle/out", "full", "/dev/null"]
    refused += ["/dev/null/out", "/proc/out", "", "a" * 300, "a/" * 3000, "a\nb", "a\x1b[31mb"]
    refused += ["http://example.com/out", "https://example.com/out", "ftp://example.com/out"]
    for where in [*refused, "a\0b", "\udcff"]:
        with nothing_outside(box):
            ended = call(lambda where=where: tfrecorder.convert(frame, where))
            demand(ended.words, f"it was written to {where[:80]!r}")
            if where in refused:
                ended = command("convert", "--", str(table), where)
                demand(ended.words, f"the command wrote to {where[:80]!r}")
    # Names that must be taken as they are, whatever a shell would make of them.
    plain = ["~nobody", "$HOME", "*", "a b", "{0}", "-out", "%s", "naïve 日本", "out.tfrecord"]
    for where in plain:
        target = box.folder / "work" / os.path.normpath(where).split("/")[0]
        with nothing_outside(box, target):
            ended = command("convert", "--", str(table), where)
            demand(not ended.words, f"{where!r}: {ended.words}")
        demand(len(records(box.folder / "work" / where)) == 1, f"{where!r} holds no dataset")
        shutil.rmtree(target)
    return 2 * len(refused) + 2 + len(plain)


def try_folders(box: Sandbox) -> int:
    """A folder of images whose names are as mean as they come, with links in circles."""
    folder = box.images / "folder"
    labels = [name for name in NAMES if not name.startswith(".")]
    for number, label in enumerate(labels):
        (folder / label).mkdir(parents=True)
        shutil.copy(PHOTOS[number % len(PHOTOS)], folder / label / f"{number} \n'.jpg")
    os.symlink("..", folder / labels[0] / "up")
    os.symlink(folder, folder / labels[1] / "round")
    os.symlink("self", folder / labels[1] / "self")
    os.mkfifo(folder / labels[2] / "pipe.jpg")
    (folder / labels[3] / "folder.jpg").mkdir()
    rows = len(labels) + 1  # and the pipe
    for run in (
        lambda: call(lambda: tfrecorder.convert(folder, box.out)),
        lambda: command("convert", str(folder), str(box.out)),
    ):
        with nothing_outside(box):
            ended = run()
        demand(not ended.words, f"a hostile folder: {ended.words}")
        demand(tfrecorder.info(box.out).records == len(labels), "other rows than images")
        demand(lost_rows(box.out, rows) == 0, "rows of a hostile folder are lost")
        shutil.rmtree(box.out)
    (folder / "x").mkdir(exist_ok=True)
    with open(os.fsencode(folder / "x") + b"/\xff.jpg", "wb") as file:
        file.write(PHOTOS[0].read_bytes())
    with nothing_outside(box):
        ended = call(lambda: tfrecorder.convert(folder, box.out))
    demand("not valid Unicode" in ended.words, f"a name that is not Unicode: {ended.words}")
    return 2 * rows + 1


def insult(folder: Path) -> list[Count]:
    """Every hostile input of this module and of `hostile`, counted.

    Raises:
        BrokenError: one did not end as it must, or something was written elsewhere.
    """
    counts = []
    for name, attack in {
        "hostile paths": try_paths,
        "hostile labels": try_labels,
        "hostile frames": try_frames,
        "numbers of every size": try_numbers,
        "lists of hostile names": try_lists,
        "data: uris": try_data_uris,
        "hostile tables": try_tables,
        "hostile folders": try_folders,
        "hostile sources": try_sources,
        "hostile output directories": try_outputs,
    }.items():
        with sandbox(folder / name) as box:
            tried = attack(box)
        counts.append(Count(name, tried, tried, 0))
        shutil.rmtree(folder / name)
    return counts
