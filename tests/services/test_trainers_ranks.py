"""The trainers of the PyTorch page, as the page shows them, in two processes connected by gloo.

Each block of the page is run with its own defaults, but with a network that logs which records each
step has.  A trainer that is not installed is skipped.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.doc_pages import PAGES, blocks
from helpers.reading_cases import convert_photos
from support import skip_without

#: What stands above on the page, but its network notes which images each step has.
PRELUDE = """
import json, os, signal, sys, warnings, zlib

import torch
from torch import nn

import tfrecorder
from tfrecorder.torch import batches

RANK, KILL, LOG = os.environ["RANK"], int(os.environ["KILL"]), os.environ["LOG"]
torch.set_num_threads(1)


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.steps = nn.Linear(3, 4), 0

    def forward(self, pixel_values, labels=None):
        if self.steps == KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        self.steps += 1
        with open(f"{LOG}-{RANK}", "a") as file:
            pixels = pixel_values.to(torch.uint8).numpy()
            print(json.dumps([zlib.crc32(one.tobytes()) for one in pixels]), file=file)
        logits = self.layer(pixel_values.float().mean((2, 3)))
        if labels is None:
            return logits
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def step(images, labels):
    torch.distributed.barrier()
"""

#: Trainers by the package that the block of the page needs; "torch" is the loop over a DataLoader.
TRAINERS = ["pytorch_lightning", "accelerate", "transformers", "torch"]

#: What a trainer needs beyond its own package.
PACKAGES = {"transformers": ["transformers", "accelerate"]}

#: 36 records by two processes in batches of 4: four steps, and four records are left out.
STEPS = 4


def block_of(trainer: str) -> str:
    for block in blocks(PAGES["docs/pytorch.md"]):
        if (trainer,) == block.needs[-1:]:
            return block.code
        if trainer == "torch" and "position.pt" in block.code:
            return 'torch.distributed.init_process_group("gloo")\n' + block.code
    raise AssertionError(f"the page shows no {trainer}")


def train(
    code: str, folder: Path, out: str, kill: int = -1, world: int = 2, **more: str
) -> tuple[list[list[list[int]]], str]:
    """The records of each step of each process, and what they say."""
    if not (folder / "out").exists():
        folder.mkdir(exist_ok=True)
        (folder / "out").symlink_to(out)
    log = folder / f"log-{len([*folder.glob('log-*-0')])}"
    (folder / "train.py").write_text(PRELUDE + code)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {
        **{"KILL": str(kill), "LOG": str(log)},
        **dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), str(world)),
        **{"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"},
        **{"NODE_RANK": "0", "ACCELERATE_USE_CPU": "true", "HF_HUB_OFFLINE": "1"},
        **{"PL_TRAINER_DEVICES": "2", "PL_TRAINER_ACCELERATOR": "cpu", **more},
    }
    with contextlib.ExitStack() as stack:
        ranks = [
            stack.enter_context(_process(folder, rank, shared)) for rank in map(str, range(world))
        ]
        said = [process.communicate(timeout=300)[0] for process in ranks]
    logs = [folder / f"{log.name}-{rank}" for rank in range(world)]
    steps = [list(map(json.loads, one.read_text().splitlines())) for one in logs if one.exists()]
    return steps, "\n".join(said)


@contextlib.contextmanager
def _process(folder: Path, rank: str, shared: dict[str, str]) -> Iterator[Any]:
    with subprocess.Popen(
        [sys.executable, "train.py"],
        cwd=folder,
        env={**os.environ, **shared, "RANK": rank, "LOCAL_RANK": rank},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> str:
    return convert_photos(tmp_path_factory.mktemp("photos") / "out")


@pytest.mark.slow
@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_trainer_reads_each_record_once_and_goes_on_after_a_kill(
    trainer: str, out: str, tmp_path: Path
) -> None:
    skip_without("torch", *PACKAGES.get(trainer, [trainer]))
    code = block_of(trainer)
    whole, said = train(code, tmp_path / "whole", out)
    assert [len(steps) for steps in whole] == [2 * STEPS] * 2, said
    epochs = [
        [one for steps in whole for step in steps[first : first + STEPS] for one in step]
        for first in (0, STEPS)
    ]
    for epoch in epochs:
        assert len(epoch) == len({*epoch}) == 32, "each record once"
    assert epochs[0] != epochs[1], "in a new order"
    begun, said = train(code, tmp_path / "killed", out, kill=STEPS + 2)
    ended, said = train(code, tmp_path / "killed", out)
    for one, before, after in zip(whole, begun, ended, strict=True):
        assert before + after == one, said


#: Each rank's part of a sum over all records, added up after every batch, as metrics are.
EVALUATES = """
import torch.distributed as dist
import tfrecorder.torch
from tfrecorder.errors import OptionError

dist.init_process_group("gloo")
value = lambda data, _: float(zlib.crc32(data) % 1000)
options = dict(decode=False, inputs=["image_uri"], map_fn=value, batch_size=4)
for records in range(1, 14):
    chosen = dict(options, epoch_size=records, seed=3)
    whole = [one for some in tfrecorder.torch.batches("out", "TRAIN", shard=(0, 1), **chosen)
             for one in some.tolist()]
    padded = False
    try:
        loop = tfrecorder.torch.batches("out", "TRAIN", drop_remainder=False, **chosen)
    except OptionError as error:
        assert records < dist.get_world_size() and "cannot give each of" in str(error), error
        padded = True
        loop = tfrecorder.torch.batches("out", "TRAIN", pad=True, **chosen)
    total = torch.zeros(2)
    for batch in loop:
        values, mask = batch if padded else (batch, torch.ones(len(batch), dtype=bool))
        assert len(values), "an empty batch"
        assert values.mean().isfinite()
        step = torch.tensor([values[mask].sum(), mask.sum()])
        dist.all_reduce(step)  # which waits for every other rank
        total += step
    assert total.tolist() == [sum(whole), records], (records, total, whole)
