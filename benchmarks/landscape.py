"""The experiments of "An Overview of the Data-Loader Landscape" (Ofeidis et al.), with its RANDOM.

    landscape.py [--data DIR] [--rounds N] [--quick] [--only "speed: tfrecorder"]

RANDOM are JPEGs of noise, 250x250, in 20 classes.  All give batches of float32, (x / 255 - 0.5) /
0.2, shuffled, from a warm page cache; without the paper's network, and without its mirroring, which
some lack.  `bare decoder` opens and decodes each file in one loop, and does nothing else; or it
also normalises each image into a batch.

    speed         by size of batch and by workers.  DALI has threads instead, at least one;
                  `batches` without workers has one thread; `load` has a thread for each core
    filtering     the images of two classes; `seconds` are of the first batch too
    distributed   two processes, each with its half
    streaming     from a loopback server of gs://, in a process of its own

Figures that compare are CPU ms an image: two cores are used in different measure.  A row whose CPU
is below ours is one that we lose.  `speed` reads as much once before it is timed, as a training
does: in a virtual machine, the first batches take memory that is new to it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import itertools
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import harness
import peers_packages
import peers_reading
import psutil
import raw
import reading
from harness import Bar, Case, Numbers, Result, Tables, Timed
from peers_readers import decode
from writing import read_rows

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

SIDE, CLASSES, WANTED = 250, 20, (0, 13)
MEAN, STD = 0.5, 0.2
BATCH, SHUFFLED = 64, 1000
#: Read before the time starts, so that what is made in advance is there before it and after it.
WARM_UP = 640
BARE, NORMALIZED = "bare decoder", "bare decoder and normalised"
BATCHES, LOAD = "tfrecorder.batches", "tfrecorder.load"


def make_random(data: Path, count: int) -> Path:
    """The CSV of `count` JPEGs of noise, as the paper writes them."""
    import numpy as np
    from PIL import Image

    folder = data / f"random-{count}"
    listed = folder / "random.csv"
    if not listed.exists():
        rows = ["split,image_uri,label"]
        noise = np.random.default_rng(0)
        for number in range(count):
            path = folder / f"class_{number % CLASSES:02}" / f"{number}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            pixels = noise.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(path)
            rows.append(f"TRAIN,{path},{path.parent.name}")
        listed.write_text("\n".join(rows) + "\n")
    harness.warm([path for _, path, _ in read_rows(str(listed))])
    return listed


# ---------------------------------------------------------------------------------------------
# The readers.


@dataclasses.dataclass(frozen=True)
class Loop:
    """How a reader is set up.

    Attributes:
        batch: images in a batch.
        workers: processes, or threads where a reader has none.
        filtered: only the images of two classes.
        rank: this process, and how many there are.
    """

    batch: int = BATCH
    workers: int = 0
    filtered: bool = False
    rank: tuple[int, int] = (0, 1)


def normalized(pixels: Any) -> Any:
    """As torchvision's ToTensor and Normalize."""
    import torch

    planes = torch.from_numpy(pixels).permute(2, 0, 1).contiguous()
    return planes.float().div_(255).sub_(MEAN).div_(STD)


class Files:
    """The files of a folder `label/file`, for a `DataLoader`; decoded by Pillow."""

    def __init__(self, folder: str, filtered: bool) -> None:
        paths = sorted(glob.glob(f"{folder}/*/*.jpg"))
        rows = [(path, int(path.split("/")[-2][-2:])) for path in paths]
        self.rows = [row for row in rows if not filtered or row[1] in WANTED]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, at: int) -> tuple[Any, int]:
        path, label = self.rows[at]
        return normalized(self.pixels(Path(path).read_bytes())), label

    def pixels(self, data: bytes) -> Any:
        return decode(data, SIDE)


class ExpertFiles(Files):
    """Decoded by libjpeg-turbo without Pillow."""

    def pixels(self, data: bytes) -> Any:
        import simplejpeg

        return simplejpeg.decode_jpeg(data)


def _loader(images: Any, loop: Loop, **options: Any) -> Any:
    from torch.utils.data import DataLoader

    persistent = loop.workers > 0
    return DataLoader(
        images,
        batch_size=loop.batch,
        num_workers=loop.workers,
        persistent_workers=persistent,
        **options,
    )


def files(directory: str, loop: Loop, kind: type[Files] = Files) -> Any:
    from torch.utils.data import DistributedSampler

    images = kind(directory, loop.filtered)
    rank, world = loop.rank
    if world == 1:
        return _loader(images, loop, shuffle=True)
    return _loader(images, loop, sampler=DistributedSampler(images, world, rank))


def expert(directory: str, loop: Loop) -> Any:
    return files(directory, loop, ExpertFiles)


