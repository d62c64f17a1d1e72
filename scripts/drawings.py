"""Draws docs/drawings/*.svg: how data flows, a directory grows, a kill ends, an epoch is ordered.

python scripts/drawings.py            # write them
python scripts/drawings.py --check    # exit code 1 if one is not what would be written

White is behind them, as behind the plots, for dark pages too.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from html import escape
from itertools import chain
from pathlib import Path
from unittest.mock import patch

import numpy as np

from tfrecorder.reading import order
from tfrecorder.reading.order import Order
from tfrecorder.reading.position import Share

OUT = Path(__file__).resolve().parent.parent / "docs/drawings"

#: Of a page's column, in pixels.
WIDTH = 720

#: Of Okabe and Ito's colours, as in benchmarks/plots.py, with tints of them behind text.
BLUE, ORANGE, RED, INK, GREY = "#0072B2", "#E69F00", "#D55E00", "#333333", "#6A6A6A"
PALE_BLUE, PALE_ORANGE, PALE_GREY, PALE = "#D3E7F5", "#FBE6BC", "#DEDEDE", "#F6F6F6"

#: How a file looks: what fills it, its outline, and the dashes of that.
Look = tuple[str, str, str]
WRITTEN, KEPT = (PALE_BLUE, BLUE, ""), ("white", GREY, "")
LINKED, ABSENT, COMMIT = (
    ("white", BLUE, "5 3"),
    ("none", "#B0B0B0", "2 3"),
    (PALE_ORANGE, ORANGE, ""),
)


# ---------------------------------------------------------------------------------------------
# The drawings.


def flow() -> str:
    """From a table to the readers."""
    parts = [
        _box(12, 12, 696, 124, PALE),
        _text(28, 34, "The process that you start", bold=True),
        _station(28, 46, 190, "table", "frame, CSV, folder, COCO, …"),
        _station(262, 46, 190, "check", "every fault in one report"),
        _station(496, 46, 196, "plan", "which row in which shard"),
        _text(357, 122, "after an error, nothing is written", 12, "middle", GREY),
        _text(594, 122, "rows and uris, no images", 12, "middle", GREY),
        _arrow((218, 73), (260, 73)),
        _arrow((452, 73), (494, 73)),
        _arrow((594, 136), (594, 150), (247, 150), (247, 164)),
        _box(12, 166, 470, 206, PALE),
        _text(28, 188, "Workers: on this machine, on others, or in a cluster", bold=True),
        _station(28, 255, 96, "images", "disk, bucket"),
        _box(510, 166, 198, 106, *COMMIT),
        _text(609, 190, "commit", 14, "middle", bold=True),
        _text(609, 211, "rows = records + rejects", 12, "middle"),
        _text(609, 233, "rejects.csv", 12, "middle", mono=True),
        _text(609, 255, "dataset_info.json, last", 12, "middle", mono=True),
        _arrow((609, 272), (609, 294)),
        _box(510, 296, 198, 76, "white"),
        _text(609, 319, "readers", 14, "middle", bold=True),
        _text(609, 339, "TensorFlow, PyTorch, JAX", 12, "middle"),
        _text(609, 358, "TFDS, other tools", 12, "middle"),
    ]
    for number in range(3):
        middle = 228 + 54 * number
        parts += [
            _arrow((124, 282), (140, 282), (140, middle), (156, middle)),
            _station(158, middle - 22, 136, "worker", "load, check, write", 44),
            _arrow((294, middle), (312, middle)),
            _file(314, middle - 14, 156, f"train-{number:05d}.tfrecord", WRITTEN, 11),
            _arrow((470, middle), (496, middle), (496, 228), (508, 228)),
        ]
    return _svg("From a table to the readers", 384, parts)


def growth() -> str:
    """The files of a directory after a conversion, an append and an update."""
    train = [f"train-{number:05d}" for number in range(3)]
    revised = [f"train-r2-{number:05d}" for number in range(3)]
    steps = {
        "convert": ("1.0.0", "a table", train[:2], (WRITTEN, WRITTEN), WRITTEN),
        "append": ("1.1.0", "new rows", train, (KEPT, KEPT, WRITTEN), KEPT),
        "update": ("2.0.0", "a corrected label", revised, (WRITTEN, LINKED, LINKED), KEPT),
    }
    parts = []
    for column, (verb, step) in enumerate(steps.items()):
        version, about, names, looks, other = step
        x = 12 + 240 * column
        files = [
            _file(x, 62 + 34 * row, 216, f"{name}.tfrecord", look)
            for row, (name, look) in enumerate(zip(names, looks, strict=True))
        ]
        files += [
            _file(x, 164, 216, "validation-00000.tfrecord", other),
            _file(x, 206, 216, "dataset_info.json", COMMIT),
        ]
        parts += [
            _text(x, 28, verb, 15, bold=True, mono=True),
            _text(x + 216, 28, about, 12, "end"),
            _text(x, 48, f"generation {column}, version {version}", 12),
            f"<g id='{verb}'>{''.join(files)}</g>",
        ]
    parts += [_arrow((x, 127), (x + 20, 127)) for x in (230, 470)]
    legend = (
        (12, "written", WRITTEN),
        (102, "as before", KEPT),
        (208, "the same file under a new name (hard link)", LINKED),
        (526, "replaced last: the commit", COMMIT),
    )
    for x, words, look in legend:
        parts += [_box(x, 254, 18, 14, *look), _text(x + 24, 266, words, 12)]
    return _svg("A directory as it grows", 282, parts)


def kills() -> str:
    """What an overwrite leaves when it is killed, and what the same call then does."""
    moments = (
        ("while it plans", "the old dataset", "starts over", ""),
        ("while it writes shards", "the old dataset", "writes the shards", "that are missing"),
        ("before the commit", "the old dataset", "writes no shard", "again, and commits"),
        ("after the commit", "the new dataset", "removes the", "old shards"),
    )
    parts = [
        _text(12, 24, "An overwrite of a dataset, killed"),
        _arrow((12, 68), (708, 68)),
    ]
    for column, (when, seen, *then) in enumerate(moments):
        x, whole, listed = 12 + 177 * column, (0, 1, 3, 3)[column], 164 if column == 3 else 98
        parts += [
            f"<circle cx='{x + 82}' cy='68' r='11' fill='{RED}'/>",
            f"<path d='m{x + 78} 64 8 8m0-8-8 8' stroke='white' stroke-width='2.5'/>",
            _text(x + 82, 50, when, 13, "middle", bold=True),
            _box(x, 92, 165, 184, PALE),
            # Around what is listed in dataset_info.json.
            _box(x + 5, listed, 153, 60, "none", ORANGE, width=2.5),
            f"<path d='M{x + 158} {listed + 50}V240' stroke='{ORANGE}' stroke-width='2.5'/>",
            _text(x + 12, 114, "old shards", 12),
            _text(x + 12, 180, "new shards", 12),
            _file(x + 5, 236, 154, "dataset_info.json", COMMIT),
        ]
        for shard in range(3):
            left = x + 12 + 48 * shard
            look = WRITTEN if shard < whole else ABSENT
            parts += [_box(left, 122, 44, 26, *KEPT), _box(left, 188, 44, 26, *look)]
        parts += [
            _text(x, 302, "Readers see", 12, fill=GREY),
            _text(x, 320, seen, bold=True),
            _text(x, 346, "The same call", 12, fill=GREY),
            *(_text(x, 364 + 17 * row, words, bold=True) for row, words in enumerate(then)),
        ]
    parts += [_box(249, 188, 20, 26, *WRITTEN)]  # the second shard, half written
    return _svg("What a kill leaves", 394, parts)


def epoch() -> str:
    """The order of an epoch as stored, in blocks and exact, and how ranks divide it."""
    records, seed = 24, 7
    places = np.arange(records)
    with patch.object(order, "WINDOW", 4):  # with 128, two records a block would be one window
        blocks = Order(records, "blocks", seed, 0, block=2).numbers(places)
    exact = Order(records, "exact", seed, 0).numbers(places)
    parts = [
        _text(12, 24, "As stored: 24 records in 3 shards"),
        _records(34, places),
        _text(12, 96, 'shuffle="blocks"', bold=True, mono=True),
        _text(
            148, 96, "shuffles blocks, here of 2 records, then the records in each window of blocks"
        ),
        _records(106, blocks),
        *(_span(138, 8 * window, 8, "window") for window in range(3)),
        _text(12, 192, 'shuffle="exact"', bold=True, mono=True),
        _text(140, 192, "shuffles the whole split"),
        _records(202, exact),
    ]
    start = 0
    for world, size, stop in ((2, 4, 16), (4, 2, 24)):
        while start < stop:
            for rank in range(world):
                share = Share(records, size, rank, world).places(start)
                parts.append(_span(234, share[0], len(share), f"rank {rank}"))
            start = Share(records, size, 0, world).after(start)
    cut = _left(16) - 1
    parts += [
        f"<path d='M{cut} 196V300' stroke='{RED}' stroke-width='2.5'/>",
        _text(12, 288, "2 processes, batch_size=4"),
        _text(cut - 8, 288, "killed after 2 steps", anchor="end", fill=RED, bold=True),
        _text(cut + 8, 288, "continued by 4, batch_size=2"),
    ]
    return _svg("The order of an epoch", 308, parts)


DRAWINGS = {"flow": flow, "growth": growth, "kills": kills, "epoch": epoch}


# ---------------------------------------------------------------------------------------------
# Their parts.


def _svg(title: str, height: int, parts: Sequence[str]) -> str:
    head = (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' "
        f"width='{WIDTH}' height='{height}' font-family='DejaVu Sans, Verdana, Arial, sans-serif'>"
        f"<title>{title}</title>"
        "<defs><marker id='head' viewBox='0 0 8 8' refX='7' refY='4' markerWidth='8' "
        f"markerHeight='8' orient='auto'><path d='M0 0 8 4 0 8z' fill='{INK}'/></marker></defs>"
        f"<rect width='{WIDTH}' height='{height}' rx='6' fill='white'/>"
    )
    return "\n".join([head, *parts, "</svg>\n"])


def _box(
    x: int,
    y: int,
    w: int,
    h: int,
    fill: str,
    stroke: str = GREY,
    dashes: str = "",
    width: float = 1,
) -> str:
    dashed = f" stroke-dasharray='{dashes}'" if dashes else ""
    return (
        f"<rect x='{x}' y='{y}' width='{w}' height='{h}' rx='4' fill='{fill}' stroke='{stroke}' "
        f"stroke-width='{width}'{dashed}/>"
    )


def _text(
    x: int,
    y: int,
    words: str,
    size: int = 13,
    anchor: str = "start",
    fill: str = INK,
    bold: bool = False,
    mono: bool = False,
) -> str:
    looks = " font-weight='bold'" if bold else ""
    looks += " font-family='DejaVu Sans Mono, Menlo, Consolas, monospace'" if mono else ""
    looks += f" text-anchor='{anchor}'" if anchor != "start" else ""
    return f"<text x='{x}' y='{y}' font-size='{size}' fill='{fill}'{looks}>{escape(words)}</text>"


def _station(x: int, y: int, w: int, name: str, about: str, h: int = 54) -> str:
    """A step of the flow: its name, and what it does."""
    left, top = x + w // 2, y + h // 2
    words = _text(left, top - 4, name, 14, "middle", bold=True)
    return _box(x, y, w, h, "white") + words + _text(left, top + 14, about, 12, "middle")


def _file(x: int, y: int, w: int, name: str, look: Look, size: int = 12) -> str:
    return _box(x, y, w, 28, *look) + _text(x + 8, y + 18, name, size, mono=True)


def _arrow(*points: tuple[int, int]) -> str:
    path = " ".join(f"{x},{y}" for x, y in points)
    return f"<polyline points='{path}' fill='none' stroke='{INK}' marker-end='url(#head)'/>"


def _left(place: int) -> int:
    """Where the square of a place in the order begins."""
    return 12 + 29 * place


def _records(y: int, numbers: np.ndarray) -> str:
    """A row of records by their numbers, in the colours of their shards of 8 records."""
    looks = ((PALE_BLUE, BLUE), (PALE_ORANGE, ORANGE), (PALE_GREY, GREY))
    squares = (
        (
            _box(_left(place), y, 27, 26, *looks[number // 8]),
            _text(_left(place) + 13, y + 18, str(number), 12, "middle"),
        )
        for place, number in enumerate(numbers.tolist())
    )
    return "".join(chain.from_iterable(squares))


def _span(y: int, place: int, places: int, words: str) -> str:
    """A bracket below places of the order."""
    left, right = _left(place), _left(place + places) - 2
    return f"<path d='M{left} {y}v6H{right}v-6' fill='none' stroke='{INK}'/>" + _text(
        (left + right) // 2, y + 22, words, 12, "middle"
    )


def main(arguments: Sequence[str]) -> int:
    differ = []
    for name, draw in DRAWINGS.items():
        path, drawn = OUT / f"{name}.svg", draw()
        if arguments == ["--check"]:
            differ += [] if path.exists() and path.read_text() == drawn else [path.name]
        else:
            path.write_text(drawn)
    if differ:
        print(f"{', '.join(differ)} in {OUT}: other than drawn; run scripts/drawings.py")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
