"""Users of one group write one dataset in turn: each file is made as their umask says."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.growing_cases import drawn

GROUP, OWNER, COLLEAGUE, STRANGER = 7300, 7301, 7302, 7303

#: Reading is allowed, so that a Python below the home of root runs; writing is as the modes say.
READS = ("--inh-caps=-all,+dac_read_search", "--ambient-caps=+dac_read_search")

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None,
    reason="only root can be several users, with setpriv",
)

BEGIN = """
import os, sys
os.umask(int(sys.argv[1], 8))
import pandas as pd, tfrecorder
def rows(*numbers):
    uris = [os.path.abspath(f"img/{number}.png") for number in numbers]
    return pd.DataFrame({"split": "TRAIN", "image_uri": uris, "label": "a"})
quiet = {"progress": False}
"""

CONVERT = 'tfrecorder.convert(rows(0, 1, 2, 3), "shared/out", num_shards=2, **quiet)'

ALL_ELSE = """
tfrecorder.append(rows(4, 5), "shared/out", **quiet)
tfrecorder.undo("shared/out")
tfrecorder.append(rows(4, 5), "shared/out", **quiet)
tfrecorder.update(rows(0, 1, 2).assign(label="b"), "shared/out", **quiet)
tfrecorder.undo("shared/out")
tfrecorder.update(rows(0).assign(label="b"), "shared/out", **quiet)
tfrecorder.remove("shared/out", {"row": [1]}, **quiet)
tfrecorder.compact("shared/out", num_shards=1, **quiet)
os.remove("shared/out/features.json")
tfrecorder.repair("shared/out", progress=False)
tfrecorder.card("shared/out", progress=False)
assert tfrecorder.verify("shared/out", records=True, progress=False).ok
assert len(tfrecorder.to_frame("shared/out")) == 5
tfrecorder.convert(rows(0, 1), "shared/out", overwrite="all", **quiet)
"""


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of the group, in one that everybody may enter, unlike those of pytest."""
    with tempfile.TemporaryDirectory() as above:
        os.chmod(above, 0o755)
        monkeypatch.chdir(above)
        drawn("img", 6, (9, 9))
        shared = Path(above, "shared")
        shared.mkdir()
        os.chown(shared, OWNER, GROUP)
        shared.chmod(0o2775)
        yield shared


def run_as(user: int, umask: str, code: str) -> subprocess.CompletedProcess[str]:
    who = (f"--reuid={user}", f"--regid={GROUP}", "--clear-groups", *READS)
    return subprocess.run(
        ["setpriv", *who, sys.executable, "-W", "ignore", "-c", BEGIN + code, umask],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "HOME": "/nonexistent"},
    )


def modes(out: Path) -> set[str]:
    return {stat.filemode(path.stat().st_mode) for path in out.rglob("*")}


@pytest.mark.slow
def test_one_converts_and_another_of_the_group_does_all_else(folder: Path) -> None:
    made = run_as(OWNER, "002", CONVERT)
    assert made.returncode == 0, made.stderr
    assert modes(folder / "out") == {"-rw-rw-r--", "drwxrwsr-x"}
    done = run_as(COLLEAGUE, "002", ALL_ELSE)
    assert done.returncode == 0, done.stderr
    assert modes(folder / "out") == {"-rw-rw-r--", "drwxrwsr-x"}
    again = run_as(OWNER, "002", 'tfrecorder.append(rows(5), "shared/out", **quiet)')
    assert again.returncode == 0, again.stderr


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["append(rows(5), ", "remove(where={'row': 1}, directory="])
def test_without_the_right_one_line_names_the_file_and_the_right(folder: Path, verb: str) -> None:
    assert run_as(OWNER, "022", CONVERT).returncode == 0
    assert modes(folder / "out") == {"-rw-r--r--", "drwxr-sr-x"}
    refused = run_as(COLLEAGUE, "022", f'tfrecorder.{verb}"shared/out", **quiet)')
    assert refused.returncode == 1
    line = refused.stderr.strip().splitlines()[-1]
    assert line.startswith("tfrecorder.errors.OutputError: ")
    assert "shared/out/_tfrecorder/lock" in line
    assert "the right to write" in line
    assert "chmod -R g+w" in line
    assert run_as(OWNER, "022", 'tfrecorder.append(rows(5), "shared/out", **quiet)').returncode == 0
