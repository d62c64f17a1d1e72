"""How long each reader, and `convert`, hold Python's lock (the GIL) for an image.

    gil.py [--data DIR] [--rounds N] [--quick]

py-spy looks at the process 500 times a second and counts the looks at which a thread holds the
lock.  These times 2 ms, divided by the images of the run, are what a training loop in the same
process has to wait for.  A thread that holds the lock and waits for a core is counted too, so other
programs make the figures larger.  CPU seconds and images/s are measured in rounds without py-spy.

    batches          `tfrecorder.batches` of 224x224 photographs, by the number of its threads; with
                     workers `tfrecorder.torch.batches`, and the lock of the process that trains
    raw              the same of pictures of 128x128 that are stored as pixels
    Records          `records[numbers]`, a batch at a time, decoded and `decode=False`
    load             `tfrecorder.load` by option: the lock that tf.data and its answers take
    calls            what `batches` calls, by name, that releases the lock, for an image; each may
                     hand it over to the thread that trains, which then has to hand it back
    convert          a conversion in its one process, by the difference between two sizes: without
                     what it does once, as Beam's start

Eight ranks on n cores follow from these: each has n/8 cores and a lock of its own, so it gets at
most min(n/8 / (CPU an image), 1 / (GIL held an image)) images/s, at which its training waits for
the lock for that rate x (GIL held an image) of each second.

Needs py-spy (`pip install py-spy`) and the right to trace processes, as root has it and, in
containers, the capability SYS_PTRACE.
"""

from __future__ import annotations

import collections
import importlib
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import data
import harness
import raw
import stacks
import writing
from harness import Bar, Case, Numbers, Result, Timed

IMAGES, QUICK_IMAGES = 2000, 500
SIZE, BATCH = 224, 64

#: What is measured at two sizes: 1 and this many times the images.
CHECKS, TIMES = ("header", "decode"), 4

#: The calls of C that release the lock, beside those of decoder and resizer, and what they do.
RELEASING = {
    "pread": "reads a record, or what is before its raw pixels",
    "preadv": "reads raw pixels into their batch",
    "acquire": "waits for another thread, a few times a batch",
}

#: Where NumPy copies pixels into a batch, which it does without the lock: no call that is seen.
COPIES = {"batches, calls": 1, "batches, raw, calls": 0}

#: How many of these an image may take.
MOST_RELEASES = 3

#: The readers of which the page says what eight ranks get, on how many cores.
OF_RANKS = ("batches, 1 thread", "batches, raw", "load", "load, raw")
RANKS, CORES = 8, (16, 32, 64, 128)

#: Looks a second, and how many of these may fail.
RATE, LOST = 500, 0.05

#: What py-spy says once it looks, when it is late, and in the end.
STARTED, LATE, ENDED = (
    "Sampling process",
    "behind in sampling",
    re.compile(r"Samples: (\d+) Errors: (\d+)"),
)


def held(prepare: str, arguments: dict[str, Any], out: str = "") -> Timed:
    """Another case, with a count of the looks at which its process holds the lock.

    Raises:
        RuntimeError: py-spy is not installed, or cannot look at this process.
    """
    module, function = prepare.split(":")
    more = {"out": out} if out else {}
    timed: Timed = getattr(importlib.import_module(module), function)(**arguments, **more)
    program = stacks.py_spy()
    if program is None:
        raise RuntimeError("py-spy is not installed: pip install py-spy")

    def run() -> Numbers:
        with tempfile.TemporaryDirectory() as folder:
            path, said = os.path.join(folder, "stacks"), os.path.join(folder, "said")
            command = [program, "record", "--gil", "--format", "raw", "--rate", str(RATE)]
            command += ["--pid", str(os.getpid()), "--duration", "unlimited", "--output", path]
            with open(said, "w") as log:
                spy = subprocess.Popen(command, stdout=log, stderr=log)
            while STARTED not in Path(said).read_text():
                if spy.poll() is not None:
                    raise RuntimeError(f"py-spy cannot look: {Path(said).read_text()}")
                time.sleep(0.01)
            numbers = timed()
            spy.send_signal(signal.SIGINT)
            spy.wait()
            lines = Path(path).read_text().splitlines()
            words = Path(said).read_text()
        ended = ENDED.search(words)
        if ended is None:
            raise RuntimeError(f"py-spy did not say how often it looked: {words}")
        looks, lost = map(int, ended.groups())
        if not looks or lost > LOST * looks or LATE in words:
            raise RuntimeError(f"py-spy could not look {RATE} times a second: {words}")
        holding = sum(int(line.rpartition(" ")[2]) for line in lines)
        return {**numbers, "looks": holding, "held": holding / RATE}

    return run


def batches(directory: str, epochs: int = 1, **options: Any) -> Timed:
    """Epochs of `tfrecorder.batches`, after two batches of another."""
    import tfrecorder

    loop = tfrecorder.batches(directory, "TRAIN", batch_size=BATCH, seed=1, **options)
    return _epochs(loop, epochs)


