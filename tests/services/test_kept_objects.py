"""Buckets that let nobody delete: with a retention policy, under holds, or without the right.

What an operation needs is asked before it begins.  What is refused after its commit is said, fails
nothing, and is done by the next call once it may be: then the bucket is as if nothing had been.
"""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator

import pandas as pd
import pytest
from helpers.streaming_cases import TO_ITS_END, Numbered
from support import PHOTOS

import tfrecorder
from services.gcs.control import Gcs
from tfrecorder.errors import OutputError

pytest_plugins = ["services.gcs.fixtures"]

OUT = "gs://bkt/out"
IMAGES = "gs://bkt/in"
QUIET = {"progress": False}


def rows(*numbers: int, label: str = "a") -> pd.DataFrame:
    uris = [f"{IMAGES}/{number}.jpg" for number in numbers]
    return pd.DataFrame({"split": "TRAIN", "image_uri": uris, "label": label})


@pytest.fixture(autouse=True)
def _images(gcs: Gcs) -> None:
    for number in range(7):
        gcs.put(f"{IMAGES}/{number}.jpg", PHOTOS[number].read_bytes())


def convert() -> object:
    return tfrecorder.convert(rows(0, 1, 2, 3), OUT, num_shards=2, shuffle=False, **QUIET)


def staged() -> object:
    tfrecorder.parts.stage(rows(0, 1), OUT, num_shards=1)
    tfrecorder.parts.work(OUT, progress=False)
    return tfrecorder.parts.commit(OUT)


#: Operations by name, each with whether a dataset stands there before.
OPERATIONS: dict[str, tuple[bool, Callable[[], object]]] = {
    "convert": (False, convert),
    "stage": (False, staged),
    "stream": (False, lambda: tfrecorder.stream(Numbered(4), OUT, **TO_ITS_END)),
    "append": (True, lambda: tfrecorder.append(rows(4, 5), OUT, **QUIET)),
    "update": (True, lambda: tfrecorder.update(rows(0, label="b"), OUT, progress=False)),
    "remove": (True, lambda: tfrecorder.remove(OUT, {"image_uri": f"{IMAGES}/1.jpg"}, **QUIET)),
    "compact": (True, lambda: tfrecorder.compact(OUT, num_shards=1, progress=False)),
    "overwrite": (True, lambda: tfrecorder.convert(rows(3, 4), OUT, overwrite=True, **QUIET)),
    "undo": (True, lambda: tfrecorder.undo(OUT)),
}

DENIED = "Permission 'storage.objects.delete' denied"

KEEPING = {
    "subject to bucket's retention policy": {"retained": "2030-01-01T00:00:00Z"},
    "Temporary hold": {"held": "out/*"},
    DENIED: {"deletes": False},
}


def slow_but(quick: Iterable[tuple[str, ...]], *every: Iterable[str]) -> Iterator[object]:
    """All combinations; those that are not among the quick ones are marked as slow."""
    for case in itertools.product(*every):
        yield pytest.param(*case, marks=() if case in quick else pytest.mark.slow)


@contextlib.contextmanager
def rule(gcs: Gcs, **keeps: object) -> Iterator[None]:
    gcs.rule("bkt", **keeps)
    yield
    gcs.rule("bkt")


def prepare(name: str) -> Callable[[], object]:
    has_dataset, operation = OPERATIONS[name]
    if has_dataset:
        convert()
    if name == "undo":
        tfrecorder.append(rows(4), OUT, **QUIET)
    return operation


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("name", "reason"),
    slow_but([("convert", DENIED), ("undo", DENIED)], OPERATIONS, KEEPING),
)
def test_it_is_asked_before_the_first_image(gcs: Gcs, name: str, reason: str) -> None:
    operation = prepare(name)
    before = gcs.names(OUT)
    gcs.forget_requests()
    with rule(gcs, **KEEPING[reason]), pytest.raises(OutputError) as caught:
        operation()
    words = str(caught.value)
    assert reason in words
    assert "_tfrecorder/probe: 403" in words
    assert "Storage Object User" in words
    assert "Nothing else was written" in words
    probe = "out/_tfrecorder/probe"
    assert gcs.names(OUT) == sorted([*before, probe])
    assert gcs.count("download", "bkt/in*") == 0
    if OPERATIONS[name][0]:
        assert tfrecorder.verify(OUT, progress=False).ok
    operation()  # the same call, once it may
    assert tfrecorder.verify(OUT, progress=False).ok
    assert probe not in gcs.names(OUT)


#: What is under a hold once it stands: the plan, what the workers noted, the old shards, the rows.
HELD = ("out/_tfrecorder/plan.json", "out/_tfrecorder/done/*|*/plan.parquet", "out/train-0*")


def names_of_all(gcs: Gcs, name: str, held: str = "") -> tuple[list[str], str]:
    """The names on the bucket after an operation and an append, of which the first met a hold.

    Returns:
        The names; and what the operation, and the refused call after it, said of the hold.
    """
    operation = prepare(name)
    said = ""
    with rule(gcs, held=held), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        operation()
        said += "".join(str(one.message) for one in told if "not tidied up" in str(one.message))
        if said:
            public = [*gcs.files(OUT)]
            faults = tfrecorder.verify(OUT, progress=False).faults
            assert {file[:7] for file in faults["file"]} <= {held[4:11]}  # the old shards alone
            if name in ("convert", "stage"):  # the same call has nothing to write
                operation()
            again = [lambda: tfrecorder.append(rows(6, label="c"), OUT, **QUIET)]
            if name != "undo":  # which would complete itself
                again.append(lambda: tfrecorder.undo(OUT))
            for call in again:
                with pytest.raises(OutputError, match="Until then nothing new is written") as met:
                    call()
                assert "Temporary hold" in str(met.value)
            assert [*gcs.files(OUT)] == public
    tfrecorder.append(rows(6, label="c"), OUT, **QUIET)
    assert tfrecorder.verify(OUT, progress=False).ok
    # The name of what is noted of removed images is another one each time.
    return [name.partition("removed/")[0] for name in gcs.names(OUT)], said


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", slow_but([("convert",)], OPERATIONS))
def test_after_the_commit_nothing_fails(gcs: Gcs, name: str) -> None:
    expected, said = names_of_all(gcs, name)
    assert not said
    met = 0
    for held in HELD:
        gcs.rule("bkt")
        for left in gcs.names(OUT):
            gcs.delete(f"gs://bkt/{left}")
        found, said = names_of_all(gcs, name, held)
        assert found == expected
        if said:
            met += 1
            assert "_tfrecorder/" in said or "train-" in said
            assert "Temporary hold" in said
            assert "Storage Object User" in said
            assert "The dataset is committed and whole" in said
    assert met >= 2  # the plan, and at least what the workers noted or an old shard
