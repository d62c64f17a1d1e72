"""Readers of a dataset that changes after they opened it.

A reader gives what it opened, or an error that says what happened; never other records.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from helpers.growing_cases import QUIET, table
from support import shorten_pauses

import tfrecorder
import tfrecorder.torch
from tfrecorder.errors import DatasetError, OptionError

pytest_plugins = ["services.gcs.fixtures", "services.objects.fixtures"]

#: Elements of everything in a record, as it is stored.
ALL: dict[str, Any] = {"inputs": "all", "decode": False}

#: The classes of a dataset of two generations, in the order of the records.
OLD = ["cat"] * 12 + ["zebra"] * 4


def grown(out: str) -> str:
    """A dataset of two generations, the second one shard of another class."""
    tfrecorder.convert(table(0, 12, label="cat"), out, num_shards=3, **QUIET)
    tfrecorder.append(table(12, 4, label="zebra"), out, num_shards=1, **QUIET)
    return out


def replace_newest(out: str) -> None:
    """Take the append back, and append the same images with a class of as many letters."""
    tfrecorder.undo(out)
    tfrecorder.append(table(12, 4, label="camel"), out, num_shards=1, **QUIET)


@pytest.fixture
def out(tmp_path: Path) -> str:
    return grown(str(tmp_path / "out"))


@pytest.fixture(params=["disk", "gs", "s3", "az"])
def anywhere(request: pytest.FixtureRequest) -> str:
    shorten_pauses(request.getfixturevalue("monkeypatch"))
    match request.param:
        case "disk":
            return grown(str(request.getfixturevalue("tmp_path") / "out"))
        case "az":
            return grown(f"{request.getfixturevalue('azure')}/out")
    request.getfixturevalue("gcs" if request.param == "gs" else "s3")
    return grown(f"{request.param}://bkt/out")


def class_of(element: Any) -> str:
    text = element["image/class/text"]
    return text if isinstance(text, str) else bytes(text).decode()


class ByNumber:
    """The classes in `Records`."""

    def __init__(self, out: str) -> None:
        self.records = tfrecorder.Records(out, "TRAIN", **ALL)

    def __iter__(self) -> Iterator[str]:
        return (class_of(self.records[number]) for number in range(len(self.records)))


class InBatches:
    def __init__(self, out: str, module: Any = tfrecorder, **options: Any) -> None:
        options = {"batch_size": 2, "num_threads": 1, "seed": 1} | options | ALL
        self.loop = module.batches(out, "TRAIN", map_fn=class_of, **options)

    def __iter__(self) -> Iterator[str]:
        return (str(text) for batch in self.loop for text in batch)


class InGraph:
    def __init__(self, out: str, **options: Any) -> None:
        self.data = tfrecorder.load(out, "TRAIN", **{"seed": 1} | options | ALL)

    def __iter__(self) -> Iterator[str]:
        return (class_of(one) for one in self.data.as_numpy_iterator())


READERS: dict[str, Any] = {
    "Records": ByNumber,
    "batches": InBatches,
    "batches in blocks": partial(InBatches, shuffle="blocks"),
}
if importlib.util.find_spec("torch"):  # `make test` does without it
    READERS["torch"] = partial(InBatches, module=tfrecorder.torch)
GRAPHS: dict[str, Any] = {
    "load": InGraph,
    "load in order": partial(InGraph, shuffle=False),
    "load a share": partial(InGraph, shard=(1, 2)),
    "load exact": partial(InGraph, shuffle="exact"),
}


def failing(reader: Any) -> str:
    with pytest.raises((DatasetError, tf.errors.OpError)) as caught:
        list(reader)
    return str(caught.value)


# ----------------------------------------------------------------- a name with other records


@pytest.mark.slow
def test_a_shard_that_was_replaced_is_never_read(anywhere: str) -> None:
    readers = [read(anywhere) for read in READERS.values()]
    size = tfrecorder.info(anywhere).splits["TRAIN"].bytes
    replace_newest(anywhere)
    assert tfrecorder.info(anywhere).splits["TRAIN"].bytes == size
    for reader in readers:
        words = failing(reader)
        assert f"{anywhere}/train-00003.tfrecord was replaced since {anywhere} was opened" in words
        assert "; by now it is at generation 3 (append). Open it again." in words
    for read in READERS.values():
        assert sorted(read(anywhere)) == ["camel"] * 4 + ["cat"] * 12


@pytest.mark.slow
@pytest.mark.parametrize("read", GRAPHS)
def test_load_says_so_too(out: str, read: str) -> None:
    reader = GRAPHS[read](out)
    assert set(GRAPHS[read](out)) == {"cat", "zebra"}
    replace_newest(out)
    words = failing(reader)
    assert f"DatasetError: {out}/train-00003.tfrecord was replaced since {out} was opened" in words
    assert set(GRAPHS[read](out)) == {"cat", "camel"}


def test_a_shard_that_is_open_on_a_disk_is_read_on(out: str) -> None:
    reader = ByNumber(out)
    assert list(reader) == OLD
    copy = pickle.loads(pickle.dumps(reader))  # what a worker gets, which opens the files itself
    replace_newest(out)
    assert list(reader) == OLD
    assert "train-00003.tfrecord was replaced" in failing(copy)


@pytest.mark.slow
def test_a_shard_of_a_bucket_is_not_read_on_with_other_records(gcs: Any) -> None:
    out = grown("gs://bkt/out")
    reader = ByNumber(out)
    last = class_of(reader.records[15])
    replace_newest(out)
    assert last == "zebra"
    assert "train-00003.tfrecord was replaced" in failing(reader)


@pytest.mark.slow
@pytest.mark.parametrize("at", ["disk", "store"])
def test_a_shard_that_is_replaced_while_tensorflow_reads_it(out: str, at: str, ram: None) -> None:
    more = {"num_shards": 1, "duplicates": "keep", **QUIET}
    place = "ram://out" if at == "store" else out

    def grow(label: str) -> None:
        tfrecorder.append(table(16, 24, label=label), out, **more)
        if at == "store":
            for folder, _, names in os.walk(out):
                there = f"{place}{folder.removeprefix(out)}"
                tf.io.gfile.makedirs(there)
                for name in names:
                    if tf.io.gfile.exists(f"{there}/{name}"):  # ram:// would add to it
                        tf.io.gfile.remove(f"{there}/{name}")
                    tf.io.gfile.copy(f"{folder}/{name}", f"{there}/{name}")

    grow("zebra")
    found = iter(InGraph(place, shuffle=False))
    begun = [next(found) for _ in range(17)]
    tfrecorder.undo(out)
    grow("elephant")
    assert begun == OLD + ["zebra"]
    rest: list[str] = []
    if at == "disk":  # an open file stays what it is
        rest.extend(found)
        assert rest == ["zebra"] * 23
    else:
        with pytest.raises(tf.errors.OpError, match=r"train-00004\.tfrecord was replaced"):
            rest.extend(found)
        assert set(rest) <= {"zebra"}


@pytest.mark.slow
def test_a_dataset_that_was_written_anew_in_its_place_is_another(out: str) -> None:
    readers = [read(out) for read in (READERS | GRAPHS).values()]
    shutil.rmtree(out)
    tfrecorder.convert(table(0, 16, label="gnu"), out, num_shards=4, **QUIET)
    for reader in readers:
        assert f"was replaced since {out} was opened" in failing(reader)


@pytest.mark.slow
def test_what_an_append_adds_changes_nothing(out: str) -> None:
    everyone = (READERS | GRAPHS).values()
    readers, before = [read(out) for read in everyone], [sorted(read(out)) for read in everyone]
    tfrecorder.append(table(16, 4, label="camel"), out, **QUIET)
    assert [sorted(reader) for reader in readers] == before


# --------------------------------------------------------------------------- a name that is gone


@pytest.mark.slow
def test_a_shard_that_was_removed_is_named(out: str) -> None:
    readers = [read(out) for read in (READERS | GRAPHS).values()]
    tfrecorder.compact(out, num_shards=2, **QUIET)
    for reader in readers:
        words = failing(reader)
        assert f"tfrecord was removed since {out} was opened; by now" in words
        assert "at generation 2 (compaction). Open it again." in words


def test_what_is_open_is_read_to_its_end_after_a_rewrite(out: str) -> None:
    reader, found = ByNumber(out), iter(InGraph(out, shuffle=False))
    assert list(reader) == OLD
    begun = list(itertools.islice(found, 13))
    tfrecorder.compact(out, num_shards=2, **QUIET)
    assert list(reader) == OLD
    assert begun + list(found) == OLD


# ------------------------------------------------------------------------------------- following


@pytest.mark.slow
@pytest.mark.parametrize("read", [InBatches, InGraph])
def test_a_follower_of_what_was_taken_back_is_told(out: str, read: Any) -> None:
    reader = read(out, follow=True)
    assert sorted(reader) == OLD
    tfrecorder.undo(out)
    words = f"generation 1 of {out} was taken back by `undo` while it was being read. Open it again"
    assert words in failing(reader)
    replace = table(12, 4, label="camel")
    tfrecorder.append(replace, out, num_shards=1, **QUIET)
    assert words in failing(reader)
    assert set(read(out, follow=True)) == {"cat", "camel"}


@pytest.mark.parametrize("read", [InBatches, InGraph])
def test_a_follower_that_did_not_see_it_goes_on(out: str, read: Any) -> None:
    reader = read(out, follow=True)
    tfrecorder.append(table(16, 4, label="camel"), out, **QUIET)
    tfrecorder.undo(out)
    assert sorted(reader) == OLD


@pytest.mark.slow
@pytest.mark.parametrize("read", [InBatches, InGraph])
def test_a_follower_goes_on_with_corrected_values(out: str, read: Any) -> None:
    reader = read(out, follow=True)
    assert sorted(reader) == OLD
    correct(out)
    assert sorted(reader) == sorted(CORRECTED)


# ------------------------------------------------------------------------------------- positions

CORRECTED = ["cat"] * 12 + ["cat", *["zebra"] * 3]


def correct(out: str) -> None:
    """One label of the second generation."""
    tfrecorder.update(table(12, 1, label="cat"), out, **QUIET)


def test_a_position_goes_on_after_a_correction(out: str) -> None:
    loop = tfrecorder.batches(out, "TRAIN", batch_size=2, seed=3, map_fn=number_of, **ALL)
    whole = [batch.tolist() for batch in loop]
    loop = tfrecorder.batches(out, "TRAIN", batch_size=2, seed=3, map_fn=number_of, **ALL)
    begun = [batch.tolist() for batch in itertools.islice(loop, 3)]
    before = tfrecorder.Records(out, "TRAIN").fingerprint
    correct(out)
    again = tfrecorder.batches(out, "TRAIN", batch_size=2, map_fn=number_of, **ALL)
    again.load_state_dict(loop.state_dict())
    assert begun + [batch.tolist() for batch in again] == whole
    assert sorted(ByNumber(out)) == sorted(CORRECTED)
    assert tfrecorder.Records(out, "TRAIN").fingerprint == before
    assert tfrecorder.Records(out, "TRAIN", at=1).fingerprint == before


def number_of(element: Any) -> int:
    return int(class_of({"image/class/text": element["image/source_id"]}))


@pytest.mark.parametrize("is_removal", [False, True])
def test_a_position_of_before_a_new_numbering_is_refused(out: str, is_removal: bool) -> None:
    def readers() -> list[Any]:
        records = tfrecorder.Records(out, "TRAIN")
        loop = tfrecorder.batches(out, "TRAIN", seed=3, image_size=8)
        return [loop, tfrecorder.torch.BatchSampler(records, seed=3)]

    states = [reader.state_dict() for reader in readers()]
    if is_removal:
        tfrecorder.remove(out, {"label": "zebra"}, **QUIET)
    else:
        tfrecorder.compact(out, num_shards=2, **QUIET)
    for reader, state in zip(readers(), states, strict=True):
        with pytest.raises(
            OptionError, match=r"generation 2 removed, moved or replaced records since then"
        ):
            reader.load_state_dict(state)


# ---------------------------------------------------------------------------- TensorFlow's graph


@pytest.mark.slow
def test_an_iterator_of_tensorflow_can_be_saved(out: str) -> None:
    data = tfrecorder.load(out, "TRAIN", shuffle=False, **ALL).map(
        lambda one: one["image/class/text"]
    )
    found = iter(data)
    begun = [next(found).numpy() for _ in range(5)]
    path = tf.train.Checkpoint(it=found).save(os.path.join(os.path.dirname(out), "position"))
    again = iter(data)
    tf.train.Checkpoint(it=again).restore(path)
    assert [text.decode() for text in begun + [one.numpy() for one in again]] == OLD


@pytest.mark.slow
def test_a_script_ends_while_tensorflow_reads(out: str) -> None:
    """Python must not be called from a thread that outlives the interpreter."""
    script = (
        "import sys, tfrecorder\n"
        "data = tfrecorder.load(sys.argv[1], 'TRAIN', decode=False).repeat().prefetch(10**6)\n"
        "kept = iter(data)\n"
        "next(kept)\n"
    )
    for _ in range(3):
        subprocess.run([sys.executable, "-c", script, out], check=True, timeout=120)