def releasing(directory: str, **options: Any) -> Timed:
    """How often `batches` calls what releases the lock, in all threads, for an epoch."""
    import tfrecorder

    loop = tfrecorder.batches(directory, "TRAIN", batch_size=BATCH, seed=1, **options)

    def run() -> Numbers:
        calls: collections.Counter[str] = collections.Counter()

        def count(frame: Any, event: str, called: Any) -> None:
            if event == "c_call" and called.__name__ in RELEASING:
                calls[called.__name__] += 1

        threading.setprofile(count)
        sys.setprofile(count)
        images = sum(len(images) for images, _ in loop)
        sys.setprofile(None)
        threading.setprofile(None)
        return {"images": images, **{name: calls[name] for name in RELEASING}}

    return run


def tensors(directory: str, epochs: int = 1, **options: Any) -> Timed:
    """Epochs of `tfrecorder.torch.batches`, after two batches of another."""
    import tfrecorder.torch

    loop = tfrecorder.torch.batches(directory, "TRAIN", batch_size=BATCH, seed=1, **options)
    return _epochs(loop, epochs)


def load(directory: str, epochs: int = 1, **options: Any) -> Timed:
    """Epochs of `tfrecorder.load`."""
    import tfrecorder

    loop = tfrecorder.load(directory, "TRAIN", batch_size=BATCH, seed=1, **options)
    return _epochs(loop, epochs)


def _epochs(loop: Any, epochs: int) -> Timed:
    for _, _ in zip(range(2), loop, strict=False):
        pass

    def run() -> Numbers:
        first: list[Any] = []
        for _ in range(epochs):
            for batch in loop:
                image, *_ = batch[0].values() if isinstance(batch[0], Mapping) else (batch[0],)
                first.append(int(image.shape[0]))
        return {"images": sum(first)}

    return run


def records(directory: str, epochs: int = 1, **options: Any) -> Timed:
    """Every record in random order, a batch of numbers at a time."""
    import numpy as np

    import tfrecorder

    found = tfrecorder.Records(directory, "TRAIN", **options)
    order = np.random.default_rng(0).permutation(len(found))

    def run() -> Numbers:
        for _ in range(epochs):
            for start in range(0, len(order), BATCH):
                found[order[start : start + BATCH]]
        return {"images": epochs * len(order)}

    return run


def make_cases(folder: Path, count: int) -> list[Case]:
    """The cases, without py-spy."""
    most = TIMES * count
    photographs = data.photographs(folder, most)
    csv = raw.all_in_train(data.listed(photographs, count))
    photos = {"directory": raw.written(csv, folder / f"gil-{count}", num_shards=8)}
    boxes = {"directory": raw.written(with_boxes(csv), folder / f"gil-boxes-{count}")}
    pixels = {"image_size": (128, 128), "image_format": "raw"}
    small = {"directory": raw.written(csv, folder / f"gil-raw-{count}", **pixels), "epochs": 5}
    sized = {**photos, "image_size": SIZE}
    sources = {count: csv, most: raw.all_in_train(data.listed(photographs, most))}
    return [
        Case("batches, 1 thread", "gil:batches", {**sized, "num_threads": 1}),
        Case("batches, 2 threads", "gil:batches", {**sized, "num_threads": 2}),
        Case("batches, 2 workers", "gil:tensors", {**sized, "num_workers": 2}, False, ("torch",)),
        Case("batches, float32", "gil:batches", {**sized, "num_threads": 1, "dtype": "float32"}),
        Case("batches, augment", "gil:batches", {**sized, "num_threads": 1, "augment": True}),
        Case("batches, raw", "gil:batches", {**small, "num_threads": 1}),
        Case("Records", "gil:records", sized),
        Case("Records, undecoded", "gil:records", {**photos, "decode": False, "epochs": 5}),
        Case("load", "gil:load", sized),
        Case("load, exact", "gil:load", {**sized, "shuffle": "exact"}),
        Case("load, exact, augment", "gil:load", {**sized, "shuffle": "exact", "augment": True}),
        Case("load, augment", "gil:load", {**sized, "augment": True}),
        Case("load, boxes", "gil:load", {**boxes, "image_size": SIZE, "max_boxes": 4}),
        Case("load, raw", "gil:load", small),
        Case("load, raw, exact", "gil:load", {**small, "shuffle": "exact"}),
        *(
            Case(
                f"convert, {check} {size}",
                "writing:convert",
                {"source": str(source), "check": check, "num_workers": 1},
                True,
            )
            for check in CHECKS
            for size, source in sources.items()
        ),
    ]


