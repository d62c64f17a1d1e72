"""The process of the command line: Ctrl-C while it starts, and locales other than UTF-8."""

from __future__ import annotations

import gzip
import os
import shlex
import shutil
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from support import PHOTOS, run, slow_cases

import tfrecorder

#: Presses Ctrl-C when a module is looked for, of those with a name the first, third or so: in a
#: file that Python runs before anything else.
PRESS = """
import os, signal, sys

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's "&" ignores it

class Finder:
    looked_for = 0

    def find_spec(self, name, path=None, target=None):
        if name.startswith({begin!r}):
            self.looked_for += 1
            if self.looked_for == {number}:
                os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
"""

#: What pip makes of an entry point.
(ENTRY,) = entry_points(group="console_scripts", name="tfrecorder")
SCRIPT = f"import sys\nfrom {ENTRY.module} import {ENTRY.attr}\nsys.exit({ENTRY.attr}())\n"


@pytest.mark.parametrize("started", ["python -m tfrecorder", "tfrecorder", "another program"])
@pytest.mark.parametrize(
    ("begin", "number"),
    [("tfrecorder.", 3), ("pandas", 1), *slow_cases(("click", 1), ("tfrecorder.", 40))],
)
def test_ctrl_c_while_the_command_is_imported_leaves_no_traceback(
    started: str, begin: str, number: int, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(PRESS.format(begin=begin, number=number))
    (tmp_path / "tfrecorder").write_text(SCRIPT)
    (tmp_path / "train.py").write_text(SCRIPT)
    path = os.pathsep.join([str(tmp_path), str(Path(tfrecorder.__file__).parents[1])])
    words = {
        "python -m tfrecorder": ["-W", "ignore", "-m", "tfrecorder"],
        "tfrecorder": [tmp_path / "tfrecorder"],
        "another program": [tmp_path / "train.py"],
    }
    done = run(*words[started], "info", "tfrecorder", env={**os.environ, "PYTHONPATH": path})
    if started == "another program":
        assert "KeyboardInterrupt" in done.stderr
    else:
        assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def in_ascii(*words: str) -> subprocess.CompletedProcess[bytes]:
    """A command in a process whose locale has no other characters."""
    ascii_only = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-W", "ignore", "-m", "tfrecorder", *words]
    return subprocess.run(command, env={**os.environ, **ascii_only}, capture_output=True)


@pytest.fixture
def folder() -> Path:
    """A folder of photographs whose name has an umlaut, and a table of them."""
    folder = Path("photos/grün")
    folder.mkdir(parents=True)
    for path in PHOTOS[:3]:
        shutil.copy(path, folder)
    rows = "".join(f"photos/grün/{path.name},grün\n" for path in PHOTOS[:3])
    Path("photos.csv").write_text(f"image_uri,label\n{rows}", encoding="utf-8")
    return folder


COMMANDS = [
    ("convert", "photos.csv", "new"),
    ("validate", "photos.csv"),
    ("schema", "photos.csv"),
    ("append", "photos.csv", "out", "--duplicates", "keep"),
    ("update", "photos.csv", "out"),
    ("remove", "out", "--where", "label=犬"),
    ("undo", "out"),
    ("status", "out"),
    ("info", "out"),
    ("verify", "out"),
    ("repair", "out"),
    ("inspect", "out"),
    ("duplicates", "out"),
    ("preview", "out"),
    ("card", "out"),
    ("export", "out", "given", "--to", "csv"),
    ("compact", "out"),
    ("info", "犬"),
    ("convert", "犬.csv", "犬"),
    ("cache", "犬"),
    ("verify", "out", "--absent", "犬"),
]


@pytest.mark.slow
def test_what_cannot_be_encoded_is_escaped_by_every_command() -> None:
    Path("photos").mkdir()
    for number, path in enumerate(PHOTOS[:4]):
        shutil.copy(path, f"photos/{'犬ß'[number % 2]}{number}.jpg")
    rows = [f"photos/{'犬ß'[n % 2]}{n}.jpg,{'犬ß'[n % 2]}\n" for n in range(4)]
    Path("photos.csv").write_text("image_uri,label\n" + "".join(rows), encoding="utf-8")
    tfrecorder.convert("photos.csv", "out", progress=False)
    environment = {**os.environ, "PYTHONIOENCODING": "cp1252"}
    for words in COMMANDS:
        command = [sys.executable, "-W", "ignore", "-m", "tfrecorder", *words]
        done = subprocess.run(command, env=environment, capture_output=True)
        said = done.stdout.decode("cp1252") + done.stderr.decode("cp1252")
        assert "Traceback" not in said, (words, said)
        if "犬" not in "".join(words) and words[0] in ("convert", "info", "inspect"):
            assert done.returncode == 0, (words, said)
            assert "\\u72ac" in said, words


def test_a_closed_standard_input_is_one_line() -> None:
    command = shlex.join([sys.executable, "-m", "tfrecorder", "convert", "-", "out"])
    done = subprocess.run(f"{command} <&-", shell=True, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: - is standard input, which is closed; give a file. ")
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_a_full_temporary_folder_is_one_line(tmp_path: Path, folder: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = ["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", str(small)]
    if subprocess.run(mounted, capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        table = "image_uri,label\n" + "photos/a.jpg,a\n" * 5000
        for data in (table.encode(), gzip.compress(table.encode())):
            for words in (("convert", "-", "out"), ("validate", "-")):
                command = [sys.executable, "-m", "tfrecorder", *words]
                environment = {**os.environ, "TMPDIR": str(small)}
                done = subprocess.run(command, input=data, env=environment, capture_output=True)
                lines = done.stderr.decode().splitlines()
                assert (done.returncode, done.stdout, len(lines)) == (1, b"", 1), lines
                assert f"{small} cannot be written: No space left on device." in lines[0]
                assert "set TMPDIR to a larger disk" in lines[0]
    finally:
        subprocess.run(["umount", str(small)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("validate", "photos"),
        ("convert", "photos.csv", "out"),
        ("validate", "größe.csv"),
        ("info", "größe"),
        ("convert", "photos.csv", "größe"),
        ("stream", "photos", "out", "--until-idle", "1"),
    ],
    ids=" ".join,
)
def test_a_locale_without_the_characters_of_a_path_is_named_and_not_the_path(
    folder: Path, words: tuple[str, ...]
) -> None:
    done = in_ascii(*words)
    assert (done.returncode, done.stderr.count(b"\n")) == (1, 1), done.stderr
    assert done.stderr.startswith(b"error: the locale of this process (ascii) does not have")
    assert b"set PYTHONUTF8=1, or a locale such as LC_ALL=C.UTF-8" in done.stderr
    assert done.stdout == b""
    assert not list(Path().rglob("*.tfrecord"))


@pytest.mark.slow
def test_a_locale_without_umlauts_converts_paths_without_them(folder: Path) -> None:
    folder.rename("photos/green")
    assert in_ascii("convert", "photos", "out").returncode == 0
    assert tfrecorder.info("out").records == 3
    assert in_ascii("verify", "out").returncode == 0
