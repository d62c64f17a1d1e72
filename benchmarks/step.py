"""How much a reader slows a training step that is bound by launching operations from Python.

    step.py [--data DIR] [--rounds N] [--quick] [--cases NAME;NAME]

A step is 9,000 operations of torch on a tiny tensor, one after the other, as a training with small
batches on a GPU launches them.  It runs alone, and then beside each reader of 224x224 photographs,
for some seconds: each step is followed by the next batch of 64, and only steps are timed.

    ms a step    the mean, which is what the training pays
    stretch      beside the reader / alone
    images/s     of the whole loop: steps, and waiting for batches

"a bare thread" is the least that a thread can do: read a file, decode it, resize it into the batch.

Needs torch; a peer whose package is missing is skipped.
"""

from __future__ import annotations

import glob
import itertools
import statistics
import time
from collections.abc import Iterator
from typing import Any

import data
import harness
import peers_packages
import peers_readers
import raw
from harness import Bar, Case, Numbers, Timed

OPERATIONS = 9000
SIZE, BATCH, WARM_UP = 224, 64, 4
IMAGES, SECONDS = 2000, 10.0
QUICK_IMAGES, QUICK_SECONDS = 500, 3.0

ALONE, BARE = "alone", "a bare thread"
DEFAULT, ONE = "batches", "batches, 1 thread"
LOADER, WORKERS = "DataLoader(Records), {} workers", "batches, {} workers"


def beside(reader: str, seconds: float, **arguments: Any) -> Timed:
    """Steps with the batches of one of `READERS` between them."""
    import torch

    torch.set_num_threads(1)  # a GPU's work would not be on these cores
    tiny = torch.zeros(8)
    batches = _endless(reader, arguments)
    for _ in range(WARM_UP):
        next(batches)

    def step() -> None:
        for _ in range(OPERATIONS):
            tiny.add_(1.0)

    def run() -> Numbers:
        images, took = 0, []
        end = time.perf_counter() + seconds
        while (begun := time.perf_counter()) < end:
            step()
            took.append(time.perf_counter() - begun)
            images += len(next(batches)[0])
        return {"images": images, "step_ms": statistics.mean(took) * 1e3}

    return run


def _endless(reader: str, arguments: dict[str, Any]) -> Iterator[Any]:
    batches = READERS[reader](**arguments)
    while True:
        yield from batches


def nothing() -> list[Any]:
    """No reader."""
    return [((),)]


def tensors(directory: str, **options: Any) -> Any:
    import tfrecorder.torch

    return tfrecorder.torch.batches(
        directory, "TRAIN", batch_size=BATCH, image_size=SIZE, seed=1, **options
    )


def loader(directory: str, workers: int) -> Any:
    from torch.utils.data import DataLoader

    import tfrecorder.torch

    records = tfrecorder.Records(directory, "TRAIN", image_size=SIZE)
    sampler = tfrecorder.torch.BatchSampler(records, BATCH, seed=1)
    return DataLoader(
        records, batch_sampler=sampler, num_workers=workers, persistent_workers=workers > 0
    )


def bare(folder: str, size: int) -> Iterator[Any]:
    """Batches by one thread with the same decoder and resizer, without checks, order or labels."""
    import queue
    import threading

    made: queue.Queue[Any] = queue.Queue(2)
    left = threading.Event()
    thread = threading.Thread(target=_make_bare, args=(folder, size, made, left))
    thread.start()
    try:
        while True:
            yield [made.get()]
    finally:
        left.set()
        thread.join()


def _make_bare(folder: str, size: int, made: Any, left: Any) -> None:
    import contextlib
    import queue

    import cykooz_resizer as rust
    import numpy as np
    import simplejpeg

    form = rust.PixelType(3)
    resizer, target = rust.Resizer(), rust.ImageData(size, size, form)
    convolution = rust.ResizeAlg.convolution(rust.FilterType.bilinear)
    options = rust.ResizeOptions(convolution, use_alpha=False)
    paths = itertools.cycle(sorted(glob.glob(f"{folder}/*/*.jpg")))
    room = bytearray(2**20)
    while not left.is_set():
        batch = np.empty((BATCH, size, size, 3), np.uint8)
        for slot, path in zip(batch, paths, strict=False):
            with open(path, "rb", buffering=0) as file:
                data = file.read()
            pixels = simplejpeg.decode_jpeg(data, "RGB", buffer=room)
            height, width, _ = pixels.shape
            source = rust.ImageData(width, height, form, pixels.tobytes())
            resizer.resize(source, target, options)
            slot[...] = np.frombuffer(target.get_buffer(), np.uint8).reshape(slot.shape)
        while not left.is_set():
            with contextlib.suppress(queue.Full):
                made.put(batch, timeout=0.1)
                break


