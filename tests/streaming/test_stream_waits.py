"""What a stream waits for: files that still change, the next look at a folder, an outage."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.streaming_cases import TO_ITS_END, Numbered, photo, spool_at_once
from services.gcs.control import Gcs
from support import end_by_ctrl_c, shorten_patience, start, wait_for

import tfrecorder
from tfrecorder.errors import UnreachableError

pytest_plugins = ["services.gcs.fixtures"]

AT_ONCE = {"source_options": {"settle": 0}, "progress": False}


def put(name: str, number: int = 0) -> None:
    Path("in").mkdir(exist_ok=True)
    Path("in", name).write_bytes(photo(number).read_bytes())


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[float]]:
    """Replaces the look at a folder: it takes longer, and then something happens there."""

    def slow(seconds: float = 0, *events: Callable[[], None]) -> list[float]:
        look, coming, times = os.walk, iter(events), []

        def walk(folder: str, *rest: Any, **options: Any) -> Iterator[Any]:
            if os.path.basename(folder) != "in":
                yield from look(folder, *rest, **options)
                return
            times.append(time.monotonic())
            found = list(look(folder, *rest, **options))
            time.sleep(seconds)
            next(coming, lambda: None)()
            yield from found

        monkeypatch.setattr(os, "walk", walk)
        return times

    return slow


# -------------------------------------------------------------------------------- until it is idle


@pytest.mark.slow
@pytest.mark.parametrize("settle", [0, 0.7])
def test_all_files_that_are_there_are_taken_before_it_ends(settle: float) -> None:
    for number in range(3):
        put(f"{number}.jpg", number)
    options = {**TO_ITS_END, "source_options": {"settle": settle}}
    assert tfrecorder.stream("in", "out", **options).records == 3


def test_a_file_that_comes_during_the_last_look_is_taken(looks: Any) -> None:
    put("0.jpg")
    looks(0, lambda: put("1.jpg", 1))
    result = tfrecorder.stream("in", "out", until_idle=0, every_rows=1, **AT_ONCE)
    assert result.records == 2


@pytest.mark.slow
def test_a_file_that_goes_before_it_settles_is_not_waited_for(looks: Any) -> None:
    def fail() -> None:
        raise AssertionError("it looks again")

    put("0.jpg")
    looks(0, lambda: None, Path("in/0.jpg").unlink, fail)
    options = {**TO_ITS_END, "source_options": {"settle": 3600}}
    assert tfrecorder.stream("in", "out", **options).rows == 0


@pytest.mark.slow
def test_rows_that_a_source_expects_are_waited_for() -> None:
    class Slow(Numbered):
        """Its rows can be read only some time after it knows of them."""

        asked = 0

        def rows(self, position: Any) -> Iterator[Any]:
            self.asked += 1
            yield from super().rows(position) if self.asked > 2 else ()

        def pending(self) -> bool:
            return self.asked < 3

    assert tfrecorder.stream(Slow(10), "out", **TO_ITS_END).rows == 10


# ----------------------------------------------------------------------- looks at a large folder


@pytest.mark.slow
def test_looks_take_a_twentieth_of_the_time(looks: Any) -> None:
    put("0.jpg")
    tfrecorder.stream("in", "out", until_idle=0, **AT_ONCE)
    times = looks(0.1)
    tfrecorder.stream("in", "out", until_idle=1.5, **AT_ONCE)
    assert len(times) == 2, "the first, and one before it ends"


@pytest.mark.slow
def test_what_came_since_the_last_look_is_found_before_it_ends(looks: Any) -> None:
    Path("in").mkdir()
    looks(0.1, lambda: put("0.jpg"))
    result = tfrecorder.stream("in", "out", until_idle=0.6, **AT_ONCE)
    assert result.records == 1


SLOW = """
import os, time
import tfrecorder

look = os.walk

def walk(folder, *rest, **options):
    if os.path.basename(folder) == "in":
        with open("looks", "a") as file:
            print("look", file=file)
        time.sleep(2)
    yield from look(folder, *rest, **options)

os.walk = walk
tfrecorder.stream("in", "out", every_seconds=1, progress=False, source_options={"settle": 0})
"""


@pytest.mark.slow
def test_a_batch_and_ctrl_c_do_not_wait_for_the_next_look() -> None:
    """Which comes after 40 seconds."""
    put("0.jpg")
    process = start(SLOW)
    wait_for(Path("out/dataset_info.json").exists)
    assert Path("looks").read_text() == "look\n"
    time.sleep(1)  # until it waits
    assert "Run the same stream again to continue" in end_by_ctrl_c(process)
    assert Path("looks").read_text() == "look\n"


# ---------------------------------------------------------------------------------------- outages

OUT = "gs://bkt/out"


@pytest.fixture
def warned(gcs: Gcs, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The warnings of outages; each outage ends with its second one."""
    found: list[str] = []

    def note(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        if not issubclass(category, UserWarning):  # Python's own, of what other tests left open
            return
        found.append(str(message))
        if len(found) % 2 == 0:
            gcs.mend()

    shorten_patience(monkeypatch, 1.2)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", note)
        yield found


@pytest.mark.slow
def test_an_outage_is_waited_for_while_images_are_spooled(
    gcs: Gcs, warned: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    spool_at_once(monkeypatch)

    class Disturbed(Numbered):
        def rows(self, position: Any) -> Iterator[Any]:
            for row, number in super().rows(position):
                if number == 8:
                    gcs.inject("status", status=503, object="bkt/out/*")
                yield row, number
                if number == 10:
                    assert len(warned) == 2, "while rows came, and before their batch was full"

    assert tfrecorder.stream(Disturbed(20), OUT, **TO_ITS_END).rows == 20
    assert tfrecorder.info(OUT).records == 14
    assert tfrecorder.verify(OUT, progress=False).ok


@pytest.mark.slow
def test_an_outage_right_behind_a_commit_is_waited_for(gcs: Gcs, warned: list[str]) -> None:
    gcs.inject("status", status=503, operation="delete", object="bkt/out/*/spool/*")
    result = tfrecorder.stream(Numbered(20), OUT, every_rows=10, **TO_ITS_END)
    assert (result.rows, result.generations) == (20, 2)
    assert len({*warned}) == 2, "Python shows a warning with the same words only once"
    assert not [name for name in gcs.names(f"{OUT}/") if "/spool/" in name]


@pytest.mark.slow
def test_an_outage_at_the_start_ends_it_with_one_line(
    gcs: Gcs, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_patience(monkeypatch, 0.5)
    gcs.inject("status", status=503, object="bkt/out/*")
    with pytest.raises(UnreachableError, match=r"^gs://bkt/out.* could not be reached for .*\.$"):
        tfrecorder.stream(Numbered(20), OUT, **TO_ITS_END)
    gcs.mend()
    assert tfrecorder.stream(Numbered(20), OUT, **TO_ITS_END).rows == 20
