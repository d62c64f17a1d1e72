"""Hostile frames and tables, through the frame, the CSV and the command line.

Each ends in a right dataset, a reject with a true reason, or one clear error; and nothing is
written outside the given directory.
"""

from __future__ import annotations

import base64
import csv
import io
import os
import shutil
import socket
import time
import unicodedata
import urllib.parse
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pandas as pd
from support import PHOTOS, records, rejects

import tfrecorder
from torture.counts import demand
from torture.sandbox import Ended, Sandbox, call, command, nothing_outside

#: Names that a file may have, and that shells, printf, spreadsheets, globs or eyes mistake.
NAMES = (
    *(
        " leading.jpg",
        "trailing .jpg",
        "a  b.jpg",
        " ",
        "-dash.jpg",
        "--help",
        "-",
        "...",
        ".hidden",
    ),
    *(
        "per%20cent.jpg",
        "%2e%2e%2fx.jpg",
        "%s%n%d.jpg",
        "100%",
        "{0}.jpg",
        "{image}.jpg",
        "{",
        "{}",
    ),
    *("~", "~root.jpg", "$HOME.jpg", "$(touch pwned).jpg", "`touch pwned`.jpg", "; touch pwned"),
    *(
        "| cat",
        "&",
        "*.jpg",
        "[a].jpg",
        "?.jpg",
        "#.jpg",
        "!.jpg",
        "=1+1.jpg",
        "@SUM(A1)",
        "+1",
        "'",
    ),
    *('quote".jpg', '"', '""', "comma,.jpg", ",", "semi;colon.jpg", "back\\slash.jpg", "C:\\x.jpg"),
    *("new\nline.jpg", "\n", "carriage\rreturn.jpg", "both\r\n.jpg", "tab\t.jpg", "\x0b\x0c.jpg"),
    *("\x01\x1b[31mred.jpg", "\x7f.jpg", "\x85.jpg", "\u2028.jpg", "\u202egpj.exe", "\ufeff.jpg"),
    *(
        "naïve.jpg",
        "nai\u0308ve.jpg",
        "日本語.jpg",
        "صورة.jpg",
        "🐈.jpg",
        "\U0010ffff.jpg",
        "ß.JPG",
    ),
    *("null", "NaN", "NA", "None", "nan.jpg", "true", "1e5", "0x10", "007", "1_000", "-0", "inf"),
    *("http:", "file:", "data:image,x", "train", "TEST", "split", "image_uri", "label", "con.jpg"),
    *("a" * 255, "é" * 127, "x" * 200 + ".jpg"),
)

#: What a class may be called: all of the above, and what looks like a path.
LABELS = (
    *NAMES,
    *("../../evil", "..", ".", "/", "/etc/passwd", "a/b/c", "../train-00000.tfrecord"),
    *("dataset_info.json", "_tfrecorder/plan.json", "image.class.label.labels.txt", "x" * 4096),
)

#: How a cell begins that a spreadsheet runs.
FORMULAS = ("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠")


def special_files() -> dict[str, str]:
    """What is not an image, made in the working folder, and the stage and code of each reject."""
    os.mkfifo("pipe.jpg")
    os.symlink("nowhere", "broken.jpg")
    os.symlink("circle.jpg", "circle.jpg")
    os.symlink(".", "within")
    os.mkdir("folder.jpg")
    Path("words.jpg").write_text("I am no image.")
    Path("empty.jpg").touch()
    Path("cut.jpg").write_bytes(PHOTOS[0].read_bytes()[:3000])
    Path("page.jpg").write_text("<html>404</html>")
    with socket.socket(socket.AF_UNIX) as one:
        one.bind("socket.jpg")  # its whole path might be too long for a socket
    return {
        "pipe.jpg": "read not_a_file",
        "socket.jpg": "read not_a_file",
        "folder.jpg": "read not_a_file",
        ".": "read not_a_file",
        "..": "read not_a_file",
        "/": "read not_a_file",
        "/dev/zero": "read not_a_file",
        "/dev/null": "read not_a_file",
        "/proc/self/mem": "read read_failed",
        "/proc/self/environ": "check not_an_image",
        "/proc/version": "check not_an_image",
        "broken.jpg": "read not_found",
        "circle.jpg": "read bad_name",
        "within/" * 60 + "cut.jpg": "read bad_name",
        "cut.jpg/x": "read not_found",
        "words.jpg": "check not_an_image",
        "page.jpg": "check not_an_image",
        "empty.jpg": "check empty",
        "cut.jpg": "check truncated",
        "~/a.jpg": "read not_found",
        "$HOME/a.jpg": "read not_found",
        "%2e%2e/images/%20": "read not_found",
        "../../../../../../../../../../missing.jpg": "read not_found",
        "a" * 256: "read bad_name",
        "a" * 4096: "read bad_name",
        "é" * 4096: "read bad_name",
        "long/" * 820: "read bad_name",
        "no such\nfile": "read not_found",
        "no such\rfile": "read not_found",
        "<script>alert(1)</script>": "read not_found",
        "=HYPERLINK(0)": "read not_found",
        "nothing\\here": "read not_found",
    }


