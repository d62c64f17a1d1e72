"""`tfrecorder.torch.batches` with worker processes, in a process without TensorFlow and Beam.

tests/services/test_trainers.py runs this file by a pytest of its own. The dataset stands in
TFRECORDER_DATASET: 36 photographs in TRAIN.
"""

from __future__ import annotations

import errno
import mmap
import os
import subprocess
import sys
import threading
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from helpers.reading_cases import SAMPLES, damaged, photos
from hypothesis import given, settings, strategies as st
from PIL import Image as Pictures
from torture import loader_workers
from torture.trainings import Run, finish

import tfrecorder
from tfrecorder.errors import DatasetError, OptionError
from tfrecorder.schema import Image, Label, Mask, Schema, Split
from tfrecorder.torch import batches

pytest_plugins = ["services.gcs.fixtures"]

OUT = os.environ["TFRECORDER_DATASET"]
EXAMPLES = int(os.environ.get("TFRECORDER_EXAMPLES", "12"))


@pytest.fixture(autouse=True)
def without_advice() -> Iterator[None]:
    """torch warns of more workers than cores."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This DataLoader will create")
        yield


run = st.builds(
    Run, st.integers(1, 7), st.integers(1, 3), st.integers(0, 6), st.sampled_from([0, 1, 3])
)


@given(runs=st.lists(run, min_size=1, max_size=3), drop=st.booleans(), seed=st.integers(0, 99))
@settings(max_examples=EXAMPLES, deadline=None)
def test_a_run_that_is_killed_goes_on_with_any_number_of_workers(
    runs: list[Run], drop: bool, seed: int
) -> None:
    """Of threads, workers and hosts: each continues exactly where the loop before it ended."""
    finish(OUT, 36, runs, drop, seed)


def test_nothing_is_left_of_loops_and_processes_that_end_early(tmp_path: Path) -> None:
    loader_workers.torment(tmp_path, leave=6, kills=2)


# ---------------------------------------------------------------------------------------------
# Errors


def errors_of(folder: Path, **options: Any) -> list[BaseException]:
    """What the same call raises with threads, with a worker and with three, after what it took."""
    found = []
    for workers in (0, 1, 3):
        loop = batches(folder, "TRAIN", batch_size=2, num_workers=workers, **options)
        with pytest.raises(Exception) as info:
            for _ in loop:
                pass
        assert not psutil.Process().children(), "workers end though the error is kept"
        found.append((type(info.value), str(info.value), loop.state_dict()["next"]))
    return found


def test_an_error_is_that_of_threads_and_comes_where_its_batch_is_taken(tmp_path: Path) -> None:
    shard, offset, number = damaged(OUT, tmp_path, 300)
    of_threads, *of_workers = errors_of(shard.parent, image_size=30, shuffle=False, seed=1)
    assert of_workers == [of_threads] * 2
    kind, words, place = of_threads
    assert kind is DatasetError
    assert f"{shard.name} is damaged: of the record at byte {offset}, " in words
    assert place == number // 2 * 2


class OddError(Exception):
    """Cannot be made again of what it keeps."""

    def __init__(self, one: str, other: str) -> None:
        super().__init__(f"{one} and {other}")


def fails(image: np.ndarray, label: np.ndarray) -> Any:
    raise ValueError("not mine")


def fails_oddly(image: np.ndarray, label: np.ndarray) -> Any:
    raise OddError("this", "that")


def test_an_error_of_map_fn_is_itself() -> None:
    assert errors_of(OUT, map_fn=fails, seed=1) == [(ValueError, "not mine", 0)] * 3
    with pytest.raises(ValueError, match=r"^not mine$") as info:
        next(iter(batches(OUT, "TRAIN", map_fn=fails, num_workers=1)))
    assert 'raise ValueError("not mine")' in str(info.value.__cause__), "where it was raised"
    with pytest.raises(Exception, match=r"(?s)OddError.*this and that"):
        next(iter(batches(OUT, "TRAIN", map_fn=fails_oddly, num_workers=1)))
    kind, words, _ = errors_of(OUT, map_fn=lambda image, label: image, seed=1)[2]
    assert kind is OptionError
    assert "`map_fn` returned arrays of the shapes" in words


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_workers": -1}, "num_workers=-1: give a whole number from 0"),
        ({"num_workers": 2, "num_threads": 2}, "no effect with `num_workers=2`"),
        ({"num_workers": 2, "at": 0, "follow": True}, "follow"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        batches(OUT, "TRAIN", image_size=9, **options)


def test_arrays_are_read_by_threads() -> None:
    with pytest.raises(
        OptionError, match=r"num_workers=2: `tfrecorder\.torch\.batches` has worker"
    ):
        tfrecorder.batches(OUT, "TRAIN", image_size=9, num_workers=2)  # type: ignore[call-arg]


# ---------------------------------------------------------------------------------------------
# The memory of batches

SIDES: dict[str, Any] = {"image_size": (70, 90), "batch_size": 2, "seed": 3}


@pytest.fixture(scope="module")
def with_masks(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Each photograph with a mask: what of it is dark."""
    folder = tmp_path_factory.mktemp("masks")
    rows = photos("TRAIN").reset_index(drop=True)
    rows["image_uri"] = [str(SAMPLES / uri) for uri in rows["image_uri"]]
    rows["mask_uri"] = [str(folder / f"{row}.png") for row in rows.index]
    for source, mask in zip(rows["image_uri"], rows["mask_uri"], strict=True):
        Pictures.open(source).convert("L").point(lambda value: value < 99).save(mask)
    kinds = {"split": Split(), "image_uri": Image(), "label": Label(), "mask_uri": Mask()}
    tfrecorder.convert(rows, folder / "out", schema=Schema(**kinds), progress=False)
    return str(folder / "out")


