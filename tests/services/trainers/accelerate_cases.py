"""What accelerate learns of our batches, and what it does with a `BatchSampler` of ours.

tests/services/test_trainers.py runs this file by a pytest of its own. The dataset stands in
TFRECORDER_DATASET: 36 photographs in TRAIN, 8 in TEST.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from torch.utils.data import DataLoader

from tfrecorder import Records
from tfrecorder.torch import BatchSampler, batches

OUT = os.environ["TFRECORDER_DATASET"]


def number(data: bytes, _: Any) -> Any:
    return np.int64(zlib.crc32(data))


NUMBERS: dict[str, Any] = {"decode": False, "inputs": ["image_uri"], "map_fn": number}


def by_batches() -> Any:
    return batches(OUT, "TRAIN", batch_size=4, seed=7, **NUMBERS)


def by_loader_of_batches() -> Any:
    return DataLoader(by_batches(), batch_size=None)


def by_loader() -> Any:
    records = Records(OUT, "TRAIN", **NUMBERS)
    return DataLoader(records, batch_sampler=BatchSampler(records, 4, seed=7))


@pytest.mark.parametrize("reader", [by_batches, by_loader_of_batches, by_loader])
def test_the_end_of_an_epoch_ends_a_window_of_gradients(reader: Any) -> None:
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model, optimizer, train = accelerator.prepare(model, optimizer, reader())
    for _ in range(2):
        steps = ""
        for batch in train:
            with accelerator.accumulate(model):
                accelerator.backward(model(torch.ones(len(batch), 1)).mean())
                optimizer.step()
                optimizer.zero_grad()
                steps += "S" if accelerator.sync_gradients else "."
        assert steps == "...S...SS"
        assert not accelerator.gradient_state.in_dataloader


def test_what_was_padded_is_no_part_of_the_metrics() -> None:
    accelerator = Accelerator(cpu=True)
    test = accelerator.prepare(batches(OUT, "TEST", batch_size=3, pad=True, **NUMBERS))
    found = [len(accelerator.gather_for_metrics(some)) for some, _ in test]
    assert found == [3, 3, 2]


@pytest.mark.parametrize("stop", [(0, 3), (1, 2), (2, 1), (2, 9)])
def test_a_run_that_is_resumed_goes_on_in_the_order_of_its_epochs(
    tmp_path: Path, stop: tuple[int, int]
) -> None:
    """Although accelerate counts the epochs from 0 again."""
    configuration = DataLoaderConfiguration(use_stateful_dataloader=True)

    def begun() -> Any:
        accelerator = Accelerator(cpu=True, dataloader_config=configuration)
        return accelerator, accelerator.prepare(by_loader())

    loop = by_loader()
    epochs = [[some.tolist() for some in loop] for _ in range(5)]
    (accelerator, train), (epoch, step) = begun(), stop
    for number in range(epoch + 1):
        for at, some in enumerate(train, 1):
            assert some.tolist() == epochs[number][at - 1]
            if (number, at) == stop:
                accelerator.save_state(str(tmp_path))
                break
    accelerator, train = begun()
    accelerator.load_state(str(tmp_path))
    coming = [rest for rest in (epochs[epoch][step:], *epochs[epoch + 1 :]) if rest]
    assert [[some.tolist() for some in train] for _ in range(2)] == coming[:2]
