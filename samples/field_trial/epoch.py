"""An epoch of training on every GPU of a host, or on its CPU, and how long its steps waited.

`python epoch.py DATASET FOLDER` is one process of several, which torchrun starts; each writes what
it measured to FOLDER/RANK.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tfrecorder

#: Steps in which memory is allocated and kernels are chosen: not in the share of waiting.
WARM_UP_STEPS = 5


def epoch(dataset: Path, folder: Path, chosen: argparse.Namespace) -> Iterator[tuple[str, Any]]:
    """Train for an epoch in as many processes as there are GPUs; two without any."""
    import torch

    processes = chosen.processes or torch.cuda.device_count() or 2
    records, whole = tfrecorder.info(dataset).splits["TRAIN"].records, chosen.batch_size * processes
    if records < whole:
        raise ValueError(f"{records} records fill no step of {whole}; raise --rows")
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    run += ["--nproc-per-node", str(processes), __file__, str(dataset), str(folder)]
    run += ["--batch-size", str(chosen.batch_size), "--image-size", str(chosen.image_size)]
    folder.mkdir(parents=True)
    done = subprocess.run(run, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise RuntimeError(f"torchrun failed: {done.stdout[-1500:]}")
    ranks = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(processes)]
    rows = Counter[int](row for rank in ranks for row in rank.pop("rows"))
    slowest = max(rank["seconds"] for rank in ranks)
    yield (
        "training",
        {
            "processes": processes,
            "batch_size": chosen.batch_size,
            "image_size": chosen.image_size,
            "records": rows.total(),
            "lost": records // whole * whole - len(rows),  # what fills no step is left out
            "doubled": rows.total() - len(rows),
            "seconds": slowest,
            "images_per_s": round(rows.total() / slowest, 1),
            "share_of_waiting": max(rank["share_of_waiting"] for rank in ranks),
            "ranks": ranks,
        },
    )


def train(dataset: Path, batch_size: int, image_size: int) -> dict[str, Any]:
    """This process's share of an epoch, and what it measured."""
    import torch
    from torch import distributed, nn

    from tfrecorder.torch import batches

    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    distributed.init_process_group("nccl" if on_gpu else "gloo")
    torch.manual_seed(0)
    model = network(len(tfrecorder.info(dataset).class_names or ()), 64 if on_gpu else 8)
    model = nn.parallel.DistributedDataParallel(model.to(device))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    options: dict[str, Any] = {"batch_size": batch_size, "image_size": image_size}
    options |= {"layout": "NCHW", "seed": 0, "inputs": "all", "drop_remainder": True}
    waits, steps, rows = [], [], []
    begun = asked = time.perf_counter()
    for batch in batches(dataset, "TRAIN", **options):
        came = time.perf_counter()
        images = batch["image/encoded"].to(device, non_blocking=True).float() / 255
        labels = batch["image/class/label"].to(device, non_blocking=True)
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if on_gpu:
            torch.cuda.synchronize()  # else the next batch would be asked for within this step
        rows += map(int, batch["image/source_id"])
        waits.append(came - asked)
        asked = time.perf_counter()
        steps.append(asked - came)
    seconds = asked - begun
    distributed.destroy_process_group()
    first = min(WARM_UP_STEPS, len(waits) - 1)
    waited, worked = sum(waits[first:]), sum(steps[first:])
    return {
        "device": torch.cuda.get_device_name(device) if on_gpu else "cpu, gloo",
        "steps": len(steps),
        "first_batch_s": round(waits[0], 3),
        "step_ms": round(statistics.median(steps[first:]) * 1000, 2),
        "share_of_waiting": round(waited / (waited + worked), 4),
        "seconds": round(seconds, 3),
        "rows": rows,
    }


def network(classes: int, width: int) -> Any:
    """Eight convolutions in four sizes, as a small ResNet has without its shortcuts."""
    from torch import nn

    layers: list[Any] = []
    channels = 3
    for out in (width, 2 * width, 4 * width, 8 * width):
        for stride in (2, 1):
            layers += [nn.Conv2d(channels, out, 3, stride, 1), nn.BatchNorm2d(out), nn.ReLU()]
            channels = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(out, classes))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("dataset", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--image-size", type=int, required=True)
    given = parser.parse_args()
    measured = train(given.dataset, given.batch_size, given.image_size)
    (given.folder / f"{os.environ['RANK']}.json").write_text(json.dumps(measured))