def try_paths(box: Sandbox) -> int:
    """Every name as an image that is there, and every special file, in all three ways at once.

    Gives how many inputs were tried.
    """
    (box.folder / "home/a.jpg").write_bytes(PHOTOS[0].read_bytes())  # whoever expands ~ finds it
    os.chdir(box.images)  # from which the relative uris of a frame are taken
    expected = special_files()
    for number, name in enumerate(NAMES):
        (box.images / name).write_bytes(PHOTOS[number % len(PHOTOS)].read_bytes())
    # In a table, "data:…" is an image itself; the name of a file only in a folder.
    uris = dict.fromkeys((name for name in NAMES if not name.startswith("data:")), "")
    uris |= {f"../images/./within/{name}": "" for name in NAMES[::7]}
    uris |= {str(box.images / name): "" for name in NAMES[3::7]}
    uris |= expected
    uris["nul\0.jpg"] = "read bad_name"
    frame = pd.DataFrame({"image_uri": [*uris], "label": "x", "split": "TRAIN"})
    in_csv = frame[~frame["image_uri"].str.contains("\0")]
    in_csv.to_csv(box.images / "images.csv", index=False, quoting=csv.QUOTE_ALL)
    table = str(box.images / "images.csv")
    options = {"max_reject_fraction": 0.9, "num_shards": 4}
    flags = ["--max-reject-fraction", "0.9", "--num-shards", "4"]
    ways: list[tuple[pd.DataFrame, Callable[[], Ended]]] = [
        (frame, lambda: call(lambda: tfrecorder.convert(frame, box.out, **options))),
        (in_csv, lambda: call(lambda: tfrecorder.convert(table, box.out, **options))),
        (in_csv, lambda: command("convert", table, str(box.out), *flags)),
    ]
    for rows, run in ways:
        with nothing_outside(box):
            ended = run()
        demand(not ended.words, f"hostile paths: {ended.words}")
        compare_paths(box.out, rows, uris)
        shutil.rmtree(box.out)
    os.chdir(box.folder / "work")
    return sum(len(rows) for rows, _ in ways)


def compare_paths(out: Path, rows: pd.DataFrame, uris: dict[str, str]) -> None:
    """Demand that each row is a record, or the reject that it must be, under its own uri."""
    listed = rejects(out)
    codes = listed["stage"] + " " + listed["reason"].str.split(":").str[0]
    found = dict(zip(listed["image_uri"], codes, strict=True))
    given = rows["image_uri"]
    wrong = {uri: found.get(uri, "") for uri in given if found.get(uri, "") != uris[uri]}
    demand(not wrong, f"hostile paths ended otherwise than they must: {wrong}")
    stored = sorted(record["image/filename"].decode() for record in records(out))
    demand(stored == sorted(set(rows["image_uri"]) - set(found)), "other file names than given")


def composed(labels: Iterable[str]) -> list[str]:
    """Sorted labels in one form of Unicode: two that differ in it alone are one class."""
    return sorted(unicodedata.normalize("NFC", label) for label in labels)


