"""Records docs/drawings/repair.svg: a terminal in which a shard is damaged, verified and repaired.

python scripts/recording.py            # run the commands, and write what they print
python scripts/recording.py --check    # exit code 1 if they print something else today

The SVG moves by CSS alone.  Readers who prefer reduced motion, and those whose program does not
animate it, see its last frame.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from html import escape, unescape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "docs/drawings/repair.svg"

PREPARED = f"tfrecorder convert {ROOT / 'samples/photos.csv'} out --num-shards 2 --quiet"
VERIFY = "tfrecorder verify out"
#: What is typed, and how many seconds its output is read.
COMMANDS = (
    (VERIFY, 1.2),
    ("printf X | dd of=out/train-00001.tfrecord bs=1 seek=50000 conv=notrunc status=none", 0.4),
    (VERIFY, 4.0),
    ("tfrecorder repair out", 2.0),
    (VERIFY, 4.0),
)
#: Seconds to type a character, before and after it, and until a command prints.
TYPED, PAUSE, RUNS = 0.04, 0.3, 0.4

#: Of the terminal, in characters and in pixels.
COLUMNS, WIDTH, CHARACTER, LINE, EDGE = 97, 720, 7.2, 20, 10

BLACK, WHITE, GREEN, PLAIN = "#1E2228", "#FFFFFF", "#7FD37F", "#C9D1D9"


def recorded() -> list[str]:
    """What each command prints."""
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    with tempfile.TemporaryDirectory() as folder:

        def printed(command: str) -> str:
            return subprocess.run(
                command,
                shell=True,
                cwd=folder,
                env={**os.environ, "PATH": path},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            ).stdout

        assert not printed(PREPARED)
        return [printed(command) for command, _ in COMMANDS]


def drawn(outputs: Sequence[str]) -> str:
    """The recording as SVG.

    Args:
        outputs: what each command prints.
    """
    total = sum(_seconds(*typed) for typed in COMMANDS)
    rules, groups, now, row = [], [], 0.0, 0

    def at(seconds: float) -> str:
        return f"{seconds / total:.2%}"

    def appears(name: str, since: float, parts: Sequence[str]) -> None:
        rules.append(f"@keyframes {name}{{0%{{opacity:0}}{at(since)}{{opacity:1}}}}")
        groups.append(f"<g style='animation-name:{name}'>{''.join(parts)}</g>")

    for number, ((command, reading), output) in enumerate(zip(COMMANDS, outputs, strict=True)):
        begin, wide = now + PAUSE, CHARACTER * len(command)
        end, left = begin + TYPED * len(command), EDGE + 2 * CHARACTER
        appears(f"p{number}", now, [_text(row, "$", GREEN), _text(row, command, WHITE, left)])
        # The cursor, and behind it what hides the characters that are not typed yet.
        typed = f"opacity:1;transform:translateX({wide:.1f}px)"
        rules.append(
            f"@keyframes c{number}{{0%{{opacity:0}}{at(now)}{{opacity:1}}{at(begin)}{{opacity:1;"
            f"transform:none;animation-timing-function:steps({len(command)})}}{at(end)}{{{typed}}}"
            f"{at(end + PAUSE)}{{opacity:0}}}}"
        )
        y = EDGE + LINE * row
        groups.append(
            f"<g style='animation-name:c{number}' opacity='0'>"
            f"<rect x='{left}' y='{y}' width='{WIDTH}' height='{LINE}' fill='{BLACK}'/>"
            f"<rect x='{left}' y='{y + 2}' width='8' height='16' fill='{WHITE}'/></g>"
        )
        lines = [
            line[start : start + COLUMNS]
            for line in output.splitlines()
            for start in range(0, max(1, len(line)), COLUMNS)
        ]
        row += 1
        shown_lines = [_text(row + number, line) for number, line in enumerate(lines) if line]
        appears(f"o{number}", end + RUNS, shown_lines)
        row += len(lines)
        now += _seconds(command, reading)
    height = 2 * EDGE + LINE * row
    head = (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' "
        f"width='{WIDTH}' height='{height}' font-size='12' "
        "font-family='DejaVu Sans Mono, Menlo, Consolas, monospace'>"
        "<title>A shard is damaged, verified and repaired</title>"
    )
    moving = f"@media (prefers-reduced-motion:no-preference){{g{{animation:{total:.1f}s step-end "
    style = ["<style>", moving + "infinite}}", *rules, "</style>"]
    back = f"<rect width='{WIDTH}' height='{height}' rx='6' fill='{BLACK}'/>"
    return "\n".join([head, *style, back, *groups, "</svg>\n"])


def _seconds(command: str, reading: float) -> float:
    """How long a command takes to type, to run and to read."""
    return PAUSE + TYPED * len(command) + RUNS + reading


def _text(row: int, words: str, fill: str = PLAIN, left: float = EDGE) -> str:
    """A line of its true width, whatever the reader's font."""
    return (
        f"<text x='{left}' y='{EDGE + 14 + LINE * row}' fill='{fill}' xml:space='preserve' "
        f"textLength='{CHARACTER * len(words):.1f}'>{escape(words)}</text>"
    )


def shown(svg: str) -> str:
    """The words of a recording, without the speed and the times, which differ."""
    words = unescape("".join(re.findall(r"<text[^>]*>([^<]*)", svg))).replace(" ", "")
    return re.sub(r"\d+\.\ds(,\d+MB/s)?", "", words)


def main(arguments: Sequence[str]) -> int:
    svg = drawn(recorded())
    if arguments != ["--check"]:
        OUT.write_text(svg)
    elif shown(svg) != shown(OUT.read_text()):
        print(f"{OUT} shows other words than the commands print: run scripts/recording.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