def flat(batch: Any) -> list[Any]:
    """The tensors or arrays of a batch, one after the other."""
    if isinstance(batch, dict):
        batch = tuple(batch.values())
    return [one for part in batch for one in flat(part)] if isinstance(batch, tuple) else [batch]


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("options", [{}, {"layout": "NCHW", "dtype": "float32"}])
def test_what_is_held_of_a_batch_stays_as_it_came(
    with_masks: str, workers: int, options: dict[str, Any]
) -> None:
    """All of it, a part of it, or a view of a part: workers go on, and write to other memory."""
    options |= SIDES | {"inputs": ["image_uri", "mask_uri"], "targets": ["label"]}
    held: list[list[Any]] = []
    for step, batch in enumerate(batches(with_masks, "TRAIN", num_workers=workers, **options)):
        one = flat(batch)
        assert all(tensor.is_contiguous() for tensor in one)
        if step % 3 == 0:
            one = [tensor[1:].flatten() for tensor in one]
        held.append([] if step % 3 == 2 else one)
        del one, batch
    whole = list(tfrecorder.batches(with_masks, "TRAIN", **options))
    assert len(held) == len(whole) == 18
    for step, (ours, batch) in enumerate(zip(held, whole, strict=True)):
        theirs = [array[1:].flatten() for array in flat(batch)] if step % 3 == 0 else flat(batch)
        for pair in zip(ours, theirs, strict=False):
            np.testing.assert_array_equal(*pair)