def try_labels(box: Sandbox) -> int:
    """Every label, in all three ways; none becomes a file's name."""
    frame = pd.DataFrame({"image_uri": str(PHOTOS[0]), "label": LABELS, "split": "TRAIN"})
    table = box.images / "labels.csv"
    frame.to_csv(table, index=False, quoting=csv.QUOTE_ALL)
    names: set[frozenset[str]] = set()
    for run in (
        lambda: call(lambda: tfrecorder.convert(frame, box.out, num_shards=2)),
        lambda: call(lambda: tfrecorder.convert(table, box.out, num_shards=2)),
        lambda: command("convert", str(table), str(box.out), "--num-shards", "2"),
    ):
        with nothing_outside(box):
            ended = run()
        demand(not ended.words, f"hostile labels: {ended.words}")
        texts = composed(record["image/class/text"].decode() for record in records(box.out))
        demand(texts == composed(LABELS), "labels have changed")
        names_there = composed(tfrecorder.info(box.out).class_names or ())
        demand(names_there == sorted({*composed(LABELS)}), "other class names")
        names.add(frozenset(path.name for path in box.out.rglob("*")))
        shutil.rmtree(box.out)
    plain = frame.assign(label="x")
    tfrecorder.convert(plain, box.out, num_shards=2)
    names.add(frozenset(path.name for path in box.out.rglob("*")))
    shutil.rmtree(box.out)
    demand(len(names) == 1, f"labels have become file names: {names}")
    return 3 * len(LABELS)


def bad_frames() -> list[tuple[pd.DataFrame, str]]:
    """Frames that nothing can be made of, and a word of what must be said."""
    one = str(PHOTOS[0])
    uris = {
        "FTP://example.com/a.jpg": "ftp://",
        "ftp://example.com/a.jpg": "ftp://",
        "javascript://%0aalert(1)": "javascript://",
        "\udcff.jpg": "not valid Unicode",
        "": "the image is missing",
    }
    frames = []
    values = {None: "missing", 7: "type int", 1.5: "type float", b"a.jpg": "not_an_image"}
    values |= {(1, 2): "type tuple", print: "type builtin"}
    for value, words in {**uris, **values}.items():
        frames.append((pd.DataFrame({"image_uri": pd.Series([one, value], dtype=object)}), words))
    for split in ("../../x", "TRAIN\0", "train-00000", "TRAIN; rm", "\n", "0"):
        frame = pd.DataFrame({"image_uri": [one, one], "split": ["TRAIN", split]})
        frames.append((frame, "is not a split" if split != "\n" else ""))
    for label in ("\ud800", None, object(), [1], {"a": 1}, 1.5, float("inf"), 2**80, -1):
        column = pd.Series(["x", label] if not isinstance(label, int) else [1, label], dtype=object)
        frames.append((pd.DataFrame({"image_uri": [one, one], "label": column}), "label"))
    frames += [
        (pd.DataFrame(), "image_uri"),
        (pd.DataFrame({"image_uri": []}), "no rows"),
        (pd.DataFrame([[one, one]], columns=["image_uri", "image_uri"]), "more than one column"),
        (pd.DataFrame({"__class__": [one]}), "image_uri"),
    ]
    return frames


def try_frames(box: Sandbox) -> int:
    """Every bad frame: refused in words, nothing written."""
    frames = bad_frames()
    for frame, words in frames:
        with nothing_outside(box):
            ended = call(lambda frame=frame: tfrecorder.convert(frame, box.out))
        if words:
            given = frame.to_numpy().tolist()
            demand(words in ended.words, f"{given}: {words!r} is not in {ended.words!r}")
        shutil.rmtree(box.out, ignore_errors=True)
    return len(frames)