READERS = {
    **peers_readers.READERS,
    **{one.__name__: one for one in (nothing, tensors, loader, bare)},
}


def make_cases(source: Any, folder: Any, count: int, seconds: float) -> list[Case]:
    ours = {"directory": raw.written(source, folder / f"gil-{count}", num_shards=8)}
    single = {"folder": str(peers_packages.folders(source, count, folder) / "train"), "size": SIZE}
    rows: list[tuple[str, str, dict[str, Any], tuple[str, ...]]] = [
        (ALONE, "nothing", {}, ()),
        (BARE, "bare", single, ("cykooz_resizer",)),
        (ONE, "tensors", {**ours, "num_threads": 1}, ()),
        ("batches, 2 threads", "tensors", {**ours, "num_threads": 2}, ()),
        (DEFAULT, "tensors", ours, ()),
        (WORKERS.format(1), "tensors", {**ours, "num_workers": 1}, ()),
        (WORKERS.format(2), "tensors", {**ours, "num_workers": 2}, ()),
        (LOADER.format(1), "loader", {**ours, "workers": 1}, ()),
        (LOADER.format(2), "loader", {**ours, "workers": 2}, ()),
        ("load", "ours", {**ours, "size": SIZE}, ("tensorflow",)),
        ("simplejpeg, DataLoader, 2 workers", "expert", single, ()),
        ("torchvision, DataLoader, 2 workers", "torchvision", single, ("torchvision",)),
        ("DALI on the CPU", "dali", {**ours, "size": SIZE}, ("nvidia",)),
    ]
    return [
        Case(name, "step:beside", {"reader": reader, "seconds": seconds, **arguments}, False, needs)
        for name, reader, arguments, needs in ((*row[:3], ("torch", *row[3])) for row in rows)
    ]


def main(arguments: list[str] | None = None) -> bool:
    parser = harness.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="few images, 3 seconds a case")
    parser.add_argument("--cases", help="only these and the step alone, parted by ;")
    chosen = parser.parse_args(arguments)
    count, seconds = (QUICK_IMAGES, QUICK_SECONDS) if chosen.quick else (IMAGES, SECONDS)
    folder = chosen.data.resolve()
    source = raw.all_in_train(data.listed(data.photographs(folder, count), count))
    cases = make_cases(source, folder, count, seconds)
    if chosen.cases:
        cases = [case for case in cases if case.name in (ALONE, *chosen.cases.split(";"))]
    results = harness.run_rounds(cases, chosen.rounds, folder)
    done = {result.case.name: result for result in results if result.rounds}
    if ALONE not in done:
        raise RuntimeError("torch is not installed: pip install torch")
    alone = done[ALONE].median("step_ms")
    stretch = {name: result.median("step_ms") / alone for name, result in done.items()}
    rate = {name: one.median("images") / one.median("seconds") for name, one in done.items()}
    rows = [["", "ms a step", "stretch", "images/s"]]
    for name, result in done.items():
        words = "-" if name == ALONE else f"{rate[name]:,.0f}"
        rows.append([name, f"{result.median('step_ms'):.1f}", f"{stretch[name]:.2f}", words])
    bars = []
    if ONE in done:
        bars += [
            Bar("a step beside `batches` with 1 thread / alone, ms", stretch[ONE], 1.1, False),
            Bar("`batches` with 1 thread, images/s", rate[ONE], 600, True),
        ]
    cores = min(2, harness.cores())
    loader = LOADER.format(cores)
    for name in (DEFAULT, WORKERS.format(cores)):
        if name in done and loader in done:
            longer, more = stretch[name] / stretch[loader], rate[name] / rate[loader]
            bars += [
                Bar(f"`{name}` / {loader}, ms a step", longer, 1.0, False),
                Bar(f"`{name}` / {loader}, images/s", more, 1.0, True),
            ]
    return harness.report("step", results, {"beside": rows}, bars)


if __name__ == "__main__":
    raise SystemExit(0 if main() else 1)
