"""Trains a small PyTorch network on the bundled photographs, on any number of processes.

    python samples/train_torch.py --out DIR                             # one process
    torchrun --nproc-per-node 2 samples/train_torch.py --out DIR        # two, with gloo

You can stop it at any moment, even with kill -9. Start it again with the same --out, and it
continues with the photographs of the epoch that it has not seen. The batch size and the number of
processes may change. If the last photographs of an epoch do not fill a step, they are left out.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn

import tfrecorder
from tfrecorder.torch import batches

HERE = Path(__file__).parent
SIZE = (96, 128)


def build_model(classes: int) -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 3, 2), nn.ReLU()),
        *(nn.Conv2d(16, 32, 3, 2), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, classes)),
    )


def save(path: Path, state: dict[str, Any]) -> None:
    """Save the model and its position together, with one rename, so that they always match."""
    torch.save(state, path.with_suffix(".tmp"))
    os.replace(path.with_suffix(".tmp"), path)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("photos-torch"))
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=4, help="per process")
    parser.add_argument("--pause", type=float, default=0, help="seconds after each step")
    chosen = parser.parse_args()

    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if world > 1:
        distributed.init_process_group("gloo")
    dataset, checkpoint = chosen.out / "dataset", chosen.out / "checkpoint.pt"
    if rank == 0 and not (dataset / "dataset_info.json").exists():
        tfrecorder.convert(HERE / "photos.csv", dataset, progress=False)
    if world > 1:
        distributed.barrier()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = build_model(len(tfrecorder.info(dataset).class_names or ()))
    train = batches(
        dataset,
        "TRAIN",
        batch_size=chosen.batch_size,
        image_size=SIZE,
        dtype="float32",
        layout="NCHW",
        augment=True,
        seed=7,
        drop_remainder=True,
    )
    if checkpoint.exists():
        state = torch.load(checkpoint)
        model.load_state_dict(state["model"])
        train.load_state_dict(state["position"])
    in_step = nn.parallel.DistributedDataParallel(model) if world > 1 else model
    optimizer = torch.optim.SGD(in_step.parameters(), 0.05)

    while train.epoch < chosen.epochs:
        epoch, steps = train.epoch, len(train)
        for step, (images, labels) in enumerate(train, steps - train.remaining + 1):
            loss = nn.functional.cross_entropy(in_step(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if rank == 0:
                position = train.state_dict()
                save(checkpoint, {"model": model.state_dict(), "position": position})
                print(f"epoch {epoch}, step {step} of {steps}, loss {loss:.2f}", flush=True)
            time.sleep(chosen.pause)
    if world > 1:
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
