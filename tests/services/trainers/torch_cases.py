"""What `tfrecorder.torch` does, in a process without TensorFlow and Beam.

tests/services/test_trainers.py runs this file by a pytest of its own. The dataset stands in
TFRECORDER_DATASET: 36 photographs in TRAIN.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import tfrecorder
from tfrecorder import Records
from tfrecorder.errors import OptionError
from tfrecorder.torch import BatchSampler, TensorBatches, batches

OUT = os.environ["TFRECORDER_DATASET"]


def same(tensors: Any, arrays: Any) -> None:
    """Tensors of the form, dtypes and values of arrays."""
    assert type(tensors) in (type(arrays), torch.Tensor, list)
    if isinstance(arrays, dict):
        assert tensors.keys() == arrays.keys()
        for key, value in arrays.items():
            same(tensors[key], value)
    elif isinstance(arrays, tuple):
        for pair in zip(tensors, arrays, strict=True):
            same(*pair)
    elif arrays.dtype == object:
        assert tensors == arrays.tolist()
    else:
        assert str(tensors.dtype).removeprefix("torch.") == arrays.dtype.name
        np.testing.assert_array_equal(tensors.to(torch.float64).numpy(), arrays.astype(float))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "options",
    [
        {"image_size": 40},
        {"image_size": (40, 30), "layout": "NCHW", "dtype": "float32"},
        {"image_size": 40, "dtype": "float16", "augment": True},
        {"decode": False},
        {"image_size": 40, "inputs": "all"},
        {"image_size": 40, "shard": (1, 5), "drop_remainder": False},
        {"image_size": 40, "balance": "label", "epoch_size": 50},
    ],
)
def test_tensors_hold_what_the_arrays_hold(options: dict[str, Any], workers: int) -> None:
    options = {"batch_size": 7, "seed": 3} | options
    ours = batches(OUT, "TRAIN", num_workers=workers, **options)
    theirs = tfrecorder.batches(OUT, "TRAIN", **options)
    assert len(ours) == len(theirs)
    for _ in range(2):
        for pair in zip(ours, theirs, strict=True):
            same(*pair)
            assert ours.state_dict() == theirs.state_dict()


@pytest.mark.parametrize("workers", [0, 2])
def test_tensors_have_bfloat16(workers: int) -> None:
    pytest.importorskip("ml_dtypes")
    options = {"batch_size": 7, "seed": 3, "image_size": 40, "dtype": "bfloat16"}
    ours = batches(OUT, "TRAIN", num_workers=workers, **options)
    theirs = tfrecorder.batches(OUT, "TRAIN", **options)
    for pair in zip(ours, theirs, strict=True):
        same(*pair)


def test_tensors_share_the_memory_of_their_arrays() -> None:
    arrays = []

    def kept(image: np.ndarray, label: np.ndarray) -> Any:
        arrays.append(image)
        return image, label

    for images, _ in batches(OUT, "TRAIN", image_size=9, map_fn=kept, batch_size=4):
        assert images.is_contiguous()
        images += 1


def test_tensors_lie_in_pinned_memory_where_cuda_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """No machine of ours has a GPU: pinning itself is torch's, that it is asked for is ours."""
    pinned, threads, devices = [], set(), set()

    def pin_memory(self: torch.Tensor) -> torch.Tensor:
        threads.add(threading.current_thread().name)
        pinned.append(self)
        return self

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    monkeypatch.setattr(torch.cuda, "set_device", devices.add)
    monkeypatch.setattr(torch.Tensor, "pin_memory", pin_memory)
    loop, steps = batches(OUT, "TEST", image_size=9, batch_size=4), []
    for number, step in enumerate(loop, 1):
        steps.append(step)
        assert loop.state_dict()["next"] == 4 * number % 8, "of what the loop took"
    assert [id(one) for one in pinned] == [id(one) for step in steps for one in step]
    assert threads == {"tfrecorder-pinning"}, "the one that trains does not copy"
    assert devices == {3}, "where the one that trains works"


def test_a_state_goes_on_from_arrays_to_tensors() -> None:
    options = {"batch_size": 5, "seed": 3, "image_size": 9}
    whole = list(tfrecorder.batches(OUT, "TRAIN", **options))
    first = batches(OUT, "TRAIN", **options)
    assert isinstance(first, TensorBatches)
    taken = list(itertools.islice(first, 3))
    other = tfrecorder.batches(OUT, "TRAIN", **options)
    other.load_state_dict(json.loads(json.dumps(first.state_dict())))
    for ours, theirs in zip([*taken, *other], whole, strict=True):
        np.testing.assert_array_equal(np.asarray(ours[1]), theirs[1])