def webdataset(directory: str, loop: Loop) -> Any:
    import webdataset as wds

    rank, world = loop.rank
    shards = sorted(glob.glob(f"{directory}/train-*.tar"))[rank::world]
    return _tars(wds, shards, loop)


def webdataset_by_curl(directory: str, loop: Loop) -> Any:
    """`directory` is the address of the objects, up to their number."""
    import webdataset as wds

    return _tars(wds, [f"pipe:curl -s '{url}'" for url in directory.split()], loop)


def _tars(wds: Any, shards: list[str], loop: Loop) -> Any:
    images = wds.WebDataset(shards, shardshuffle=len(shards), empty_check=False)
    if loop.filtered:
        images = images.select(_is_wanted)
    return _loader(images.shuffle(SHUFFLED).to_tuple("jpg", "cls").map(_of_tar), loop)


def _is_wanted(record: dict[str, Any]) -> bool:
    return int(record["cls"]) in WANTED


def _of_tar(record: tuple[bytes, bytes]) -> tuple[Any, int]:
    return normalized(decode(record[0], SIDE)), int(record[1])


def litdata(directory: str, loop: Loop) -> Any:
    from litdata import StreamingDataLoader, StreamingDataset

    class Images(StreamingDataset):
        def __getitem__(self, at: Any) -> tuple[Any, int]:
            record = super().__getitem__(at)
            return normalized(decode(record["image"], SIDE)), record["label"]

    images = Images(directory, shuffle=True, drop_last=False)
    return StreamingDataLoader(
        images,
        batch_size=loop.batch,
        num_workers=loop.workers,
        persistent_workers=loop.workers > 0,
    )


class Dali:
    """A pipeline of DALI on the CPU, without an end, of our shards with our index."""

    def __init__(self, directory: str, loop: Loop) -> None:
        from nvidia.dali import fn, pipeline_def, tfrecord, types

        features = {
            "image/encoded": tfrecord.FixedLenFeature((), tfrecord.string, ""),
            "image/class/label": tfrecord.FixedLenFeature([1], tfrecord.int64, -1),
        }
        threads = max(1, loop.workers)

        @pipeline_def(batch_size=loop.batch, num_threads=threads, device_id=None)
        def pipeline() -> Any:
            found = fn.readers.tfrecord(
                path=sorted(glob.glob(f"{directory}/train-*.tfrecord")),
                index_path=sorted(glob.glob(f"{directory}/_tfrecorder/index/train-*.idx")),
                features=features,
                random_shuffle=True,
                initial_fill=SHUFFLED,
            )
            images = fn.decoders.image(found["image/encoded"], output_type=types.RGB)
            floats = fn.crop_mirror_normalize(
                images,
                dtype=types.FLOAT,
                output_layout="CHW",
                mean=[255 * MEAN] * 3,
                std=[255 * STD] * 3,
            )
            return floats, found["image/class/label"]

        self.pipeline = pipeline()
        self.pipeline.build()

    def __iter__(self) -> Iterator[Any]:
        while True:
            images, labels = self.pipeline.run()
            yield images.as_array(), labels.as_array()


def batches(directory: str, loop: Loop) -> Any:
    from tfrecorder.torch import batches as tensors

    return tensors(
        directory,
        "TRAIN",
        **_ours(loop),
        layout="NCHW",
        num_threads=None if loop.workers else 1,
        num_workers=loop.workers,
    )


def load(directory: str, loop: Loop) -> Any:
    import tfrecorder

    return tfrecorder.load(directory, "TRAIN", **_ours(loop))


def _ours(loop: Loop) -> dict[str, Any]:
    wanted = [f"class_{number:02}" for number in WANTED]
    return {
        "batch_size": loop.batch,
        "dtype": "float32",
        "mean": MEAN,
        "std": STD,
        "shard": loop.rank,
        "where": {"label": wanted} if loop.filtered else None,
    }


class Bare:
    """Each file opened and decoded, in a plain loop; the array is dropped."""

    normalizes = False

    def __init__(self, directory: str, loop: Loop) -> None:
        self.paths = sorted(glob.glob(f"{directory}/*/*.jpg"))
        self.batch = loop.batch

    def __iter__(self) -> Iterator[Any]:
        import numpy as np
        import simplejpeg

        images = np.empty((self.batch, SIDE, SIDE, 3), np.float32)
        for number, path in enumerate(self.paths):
            with open(path, "rb") as file:
                pixels = simplejpeg.decode_jpeg(file.read())
            if self.normalizes:
                image = images[number % self.batch]
                image[...] = pixels
                image *= 1 / (255 * STD)
                image -= MEAN / STD
            if (number + 1) % self.batch == 0:
                yield images, None


class BareNormalized(Bare):
    """Normalised into a batch that is used again."""

    normalizes = True


