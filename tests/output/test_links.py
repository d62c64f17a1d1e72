"""Links inside a dataset: nothing is written, renamed or removed through them."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support import content_files, invoke, photo_frame, public_files
from torture import hostile_links
from torture.sandbox import listing

import tfrecorder
from tfrecorder import TfrecorderError
from tfrecorder.errors import OutputError

SHARD = "train-00000.tfrecord"
MANIFEST = "_tfrecorder/commits/00000.json"
COMMANDS = {
    "repair": lambda: tfrecorder.repair("out", progress=False),
    "continue": lambda: convert("out", overwrite=True),
    "overwrite": lambda: convert("out", overwrite=True),
    "undo": lambda: tfrecorder.undo("out"),
}


def harm(command: str) -> None:
    """Leave `out` so that the command has something to do."""
    if command == "repair":
        Path("out", SHARD).unlink()
    if command in ("continue", "undo"):
        tfrecorder.parts.stage(photo_frame(8), "out", num_shards=2, overwrite=True)
        tfrecorder.parts.work("out", part=(1, 2), progress=False)


def convert(out: str, **options: object) -> None:
    tfrecorder.convert(photo_frame(8), out, num_shards=2, progress=False, **options)


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("clean") / "out"
    convert(str(out))
    return out


@pytest.fixture(autouse=True)
def _received(clean: Path) -> None:
    """`out`, a dataset that somebody sent, and `mine`, a sound one with files of the same names."""
    shutil.copytree(clean, "out")
    shutil.copytree(clean, "mine")
    for name in hostile_links.PRIVATE_FOLDERS:
        Path("mine", name).mkdir(exist_ok=True)
        Path("mine", name, "note").write_text("mine")
    for path in (path for path in Path("mine").rglob("*") if path.is_file()):
        path.write_bytes(path.read_bytes() + b"mine")


def put_link(name: str, target: str | Path) -> None:
    path = Path("out", name)
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.symlink_to(Path(target).absolute())


def unharmed() -> Callable[[], bool]:
    before = listing(Path("mine"))
    return lambda: listing(Path("mine")) == before


# ------------------------------------------------------------------------------------- refused


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", hostile_links.PRIVATE_FOLDERS)
def test_a_link_in_the_place_of_a_folder_is_refused_in_one_line(name: str, command: str) -> None:
    is_unharmed = unharmed()
    harm(command)
    put_link(name, f"mine/{name}")
    before = listing(Path("out"))
    with pytest.raises(TfrecorderError) as caught:
        COMMANDS[command]()
    assert is_unharmed()
    assert str(caught.value).endswith(
        f"out cannot be written: {name} is a link, and nothing is written through a link inside a "
        "dataset; remove it, or replace it with the folder that it leads to."
    )
    assert listing(Path("out")) == before


@pytest.mark.parametrize("command", COMMANDS)
def test_our_whole_folder_may_not_be_a_link_to_a_sound_one(clean: Path, command: str) -> None:
    harm(command)
    shutil.copytree("out", "other")
    before = listing(Path("other"))
    put_link("_tfrecorder", "other/_tfrecorder")
    with pytest.raises(OutputError, match="_tfrecorder is a link"):
        COMMANDS[command]()
    assert listing(Path("other")) == before


def test_the_command_line_says_so_in_one_line() -> None:
    put_link("_tfrecorder/done", "mine/_tfrecorder/done")
    ended = invoke("repair", "out")
    assert ended.exit_code == 1
    assert len(ended.stderr.splitlines()) == 1
    assert "_tfrecorder/done is a link" in ended.stderr


def test_a_lock_that_is_a_link_is_not_opened() -> None:
    put_link("_tfrecorder/lock", "mine/new")
    with pytest.raises(OutputError, match="_tfrecorder/lock is a link; remove it"):
        tfrecorder.repair("out", progress=False)
    assert not Path("mine/new").exists()


def test_a_file_in_the_place_of_a_folder_is_named() -> None:
    shutil.rmtree("out/_tfrecorder/index")
    Path("out", "_tfrecorder/index").touch()
    with pytest.raises(OutputError, match="_tfrecorder/index is a file where a folder belongs"):
        tfrecorder.repair("out", progress=False)


@pytest.mark.slow
def test_no_link_that_comes_while_a_command_runs_is_followed(tmp_path: Path) -> None:
    assert hostile_links.race(tmp_path / "race", "_tfrecorder/index", times=2) == 4


# ------------------------------------------------------------------------- replaced, not followed


@pytest.mark.parametrize(
    "name",
    [SHARD, "features.json", MANIFEST, f"_tfrecorder/index/{SHARD}.idx"],
)
def test_a_link_in_the_place_of_a_file_is_replaced(clean: Path, name: str) -> None:
    is_unharmed = unharmed()
    put_link(name, f"mine/{name}")
    assert tfrecorder.repair("out", progress=False).files == (name,)
    assert is_unharmed()
    assert not Path("out", name).is_symlink()
    if name != MANIFEST:  # which is made again from the shards, and not from what it was
        assert Path("out", name).read_bytes() == (clean / name).read_bytes()
    assert tfrecorder.verify("out", progress=False).ok


def test_links_in_what_is_removed_are_removed_alone(clean: Path) -> None:
    is_unharmed = unharmed()
    put_link(SHARD, f"mine/{SHARD}")
    Path("out", "_tfrecorder/tmp", "deeper").mkdir(parents=True)
    put_link("_tfrecorder/tmp/deeper/folder", "mine")
    put_link("_tfrecorder/tmp/file", f"mine/{SHARD}")
    convert("out", overwrite=True)
    assert is_unharmed()
    assert content_files("out") == content_files(clean)
    assert not Path("out", "_tfrecorder/tmp").exists()


# ---------------------------------------------------------------------- what goes on as it did


@pytest.mark.parametrize("where", ["link", "link/below"])
def test_the_directory_that_the_user_names_may_lie_behind_links(clean: Path, where: str) -> None:
    Path("elsewhere").mkdir()
    Path("link").symlink_to("elsewhere")
    convert(where)
    Path(where, SHARD).unlink()
    tfrecorder.repair(where, progress=False)
    assert public_files(where) == public_files(clean)


@pytest.mark.slow
def test_however_deep_the_leftovers_are_they_are_removed(clean: Path) -> None:
    above = os.open("out/_tfrecorder", os.O_RDONLY)
    for name in ("tmp", *["deeper"] * 3000):
        os.mkdir(name, dir_fd=above)
        below = os.open(name, os.O_RDONLY, dir_fd=above)
        os.close(above)
        above = below
    os.close(above)
    convert("out", overwrite=True)
    assert content_files("out") == content_files(clean)
    assert not Path("out", "_tfrecorder/tmp").exists()


def test_no_descriptor_stays_open() -> None:
    COMMANDS["overwrite"]()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        Path("out/train-r2-00000.tfrecord").unlink()
        tfrecorder.repair("out", progress=False)
    put_link("_tfrecorder/done", "mine/_tfrecorder/done")
    for _ in range(3):
        with pytest.raises(OutputError):
            tfrecorder.repair("out", progress=False)
    # Fewer where what came before was still to be collected.
    assert len(os.listdir("/proc/self/fd")) <= before


def test_a_disk_that_has_no_locks_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", refused)
    Path("out", SHARD).unlink()
    assert tfrecorder.repair("out", progress=False).files == (SHARD,)
