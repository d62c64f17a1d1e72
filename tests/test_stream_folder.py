"""A watched folder: files that are replaced, links that lead nowhere; and sources without order."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from streaming_cases import TO_ITS_END, Folder, contents_of, digest, names_in, photo
from torture import streams

import tfrecorder

AT_ONCE: dict[str, Any] = {"source_options": {"settle": 0}, **TO_ITS_END}


def _put(name: str, number: int) -> Path:
    path = Path("in", name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(photo(number).read_bytes())
    return path


class Meanwhile(Folder):
    """A folder in which something happens once, when its files are taken, and not written yet."""

    def __init__(self, happens: Callable[[], Any]) -> None:
        super().__init__("in", settle=0)
        self._happens = happens

    def rows(self, taken: Any) -> Iterator[Any]:
        yield from super().rows(taken)
        happens, self._happens = self._happens, lambda: None
        happens()


def test_a_file_that_is_replaced_while_it_is_written_is_one_record_of_a_later_batch() -> None:
    for number in range(3):
        _put(f"a/{number}.jpg", number)
    meanwhile = Meanwhile(lambda: _put("a/1.jpg", 4))
    with pytest.warns(UserWarning, match=r"1 file changed while .* such as 'a/1.jpg'; it takes"):
        first = tfrecorder.stream(meanwhile, "out", **TO_ITS_END)
    assert (first.records, first.rejects) == (3, {})
    assert set(names_in("out").values()) == {1}
    assert contents_of("out")["a/1.jpg"] == digest(photo(4).read_bytes())
    assert tfrecorder.stream("in", "out", **AT_ONCE).rows == 0
    assert tfrecorder.verify("out", progress=False).ok


def test_a_batch_of_which_all_files_are_replaced_gives_way_to_the_next() -> None:
    _put("a/0.jpg", 0)
    with pytest.warns(UserWarning, match="1 file changed"):
        result = tfrecorder.stream(Meanwhile(lambda: _put("a/0.jpg", 1)), "out", **TO_ITS_END)
    assert (result.generations, result.newest, result.records) == (1, 0, 1)


def test_a_file_that_is_removed_while_it_is_written_is_a_reject() -> None:
    _put("a/0.jpg", 0)
    last = _put("a/1.jpg", 1)
    meanwhile = Meanwhile(lambda: last.unlink())
    result = tfrecorder.stream(meanwhile, "out", **TO_ITS_END)
    assert (result.records, result.rejects) == (1, {"read/not_found": 1})


@pytest.mark.slow
def test_files_that_are_replaced_all_the_time_are_neither_lost_nor_doubled(tmp_path: Path) -> None:
    assert streams.replace_while_watched(tmp_path, files=20, times=60) >= 20


def test_a_link_that_leads_nowhere_is_left_out_and_taken_when_its_target_is_there() -> None:
    _put("a/0.jpg", 0)
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