def test_where_memory_cannot_be_shared_batches_come_by_torch(
    with_masks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(mmap, "mmap", refuse)
    ours = batches(with_masks, "TRAIN", num_workers=2, **SIDES)
    for pair in zip(ours, tfrecorder.batches(with_masks, "TRAIN", **SIDES), strict=True):
        for one in zip(*map(flat, pair), strict=True):
            np.testing.assert_array_equal(*one)


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_write_to_memory_that_is_there(with_masks: str, workers: int) -> None:
    """Each batch of torch's own is a file of shared memory, and its pages are new."""
    places = {}
    loop = batches(with_masks, "TRAIN", num_workers=workers, **SIDES)
    for step, (images, _) in enumerate(loop):
        places[images.data_ptr()] = step
        images += 1
    assert len(places) <= 2 * workers + 3 < 18
    assert "/torch_" not in Path("/proc/self/maps").read_text()


# ---------------------------------------------------------------------------------------------
# How workers are started


def test_the_random_numbers_of_the_training_stay_its_own() -> None:
    drawn = []
    for workers in (0, 2):
        torch.manual_seed(5)
        list(batches(OUT, "TRAIN", image_size=9, num_workers=workers))
        drawn.append(torch.rand(4).tolist())
    assert drawn[0] == drawn[1]


SCRIPT = """
import sys, tfrecorder.torch
if sys.argv[2]:
    import multiprocessing
    multiprocessing.set_start_method(sys.argv[2])
function = None if sys.argv[3] == "none" else lambda *element: element
options = {"image_size": 9, "num_workers": 1, "map_fn": function}
for images, labels in tfrecorder.torch.batches(sys.argv[1], "TRAIN", **options):
    print(len(images))
"""
GUARDED = SCRIPT.replace("if sys.argv[2]:", "if __name__ == '__main__' and sys.argv[2]:").replace(
    "labels in", "labels in [] if __name__ != '__main__' else"
)


@pytest.mark.parametrize(
    ("script", "method", "function", "words"),
    [
        (SCRIPT, "", "lambda", "36"),
        (GUARDED, "spawn", "none", "36"),
        (GUARDED, "spawn", "lambda", "map_fn=<function <lambda>"),
    ],
)
def test_a_script_needs_no_guard_where_workers_are_forked(
    tmp_path: Path, script: str, method: str, function: str, words: str
) -> None:
    (tmp_path / "train.py").write_text(script)
    command = [sys.executable, str(tmp_path / "train.py"), OUT, method, function]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    *_, last = (done.stdout or done.stderr).strip().splitlines()
    assert words in last, done.stderr


def test_what_a_loader_pins_keeps_its_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """No machine of ours has a GPU: pinning itself is torch's, that it is asked for is ours."""
    pinned, threads = [], set()

    def pin_memory(self: torch.Tensor) -> torch.Tensor:
        threads.add(threading.current_thread().name)
        pinned.append(self)
        return self

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(torch.Tensor, "pin_memory", pin_memory)
    steps = list(batches(OUT, "TEST", image_size=9, batch_size=4, num_workers=1))
    assert [type(step) for step in steps] == [tuple, tuple]
    assert [id(one) for one in pinned] == [id(one) for step in steps for one in step]
    assert threads == {"tfrecorder-pinning"}
    texts = {"inputs": ["image_uri"], "targets": ["label"], "decode": False, "num_workers": 1}
    *_, (data, _labels) = batches(OUT, "TEST", batch_size=4, **texts)
    assert [type(one) for one in data] == [bytes] * 4


# ---------------------------------------------------------------------------------------------
# Datasets that grow, and buckets


def number(data: bytes, label: Any) -> int:
    return zlib.crc32(data)


NUMBERS: dict[str, Any] = {"decode": False, "map_fn": number, "batch_size": 5, "seed": 7}


def test_what_was_appended_comes_with_the_next_epoch(tmp_path: Path) -> None:
    rows, out = photos("TRAIN").reset_index(drop=True), tmp_path / "out"
    rows["image_uri"] = [str(SAMPLES / uri) for uri in rows["image_uri"]]
    tfrecorder.convert(rows[:20], out, progress=False)
    train = batches(out, "TRAIN", follow=True, num_workers=2, **NUMBERS)
    sizes = []
    for end in (20, 30, 36):
        if end > 20:
            tfrecorder.append(rows[:end], out, progress=False)
        sizes.append(len({one for batch in train for one in batch.tolist()}))
    assert sizes == [20, 30, 36]


def test_forked_workers_read_from_a_bucket(gcs: Any) -> None:
    gcs.create_bucket("photos")
    gcs.put_folder("gs://photos/out", Path(OUT))
    expected = [batch.tolist() for batch in tfrecorder.batches(OUT, "TRAIN", **NUMBERS)]
    for workers in (0, 2):
        loop = batches("gs://photos/out", "TRAIN", num_workers=workers, **NUMBERS)
        assert [batch.tolist() for batch in loop] == expected
    loop = batches("gs://photos/out", "TRAIN", num_workers=2, shuffle="blocks", **NUMBERS)
    with pytest.raises(OptionError, match=r"num_workers=2: .* give another `shuffle`"):
        next(iter(loop))
