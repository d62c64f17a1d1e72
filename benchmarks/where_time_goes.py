"""Where the time goes: shares of CPU time of a conversion and of reading, each next to its floor.

    where_time_goes.py [--data DIR] [--rounds N] [--quick]

4,000 photographs of 500x375.  Of a conversion, `check="decode"` and `check="header"`, py-spy
takes the stacks (`stacks.py`).  The CPU milliseconds of an image are measured without it, and
divided by these shares.  Of reading, the shares are what each kernel takes alone.

"Alone" is what a part takes on the same bytes and with nothing else (`bare_work.py`): what no
program that does this work can go below.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import data
import harness
import stacks
import writing
from harness import Case, Numbers, Result, Timed

IMAGES, QUICK_IMAGES = 4000, 1000
#: How often a profile converts: enough for a thousand stacks and more.
TIMES = {"decode": 5, "header": 20}
READ_SECONDS, QUICK_READ_SECONDS = 10.0, 3.0
SIZE, BATCH = 224, 64

#: The steps that are done alone, and how many passes: quick ones need several to be measured.
STEPS = {"read": 5, "check": 1, "header": 5, "CRC": 5, "encode": 5, "write": 2}
STEPS |= {"decode": 1, "decode, box": 1}

#: Parts from this share of the CPU time on are explained.
LARGE_SHARE = 0.05

#: What a part is, and why it is there; the floor in figures stands next to it.
WRITING = {
    stacks.CHECK: "decodes all entropy-coded data, or damage is not seen; alone: the same call of "
    "simplejpeg. check='header' is without it",
    stacks.WRITE: "the kernel copies each image into the page cache; alone: the same call",
    stacks.READ: "a file is opened and copied out of the page cache; alone: open, read, close",
    stacks.CRC: "TFRecord wants the CRC32C of every byte; alone: google-crc32c over them",
    stacks.ENCODE: "the features around the image, in Python; alone: the same call",
    stacks.HEADER: "size, channels and orientation by the markers; alone: the same call",
    stacks.ROW: "Python: a row's objects, its line of the index, counts",
    stacks.LOCKS: "results are handed over in order; threads take the interpreter's lock",
    stacks.PLAN: "the source is read, validated, planned and staged, once a conversion",
    stacks.BEAM: "the runner starts and ends; about the same for any number of images",
    stacks.OTHER: "no function of the parts above",
}
REST = "the rest"
READING = {
    "decode": "libjpeg-turbo, accurate inverse DCT; alone: TensorFlow's kernel over images in "
    "memory",
    "resize": "each pixel the mean of its area; alone: the same kernel",
    "read": "records out of the page cache, with their CRC32C; alone: the images' files read, and "
    "google-crc32c over them",
    "batch": "pixels are copied into the batch; alone: the copies into batches",
    REST: "records are parsed, floats become uint8, memory is taken and given back, and tf.data's "
    "own work for each element",
}


# ---------------------------------------------------------------------------------------------
# The cases.


def load(directory: str, seconds: float) -> Timed:
    """`tfrecorder benchmark`."""
    from tfrecorder.loading.throughput import benchmark

    def run() -> Numbers:
        found = benchmark(directory, batch_size=BATCH, image_size=SIZE, seconds=seconds)
        return {"images": found.images, "ms": found.cpu_seconds_per_1000}

    return run


def make_cases(source: str, directory: str, seconds: float) -> list[Case]:
    here, records = {"source": source}, {"directory": directory}
    cases = [
        Case(check, "writing:convert", {**here, "check": check}, writes=True, rehearse=True)
        for check in TIMES
    ]
    for step, passes in STEPS.items():
        arguments = {**here, "step": step, "times": passes}
        writes = step == "write"
        cases.append(Case(f"files: {step}", "bare_work:of_files", arguments, writes, rehearse=True))
    cases.append(Case("load", "where_time_goes:load", {**records, "seconds": seconds}))
    for kernels in ("none", "decode", "resize", "batch"):
        arguments = {**records, "kernels": kernels, "size": SIZE, "batch": BATCH}
        cases.append(Case(f"records: {kernels}", "bare_work:of_records", arguments, rehearse=True))
    return cases


def dataset(source: Path, folder: Path, count: int) -> str:
    """The images converted, once for all runs."""
    import tfrecorder

    out = folder / f"where-time-goes-{count}"
    if not (out / "dataset_info.json").exists():
        tfrecorder.convert(source, out, num_shards=8, progress=False)
    harness.warm([str(path) for path in out.glob("*.tfrecord")])
    return str(out)


# ---------------------------------------------------------------------------------------------
# What they say together.


def result_of(results: Sequence[Result], name: str) -> Result:
    return next(result for result in results if result.case.name == name)


def each_ms(results: Sequence[Result], name: str) -> float:
    """CPU milliseconds an image."""
    one = result_of(results, name)
    return one.median("cpu") / one.median("images") * 1e3


def floors_of_writing(results: Sequence[Result]) -> dict[str, float]:
    """What each part takes alone, in CPU milliseconds an image."""

    def more(step: str) -> float:
        return each_ms(results, f"files: {step}") - each_ms(results, "files: read")

    return {
        stacks.READ: each_ms(results, "files: read"),
        stacks.CHECK: more("check"),
        stacks.HEADER: more("header"),
        stacks.CRC: more("CRC"),
        stacks.ENCODE: more("encode"),
        stacks.WRITE: more("write"),
    }


def floors_of_reading(results: Sequence[Result]) -> dict[str, float]:
    of_records = {
        kernels: each_ms(results, f"records: {kernels}")
        for kernels in ("none", "decode", "resize", "batch")
    }
    return {
        "read": each_ms(results, "files: CRC"),
        "decode": of_records["decode"] - of_records["none"],
        "resize": of_records["resize"] - of_records["decode"],
        "batch": of_records["batch"] - of_records["resize"],
    }


def show(
    title: str,
    total: float,
    parts: Mapping[str, float],
    floors: Mapping[str, float],
    words: Mapping[str, str],
) -> Numbers:
    """Print words for the large parts; the figures, and the rows of their table."""
    rows = [[title, "share", "ms CPU an image", "alone"]]
    shown = {part: share for part, share in parts.items() if share >= 0.005}
    for part, share in shown.items():
        alone = f"{floors[part]:.4f}" if part in floors else ""
        rows.append([part, f"{share:.1%}", f"{share * total:.4f}", alone])
    least = sum(floors[part] for part in shown if part in floors)
    rows.append(["together", "100.0%", f"{total:.4f}", f"{least:.4f} = {least / total:.0%}"])
    print(f"{title}:")
    for part, share in shown.items():
        if share >= LARGE_SHARE:
            print(f"  {part}: {words[part]}")
    print()
    return {"ms": total, "shares": dict(parts), "alone_ms": dict(floors), "rows": rows}


def show_writing(
    results: Sequence[Result], source: str, work: Path, times: Mapping[str, int]
) -> dict[str, Any]:
    program = stacks.py_spy()
    if program is None:
        print("conversion: skipped, py-spy is not installed (pip install py-spy)\n")
        return {}
    found: dict[str, Any] = {}
    floors = floors_of_writing(results)
    for check, often in times.items():
        try:
            counted = stacks.profile(program, source, work, check, often)
        except RuntimeError as error:
            print(f"conversion: skipped, {error}\n")
            return found
        title = f'convert, check="{check}"'
        shares = stacks.shares(counted)
        total = each_ms(results, check)
        found[check] = show(title, total, shares, floors, WRITING)
        seconds = total * result_of(results, check).median("images") / 1e3
        once = {part: shares.get(part, 0.0) * seconds for part in (stacks.BEAM, stacks.PLAN)}
        words = ", ".join(f"{part} {value:.2f}" for part, value in once.items())
        print(f"  CPU seconds of the conversion: {seconds:.2f}; of these, mostly once: {words}\n")
        found[check]["stacks"] = sum(counted.values())
    return found


def show_reading(results: Sequence[Result]) -> Numbers:
    one = result_of(results, "load")
    total, floors = one.median("ms"), floors_of_reading(results)
    shares = {part: alone / total for part, alone in floors.items()}
    shares[REST] = max(0.0, 1 - sum(shares.values()))
    ordered = dict(sorted(shares.items(), key=lambda pair: -pair[1]))
    title = f"load, {SIZE}x{SIZE}, batches of {BATCH}"
    found = show(title, total, ordered, floors, READING)
    read, pixels, small = (
        each_ms(results, f"files: {step}") for step in ("read", "decode", "decode, box")
    )
    print(f"  alone, for comparison: all pixels by simplejpeg {pixels - read:.4f} ms,")
    print(f"  their mean by area by Pillow {small - pixels:.4f} ms\n")
    return {**found, "simplejpeg_ms": pixels - read, "pillow_box_ms": small - pixels}


def main(arguments: list[str] | None = None) -> bool:
    parser = harness.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="1,000 images, once")
    chosen = parser.parse_args(arguments)
    count, rounds, seconds = IMAGES, chosen.rounds, READ_SECONDS
    times = dict(TIMES)
    if chosen.quick:
        count, rounds, seconds = QUICK_IMAGES, 1, QUICK_READ_SECONDS
        times = dict.fromkeys(TIMES, 3)
    source = data.listed(data.photographs(chosen.data, count), count)
    harness.warm([uri for _, uri, _ in writing.read_rows(str(source))])
    cases = make_cases(str(source), dataset(source, chosen.data, count), seconds)
    results = harness.run_rounds(cases, rounds, chosen.data)
    print(harness.table(results, ["images", "seconds", "cpu", "others"]) + "\n")
    converted = show_writing(results, str(source), chosen.data, times)
    read = show_reading(results)
    tables = {"load": read.pop("rows")}
    tables |= {f"convert, {check}": found.pop("rows") for check, found in converted.items()}
    return harness.report("where_time_goes", results, tables, writing=converted, reading=read)


if __name__ == "__main__":
    raise SystemExit(0 if main() else 1)
