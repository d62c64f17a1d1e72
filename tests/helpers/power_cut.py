"""What a power cut leaves of a folder: a script's writes are recorded, and replayed in part.

    recording = recorded("import tfrecorder; tfrecorder.convert(…)", tmp_path)
    for call, folder in recording.states(tmp_path / "after", [recording.marks["converted"]]):
        ...

strace (of the package of that name) tells each call that changes the folder.  A disk keeps of them
what was synced: of a file the writes that had ended when an `fsync` of it began, of a folder the
names that were in it when an `fsync` of the folder began.  What came later may be lost.  Changes of
one folder are kept in their order, and a rename between two folders in both or in neither, as
every file system with a journal has it.  Nothing else is promised: a file's `fsync` does not keep
its name, nor that of its folder, which is less than ext4, XFS and Btrfs do.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).parent.parent

#: What is kept of calls that nothing synced: none, the names of files alone (so that a new file is
#: empty), or all, as where the process alone ends.  A number keeps a random part of each.
UNSYNCED = ("none", "names")

_MARK = "/power-cut/"
_CALLS = (
    "open,openat,creat,close,dup,dup2,dup3,fcntl,lseek,read,write,writev,pwrite64,pwritev,pwritev2,"
    "truncate,ftruncate,fallocate,sendfile,copy_file_range,mmap,rename,renameat,renameat2,link,"
    "linkat,symlink,symlinkat,unlink,unlinkat,mkdir,mkdirat,rmdir,fsync,fdatasync,chdir,"
    "clone,clone3,fork,vfork,execve"
)
#: The longest write that is recorded.
_LONGEST = 2**26


def strace() -> str | None:
    """The command of strace; None where it is not installed."""
    return shutil.which("strace")


def mark(name: str) -> None:
    """In a recorded script: what is done by now has this name among the marks."""
    with contextlib.suppress(OSError):
        os.open(_MARK + name, os.O_RDONLY)


def contents(folder: Path) -> dict[str, bytes]:
    """The files below a folder, but for those that were not complete."""
    files = {path.relative_to(folder): path for path in folder.rglob("*") if path.is_file()}
    return {str(name): path.read_bytes() for name, path in files.items() if "tmp" not in name.parts}


# ---------------------------------------------------------------------------------------- the disk


@dataclass(eq=False, repr=False)
class File:
    """A file as a list of changes, each with the number of its call."""

    base: bytes = b""
    changes: list[tuple[int, int, bytes | None]] = field(default_factory=list)  # None: cut here
    syncs: list[tuple[int, int]] = field(default_factory=list)  # (ended, what it keeps)
    size: int = 0

    def content(self, changes: int) -> bytes:
        """The bytes after so many changes."""
        data = bytearray(self.base)
        for _, start, written in self.changes[:changes]:
            if written is None:
                del data[start:]
            data += bytes(max(0, start - len(data)))
            data[start : start + len(written or b"")] = written or b""
        return bytes(data)


@dataclass
class Folder:
    """A folder as a list of changes: a name, and what it stands for from then on."""

    base: dict[str, Node] = field(default_factory=dict)
    changes: list[tuple[int, str, Node | None]] = field(default_factory=list)
    syncs: list[tuple[int, int]] = field(default_factory=list)
    names: dict[str, Node] = field(default_factory=dict)

    def entries(self, last: int) -> dict[str, Node]:
        entries = dict(self.base)
        for call, name, node in self.changes:
            if call > last:
                break
            entries.pop(name, None)
            if node is not None:
                entries[name] = node
        return entries

    def change(self, call: int, name: str, node: Node | None) -> None:
        self.changes.append((call, name, node))
        self.names.pop(name, None)
        if node is not None:
            self.names[name] = node


class Link(NamedTuple):
    """A symbolic link."""

    target: str


Node = File | Folder | Link


def _synced(node: File | Folder, last: int) -> int:
    """The last call whose change of this file or folder is certainly kept after call `last`."""
    return max((kept for ended, kept in node.syncs if ended <= last), default=0)


def _loaded(path: str) -> Node:
    """What is on the disk before: all of it is kept."""
    if os.path.islink(path):
        return Link(os.readlink(path))
    if os.path.isdir(path):
        entries = {name: _loaded(os.path.join(path, name)) for name in os.listdir(path)}
        return Folder(entries, names=dict(entries))
    data = Path(path).read_bytes()
    return File(data, size=len(data))


class Call(NamedTuple):
    """A call that changed or synced something.

    Attributes:
        name: of the system call.
        paths: relative to the folder; two of a rename or link.
    """

    name: str
    paths: tuple[str, ...]


@dataclass(frozen=True)
class Recording:
    """All that a script did to a folder.

    Attributes:
        calls: in the order in which they ended; call 1 is the first.
        marks: how many calls had ended at each `mark` of the script.
        output: what the script printed.
    """

    calls: list[Call]
    marks: dict[str, int]
    output: str
    _root: Folder
    _moves: list[tuple[int, Folder, Folder]]

    def states(
        self,
        where: Path,
        cuts: Iterable[int] | None = None,
        unsynced: Iterable[str | int] = UNSYNCED,
    ) -> Iterator[tuple[int, Path]]:
        """Each different folder that a power cut may leave, with the last call before the cut.

        Args:
            where: a path for it; what is there is removed when the next one is asked for.
            cuts: the last calls before the cuts, 0 for none; by default any.
            unsynced: what is kept of the rest; see `UNSYNCED`.
        """
        seen = set()
        calls = range(len(self.calls) + 1) if cuts is None else cuts
        for call, kept in itertools.product(calls, unsynced):
            tree = self._tree(call, kept)
            if (state := repr(tree)) not in seen:
                seen.add(state)
                shutil.rmtree(where, ignore_errors=True)
                _write(tree, where, {})
                yield call, where
        shutil.rmtree(where, ignore_errors=True)

    def _tree(self, call: int, kept: str | int) -> dict[str, object]:
        chance = random.Random(f"{kept} {call}")

        def last_of(node: File | Folder) -> int:
            synced = _synced(node, call)
            if kept == "all" or (kept == "names" and isinstance(node, Folder)):
                return call
            return synced if isinstance(kept, str) else chance.randint(synced, call)

        lasts: dict[int, int] = {}

        def last(node: File | Folder) -> int:
            return lasts.setdefault(id(node), last_of(node))

        moves = [move for move in self._moves if move[0] <= call]
        while True:
            before = dict(lasts)
            for moved, old, new in moves:
                if max(last(old), last(new)) >= moved:
                    lasts[id(old)] = max(last(old), moved)
                    lasts[id(new)] = max(last(new), moved)
            if lasts == before:
                break

        def tree(folder: Folder) -> dict[str, object]:
            nodes = sorted(folder.entries(last(folder)).items())
            return {name: shown(node) for name, node in nodes}

        def shown(node: Node) -> object:
            if isinstance(node, Folder):
                return tree(node)
            if isinstance(node, Link):
                return node
            return node, sum(call <= last(node) for call, _, _ in node.changes)

        return tree(self._root)


def _write(tree: dict[str, object], where: Path, written: dict[File, Path]) -> None:
    where.mkdir()
    for name, shown in tree.items():
        path = where / name
        match shown:
            case dict():
                _write(shown, path, written)
            case Link(target):
                path.symlink_to(target)
            case (File() as file, int(changes)):
                if file in written:
                    os.link(written[file], path)
                else:
                    path.write_bytes(file.content(changes))
                    written[file] = path


# ----------------------------------------------------------------------------------- the recording


def recorded(script: str, folder: Path, *arguments: str, timeout: float = 300) -> Recording:
    """Run a Python script, and record what it and its processes do below a folder.

    Args:
        script: its text; it may import this module, for `mark`.
        folder: as it is before the script begins, it is taken to be on the disk.

    Raises:
        AssertionError: the script failed, or did something that is not recorded (it wrote through
            `mmap` or `sendfile`, say).
    """
    root = os.path.realpath(folder)
    disk = _Disk(root, _loaded(root))
    trace = f"{root}.strace"
    command = [strace() or "strace", "-f", "-y", "-xx", "--seccomp-bpf", "-o", trace]
    command += ["-s", str(_LONGEST), "-e", "signal=none", "-e", "raw=read,mmap"]
    command += ["-e", f"trace={_CALLS}", sys.executable, "-c", script, *arguments]
    paths = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stderr
    try:
        with open(trace, encoding="ascii") as lines:
            disk.replay(list(lines))
    finally:
        os.remove(trace)
    return Recording(disk.calls, disk.marks, done.stdout, disk.root, disk.moves)


@dataclass
class _Open:
    """An open file or folder, which descriptors share."""

    node: File | Folder
    appends: bool = False
    at: int = 0
    closes_on_exec: bool = False


@dataclass
class _Process:
    """What the threads of a process share."""

    cwd: str
    opened: dict[int, _Open] = field(default_factory=dict)


_LINE = re.compile(r"(\d+) +(?:<\.\.\. (\w+) resumed>)?(.*)")
_DONE = re.compile(r"(.*)\) += (-?\w+|\?)(?:<([^>]*)>)?(.*)", re.DOTALL)
_NO_RESULT = ("+++", "---")


class _Disk:
    """The folder as the calls change it."""

    def __init__(self, path: str, root: Node) -> None:
        assert isinstance(root, Folder)
        self._path, self.root = path, root
        self.calls: list[Call] = []
        self.marks: dict[str, int] = {}
        self.moves: list[tuple[int, Folder, Folder]] = []
        self._processes: dict[str, _Process] = {}
        self._parents: dict[str, tuple[str, bool]] = {}

    def replay(self, lines: list[str]) -> None:
        """Do what strace wrote; a call is done when it ends."""
        begun: dict[str, tuple[str, int]] = {}
        ended: list[tuple[str, str, int]] = []
        for line in lines:
            found = _LINE.match(line)
            assert found is not None, line[:200]
            thread, resumed, text = found.groups()
            if text.startswith(_NO_RESULT):
                continue
            if text.endswith("<unfinished ...>"):
                start = text.removesuffix("<unfinished ...>").rstrip()
                begun[thread] = (start, len(ended))
                if start.startswith("close("):  # another thread may get its number at once
                    ended.append((thread, f"{start}) = 0", len(ended)))
                continue
            if resumed == "close":
                continue
            start, since = begun.pop(thread, ("", len(ended))) if resumed else ("", len(ended))
            ended.append((thread, start + text, since))
        # A child may go on before its parent's call has ended.
        for thread, text, _ in ended:
            name, _, _ = text.partition("(")
            result = _DONE.match(text)
            if name in ("clone", "clone3", "fork", "vfork") and result and result[2].isdecimal():
                shares = name in ("clone", "clone3") and "CLONE_FILES" in text
                self._parents[result[2]] = (thread, shares)
        since_call: list[int] = []  # how many calls of ours had ended when each call of all ended
        for thread, text, since in ended:
            started = since_call[since] if since < len(since_call) else len(self.calls)
            since_call.append(len(self.calls))
            result = _DONE.match(text)
            if result is None or result[2] == "?":
                continue
            name, _, given = result[1].partition("(")
            self._do(thread, name, _arguments(given), result[2], result[3], started)

    def _process(self, thread: str) -> _Process:
        if thread not in self._processes:
            parent, shares = self._parents.get(thread, ("", False))
            if not parent:
                self._processes[thread] = _Process(os.getcwd())
            elif shares:
                self._processes[thread] = self._process(parent)
            else:
                of = self._process(parent)
                self._processes[thread] = _Process(of.cwd, dict(of.opened))
        return self._processes[thread]

    def _do(
        self, thread: str, name: str, given: list[str], result: str, path: str | None, start: int
    ) -> None:
        process = self._process(thread)
        if name in ("open", "openat", "creat"):
            self._open(process, name, given, result, path)
            return
        if result.startswith("-"):
            return
        if name == "execve":
            kept = {at: file for at, file in process.opened.items() if not file.closes_on_exec}
            process.opened = kept
        elif name == "chdir":
            process.cwd = os.path.join(process.cwd, _text(given[0]))
        elif name in _NAMES:
            _NAMES[name](self, process, name, given)
        elif name not in ("clone", "clone3", "fork", "vfork"):
            self._use(process, name, given, int(result, 0), start)

    # ------------------------------------------------------------------------------------- names

    def _open(
        self, process: _Process, name: str, given: list[str], result: str, path: str | None
    ) -> None:
        asked = _text(given[1 if name == "openat" else 0])
        if asked.startswith(_MARK):
            self.marks[asked.removeprefix(_MARK)] = len(self.calls)
        if result.startswith("-"):
            return
        process.opened.pop(int(result), None)
        flags = given[2 if name == "openat" else 1] if name != "creat" else "O_CREAT|O_TRUNC"
        relative = self._below(_decoded(path or ""))
        if relative is None:
            return
        assert "O_TMPFILE" not in flags, "files without a name are not recorded"
        node = self._node(relative)
        if node is None:
            if "O_CREAT" not in flags:  # another thread moves it there, which ends a moment later
                return
            above, last = self._above(relative)
            node = File()
            above.change(self._count("creat", relative), last, node)
        elif isinstance(node, File) and "O_TRUNC" in flags and node.size:
            self._cut(node, self._count("truncate", relative), 0)
        assert not isinstance(node, Link)
        exec_closes = "O_CLOEXEC" in flags
        process.opened[int(result)] = _Open(node, "O_APPEND" in flags, 0, exec_closes)

    def _rename(self, process: _Process, name: str, given: list[str]) -> None:
        assert "RENAME_EXCHANGE" not in (given[-1] if name == "renameat2" else "")
        old, new = self._two(process, name, given)
        if old is None and new is None:
            return
        assert old is not None, "moved into the folder"
        assert new is not None, "moved out of the folder"
        node = self._node(old)
        assert node is not None, old
        if self._node(new) is node:
            return  # another link of the same file: nothing is done
        (here, name_here), (there, name_there) = self._above(old), self._above(new)
        call = self._count("rename", old, new)
        here.change(call, name_here, None)
        there.change(call, name_there, node)
        if here is not there:
            self.moves.append((call, here, there))

    def _link(self, process: _Process, name: str, given: list[str]) -> None:
        old, new = self._two(process, name, given)
        if new is None:
            return
        assert old is not None, "linked from elsewhere"
        node = self._node(old)
        assert node is not None, old
        above, last = self._above(new)
        above.change(self._count("link", old, new), last, node)

    def _two(self, process: _Process, name: str, given: list[str]) -> tuple[str | None, str | None]:
        if name in ("rename", "link"):
            return self._at(process, "", given[0]), self._at(process, "", given[1])
        return self._at(process, given[0], given[1]), self._at(process, given[2], given[3])

    def _symlink(self, process: _Process, name: str, given: list[str]) -> None:
        path = self._at(process, given[1] if name == "symlinkat" else "", given[-1])
        if path is not None:
            above, last = self._above(path)
            above.change(self._count("symlink", path), last, Link(_text(given[0])))

    def _unlink(self, process: _Process, name: str, given: list[str]) -> None:
        path = self._at(process, *(given[:2] if name == "unlinkat" else ("", given[0])))
        if path is not None:
            above, last = self._above(path)
            above.change(self._count("unlink", path), last, None)

    def _mkdir(self, process: _Process, name: str, given: list[str]) -> None:
        path = self._at(process, *(given[:2] if name == "mkdirat" else ("", given[0])))
        if path is not None:
            above, last = self._above(path)
            above.change(self._count("mkdir", path), last, Folder())

    def _truncate(self, process: _Process, name: str, given: list[str]) -> None:
        path = self._at(process, "", given[0])
        node = None if path is None else self._node(path)
        if isinstance(node, File):
            self._cut(node, self._count("truncate", path or ""), int(given[1]))

    # ------------------------------------------------------------------------------- descriptors

    def _use(self, process: _Process, name: str, given: list[str], result: int, start: int) -> None:
        number = given[4 if name == "mmap" else 0].partition("<")[0]
        at = int(number, 0)
        used = process.opened.get(at)
        if name == "close":
            process.opened.pop(at, None)
        elif name.startswith("dup") or (name == "fcntl" and "F_DUPFD" in given[1]):
            process.opened.pop(result, None)
            if used is not None:
                process.opened[result] = used
        if name in ("sendfile", "copy_file_range"):
            out = given[0 if name == "sendfile" else 2].partition("<")[0]
            assert int(out) not in process.opened, f"{name} is not recorded"
        if used is None:
            return
        node, path = used.node, self._below(_decoded(_annotation(given[0]))) or ""
        if name in ("fsync", "fdatasync"):
            node.syncs.append((self._count("fsync", path), start))
        if not isinstance(node, File):
            return
        if name == "lseek":
            used.at = result
        elif name == "read":
            used.at += result
        elif name == "mmap":
            writes, shared = int(given[2], 0) & 2, int(given[3], 0) & 1
            assert not (writes and shared), "writes through mmap are not recorded"
        elif name == "ftruncate":
            self._cut(node, self._count("truncate", path), int(given[1]))
        elif name == "fallocate":
            assert given[1] in ("0", "FALLOC_FL_KEEP_SIZE"), given[1]
            end = int(given[2]) + int(given[3])
            if given[1] == "0" and end > node.size:
                self._cut(node, self._count("truncate", path), end)
        elif "write" in name:
            data = b"".join(map(_bytes, re.findall(r'"[^"]*"(?:\.\.\.)?', ",".join(given[1:]))))
            assert len(data) >= result, f"a write of {result:,} bytes is not recorded whole"
            place = used.at
            if name.startswith("pwrite"):
                place = int(given[-2 if name == "pwritev2" else -1])
            place = node.size if used.appends else place
            node.changes.append((self._count("write", path), place, data[:result]))
            node.size = max(node.size, place + result)
            if not name.startswith("pwrite"):
                used.at = place + result

    def _cut(self, file: File, call: int, size: int) -> None:
        file.changes.append((call, size, None))
        file.size = size

    # ------------------------------------------------------------------------------------- paths

    def _count(self, name: str, *paths: str) -> int:
        self.calls.append(Call(name, paths))
        return len(self.calls)

    def _at(self, process: _Process, folder: str, name: str) -> str | None:
        """The path of a name in a folder, relative to ours; None elsewhere."""
        above = _decoded(_annotation(folder)) or process.cwd
        return self._below(os.path.normpath(os.path.join(above, _text(name))))

    def _below(self, path: str) -> str | None:
        return path[len(self._path) + 1 :] if f"{path}/".startswith(f"{self._path}/") else None

    def _node(self, path: str) -> Node | None:
        node: Node | None = self.root
        for name in filter(None, path.split("/")):
            node = node.names.get(name) if isinstance(node, Folder) else None
        return node

    def _above(self, path: str) -> tuple[Folder, str]:
        above, _, last = path.rpartition("/")
        folder = self._node(above)
        assert isinstance(folder, Folder), path
        return folder, last


_NAMES: dict[str, Callable[[_Disk, _Process, str, list[str]], None]] = {
    **dict.fromkeys(("rename", "renameat", "renameat2"), _Disk._rename),
    **dict.fromkeys(("link", "linkat"), _Disk._link),
    **dict.fromkeys(("symlink", "symlinkat"), _Disk._symlink),
    **dict.fromkeys(("unlink", "unlinkat", "rmdir"), _Disk._unlink),
    **dict.fromkeys(("mkdir", "mkdirat"), _Disk._mkdir),
    "truncate": _Disk._truncate,
}


def _arguments(text: str) -> list[str]:
    """What a call was given; texts and paths are in \\x.., where no comma is."""
    return text.split(", ")


def _annotation(argument: str) -> str:
    """The path that strace names of a descriptor."""
    return argument.partition("<")[2].rpartition(">")[0]


def _bytes(text: str) -> bytes:
    assert not text.endswith("..."), "a text is not recorded whole"
    return bytes.fromhex(text.strip('"').replace("\\x", ""))


def _text(argument: str) -> str:
    return os.fsdecode(_bytes(argument))


def _decoded(annotation: str) -> str:
    """A path out of an annotation; empty for a pipe, a socket and the like."""
    return os.fsdecode(_bytes(annotation)) if annotation.startswith("\\x") else ""