def test_each_of_several_connected_processes_reads_its_share() -> None:
    from torch import distributed
    from torch.testing._internal.distributed.fake_pg import FakeStore

    before, records = batches(OUT, "TRAIN", image_size=9, batch_size=4), photographs()
    distributed.init_process_group("fake", store=FakeStore(), rank=1, world_size=3)
    try:
        given = {"image_size": 9, "batch_size": 4, "shard": (1, 3)}
        expected = [labels.tolist() for _, labels in batches(OUT, "TRAIN", **given)]
        for reader in (before, tfrecorder.batches(OUT, "TRAIN", image_size=9, batch_size=4)):
            assert [labels.tolist() for _, labels in reader] == expected
            assert "shard=(1, 3) by torch.distributed" in repr(reader)
        assert [*BatchSampler(records, 4)] == [*BatchSampler(records, 4, shard=(1, 3))]
        whole = batches(OUT, "TRAIN", image_size=9, shard=(0, 1))
        assert sum(len(labels) for _, labels in whole) == 36
    finally:
        distributed.destroy_process_group()
    assert len(before) == 9


def test_a_sampler_is_not_divided_again_by_a_trainer() -> None:
    """Lightning and accelerate ask a sampler of batches for its size before they divide it."""
    records = photographs()
    assert BatchSampler(records, 4).batch_size == 4
    with pytest.raises(OptionError, match=r"divides its records already, by `shard=\(1, 2\)`"):
        hasattr(BatchSampler(records, 4, shard=(1, 2)), "batch_size")


def test_a_loader_takes_batches_as_they_are() -> None:
    """One epoch a loop, each in another order, with the position of what the loop took."""
    options = {"image_size": 9, "batch_size": 5, "seed": 3}
    loader = DataLoader(batches(OUT, "TRAIN", **options), batch_size=None)
    expected = tfrecorder.batches(OUT, "TRAIN", **options)
    assert len(loader) == len(expected) == 8
    for _ in range(2):
        for ours, theirs in zip(loader, expected, strict=True):
            assert loader.dataset.state_dict() == expected.state_dict()
            np.testing.assert_array_equal(ours[0], theirs[0])


def test_workers_of_a_loader_would_all_read_the_same_batches() -> None:
    loader = DataLoader(batches(OUT, "TRAIN", image_size=9), batch_size=None, num_workers=1)
    with pytest.raises(OptionError, match="each worker of a DataLoader would read the same"):
        list(loader)


def test_a_wrong_option_is_named() -> None:
    with pytest.raises(OptionError, match="batch_size"):
        batches(OUT, "TRAIN", batchsize=3)


# ---------------------------------------------------------------------------------------------
# Records in a DataLoader.


def photographs(**options: Any) -> Records:
    return Records(OUT, "TRAIN", **{"image_size": 40, "augment": True, "seed": 7} | options)


def in_order(records: Records, sampler: BatchSampler, epochs: int) -> list[np.ndarray]:
    """The labels and the images' sums of each batch, read in this process."""
    found = []
    for _ in range(epochs):
        for numbers in sampler:
            some = records[numbers]
            found.append(np.array([[label, image.sum()] for image, label in some]))
    return found


@pytest.mark.parametrize(("method", "lives_on"), [("fork", False), ("fork", True), ("spawn", True)])
def test_workers_read_what_this_process_would(method: str, lives_on: bool) -> None:
    """Two epochs, of which `augment` makes others, also in workers that live through both."""
    records = photographs()
    expected = in_order(records, BatchSampler(records, 5, seed=3), epochs=2)
    sampler = BatchSampler(records, 5, seed=3)
    loader = DataLoader(
        records,
        batch_sampler=sampler,
        num_workers=2,
        persistent_workers=lives_on,
        multiprocessing_context=multiprocessing.get_context(method),
    )
    found = []
    while sampler.epoch < 2:
        for images, labels in loader:
            assert images.dtype == torch.uint8
            assert images.shape[1:] == (40, 40, 3)
            assert labels.dtype == torch.int64
            sums = images.sum((1, 2, 3))
            found.append(torch.stack([labels, sums], 1).numpy())
    assert len(found) == len(expected) == 16
    for pair in zip(found, expected, strict=True):
        np.testing.assert_array_equal(*pair)


