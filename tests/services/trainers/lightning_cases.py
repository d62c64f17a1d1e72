"""What Lightning reads of our batches where it does not read an epoch to its end.

tests/services/test_trainers.py runs this file by a pytest of its own. The dataset stands in
TFRECORDER_DATASET: 36 photographs in TRAIN, 8 in TEST.
"""

from __future__ import annotations

import os
import warnings
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from pytorch_lightning import LightningModule, Trainer

import tfrecorder
from tfrecorder import Records
from tfrecorder.torch import BatchSampler, batches

OUT = os.environ["TFRECORDER_DATASET"]
QUIET: dict[str, Any] = {
    **dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary"), False),
    **{"enable_checkpointing": False, "accelerator": "cpu", "devices": 1},
}


@pytest.fixture(autouse=True)
def without_advice() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def number(data: bytes, _: Any) -> Any:
    return np.int64(zlib.crc32(data))


NUMBERS: dict[str, Any] = {"decode": False, "inputs": ["image_uri"], "map_fn": number}


class Model(LightningModule):
    """Notes the records of each of its loops."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.trained: list[list[int]] = []
        self.validated: list[list[int]] = []

    def on_train_epoch_start(self) -> None:
        self.trained.append([])

    def on_validation_epoch_start(self) -> None:
        self.validated.append([])

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        self.trained[-1] += batch.tolist()
        return self.layer(torch.ones(1, 1)).sum()

    def validation_step(self, batch: torch.Tensor, batch_idx: int) -> None:
        self.validated[-1] += batch.tolist()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.01)


def whole(split: str, epochs: int = 1, **more: Any) -> list[list[int]]:
    loop = tfrecorder.batches(OUT, split, batch_size=3, seed=7, **more, **NUMBERS)
    return [[int(one) for batch in loop for one in batch] for _ in range(epochs)]


@pytest.fixture(params=["batches", "loader"])
def reader(request: pytest.FixtureRequest) -> Any:
    def made(split: str, **more: Any) -> Any:
        given = {"batch_size": 3, "seed": 7, **more}
        if request.param == "batches":
            return batches(OUT, split, **given, **NUMBERS)
        records = Records(OUT, split, **NUMBERS)
        return torch.utils.data.DataLoader(records, batch_sampler=BatchSampler(records, **given))

    return made


def test_a_validation_that_is_cut_short_reads_the_same_records_each_time(reader: Any) -> None:
    """Lightning's check of two batches before the training too, which is its default."""
    model = Model()
    trainer = Trainer(max_epochs=3, limit_val_batches=2, **QUIET)
    trainer.fit(model, reader("TRAIN"), reader("TEST"))
    [test] = whole("TEST")
    assert model.validated == [test[:6]] * 4
    assert model.trained == whole("TRAIN", 3)


def test_a_whole_validation_follows_the_check_before_the_training(reader: Any) -> None:
    model, valid = Model(), reader("TEST")
    trainer = Trainer(max_epochs=2, **QUIET)
    trainer.fit(model, reader("TRAIN"), valid)
    [test] = whole("TEST")
    assert model.validated == [test[:6], test, test]
    for _ in range(2):
        trainer.validate(model, valid, verbose=False)
    assert model.validated[3:] == [test, test]


def test_a_training_that_is_cut_short_begins_each_epoch_in_a_new_order(reader: Any) -> None:
    model = Model()
    Trainer(max_epochs=3, limit_train_batches=4, **QUIET).fit(model, reader("TRAIN"))
    assert model.trained == [epoch[:12] for epoch in whole("TRAIN", 3)]


def test_overfitting_reads_the_same_records_in_their_stored_order(reader: Any) -> None:
    model = Model()
    Trainer(max_epochs=3, overfit_batches=2, **QUIET).fit(model, reader("TRAIN", shuffle=False))
    [stored] = whole("TRAIN", shuffle=False)
    assert model.trained == [stored[:6]] * 3
