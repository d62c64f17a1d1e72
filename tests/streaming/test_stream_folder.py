"""A watched folder: its files as they come, are replaced or lost; and sources without order."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.streaming_cases import (
    TO_ITS_END,
    Folder,
    contents_of,
    digest,
    names_in,
    photo,
    put,
    rejects_of,
)
from torture import streams

import tfrecorder
from tfrecorder.errors import OptionError

AT_ONCE: dict[str, Any] = {"source_options": {"settle": 0}, **TO_ITS_END}


class Meanwhile(Folder):
    """A folder in which something happens once, when its files are taken, and not written yet."""

    def __init__(self, happens: Callable[[], Any]) -> None:
        super().__init__("in", settle=0)
        self._happens = happens

    def rows(self, taken: Any) -> Iterator[Any]:
        yield from super().rows(taken)
        happens, self._happens = self._happens, lambda: None
        happens()


def test_a_folder_is_taken_as_it_lies_and_grows() -> None:
    for number, name in enumerate(("train/a/0.jpg", "test/b/1.jpg")):
        put(name, number)
    options = {"source_options": {"settle": 0}, **TO_ITS_END}
    tfrecorder.stream("in", "out", **options)
    put("train/b/2.jpg", 2)
    put("a/b/c/d.jpg", 2)
    put("a/.hidden.jpg", 2)
    put("a/notes.txt", 2)
    put("@eaDir/2.jpg", 2)
    put("#recycle/b/2.jpg", 2)
    result = tfrecorder.stream("in", "out", **options)
    assert (result.records, result.rejects) == (1, {"row/bad_place": 1})
    assert contents_of("out") == {
        name: digest(photo(number).read_bytes())
        for number, name in enumerate(("train/a/0.jpg", "test/b/1.jpg", "train/b/2.jpg"))
    }
    assert tfrecorder.info("out").class_names == ("a", "b")
    assert tfrecorder.stream("in", "out", **options).rows == 0


@pytest.mark.parametrize("deep", ["cat/1.jpg", "train/cat/1.jpg", "train/cat/old/1.jpg"])
def test_a_folder_made_in_a_flat_one_does_not_end_the_stream(deep: str) -> None:
    put("0.jpg", 0)
    tfrecorder.stream("in", "out", **AT_ONCE)
    put(deep, 1)
    put("2.jpg", 2)
    result = tfrecorder.stream("in", "out", **AT_ONCE)
    assert (result.records, sum(result.rejects.values())) == (1, 1)
    put("3.jpg", 3)
    assert tfrecorder.stream("in", "out", **AT_ONCE).records == 1
    assert names_in("out") == {"0.jpg": 1, "2.jpg": 1, "3.jpg": 1, deep: 1}
    assert [name for name, _ in rejects_of("out")] == [deep]
    assert tfrecorder.verify("out", progress=False).ok


def test_a_file_that_is_written_anew_is_another_row() -> None:
    put("a.jpg", 0)
    options = {"source_options": {"settle": 0}, **TO_ITS_END}
    tfrecorder.stream("in", "out", **options)
    put("a.jpg", 1)
    assert tfrecorder.stream("in", "out", **options).records == 1
    assert names_in("out") == {"a.jpg": 2}


@pytest.mark.slow
def test_a_file_that_still_grows_is_waited_for() -> None:
    """Until its size and time rest, whatever it holds by then."""
    data = photo(0).read_bytes()
    path = Path("in/a.jpg")
    path.parent.mkdir()

    class Growing(Folder):
        """The folder, whose file grows by a piece with each look at it."""

        pieces = iter([data[:500], data[500:900], data[900:]])

        def wait(self, seconds: float) -> None:
            time.sleep(0.05)
            with path.open("ab") as file:
                file.write(next(self.pieces, b""))

    options = {"until_idle": 2.5, "every_seconds": 0, "progress": False}
    result = tfrecorder.stream(Growing("in", settle=0.5), "out", **options)
    assert (result.records, result.rejects) == (1, {})
    assert contents_of("out") == {"a.jpg": digest(data)}


def test_an_output_within_the_watched_folder_is_refused() -> None:
    Path("in").mkdir()
    with pytest.raises(OptionError, match="is inside the watched folder"):
        tfrecorder.stream("in", "in/out", **TO_ITS_END)


@pytest.mark.slow
def test_a_watcher_that_is_killed_takes_every_file_once(tmp_path: Path) -> None:
    assert streams.watch_and_kill(tmp_path, files=150, kills=3) > 0


def test_a_file_that_is_replaced_while_it_is_written_is_one_record_of_a_later_batch() -> None:
    for number in range(3):
        put(f"a/{number}.jpg", number)
    meanwhile = Meanwhile(lambda: put("a/1.jpg", 4))
    with pytest.warns(UserWarning, match=r"1 file changed while .* such as 'a/1.jpg'; it takes"):
        first = tfrecorder.stream(meanwhile, "out", **TO_ITS_END)
    assert (first.records, first.rejects) == (3, {})
    assert set(names_in("out").values()) == {1}
    assert contents_of("out")["a/1.jpg"] == digest(photo(4).read_bytes())
    assert tfrecorder.stream("in", "out", **AT_ONCE).rows == 0
    assert tfrecorder.verify("out", progress=False).ok


def test_a_batch_of_which_all_files_are_replaced_gives_way_to_the_next() -> None:
    put("a/0.jpg", 0)
    with pytest.warns(UserWarning, match="1 file changed"):
        result = tfrecorder.stream(Meanwhile(lambda: put("a/0.jpg", 1)), "out", **TO_ITS_END)
    assert (result.generations, result.newest, result.records) == (1, 0, 1)


def test_a_file_that_is_removed_while_it_is_written_is_a_reject() -> None:
    put("a/0.jpg", 0)
    last = put("a/1.jpg", 1)
    meanwhile = Meanwhile(lambda: last.unlink())
    result = tfrecorder.stream(meanwhile, "out", **TO_ITS_END)
    assert (result.records, result.rejects) == (1, {"read/not_found": 1})


@pytest.mark.slow
def test_files_that_are_replaced_all_the_time_are_neither_lost_nor_doubled(tmp_path: Path) -> None:
    assert streams.replace_while_watched(tmp_path, files=20, times=60) >= 20


def test_a_link_that_leads_nowhere_is_left_out_and_taken_when_its_target_is_there() -> None:
    put("a/0.jpg", 0)
    targets = {"a/1.jpg": "elsewhere.jpg", "a/2.jpg": "nowhere.jpg", "b": "elsewhere"}
    for link, target in targets.items():
        Path("in", link).symlink_to(Path(target).absolute())
    Path("in/a/round").symlink_to("round")
    result = tfrecorder.stream("in", "out", **AT_ONCE)
    assert (result.records, result.rejects) == (1, {})
    for name in ("elsewhere.jpg", "elsewhere/1.jpg"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_bytes(photo(1).read_bytes())
    assert tfrecorder.stream("in", "out", **AT_ONCE).records == 2
    assert contents_of("out")["b/1.jpg"] == digest(photo(1).read_bytes())


def test_a_source_without_order_keeps_positions_that_do_not_change() -> None:
    class Lazy:
        name, ordered = "lazy", False

        def __init__(self, *numbers: int) -> None:
            self.numbers = tuple(map(str, numbers))

        def rows(self, taken: Any) -> Iterator[Any]:
            assert isinstance(taken, frozenset)
            rest = iter(taken)  # read on while rows are added
            for number in self.numbers:
                next(rest, None)
                if number not in taken:
                    yield {"image_uri": photo(int(number)).read_bytes(), "label": "a"}, number

        def behind(self, taken: Any) -> int:
            assert isinstance(taken, frozenset)
            return len(self.numbers) - len(taken)

        def wait(self, seconds: float) -> None:
            time.sleep(min(seconds, 0.1))

    assert tfrecorder.stream(Lazy(0, 1), "out", every_rows=2, **TO_ITS_END).records == 2
    assert tfrecorder.stream(Lazy(*range(6)), "out", every_rows=2, **TO_ITS_END).records == 4