def with_boxes(csv: Path) -> Path:
    """The same pictures with two boxes each, as AutoML writes them."""
    import pandas as pd

    frame = pd.read_csv(csv)
    path = csv.with_name(f"boxes-{csv.stem}.csv")
    corners = [("0.1", "0.1", "0.6", "0.7"), ("0.3", "0.2", "0.9", "0.9")]
    lines = [
        f"{row.split},{row.image_uri},{row.label},{left},{upper},,,{right},{lower},,"
        for row in frame.itertuples()
        for left, upper, right, lower in corners
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def spied(case: Case) -> Case:
    """A case under py-spy."""
    arguments = {"prepare": case.prepare, "arguments": case.arguments}
    return Case(f"held: {case.name}", "gil:held", arguments, case.writes)


def figures(results: Sequence[Result], name: str, count: int) -> list[float]:
    """The lock held and the CPU, both in seconds an image, and images/s."""
    if name.startswith("convert"):
        sizes = count, TIMES * count
        keys = (f"held: {name}", "held"), (name, "cpu"), (name, "seconds")
        held, cpu, seconds = (
            statistics.median(writing.slopes(results, case, sizes, key)) for case, key in keys
        )
        # On a busy machine the larger one may seem to hold it for less: no figure, and no bar met.
        return [held if held > 0 else float("nan"), cpu, 1 / seconds]
    found = {result.case.name: result for result in results}
    plain, spy = found[name], found[f"held: {name}"]
    images = plain.median("images")
    return [
        spy.median("held") / images,
        plain.median("cpu") / images,
        images / plain.median("seconds"),
    ]


def of_ranks(found: Mapping[str, Sequence[float]]) -> list[list[str]]:
    """What each of eight ranks gets on n cores, and the share of its lock that this takes."""
    rows = [["images/s of each rank (its lock held)", *(f"{cores} cores" for cores in CORES)]]
    for name in OF_RANKS:
        if name in found:
            held, cpu, _ = found[name]
            rates = [min(cores / RANKS / cpu, 1 / max(held, 1e-9)) for cores in CORES]
            rows.append([name, *(f"{rate:,.0f} ({rate * held:.0%})" for rate in rates)])
    return rows


def main(arguments: list[str] | None = None) -> bool:
    parser = harness.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="few images")
    parser.add_argument("--cases", help="only these, parted by ;")
    parser.add_argument("--calls", action="store_true", help="only the calls, without py-spy")
    chosen = parser.parse_args(arguments)
    count = QUICK_IMAGES if chosen.quick else IMAGES
    cases = all_cases = make_cases(chosen.data.resolve(), count)
    names = list(dict.fromkeys(re.sub(r" \d+$", "", case.name) for case in cases))
    if chosen.cases:
        names = [name for name in names if name in chosen.cases.split(";")]
        cases = [case for case in cases if re.sub(r" \d+$", "", case.name) in names]
    photos, small = (
        next(case.arguments["directory"] for case in all_cases if case.name == name)
        for name in ("batches, 1 thread", "batches, raw")
    )
    sized = {"directory": photos, "image_size": SIZE, "num_threads": 1}
    counted = [
        Case("batches, calls", "gil:releasing", sized),
        Case("batches, raw, calls", "gil:releasing", {"directory": small, "num_threads": 1}),
    ]
    spies = [] if chosen.calls else [*cases, *map(spied, cases)]
    results = harness.run_rounds([*counted, *spies], chosen.rounds, chosen.data)
    calls = [["calls an image", *RELEASING, "copy of pixels", "in all"]]
    bars = []
    for result in results[: len(counted)]:
        name, images = result.case.name, result.median("images")
        each = [result.median(call) / images for call in RELEASING] + [COPIES[name]]
        calls.append([name, *(f"{number:.2f}" for number in (*each, sum(each)))])
        words = f"{name}: that release the lock, an image"
        bars.append(Bar(words, sum(each), MOST_RELEASES, at_least=False))
    if chosen.calls:
        return harness.report("gil-calls", results, {"calls": calls}, bars)
    found = {name: figures(results, name, count) for name in names}
    rows = [["", "GIL held, us an image", "CPU, us an image", "images/s"]]
    rows += [
        [name, f"{held * 1e6:.0f}", f"{cpu * 1e6:.0f}", f"{rate:,.0f}"]
        for name, (held, cpu, rate) in found.items()
    ]
    asked = {"batches, 2 threads": 120, "convert, header": 60, "convert, decode": 60}
    bars += [
        Bar(f"{name}: GIL held, us an image", found[name][0] * 1e6, most, at_least=False)
        for name, most in asked.items()
        if name in found
    ]
    if "batches, raw" in found:
        cpu = found["batches, raw"][1] * 1e6
        bars.append(Bar("batches, raw: CPU, us an image", cpu, 25, at_least=False))
    return harness.report(
        "gil", results, {"held": rows, "eight ranks": of_ranks(found), "calls": calls}, bars
    )


if __name__ == "__main__":
    raise SystemExit(0 if main() else 1)
