"""Differential fuzzing: whatever conversion accepts, the reader decodes; the rest is truly bad.

The law, for check="decode" and "strict", over mutations of real files of every format:

- what `check_image` accepts, each of TensorFlow's decoders and each way of the reader decodes, to
  the recorded height, width and channels;
- what it refuses is a reject with a known code whose reason other decoders confirm;
- "strict" accepts exactly what "decode" accepts without a warning;
- no crash, no hang, and no memory above `PEAK_BOUND`.

A mutation that breaks it is written to a folder, and named by source and seed.
"""

from __future__ import annotations

import itertools
import shutil
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
from support import records, rejects

import tfrecorder
from torture.children import Child, DiedError, FailedError, HungError
from torture.counts import BrokenError, Count, demand, lost_rows
from torture.judging import LEVELS, MAX_PIXELS, Accepted, Refused, Verdict
from torture.mutations import ENDINGS, mutated, sources

#: Seconds that one answer may take: thousands of times what an image takes, for a busy machine.
SECONDS = 60.0

#: KiB by which the checking process may grow over all images of at most `MAX_PIXELS` pixels:
#: 64 MiB, or 64 bytes a pixel.
PEAK_BOUND = 64 * 2**10

#: Of the files refused as damaged or cut, the share that TensorFlow or Pillow would have decoded.
#: Refusing those is careful, not wrong; many of them would be.
CAREFUL_SHARE = 0.01

Case = tuple[str, int]


@dataclass
class Findings:
    """What was met on the way.

    Attributes:
        broken: in words, by the case that broke the law.
        careful: cases refused although another decoder reads them, and what it says.
        codes: outcomes of check="decode" by their code.
        slowest: seconds of the slowest check.
        growth: KiB by which the checking process has grown.
        verdicts: of the cases asked to be kept.
    """

    broken: dict[Case, str] = field(default_factory=dict)
    careful: dict[Case, str] = field(default_factory=dict)
    codes: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    growth: int = 0
    verdicts: dict[Case, Verdict] = field(default_factory=dict)


def cases(mutations: int, first: int = 0) -> Iterator[Case]:
    """Seed after seed from the first on, each source in turn."""
    endless = ((name, seed) for seed in itertools.count(first) for name in sources())
    return itertools.islice(endless, mutations)