def try_numbers(box: Sandbox) -> int:
    """Numbers of every size: each comes back, or its row is named; only its fraction may shrink."""
    random = np.random.default_rng(11)
    given = [sign * 2**power + step for power in range(63) for sign in (1, -1) for step in (-1, 1)]
    given += [*(random.random(200) * 10.0 ** random.integers(-30, 38, 200))]
    frame = pd.DataFrame({"row": range(len(given)), "n": pd.Series(given, dtype=object)})
    schema = {"row": {"kind": "number", "dtype": "int64"}, "n": "number"}
    for cells in (frame["n"], frame["n"].map(str), frame["n"].map(lambda cell: [cell])):
        schema["n"] = {"kind": "number", "shape": (None,) if isinstance(cells[0], list) else ()}
        table = frame.assign(n=cells)
        report = tfrecorder.validate(table, schema=schema)
        named = {*report.row[report.code == "rounded_number"]}
        tfrecorder.convert(table, box.out, schema=schema, progress=False)
        back = tfrecorder.to_frame(box.out).sort_values("row")["n"]
        for row, (number, stored) in enumerate(zip(given, back, strict=True)):
            made = float(np.ravel(stored)[0])
            kept = made == number or (abs(number) <= 2**24 and abs(made / number - 1) < 1e-7)
            demand(kept != (row in named), f"{number!r}, stored as {made!r}: {row in named}")
        shutil.rmtree(box.out)
    return 3 * len(given)


def try_lists(box: Sandbox) -> int:
    """Every name and formula in each CSV that we write, and in a list of what `compact` drops."""
    names = [name for name in NAMES if "\n" not in name and not name.startswith("data:")]
    os.chdir(box.images)
    for name in names:
        (box.images / name).write_bytes(PHOTOS[0].read_bytes())
    frame = pd.DataFrame({"image_uri": names, "label": names, "split": "TRAIN"})
    tfrecorder.convert(frame, box.out, num_shards=1, progress=False)
    tfrecorder.inspect(box.out, "TRAIN", 999, output_dir=box.folder / "work/look")
    frame.to_csv("faulty.csv", index=False, quoting=csv.QUOTE_ALL)
    with open("faulty.csv", "a", newline="") as file:
        csv.writer(file).writerows([(f"{text}.jpg", text, text) for text in FORMULAS])
    written = [
        (box.folder / "work/look/records.csv").read_bytes().decode(),
        command("inspect", str(box.out), "--csv", "--num-records", "999").result,
        command("validate", "faulty.csv", "--csv").words,
    ]
    for text in written:
        rows = csv.reader(io.StringIO(text, newline=""))
        ran = [cell for row in rows for cell in row if cell.startswith(FORMULAS) and len(cell) > 2]
        demand(not ran, f"a spreadsheet runs {ran}")
    kept, dropped = names[::2], names[1::2]
    for mark in ("", "\ufeff"):
        for end in ("\n", "\r\n"):
            text = mark + end.join(dropped) + end
            (box.folder / "drop.txt").write_bytes(text.encode())
            target = box.folder / "work/compacted"
            tfrecorder.compact(box.out, target, drop=box.folder / "drop.txt", progress=False)
            stored = sorted(record["image/filename"].decode() for record in records(target))
            demand(stored == sorted(kept), f"{mark!r} {end!r}: other records than those kept")
            shutil.rmtree(target)
    os.chdir(box.folder / "work")
    return 4 * len(names)


def try_data_uris(box: Sandbox) -> int:
    """Images in uris, escaped in every way: each is there, and cheap."""
    data = (PHOTOS[0].read_bytes() + bytes(2_000_000))[:2_000_000]  # zeros after its end
    every = "".join(f"%{byte:02x}" for byte in data)
    bodies = {
        "usual": urllib.parse.quote(data),
        "every byte": every,
        "upper case": every.upper().replace("X", "x"),
        "percent signs after it": urllib.parse.quote(data[:-500_000]) + "%" * 500_000,
        "one percent sign after it": urllib.parse.quote(data) + "%",
        "no digits after it": urllib.parse.quote(data) + "%zz%=" * 100_000,
        "spaces and lines after it": urllib.parse.quote(data) + "%20\n=\t" * 100_000,
        "base64": ";base64," + base64.b64encode(data).decode(),
    }
    for name, body in bodies.items():
        uri = f"data:image/jpeg{'' if name == 'base64' else ','}{body}"
        began = time.process_time()
        report = tfrecorder.validate(pd.DataFrame({"image_uri": [uri]}), progress=False)
        seconds = time.process_time() - began
        demand("image_uri" not in {*report["column"]}, f"{name}: {report}")
        demand(seconds < 0.5 + 0.3 * len(uri) / 1e6, f"{name}: {seconds:.1f} s of CPU")
    return len(bodies)