READERS: dict[str, Callable[[str, Loop], Any]] = {
    "bare": Bare,
    "bare_normalized": BareNormalized,
    "batches": batches,
    "load": load,
    "files": files,
    "expert": expert,
    "webdataset": webdataset,
    "webdataset_by_curl": webdataset_by_curl,
    "litdata": litdata,
    "dali": Dali,
}


# ---------------------------------------------------------------------------------------------
# What is timed, in its own process.


def speed(reader: str, directory: str, images: int, **loop: Any) -> Timed:
    """Read so many images, after a look at what some others are."""
    found = READERS[reader](directory, Loop(**loop))
    if reader != "bare":
        _look(found)
    reading.take(found, WARM_UP)

    return lambda: {"images": reading.take(found, images)}


def filtering(reader: str, directory: str, images: int, **loop: Any) -> Timed:
    """The same, from the call on: a reader may look at every record first."""
    reading.take(READERS[reader](directory, Loop(**loop)), BATCH)  # its imports

    def run() -> Numbers:
        found = READERS[reader](directory, Loop(**loop, filtered=True))
        return {"images": reading.take(found, images * len(WANTED) // CLASSES)}

    return run


def distributed(reader: str, directory: str, images: int, **loop: Any) -> Timed:
    """Two processes, which start together once each has read a batch."""
    context = multiprocessing.get_context("spawn")
    ready, begin, done = context.Barrier(3), context.Barrier(3), context.Queue()
    for rank in range(2):
        arguments = (reader, directory, images // 2, {**loop, "rank": (rank, 2)})
        context.Process(target=_host, args=(*arguments, ready, begin, done), daemon=False).start()
    ready.wait(120)

    def run() -> Numbers:
        begin.wait(120)
        return {"images": sum(done.get(timeout=600) for _ in range(2))}

    return run


def _host(
    reader: str,
    directory: str,
    images: int,
    loop: dict[str, Any],
    ready: Any,
    begin: Any,
    done: Any,
) -> None:
    found = READERS[reader](directory, Loop(**loop))
    reading.take(found, WARM_UP)
    ready.wait()
    begin.wait()
    done.put(reading.take(found, images))
    begin.wait()  # for ever: the harness reads this process's CPU, and ends it


def streaming(reader: str, directory: str, images: int, **loop: Any) -> Timed:
    """From gs:// by a loopback server, whose CPU is not counted."""
    from services.gcs.control import in_process

    stack = contextlib.ExitStack()
    server = stack.enter_context(in_process())
    server.create_bucket("bkt")
    server.put_folder("gs://bkt/out", Path(directory))
    os.environ.update(server.environment())
    place = "gs://bkt/out"
    if reader == "webdataset_by_curl":
        names = sorted(path.name for path in Path(directory).glob("train-*.tar"))
        prefix = f"{server.url}/download/storage/v1/b/bkt/o/out%2F"
        place = " ".join(f"{prefix}{name}?alt=media" for name in names)
    found = READERS[reader](place, Loop(**loop))
    _look(found)
    [process] = [
        one for one in psutil.Process().children() if "services.gcs.server" in one.cmdline()
    ]

    def run() -> Numbers:
        with stack:  # the server's CPU is counted with ours once it has ended
            before = sum(process.cpu_times()[:2])
            count = reading.take(found, images)
            return {"images": count, "server_cpu": sum(process.cpu_times()[:2]) - before}

    return run


def _look(batches: Any) -> None:
    """Refuse batches that are not normalised noise."""
    import numpy as np

    pixels = np.asarray(next(iter(batches))[0])
    sides = sorted(pixels.shape[1:])
    mean, deviation = float(pixels.mean()), float(pixels.std())
    is_right = pixels.dtype == np.float32 and sides == [3, SIDE, SIDE]
    # JPEG leaves the noise a deviation of 0.21 in units of 0 to 1.
    if not is_right or abs(mean) > 0.05 or not 0.9 < deviation < 1.2:
        raise ValueError(f"{pixels.dtype} {pixels.shape}: {mean:.2f}, {deviation:.2f}")


# ---------------------------------------------------------------------------------------------


def make_cases(
    source: Path,
    count: int,
    data: Path,
    sizes: Sequence[int],
    environment: dict[str, str],
) -> list[Case]:
    ours = raw.written(source, data / f"landscape-{count}", num_shards=8)
    singles = str(source.parent)
    formats = peers_reading.formats(count)
    made = {
        name: peers_reading.written(name, formats[name], source, data, environment)[0]
        for name in ("webdataset", "litdata")
    }
    rows: list[tuple[str, str, str, tuple[str, ...]]] = [
        (BARE, "bare", singles, ()),
        (NORMALIZED, "bare_normalized", singles, ()),
        (BATCHES, "batches", ours, ("torch",)),
        (LOAD, "load", ours, ()),
        ("PyTorch, Pillow", "files", singles, ("torch",)),
        ("PyTorch, simplejpeg", "expert", singles, ("torch",)),
        ("webdataset", "webdataset", made["webdataset"], ("webdataset", "torch")),
        ("LitData", "litdata", made["litdata"], ("litdata", "torch")),
        ("DALI on the CPU", "dali", ours, ("nvidia",)),
    ]
    cases = []

    def add(
        experiment: str, row: tuple[str, str, str, tuple[str, ...]], reader: str = "", **loop: Any
    ) -> None:
        name, own, directory, requires = row
        arguments = {"reader": reader or own, "directory": directory, "images": count, **loop}
        words = ", ".join(f"{key} {value}" for key, value in loop.items())
        cases.append(
            Case(
                f"{experiment}: {name}, {words}",
                f"landscape:{experiment}",
                arguments,
                requires=requires,
                environment=environment,
                rehearse=experiment == "speed",
            )
        )

    for batch, workers, row in itertools.product(sizes, (0, 1, 2), rows):
        if workers == 0 or row[0] not in (BARE, NORMALIZED, LOAD):
            add("speed", row, batch=batch, workers=workers)
    by_name = {row[0]: row for row in rows}
    for name in (BATCHES, LOAD, "PyTorch, Pillow", "PyTorch, simplejpeg", "webdataset"):
        add("filtering", by_name[name], workers=0)
        if name != LOAD:
            add("distributed", by_name[name], workers=0)
    add("streaming", by_name[BATCHES], workers=0)
    add("streaming", by_name["webdataset"], "webdataset_by_curl", workers=0)
    return cases


def measured(cases: Sequence[Case], rounds: int, data: Path) -> list[Result]:
    """All cases, in rounds; one that fails is skipped with its reason."""
    results = [Result(case) for case in cases]
    for result in (result for _ in range(rounds) for result in results):
        if result.skipped is None:
            numbers, result.skipped = peers_packages.once(result.case, data)
            if result.skipped is None:
                numbers["CPU ms"] = numbers["cpu"] - numbers.get("server_cpu", 0)
                numbers["CPU ms"] *= 1000 / numbers["images"]
                numbers["images/s"] = numbers["images"] / numbers["seconds"]
                result.rounds.append(numbers)
            print(f"{result.case.name}: {result.skipped or numbers['CPU ms']}", flush=True)
    return results


def tables_of(results: Sequence[Result]) -> Tables:
    """Of each experiment: CPU ms an image and images/s, the least CPU at the top."""
    head = ["", "CPU ms an image", "images/s", "peak MB"]
    tables: dict[str, list[list[str]]] = {}
    done = [result for result in results if result.rounds]
    for result in sorted(done, key=lambda one: one.median("CPU ms")):
        experiment, _, name = result.case.name.partition(": ")
        rate, peak = result.median("images/s"), result.median("peak_mb")
        row = [name, f"{result.median('CPU ms'):.2f}", f"{rate:,.0f}", f"{peak:,.0f}"]
        tables.setdefault(experiment, [head]).append(row)
    return tables


def bars_of(results: Sequence[Result]) -> list[Bar]:
    """Our CPU an image by that of the bare decoder."""
    cpu = {result.case.name: result.median("CPU ms") for result in results if result.rounds}
    suffix = f"batch {BATCH}, workers 0"
    bars = []
    for name, bare in itertools.product((BATCHES, LOAD), (BARE, NORMALIZED)):
        pair = [cpu[key] for one in (name, bare) if (key := f"speed: {one}, {suffix}") in cpu]
        if len(pair) == 2:
            bars.append(Bar(f"`{name}` / {bare}, CPU", pair[0] / pair[1], 1.15, False))
    return bars


def main(arguments: Sequence[str] | None = None) -> bool:
    parser = harness.parser(__doc__)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--only", default="", help="cases whose names begin so, and the bare one")
    parser.add_argument("--quick", action="store_true", help="1,280 images, one size, one round")
    chosen = parser.parse_args(arguments)
    data, count = chosen.data.resolve(), 1280 if chosen.quick else 10_240
    rounds = chosen.rounds or (1 if chosen.quick else 5)
    # Threads of torch that wait for each other would count as work.
    environment = {**peers_packages.quiet(data), "OMP_NUM_THREADS": "1"}
    source = make_random(data, count)
    sizes = (BATCH,) if chosen.quick else (16, BATCH, 128)
    cases = make_cases(source, count, data, sizes, environment)
    wanted = [case for case in cases if case.name.startswith((chosen.only, f"speed: {BARE}"))]
    results = measured(wanted, rounds, data)
    more = {"peers": peers_packages.versions(), "images": count}
    return harness.report("landscape", results, tables_of(results), bars_of(results), **more)


if __name__ == "__main__":
    raise SystemExit(0 if main() else 1)