def fuzz(mutations: int, folder: Path, end_to_end: int, first: int = 0) -> list[Count]:
    """Try the law on mutations, some of them through a whole conversion and back.

    Args:
        mutations: how many.
        folder: where what breaks the law is written, and datasets are made.
        end_to_end: how many of the mutations are also converted and loaded.
        first: the seed to begin with.

    Raises:
        BrokenError: the law does not hold; the files are in `folder/broken`.
    """
    tried = list(cases(mutations, first))
    kept = tried[:: max(1, len(tried) // max(1, end_to_end))]
    found = judge(tried, frozenset(kept))
    _write_broken(found, folder / "broken")
    share = len(found.careful) / max(1, mutations)
    demand(share <= CAREFUL_SHARE, f"{share:.1%} were refused without need: {found.careful}")
    whole = [case for case in kept if case in found.verdicts]
    rows = sum(convert_and_load(whole, found, folder / level, level) for level in LEVELS)
    accepted = found.codes["accepted"] + found.codes["accepted, suspect"]
    note = (
        f"of {len(sources())} files; {accepted:,} accepted, {found.codes['accepted, suspect']:,} of"
        f" them suspect; {len(found.careful)} refused that another decoder reads; slowest "
        f"{found.slowest:.2f} s; memory grew by {found.growth / 1024:.0f} MiB; law broken 0 times"
    )
    return [
        Count("image mutations", mutations, mutations, 0, note),
        Count("of these, converted and loaded", len(whole), rows, 0, "with decode and strict"),
    ]


def judge(tried: Sequence[Case], keep: frozenset[Case] = frozenset()) -> Findings:
    """Ask both sides about each case, each side in its own process."""
    found = Findings()
    with (
        Child("torture.judging:check", SECONDS) as checker,
        Child("torture.judging:decode", SECONDS) as decoder,
        Child("torture.judging:contradiction", SECONDS) as doubter,
    ):
        base = 0
        for name, data in sources().items():
            sound = checker.ask(data)
            demand(isinstance(sound.outcomes["strict"], Accepted), f"{name}: {sound.outcomes}")
            base = sound.peak  # so that no memory of the first use is counted
        for case in tried:
            data = mutated(*case)
            try:
                verdict = checker.ask(data)
                words = _fault(data, verdict, decoder)
                doubt = _doubt(data, verdict, doubter)
            except (DiedError, FailedError, HungError) as error:
                found.broken[case] = str(error)
                continue
            if words:
                found.broken[case] = words
            if doubt:
                found.careful[case] = doubt
            found.codes[_code(verdict.outcomes["decode"])] += 1
            found.slowest = max(found.slowest, verdict.seconds)
            found.growth = max(found.growth, verdict.peak - base)
            if verdict.peak - base > PEAK_BOUND:
                found.broken[case] = f"memory grew by {verdict.peak - base} KiB"
                base = verdict.peak
            if case in keep:
                found.verdicts[case] = verdict
    return found


def _code(outcome: Accepted | Refused) -> str:
    if isinstance(outcome, Refused):
        return outcome.code
    return "accepted, suspect" if outcome.warning else "accepted"


def _fault(data: bytes, verdict: Verdict, decoder: Child) -> str:
    """In which way the law is broken, "" if it holds."""
    loose, strict = verdict.outcomes["decode"], verdict.outcomes["strict"]
    if isinstance(loose, Accepted):
        if loose.warning is None and strict != loose:
            return f"strict makes {strict} of what has no warning"
        if loose.warning is not None and getattr(strict, "code", "") != "suspect":
            return f"strict makes {strict} of a suspect: {loose.warning}"
        if loose.format not in ("jpeg", "png"):
            return f"the stored format is {loose.format!r}"
        if data.startswith((b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")) and loose.data != data:
            return "the bytes were changed"
        return _undecoded(loose, decoder)
    if strict != loose:
        return f"decode says {loose}, strict says {strict}"
    return "" if loose.stage in ("check", "convert") else f"the stage is {loose.stage!r}"


def _undecoded(accepted: Accepted, decoder: Child) -> str:
    height, width, channels = accepted.shape
    wanted = channels if channels in (1, 3, 4) else 3
    shapes = {
        "decode_image": accepted.shape,
        "decode_jpeg": accepted.shape,
        "reader": (height, width, wanted),
        "reader at 16 x 16": (16, 16, wanted),
        "reader's random part": (16, 16, wanted),
    }
    answers = decoder.ask((accepted.data, channels))
    wrong = {way: answer for way, answer in answers.items() if answer != shapes[way]}
    return f"recorded as {accepted.shape}, but {wrong}" if wrong else ""


def _doubt(data: bytes, verdict: Verdict, doubter: Child) -> str:
    """Why a refusal is not true, "" where it is, or where nothing was refused."""
    loose = verdict.outcomes["decode"]
    if isinstance(loose, Accepted):
        return ""
    words = doubter.ask((data, loose))
    return f"{loose.words!r}, but {words}" if words else ""


def _write_broken(found: Findings, folder: Path) -> None:
    if not found.broken:
        return
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for number, ((name, seed), words) in enumerate(found.broken.items()):
        path = folder / f"{number:03d}"
        path.write_bytes(mutated(name, seed))
        lines.append(f"{path}: mutated({name!r}, {seed}): {words}")
    raise BrokenError("mutations break the law:\n" + "\n".join(lines))


# -------------------------------------------------------------------------------- end to end


def convert_and_load(tried: Sequence[Case], found: Findings, folder: Path, check: str) -> int:
    """Convert mutations under wrong names, and read all of them back; gives the rows.

    Raises:
        BrokenError: the dataset or its lists are not what the single checks had said.
    """
    uris = _write_images(tried, folder / "images")
    outcomes = [found.verdicts[case].outcomes[check] for case in tried]
    frame = pd.DataFrame({"split": "TRAIN", "image_uri": uris, "label": "thing"})
    options = {"check": check, "max_pixels": MAX_PIXELS, "max_reject_fraction": 1.0}
    out = folder / "out"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tfrecorder.convert(frame, out, shuffle=False, progress=False, **options)
    _compare_lists(outcomes, out)
    stored = records(out)
    kept = [outcome for outcome in outcomes if isinstance(outcome, Accepted)]
    keys = ("image/height", "image/width", "image/channels")
    shapes = [tuple(record[key] for key in keys) for record in stored]
    demand(shapes == [one.shape for one in kept], f"{out}: other images than were accepted")
    _compare_pixels(shapes, out)
    report = tfrecorder.verify(out, decode=True, progress=False)
    demand(report.ok, f"{out}: {report}")
    lost = lost_rows(out, len(frame))
    demand(lost == 0, f"{out}: {lost} rows lost")
    shutil.rmtree(folder)
    return len(frame)


def _write_images(tried: Sequence[Case], folder: Path) -> list[str]:
    """Each mutation as a file whose ending has nothing to do with its content."""
    folder.mkdir(parents=True)
    uris = []
    for number, case in enumerate(tried):
        path = folder / f"{number:05d}{ENDINGS[number % len(ENDINGS)]}"
        path.write_bytes(mutated(*case))
        uris.append(str(path))
    return uris


def _compare_lists(outcomes: Sequence[Accepted | Refused], out: Path) -> None:
    listed = rejects(out).sort_values("row")
    expected = [
        (row, one.stage, one.words) for row, one in enumerate(outcomes) if isinstance(one, Refused)
    ]
    found = list(zip(listed["row"], listed["stage"], listed["reason"], strict=True))
    demand(found == expected, f"{out}: rejects.csv is not what was refused")
    suspects = rejects(out, "suspects.csv").sort_values("row")
    warned = [
        (row, one.warning)
        for row, one in enumerate(outcomes)
        if isinstance(one, Accepted) and one.warning
    ]
    demand(
        list(zip(suspects["row"], suspects["warning"], strict=True)) == warned,
        f"{out}: suspects.csv is not what was accepted with a warning",
    )


def _compare_pixels(shapes: Sequence[tuple[int, ...]], out: Path) -> None:
    """Every record through `load`, as training reads it, in the order of the files."""
    dataset = tfrecorder.load(out, "TRAIN", shuffle=False)
    loaded = [tuple(image.shape[:2]) for image, _ in dataset.as_numpy_iterator()]
    demand(loaded == [shape[:2] for shape in shapes], f"{out}: load gives other sizes")
