"""Streams of hostile names, texts and positions: each row is one reject, or the source is at fault.

A bad row never takes others with it and is not tried again; a faulty source writes nothing.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from helpers.streaming_cases import TO_ITS_END, names_in, photo, rejects_of

import tfrecorder
from tfrecorder.errors import SourceError
from tfrecorder.streaming import Unusable
from torture.counts import Count, demand

#: Texts that no file can hold: half of a surrogate pair; a name with a byte that is not UTF-8.
BAD_TEXTS = ("\ud800", "caf\udce9.jpg", "a/\udcff\udcfe/b.jpg", "x\udfff\n=1+1")

#: Paths in a watched folder; each is one reject.
BAD_FILES = (
    *(b"a/caf\xe9.jpg", b"caf\xe9/x.jpg", b"caf\xe9.jpg", b"train/caf\xe9/x.jpg"),
    *(b"a/b\xe9/c/d/y.jpg", b"\xff/\xfe.png", b"a/\xed\xa0\x80.jpg", b"a/=\xe9\n.jpg"),
)

#: Positions that would not come back the same; those of a source with and without order.
BAD_POSITIONS: tuple[tuple[Any, bool], ...] = (
    *((one, True) for one in ("\ud800", ["\udce9"], {"\udce9": 1}, {"a": [["\udfff"]]})),
    *((one, True) for one in (None, float("nan"), float("inf"), b"x", (1, 2), {1: 2}, {3, 4})),
    *((one, True) for one in (object(), Path("a"), [float("nan")], {"a": (1,)})),
    *((one, False) for one in ("\ud800", "caf\udce9.jpg", 3, None, b"x", ("a",), True, ["a"])),
)


class OfOne:
    """A source that gives some rows once, each with the position that goes with it."""

    def __init__(self, *rows: tuple[Any, Any], ordered: bool = True, name: str = "one") -> None:
        self._rows, self.ordered, self.name, self._asked = rows, ordered, name, False

    def rows(self, position: Any) -> Iterator[tuple[Any, Any]]:
        if not self._asked:
            self._asked = True
            first = position or 0 if self.ordered else 0
            yield from self._rows[first:]

    def wait(self, seconds: float) -> None:
        pass


def bad_rows(text: str) -> dict[str, Any]:
    """Rows that hold a bad text, by what it is in them; each must become a reject."""
    data = photo(1).read_bytes()
    good = {"image_uri": data, "label": "a"}
    return {
        "the uri": {**good, "image_uri": text},
        "a path": {**good, "image_uri": Path(text)},
        "an absolute uri": {**good, "image_uri": f"/there/{text}"},
        "the name of bytes": {**good, "image_uri": {"bytes": data, "path": text}},
        "the label": {**good, "label": text},
        "the label of a broken image": {"image_uri": b"no image", "label": text},
        "the split": {**good, "split": text},
        "the name of what is unusable": Unusable(text, "bad_json: no"),
        "why it is unusable": Unusable("a", f"bad_json: {text}"),
        "why it is unusable, without a code": Unusable("a", text),
    }


def stream_bad_rows(folder: Path, text: str, every_rows: int) -> int:
    """Stream good rows with all bad ones between them, each twice; how many were bad."""
    out = folder / "out"
    bad = bad_rows(text)
    good = {"image_uri": photo(0).read_bytes(), "label": "a"}
    rows = [row for one in bad.values() for row in (one, one, good, {**good, text: 1, 3: 2})]
    numbered = [(row, number) for number, row in enumerate(rows, 1)]
    options = {"every_rows": every_rows, **TO_ITS_END}
    result = tfrecorder.stream(OfOne(*numbered), out, **options)
    demand(result.records == 2 * len(bad), f"{out}: {result.records} records")
    demand(sum(result.rejects.values()) == 2 * len(bad), f"{out}: {result.rejects}")
    demand(tfrecorder.stream(OfOne(*numbered), out, **options).rows == 0, f"{out}: tried again")
    demand(len(rejects_of(out)) == 2 * len(bad), f"{out}: other rejects")
    demand(tfrecorder.verify(out, progress=False).ok, f"{out}: verify finds faults")
    shutil.rmtree(out)
    return len(bad)


def watch_bad_names(folder: Path, every_rows: int) -> int:
    """Stream a folder with good and bad names, twice, and once more after one is renamed."""
    incoming, out = folder / "incoming", folder / "out"
    good = [f"{label}/{number}.jpg".encode() for label in "ab" for number in range(3)]
    for name in (*good, *BAD_FILES):
        path = os.path.join(os.fsencode(incoming), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        shutil.copy(photo(0), os.fsdecode(path))
    options = {"source_options": {"settle": 0}, "every_rows": every_rows, **TO_ITS_END}
    first = tfrecorder.stream(incoming, out, **options)
    demand(first.records == len(good), f"{out}: {first.records} records")
    demand(sum(first.rejects.values()) == len(BAD_FILES), f"{out}: {first.rejects}")
    demand(tfrecorder.stream(incoming, out, **options).rows == 0, f"{out}: tried again")
    os.rename(os.path.join(os.fsencode(incoming), BAD_FILES[0]), incoming / "a/renamed.jpg")
    demand(tfrecorder.stream(incoming, out, **options).records == 1, f"{out}: renamed in vain")
    demand(set(names_in(out).values()) == {1}, f"{out}: rows went in twice")
    demand(tfrecorder.verify(out, progress=False).ok, f"{out}: verify finds faults")
    shutil.rmtree(incoming)
    shutil.rmtree(out)
    return len(BAD_FILES)


def refuse_position(folder: Path, position: Any, ordered: bool) -> None:
    """A source at fault, with a bad position in its second row, is named, and writes nothing."""
    out = folder / "out"
    rows = [({"image_uri": photo(n).read_bytes(), "label": "a"}, "1") for n in range(2)]
    source = OfOne(rows[0], (rows[1][0], position), ordered=ordered)
    try:
        tfrecorder.stream(source, out, **TO_ITS_END)
    except SourceError as error:
        demand("source one: the position" in str(error), f"{position!r}: {error}")
    else:
        demand(False, f"the position {position!r} was accepted")
    demand(not out.joinpath("_tfrecorder/plan.json").exists(), f"{position!r}: a plan was staged")
    shutil.rmtree(out, ignore_errors=True)


def keep_positions(folder: Path, rows: int, every_rows: int) -> int:
    """Stream from a source that reads on in the positions it was given, while rows are added."""
    out = folder / "out"

    class Lazy(OfOne):
        def rows(self, position: Any) -> Iterator[tuple[Any, Any]]:
            given, rest = len(position), iter(position)
            for row, name in super().rows(position):
                next(rest, None)
                demand(len(position) == given, "what the source was given has changed")
                if name not in position:
                    yield row, name

    cells = {"image_uri": photo(0).read_bytes(), "label": "a"}
    for end in (rows // 2, rows):
        source = Lazy(*((cells, str(number)) for number in range(end)), ordered=False)
        result = tfrecorder.stream(source, out, every_rows=every_rows, **TO_ITS_END)
        demand(result.records == rows // 2, f"{out}: {result.records} records")
    shutil.rmtree(out)
    return rows


def watch_links(folder: Path) -> int:
    """Stream a folder of links that lead nowhere, in a circle, or to what comes later."""
    incoming, out, later = folder / "incoming", folder / "out", folder / "later"
    (incoming / "a").mkdir(parents=True)
    shutil.copy(photo(0), incoming / "a/0.jpg")
    targets = {
        **{"1.jpg": "nowhere", "2.jpg": "2.jpg", "3.jpg": "a" * 255, "4.jpg": "/dev/null/x"},
        **{"5.jpg": str(later / "5.jpg"), os.fsdecode(b"\xe9.jpg"): str(later / "6.jpg")},
        **{"folder": "nowhere", "round": "round", os.fsdecode(b"\xe9"): str(later / "folder")},
    }
    for name, target in targets.items():
        (incoming / "a" / name).symlink_to(target)
    options = {"source_options": {"settle": 0}, **TO_ITS_END}
    result = tfrecorder.stream(incoming, out, **options)
    demand((result.records, result.rejects) == (1, {}), f"{out}: {result}")
    later.mkdir()
    shutil.copy(photo(1), later / "5.jpg")
    result = tfrecorder.stream(incoming, out, **options)
    demand((result.records, result.rejects) == (1, {}), f"{out}: {result}")
    for one in (incoming, out, later):
        shutil.rmtree(one)
    return len(targets)


def torment(folder: Path) -> list[Count]:
    """Everything, and the counts."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [stream_bad_rows(folder, text, size) for text in BAD_TEXTS for size in (1, 7, 1000)]
    files = [watch_bad_names(folder, size) for size in (1, 5, 1000)]
    for position, ordered in BAD_POSITIONS:
        refuse_position(folder, position, ordered)
    kept = [keep_positions(folder, 60, size) for size in (1, 7, 1000)]
    links = watch_links(folder)
    return [
        Count("streams with rows of bad text", len(rows), sum(rows), 0, ""),
        Count("watched folders with bad names", len(files), sum(files), 0, ""),
        Count("sources that keep positions", len(kept), sum(kept), 0, ""),
        Count("links that lead nowhere", links, links, 0, ""),
        Count("streams with bad positions", len(BAD_POSITIONS), len(BAD_POSITIONS), 0, ""),
    ]