def test_a_loader_of_torch_alone_reads_them_too() -> None:
    """As any map-style dataset: without our sampler, and one by one."""
    records = photographs(augment=False)
    whole = [label for _, label in records]
    for options in ({"batch_size": 7}, {"batch_size": 7, "num_workers": 2}):
        found = torch.cat([labels for _, labels in DataLoader(records, **options)])
        assert found.tolist() == whole
    alone = DataLoader(records, batch_size=None, shuffle=True, num_workers=2)
    assert sorted(int(label) for _, label in alone) == sorted(whole)


def test_an_error_of_a_worker_names_the_file(tmp_path: Path) -> None:
    import shutil

    copy = shutil.copytree(OUT, tmp_path / "out")
    for shard in Path(copy).glob("train-*.tfrecord"):
        shard.write_bytes(bytes(len(shard.read_bytes())))
    loader = DataLoader(Records(copy, "TRAIN", image_size=9), batch_size=4, num_workers=2)
    with pytest.raises(tfrecorder.errors.DatasetError, match=r"train-.*\.tfrecord is damaged"):
        list(loader)


def test_the_position_of_a_plain_loader_is_the_samplers() -> None:
    records = photographs()
    alone = BatchSampler(records, 3, seed=3)
    for step, _ in enumerate(DataLoader(records, batch_sampler=alone), 1):
        assert alone.state_dict()["next"] == 3 * step, "without workers it is exact"
        if step == 4:
            break
    ahead = BatchSampler(records, 3, seed=3)
    loop = iter(DataLoader(records, batch_sampler=ahead, num_workers=2, prefetch_factor=2))
    next(loop)
    assert ahead.state_dict()["next"] == 3 * (1 + 2 * 2), "what two workers have in hand"


# ---------------------------------------------------------------------------------------------
# torchdata's loader, whose position is that of its loop.


def stateful(sampler: BatchSampler, records: Records, workers: int) -> Any:
    loaders = pytest.importorskip("torchdata.stateful_dataloader")
    return loaders.StatefulDataLoader(records, batch_sampler=sampler, num_workers=workers)


def numbers_of(loader: Any, most: int | None = None) -> list[list[int]]:
    return [batch.tolist() for batch in itertools.islice(loader, most)]


def number(image: np.ndarray, label: np.ndarray) -> int:
    """What sets the photographs apart, small enough for a tensor."""
    return int(image.astype(np.int64).sum())


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("steps", [0, 1, 4, 8])
def test_a_stateful_loader_goes_on_behind_what_its_loop_took(workers: int, steps: int) -> None:
    """Under another batch size and number of hosts; the order goes on into the next epoch."""
    records = photographs(augment=False, map_fn=number)
    whole = BatchSampler(records, 36, seed=3)
    epochs = [one for _ in range(2) for one in numbers_of(stateful(whole, records, 0))]

    loader = stateful(BatchSampler(records, 5, seed=3), records, workers)
    loop = iter(loader)
    taken = [one for _ in range(steps) for one in next(loop).tolist()]
    state = json.loads(json.dumps(loader.state_dict()))
    hosts = []
    for rank in range(2):
        more = {"seed": 3, "shard": (rank, 2), "drop_remainder": False}
        sampler = BatchSampler(records, 4, **more)
        other = stateful(sampler, records, workers)
        other.load_state_dict(state)
        hosts.append((numbers_of(other), numbers_of(other)))
        assert sampler.epoch == 2
    for epoch, before in ((0, taken), (1, [])):
        of_hosts = zip(*(host[epoch] for host in hosts), strict=True)
        found = [*before, *(one for step in of_hosts for part in step for one in part)]
        assert found == epochs[epoch]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stateful_loader_that_ended_its_epoch_goes_on_with_the_next(workers: int) -> None:
    """A short epoch: its loader draws all of the next one ahead, and draws it once more."""
    records = photographs(augment=False, map_fn=number)
    loader = stateful(BatchSampler(records, 18, seed=3), records, workers)
    epochs = [numbers_of(loader)]
    state = loader.state_dict()
    epochs += [numbers_of(loader), numbers_of(loader)]
    assert len({str(epoch) for epoch in epochs}) == 3
    other = stateful(BatchSampler(records, 18, seed=3), records, workers)
    other.load_state_dict(state)
    assert [numbers_of(other), numbers_of(other)] == epochs[1:]


LEAVES_A_LOOP = """
import torch
from tfrecorder.torch import batches

def endless():
    while True:
        yield from batches(OUT, "TRAIN", batch_size=2, image_size=30)

loop = endless()
for _ in range(5):
    next(loop)
"""


def test_a_script_that_ends_within_a_loop_says_nothing() -> None:
    script = f"OUT = {OUT!r}{LEAVES_A_LOOP}"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout + ended.stderr) == (0, "")
