"""What deserves a look: the few sentences at the top of a page, drawn from all that is below."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from tfrecorder.inspection.gather import NEAR_CONSTANT, Gathered

#: How many times a class is smaller than the largest before that is said.
IMBALANCE = 20


@dataclass(frozen=True)
class Remark:
    """One sentence.

    Attributes:
        words: the sentence.
        section: of the page, where there is more.
        warning: whether something is to be done; else it is good to know that all is well.
    """

    words: str
    section: str
    warning: bool = True


def find(gathered: Gathered) -> list[Remark]:
    """The remarks, warnings first."""
    found = [
        *_leaks(gathered),
        *_rejects(gathered),
        *_pictures(gathered),
        *_labels(gathered),
    ]
    return sorted(found, key=lambda one: not one.warning)


def _leaks(gathered: Gathered) -> Iterator[Remark]:
    duplicates = gathered.duplicates
    splits = [split for split, count in gathered.duplicates.compared.items() if count]
    for other, split in itertools.combinations(splits, 2):
        count = duplicates.leaked(split, other)
        if count:
            share = count / duplicates.compared[split]
            also = "record is" if count == 1 else "records are"
            yield Remark(
                f"Leakage: {count:,} {split} {also} in {other} too, byte for byte "
                f"({_percent(share)} of the {split} records compared). "
                "The evaluation is too good by that much.",
                "duplicates",
            )
    if duplicates.repeats:
        extra = sum(group.records - 1 for group in duplicates.repeats)
        yield Remark(
            f"{extra:,} {_plural(extra, 'record repeats', 'records repeat')} an image of the "
            "same split, byte for byte.",
            "duplicates",
        )
    contrary = sum(len(group.labels) > 1 for group in duplicates.groups)
    if contrary:
        yield Remark(
            f"{contrary:,} {_plural(contrary, 'image has', 'images have')} different labels in "
            "different records.",
            "duplicates",
        )
    if not duplicates.groups and splits:
        yield Remark(
            f"No image is there twice among {_compared(gathered)}.", "duplicates", warning=False
        )


def _compared(gathered: Gathered) -> str:
    duplicates = gathered.duplicates
    compared = sum(duplicates.compared.values())
    if duplicates.complete:
        return f"all {compared:,} records"
    return f"the {compared:,} records compared, of {duplicates.records:,}"


def _rejects(gathered: Gathered) -> Iterator[Remark]:
    info = gathered.info
    if info.form != "tfrecorder":
        return
    count = sum(info.rejects.values())
    if count:
        words = _plural(count, "row gave", "rows gave")
        yield Remark(f"{count:,} {words} no record.", "rejects")
    else:
        yield Remark("Every row of the source is a record.", "rejects", warning=False)
    if info.suspects:
        words = _plural(info.suspects, "image decodes", "images decode")
        yield Remark(f"{info.suspects:,} {words} with a decoder's warning.", "rejects")
    if info.oriented:
        words = _plural(info.oriented, "image carries", "images carry")
        yield Remark(
            f"{info.oriented:,} {words} an EXIF orientation, which training does not apply.",
            "images",
        )


def _pictures(gathered: Gathered) -> Iterator[Remark]:
    seen = len(gathered.all_seen)
    unshown = seen - len(gathered.usable)
    if unshown:
        words = f"{unshown:,} of {seen:,} images looked at cannot be shown: Pillow does not decode"
        yield Remark(f"{words} {_plural(unshown, 'it', 'them')}.", "images")
    if gathered.constants:
        words = _plural(gathered.constants, "is", "are")
        yield Remark(
            f"{gathered.constants:,} of {seen:,} images looked at {words} near-constant: their "
            f"grey levels vary by less than {NEAR_CONSTANT:g} of 255.",
            "images",
        )


def _labels(gathered: Gathered) -> Iterator[Remark]:
    train = gathered.class_counts.get("TRAIN", {})
    if not train or not gathered.counted:
        return
    names = dict.fromkeys(name for of in gathered.class_counts.values() for name in of)
    absent = [name for name in names if not train.get(name)]
    if absent:
        words = _plural(len(absent), "class has", "classes have")
        yield Remark(f"{len(absent):,} {words} no TRAIN record.", "labels")
    most, least = max(train.values()), min(train.values())
    if most > IMBALANCE * least:
        yield Remark(
            f"The largest class has {most / least:,.0f} times the TRAIN records of the smallest.",
            "labels",
        )


def _percent(share: float) -> str:
    return f"{share:.1%}" if share < 0.1 else f"{share:.0%}"


def _plural(count: int, one: str, many: str) -> str:
    return one if count == 1 else many
