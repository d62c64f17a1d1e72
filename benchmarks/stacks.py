"""Which part of a conversion the processor was at: a profile by py-spy, grouped by functions.

py-spy looks at the process 200 times a second and notes the stack of each thread that is running:
threads that wait are left out, so that shares of the stacks are shares of CPU time.  The process is
not paused, so that one stack in twenty changes while it is read and is lost: parts of many short
calls seem a little smaller than they are.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

HERE = Path(__file__).resolve().parent
RATE = 200

LOCKS, CHECK, HEADER, CRC, ENCODE = "locks", "JPEG check", "image header", "CRC", "encode"
WRITE, READ, ROW, PLAN, BEAM, OTHER = "write", "read", "bookkeeping", "plan", "Beam", "other"

#: Of a stack the innermost frame that any pattern finds decides, and of the patterns the first.
#: No pattern takes all that is left, so that files which have moved show as `OTHER`.
PATTERNS = {
    LOCKS: r"tfrecorder/core/threads\.py|\((concurrent/futures|threading|queue)",
    CHECK: r"\b_decode \(",
    HEADER: r"\(tfrecorder/images/",
    CRC: r"\(tfrecorder/format/(tfrecord|crc32c)\.py",
    ENCODE: r"\(tfrecorder/format/(example|csv_cells)\.py|\brecord_features \(",
    WRITE: r"\b(write_all|publish|publish_bytes) \(",
    READ: r"\(tfrecorder/storage/local\.py|\b(read_bytes|read_image|resolve) \(",
    ROW: r"\(tfrecorder/(writing|storage)/",
    PLAN: r"\(tfrecorder/(conversion|options|plan|schema|sources|validation)/",
    BEAM: r"\(apache_beam/",
}
#: A thread that waits, though it ran when py-spy began its look: what it was at is not known.
WAITS = re.compile(
    r"^(\w+\.)?(wait|run|_worker|_wait_for_tstate_lock) \((threading|concurrent/futures)"
)

_PATTERNS = {part: re.compile(pattern) for part, pattern in PATTERNS.items()}


def py_spy() -> str | None:
    """The path of py-spy next to this Python or on the PATH; None where it is not installed."""
    path = os.pathsep.join((os.path.dirname(sys.executable), os.environ.get("PATH", "")))
    return shutil.which("py-spy", path=path)


def profile(program: str, source: str, work: Path, check: str, times: int) -> Counter[str]:
    """How many stacks of some conversions were at each part.

    Args:
        program: py-spy's path.
        source: the CSV to convert.
        work: a folder for what is written.
        times: how often it is converted.

    Raises:
        RuntimeError: py-spy cannot look at the process; its words are in the message.
    """
    with tempfile.TemporaryDirectory(prefix="profile-", dir=work) as folder:
        stacks, out = os.path.join(folder, "stacks.txt"), os.path.join(folder, "out")
        code = "import sys; sys.path.insert(0, sys.argv[1]); import stacks; "
        code += "stacks.convert_again(*sys.argv[2:])"
        # Without pauses: these wake threads that wait, and stretch calls of the kernel, so that the
        # rest seems to take less than it takes alone.
        command = [program, "record", "--nonblocking", "--format", "raw", "--rate", str(RATE)]
        command += ["--output", stacks]
        command += ["--", sys.executable, "-c", code, str(HERE), source, out, check, str(times)]
        ended = subprocess.run(command, capture_output=True, text=True)
        if ended.returncode or not os.path.exists(stacks):
            raise RuntimeError(f"py-spy ended with {ended.returncode}: {ended.stderr[-1000:]}")
        return parts_of(Path(stacks).read_text().splitlines())


def convert_again(source: str, out: str, check: str, times: str) -> None:
    """What is profiled: the same conversion some times."""
    import writing

    convert = writing.convert(source, out, check=check)
    for _ in range(int(times)):
        convert()
        shutil.rmtree(out)


def parts_of(lines: Iterable[str]) -> Counter[str]:
    """Stacks by their parts, of lines "outermost;...;innermost count"."""
    found: Counter[str] = Counter()
    for line in lines:
        stack, _, count = line.rpartition(" ")
        frames = stack.split(";")
        if _is_of_conversion(frames):
            found[_part(frames)] += int(count)
    return found


def _is_of_conversion(frames: list[str]) -> bool:
    """Not the interpreter's start, imports, what removes the output, and threads that wait."""
    if WAITS.search(frames[-1]) or any(frame.startswith("_find_and_load (") for frame in frames):
        return False
    return any(
        "tfrecorder/conversion/" in frame or "_bootstrap (threading.py" in frame for frame in frames
    )


def _part(frames: list[str]) -> str:
    for frame in reversed(frames):
        for part, pattern in _PATTERNS.items():
            if pattern.search(frame):
                return part
    return OTHER


def shares(found: Mapping[str, int]) -> dict[str, float]:
    """The share of each part, the largest first."""
    total = sum(found.values())
    return {part: count / total for part, count in Counter(found).most_common()}
