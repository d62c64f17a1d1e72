"""A training by Lightning that logs which records each process trains on, until it is killed.

    python lightning_training.py DATASET FOLDER '{"reader": "batches", "world": 2, ...}'

It begins again where the newest checkpoint in FOLDER was saved. Lightning starts the second process
itself. Each record is a number; FOLDER/rank-0.log has a line for each batch: the number of the step
in the whole training, and those of the records.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.callbacks import ModelCheckpoint
from torch.utils.data import default_collate

import tfrecorder
from tfrecorder.torch import BatchSampler, batches


def number(data: bytes, _: Any) -> Any:
    return np.int64(zlib.crc32(data))


#: What a batch is made of: a number for each record, by its bytes.
NUMBERS: dict[str, Any] = {"decode": False, "inputs": ["image_uri"], "map_fn": number}


class Model(LightningModule):
    def __init__(self, dataset: str, folder: Path, chosen: dict[str, Any]) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self._dataset, self._folder, self._chosen = dataset, folder, chosen

    def train_dataloader(self) -> Any:
        given = {"batch_size": self._chosen["batch_size"], "seed": self._chosen["seed"]}
        if self._chosen["reader"] == "batches":
            return batches(self._dataset, "TRAIN", **given, **NUMBERS)
        from torchdata.stateful_dataloader import StatefulDataLoader

        records = tfrecorder.Records(self._dataset, "TRAIN", **NUMBERS)
        workers = int(self._chosen["reader"].removeprefix("loader-"))
        sampler = BatchSampler(records, **given)
        return StatefulDataLoader(
            records, batch_sampler=sampler, num_workers=workers, collate_fn=default_collate
        )

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        with open(self._folder / f"rank-{self.global_rank}.log", "a") as file:
            print(json.dumps([self.global_step, batch.tolist()]), file=file)
        return self.layer(torch.ones(1, 1)).sum()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.01)


class Kill(Callback):
    """Kills each process before the step with this number."""

    def __init__(self, step: int) -> None:
        self._step = step

    def on_train_batch_start(self, trainer: Trainer, *_: Any) -> None:
        if trainer.global_step == self._step:
            os.kill(os.getpid(), signal.SIGKILL)


def main(dataset: str, folder: Path, chosen: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    every = chosen.get("every", 1)
    checkpoints = ModelCheckpoint(
        folder, filename="{step}", every_n_train_steps=every, save_top_k=-1
    )
    trainer = Trainer(
        accelerator="cpu",
        devices=chosen["world"],
        strategy="ddp" if chosen["world"] > 1 else "auto",
        use_distributed_sampler=chosen["reader"] == "batches",  # Lightning's default
        max_epochs=chosen["epochs"],
        callbacks=[Kill(chosen["kill"]), checkpoints],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    saved = sorted(folder.glob("*.ckpt"), key=lambda path: int(path.stem.partition("=")[2]))
    trainer.fit(Model(dataset, folder, chosen), ckpt_path=saved[-1] if saved else None)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3]))