print("evaluated in", dist.get_world_size())
"""


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 3])
def test_metrics_of_several_processes_are_those_of_one(
    world: int, out: str, tmp_path: Path
) -> None:
    skip_without("torch")
    _, said = train(EVALUATES, tmp_path / "run", out, world=world)
    assert said.count(f"evaluated in {world}") == world, said


#: What accelerate is told of an epoch's last batch, in each of two processes.
TOLD = """
from accelerate import Accelerator
import tfrecorder.torch

accelerator, model = Accelerator(cpu=True, gradient_accumulation_steps=3), nn.Linear(1, 1)
model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1))
numbers = dict(decode=False, inputs=["image_uri"], map_fn=lambda data, _: zlib.crc32(data))
train = accelerator.prepare(tfrecorder.torch.batches("out", "TRAIN", batch_size=4, **numbers))
for epoch in range(2):
    steps = ""
    for some in train:
        with accelerator.accumulate(model):
            accelerator.backward(model(some.float()[:, None]).mean())
            optimizer.step()
            optimizer.zero_grad()
            steps += "S" if accelerator.sync_gradients else "."
    assert steps == "..SS", steps
for records in (1, 3, 8, 9, 13):
    chosen = dict(numbers, epoch_size=records, seed=3)
    alone = tfrecorder.batches("out", "TRAIN", shard=(0, 1), **chosen)
    whole = [one for some in alone for one in some]
    padded = tfrecorder.torch.batches("out", "TRAIN", batch_size=4, pad=True, **chosen)
    found = [accelerator.gather_for_metrics(some) for some, _ in accelerator.prepare(padded)]
    assert torch.cat(found).tolist() == whole, records
print("gathered")
accelerator.end_training()
"""


@pytest.mark.slow
def test_accelerate_knows_the_end_of_an_epoch_and_what_was_padded(out: str, tmp_path: Path) -> None:
    skip_without("torch", "accelerate")
    _, said = train(TOLD, tmp_path / "run", out)
    assert said.count("gathered") == 2, said


REFUSED = {
    "pytorch_lightning": (
        """
from pytorch_lightning import LightningModule, Trainer
from torch.utils.data import DataLoader

class Model(LightningModule):
    def __init__(self):
        super().__init__()
        self.network = Network()

    def training_step(self, batch, number):
        return self.network(batch[0]).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)

records = tfrecorder.Records("out", "TRAIN", image_size=64)
sampler = tfrecorder.torch.BatchSampler(records, 4)
Trainer().fit(Model(), DataLoader(records, batch_sampler=sampler))
""",
        "this sampler divides its records already, by `shard=(1, 2)` by torch.distributed",
    ),
    "accelerate": (
        """
from accelerate import Accelerator
from torch.utils.data import DataLoader

accelerator = Accelerator()
train = tfrecorder.torch.batches("out", "TRAIN", batch_size=4, image_size=64)
for images, labels in accelerator.prepare(DataLoader(train, batch_size=None)):
    Network()(images)
""",
        "accelerate would divide again what is divided by `shard=(0, 2)` by torch.distributed",
    ),
    "accelerate with a stateful loader": (
        """
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from torch.utils.data import DataLoader

accelerator = Accelerator(
    dataloader_config=DataLoaderConfiguration(use_stateful_dataloader=True)
)
train = tfrecorder.torch.batches("out", "TRAIN", batch_size=4, image_size=64)
for images, labels in accelerator.prepare(DataLoader(train, batch_size=None)):
    Network()(images)
""",
        "accelerate would divide again what is divided by `shard=(0, 2)` by torch.distributed",
    ),
    "accelerate of a dataset around them": (
        """
from accelerate import Accelerator
from torch.utils.data import DataLoader, IterableDataset

class Own(IterableDataset):
    def __iter__(self):
        yield from tfrecorder.torch.batches("out", "TRAIN", batch_size=4, image_size=64)

for images, labels in Accelerator().prepare(DataLoader(Own(), batch_size=None)):
    Network()(images)
""",
        "Within an `IterableDataset` of your own, read everything: `shard=(0, 1)`.",
    ),
    "accelerate of a sampler": (
        """
from accelerate import Accelerator
from torch.utils.data import DataLoader

records, accelerator = tfrecorder.Records("out", "TRAIN", image_size=64), Accelerator()
sampler = tfrecorder.torch.BatchSampler(records, 4)
for images, labels in accelerator.prepare(DataLoader(records, batch_sampler=sampler)):
    Network()(images)
""",
        "this sampler divides its records already, by `shard=(1, 2)` by torch.distributed",
    ),
    "transformers": (
        """
from transformers import Trainer, TrainingArguments

train = tfrecorder.torch.batches("out", "TRAIN", batch_size=4, image_size=64)
Trainer(Network(), TrainingArguments("run"), train_dataset=train).train()
""",
        "a DataLoader would put several of these batches together: give it `batch_size=None`, or",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("trainer", REFUSED)
def test_what_would_divide_the_shares_again_is_refused_in_one_line(
    trainer: str, out: str, tmp_path: Path
) -> None:
    name = trainer.partition(" ")[0]
    skip_without("torch", *PACKAGES.get(name, [name]))
    code, words = REFUSED[trainer]
    steps, said = train("import tfrecorder.torch\n" + code, tmp_path / "run", out)
    assert steps == [], "nothing was trained on"
    lines = {line.partition("]: ")[2] for line in said.splitlines() if words in line}
    assert len(lines) == 1, said
    assert lines.pop().partition(": ")[0].endswith(".OptionError")
