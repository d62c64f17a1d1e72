"""What deserves a look: the few sentences at the top of a page, drawn from everything below.

Among them where two parts of a dataset differ the most, if it is more than chance.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from tfrecorder.core.option import speaker, spelled
from tfrecorder.display.tables import counted, cut, one_line
from tfrecorder.images.header import reduced_in_words
from tfrecorder.inspection.duplicates import SameImage
from tfrecorder.inspection.gather import Gathered, boxes_beside_masks
from tfrecorder.inspection.record_values import RecordView
from tfrecorder.inspection.rendering import source_row
from tfrecorder.inspection.sheets import NEARLY, Sighting, close_boxes, whole_boxes
from tfrecorder.reading.info import mask_words, summed

#: The least difference between two shares that counts: of one class, and of the images up to some
#: value.
_OF_CLASS = 0.05
_OF_VALUE = 0.2

#: It must be so many standard deviations of what chance does.
_SIGMAS = 4


class Gap(NamedTuple):
    """The largest difference between two shares (L∞; of values, that of Kolmogorov and Smirnov).

    Attributes:
        of: the class, or the value, as text, that the shares are at most.
        share, other: from 0 to 1.
    """

    of: str
    share: float
    other: float


def class_gap(counts: Mapping[str, int], others: Mapping[str, int]) -> Gap | None:
    """The class whose shares of two parts differ the most; None if they hardly do.

    Args:
        counts, others: records by class.

    >>> class_gap({"cat": 90, "dog": 10}, {"cat": 500, "dog": 500})
    Gap(of='cat', share=0.9, other=0.5)
    """
    names = [*dict.fromkeys([*counts, *others])]
    parts = []
    for part in (counts, others):
        parts.append(np.array([part.get(name, 0) for name in names]))
    sizes = [int(part.sum()) for part in parts]
    return _largest(parts, sizes, _OF_CLASS, names.__getitem__)


def value_gap(values: np.ndarray, others: np.ndarray) -> Gap | None:
    """The value up to which the shares of two parts differ the most; None if they hardly do."""
    edges = np.unique(np.concatenate([values, others]))
    parts = [np.searchsorted(np.sort(part), edges, "right") for part in (values, others)]
    sizes = [len(values), len(others)]
    return _largest(parts, sizes, _OF_VALUE, lambda at: f"{edges[at]:,.0f}")


def _largest(
    parts: Sequence[np.ndarray],
    sizes: Sequence[int],
    least: float,
    name: Callable[[int], str],
) -> Gap | None:
    """The largest difference between the shares of two parts; None if chance may have made it.

    Args:
        parts: how many there are in each, by class or up to each value.
        sizes: of the parts.
        least: the least difference that counts.
        name: of a place in the parts.
    """
    if not all(sizes):
        return None
    size, other_size = sizes
    shares = parts[0] / size
    others = parts[1] / other_size
    at = int(np.abs(shares - others).argmax())
    share = float(shares[at])
    other = float(others[at])
    both = (share * size + other * other_size) / (size + other_size)
    variance = both * (1 - both) * (1 / size + 1 / other_size)
    is_large = abs(share - other) > max(least, _SIGMAS * math.sqrt(variance))
    return Gap(name(at), share, other) if is_large else None


#: Where more of the boxes than this share hold nothing of a mask, the two are no faults.
_OTHER_THINGS = 0.2

#: A class this many times smaller than the largest is reported.
IMBALANCE = 10

#: How many names one sentence lists, and how many rows a call.
NAMED = 3
_ROWS = 20

#: Marks each name in the words of a finding, because a name may hold anything.
NAME = "\0"

#: Characters of a finding in a terminal.
_MOST_TEXT = 1000

SEVERITIES = ("error", "warning", "unknown", "note")


@dataclass(frozen=True)
class Remark:
    """One sentence.

    Attributes:
        words: the sentence; each name from the data is between two `NAME`.
        section: the section of the page that shows more.
        severity: one of `SEVERITIES`: an error makes an evaluation worthless, a warning should be
            looked at, unknown is what was not compared, a note says that all is well.
        kind: what its records are, in a word or two; "" for nothing to filter by.
        found: the split, the number and the source row of each of these records.
        remedies: "look", "remove" or "correct" these records; or a function that says more.
        calls: what looks closer or mends it, as typed where the page is made, after a verb.
    """

    words: str
    section: str
    severity: str = "warning"
    kind: str = ""
    found: Sequence[Sequence[Any]] = ()
    remedies: Sequence[str] = ()
    calls: Sequence[tuple[str, str]] = ()

    @property
    def text(self) -> str:
        calls = [f" {verb}: {call}" for verb, call in self.calls]
        return one_line(self.words.replace(NAME, ""), _MOST_TEXT) + ";".join(calls)

    @property
    def parts(self) -> list[tuple[str, bool]]:
        """The sentence in pieces, and for each piece whether it is a name from the data."""
        pieces = self.words.split(NAME)
        return [(piece, place % 2 == 1) for place, piece in enumerate(pieces) if piece]


def find(gathered: Gathered) -> list[Remark]:
    """The findings, errors first, then warnings."""
    remarks = [
        *_leaks(gathered),
        *_near_copies(gathered),
        *_rejects(gathered),
        *_pictures(gathered),
        *_labels(gathered),
        *_doubts(gathered),
        *_boxes(gathered),
        *_differences(gathered),
    ]
    remarks.sort(key=lambda remark: SEVERITIES.index(remark.severity))
    return [replace(remark, calls=[*_calls(gathered, remark)]) for remark in remarks]


def _leaks(gathered: Gathered) -> Iterator[Remark]:
    duplicates = gathered.duplicates
    splits = [split for split, count in gathered.duplicates.compared.items() if count]
    for other, split in itertools.combinations(splits, 2):
        count = duplicates.leaked(split, other)
        if count:
            share = count / duplicates.compared[split]
            records = counted(count, f"{split} record is", f"{split} records are")
            copies = _copies_in(split, duplicates.leaks, other)
            yield Remark(
                f"Leakage: {records} also in {other}, byte for byte "
                f"({_percent(share)} of the {split} records compared): "
                f"{_first_few(_names(copies), count)}. The evaluation "
                "can look too good by up to that much.",
                "duplicates",
                "error",
                kind="in two splits",
                found=_found(copies),
                remedies=("duplicates", "remove"),
            )
    contrary = [group for group in duplicates.groups if len(group.labels) > 1]
    if contrary:
        images = counted(len(contrary), "image has", "images have")
        yield Remark(
            f"{images} different labels in different records: "
            f"{_first_few(_names(_firsts(contrary)))}.",
            "duplicates",
            kind="different labels",
            found=_found(_copies(contrary)),
            remedies=("look",),
        )
    if splits:
        counts = (gathered.near or duplicates).counts
        compared = counted(sum(duplicates.compared.values()), "record")
        partly = f"the {compared} compared, of {duplicates.records:,}"
        among = f"all {compared}" if duplicates.complete else partly
        is_odd = counts.exact or counts.near
        copies = [*_copies(duplicates.repeats), *itertools.chain(*gathered.near_pairs)]
        yield Remark(
            f"Copies among {among}: {counts.words()}.",
            "duplicates",
            "warning" if is_odd else "note",
            kind="copies" if is_odd else "",
            found=_found(copies) if is_odd else (),
            remedies=("duplicates",) if is_odd else (),
        )


def _near_copies(gathered: Gathered) -> Iterator[Remark]:
    near = gathered.near
    if near is None:
        return
    for other, split in itertools.combinations(gathered.info.splits, 2):
        if count := near.leaked(split, other):
            records = counted(count, f"{split} record is a", f"{split} records are")
            copies = [
                view
                for pair in gathered.near_pairs
                for view in pair
                if view.split == split and other in {view.split for view in pair}
            ]
            names = f": {_first_few(_names(copies), count)}" if copies else ""
            yield Remark(
                f"Leakage: {records} near {'copy' if count == 1 else 'copies'} of {other} "
                f"records (resized, encoded again or cut at the borders){names}.",
                "duplicates",
                "error",
                kind="nearly in two splits",
                found=_found(copies),
                remedies=("duplicates", "remove") if len(copies) == count else ("duplicates",),
            )
    for note in near.notes:
        yield Remark(f"Near copies: {note}", "duplicates", "unknown")
    for words in near.damaged:
        yield Remark(words, "duplicates", "error")


def _rejects(gathered: Gathered) -> Iterator[Remark]:
    info = gathered.info
    if info.form != "tfrecorder":
        return
    count = sum(info.rejects.values())
    if count:
        reasons = [f"{why} ({rows:,})" for why, rows in info.rejects.items()]
        rows = counted(count, "row gave", "rows gave")
        names = [_short(_name(image)) for _, image, *_ in gathered.rejects or ()]
        listed = f": {_first_few(names, count)}" if names else ""
        words = f"{rows} no record: {_first_few(reasons)}{listed}."
        yield Remark(words, "rejects", remedies=("info",))
    else:
        yield Remark("Every row of the source became a record.", "rejects", "note")
    if info.suspects:
        images = counted(info.suspects, "image decodes", "images decode")
        yield Remark(f"{images} with a decoder's warning.", "rejects")
    if info.oriented:
        images = counted(info.oriented, "image carries", "images carry")
        words = "an EXIF orientation, which training does not apply"
        yield Remark(f"{images} {words}: {spelled('apply_exif', True)} does.", "images")
    for words in reduced_in_words(info.reduced).values():
        yield Remark(f"{words}.", "images")
    for words, is_odd in mask_words(info.statistics).items():
        yield Remark(f"{words}.", "records", "warning" if is_odd else "note")


def _pictures(gathered: Gathered) -> Iterator[Remark]:
    unshown = len(gathered.unshown)
    if unshown:
        records = counted(len(gathered.all_seen), "record")
        verb = "has" if unshown == 1 else "have"
        yield Remark(
            f"{unshown:,} of {records} looked at {verb} no image that Pillow decodes: "
            f"{_first_few(_names(gathered.unshown))}.",
            "images",
            kind="not decodable",
            found=_found(gathered.unshown),
            remedies=("remove",),
        )
    known = {view.place: view for _, _, views in gathered.extremes for view in views}
    for of in gathered.unusual:
        count = len(of.images)
        shown = []
        for split, number, row in of.images[["split", "number", "row"]][:NAMED].values:
            place = f"row {_short(str(row))}" if str(row) else f"record {number:,}"
            view = known.get((split, number))
            shown.append(_short(_named(view)) if view else f"{split} {place}")
        named = _first_few(shown, count)
        among = of.among or gathered.of_images
        verb = "is" if count == 1 else "are"
        yield Remark(
            f"{count:,} of {among} {verb} {of.name}: {of.words} ({named}).",
            "images",
            kind=of.name,
            found=[*zip(*(of.images[name] for name in ("split", "number", "row")), strict=True)],
            remedies=("remove",),
        )


def _labels(gathered: Gathered) -> Iterator[Remark]:
    if not gathered.counted:
        return
    names = dict.fromkeys(name for of in gathered.class_counts.values() for name in of)
    for split, counts in gathered.class_counts.items():
        absent = [_quoted(name) for name in names if not counts.get(name)]
        if counts and absent:
            classes = counted(len(absent), "class has", "classes have")
            yield Remark(
                f"{classes} no {split} record: {_first_few(absent)}. "
                f"A conversion with {spelled('stratify', True)} gives each split its share of "
                "every class.",
                "labels",
                remedies=("info",),
            )
    train = {name: count for name, count in gathered.class_counts.get("TRAIN", {}).items() if count}
    if not train:
        return
    most = max(train, key=train.__getitem__)
    least = min(train, key=train.__getitem__)
    if train[most] > IMBALANCE * train[least]:
        yield Remark(
            f"Class {_quoted(most)} has {train[most] / train[least]:,.0f} times the TRAIN records "
            f"of {_quoted(least)}. `balance='label'` of `tfrecorder.batches` gives each class as "
            "often, and `class_weights` of `tfrecorder.info` weighs the loss.",
            "labels",
            remedies=("info",),
        )


def _doubts(gathered: Gathered) -> Iterator[Remark]:
    sheets = gathered.sheets
    if sheets is None or not sheets.doubted:
        return
    thing = "object" if sheets.of_objects else "image"
    names = [
        f"{_short(_named(one.view))} ({_quoted(one.label)}, like {_quoted(one.like)})"
        for one in sheets.doubted
    ]
    yield Remark(
        f"{counted(len(names), f'{thing} looks', f'{thing}s look')} like another class: "
        f"{_first_few(names)}.",
        "sheets",
        kind="like another class",
        found=[(one.view.split, one.view.number, one.view.row, one.like) for one in sheets.doubted],
        remedies=("look" if sheets.of_objects else "correct",),
    )


def _boxes(gathered: Gathered) -> Iterator[Remark]:
    if whole := whole_boxes(gathered.usable):
        boxes = counted(len(whole), "box covers", "boxes cover")
        yield _on_boxes(f"{boxes} over 90 % of the picture", whole, "over 90 %")
    # The lists of a frame may have them; of files of annotations a box is stored once.
    if repeated := close_boxes(gathered.usable, least=1, is_same_class=True):
        boxes = counted(len(repeated), "box is", "boxes are")
        words = f"{boxes} there twice, with the same class"
        yield _on_boxes(words, [one for one, _ in repeated], "box twice")
    if contrary := close_boxes(gathered.usable, NEARLY, is_same_class=False):
        pairs = counted(len(contrary), "pair of boxes is", "pairs of boxes are")
        both = [replace(one, label=f"{one.label} / {other.label}") for one, other in contrary]
        words = f"{pairs} nearly the same, but of different classes"
        yield _on_boxes(words, both, "same box, two classes")
    if beside := boxes_beside_masks(gathered.usable):
        compared = sum(len(view.boxes) for view in gathered.usable if view.beside is not None)
        boxes = counted(len(beside), "box holds", "boxes hold")
        words = (
            f"{boxes} (nearly) nothing of what the picture's mask marks, of {compared:,} compared"
        )
        if len(beside) <= _OTHER_THINGS * compared:
            yield _on_boxes(words, beside, "beside its mask")
        else:
            yield Remark(f"{words}: it may mark other things.", "boxes", "unknown")


def _on_boxes(
    words: str,
    boxes: Sequence[Sighting],
    kind: str,
) -> Remark:
    names = [f"{_quoted(one.label)} on {_short(_named(one.view))}" for one in boxes]
    return Remark(
        f"{words}: {_first_few(names)}.",
        "boxes",
        kind=kind,
        found=_found(one.view for one in boxes),
        remedies=("look",),
    )


#: Columns of a part's images, and what of an image each is.
_VALUES = {"brightness": "a mean grey level", "shorter": "a shorter side"}

_EARLIER = "the earlier generations"


def _differences(gathered: Gathered) -> Iterator[Remark]:
    """What differs between the first split and the others, and in the newest generation."""
    images = gathered.images
    images = images.assign(shorter=images[["height", "width"]].min(axis=1))
    counts = gathered.class_counts if gathered.counted else {}
    splits = [*gathered.info.splits]
    parts = {}
    for name in splits:
        of_split = images[images["split"] == name]
        parts[name] = (counts.get(name, {}), of_split)
    pairs = [(other, splits[0]) for other in splits[1:]]
    if gathered.before is not None:
        records = {name: split.records for name, split in gathered.before.splits.items()}
        is_new = images["number"] >= images["split"].map(records).fillna(0)
        earlier = summed((gathered.before.class_counts or {}).values())
        taken_off = {name: -count for name, count in earlier.items()}
        added = summed([*counts.values(), taken_off])
        newest = f"generation {max(gathered.info.generations)}"
        parts[newest] = (added, images[is_new])
        parts[_EARLIER] = (earlier, images[~is_new])
        pairs.append((newest, _EARLIER))
    for part, other in pairs:
        of_one, rows = parts[part]
        of_other, other_rows = parts[other]
        if gap := class_gap(of_one, of_other):
            yield Remark(
                f"Class {_quoted(gap.of)} has {_percent(gap.share)} of the labels of {part} and "
                f"{_percent(gap.other)} of those of {other}.",
                "labels",
                remedies=("info",),
            )
        for column, what in _VALUES.items():
            if gap := value_gap(rows[column].to_numpy(), other_rows[column].to_numpy()):
                yield Remark(
                    f"{_percent(gap.share)} of the images of {part} and {_percent(gap.other)} of "
                    f"those of {other} have {what} of at most {gap.of}.",
                    "images",
                )


def _calls(gathered: Gathered, remark: Remark) -> Iterator[tuple[str, str]]:
    """What looks closer at a finding's records, or says what a remedy would change.

    Records of other tools cannot be changed, and of them no near copies are known.
    """
    directory = gathered.info.directory
    if gathered.info.form != "tfrecorder":
        return
    by_row = {int(row): like for _, _, row, *like in remark.found if str(row).isdecimal()}
    rows = [*by_row][:_ROWS]
    some = f" {len(rows)} of {len(by_row)}" if len(by_row) > _ROWS else ""
    frame = f"tfrecorder.to_frame({json.dumps(directory)}).loc[{rows}]"
    label = gathered.label
    for remedy in remark.remedies:
        if remedy in ("info", "duplicates"):
            yield "Look", speaker().called(remedy, directory)
        elif remedy == "remove":
            if 0 < len(by_row) < (gathered.info.records or 0):  # it would refuse to remove all
                yield f"Remove{some}", speaker().removal(directory, {gathered.row_column: rows})
        elif remedy == "correct" and label and not label.integer:
            values = json.dumps({label.column: [by_row[row][0] for row in rows]})
            words = f"{frame}.assign(**{values}), {json.dumps(directory)}"
            call = f"tfrecorder.update({words}, dry_run=True)"
            yield f"Correct{some}, if wrong", speaker().ran(call)
        elif rows:
            yield f"Look at{some}" if some else "Look", speaker().ran(frame)


def _found(views: Iterable[RecordView]) -> list[tuple[str, int, str]]:
    return [(view.split, view.number, view.row) for view in views]


def _copies(groups: Iterable[SameImage]) -> list[RecordView]:
    return [copy for group in groups for copy in group.copies]


def _firsts(groups: Iterable[SameImage]) -> list[RecordView]:
    """The first copy of each image."""
    return [group.copies[0] for group in groups]


def _copies_in(
    split: str,
    groups: Iterable[SameImage],
    other: str,
) -> list[RecordView]:
    """Those copies in a split whose images are in another split too."""
    shared = [group for group in groups if other in group.counts]
    return [copy for copy in _copies(shared) if copy.split == split]


def _names(views: Iterable[RecordView]) -> list[str]:
    return [_short(_named(view)) for view in views]


def _named(view: RecordView) -> str:
    return _name(view.filename) or f"{view.split} {source_row(view)}"


def _name(uri: str) -> str:
    """A file name with its folder, which is often its class."""
    return "/".join(uri.rstrip("/").split("/")[-2:])


def _quoted(name: str) -> str:
    return f"'{_short(name)}'"


def _short(name: str) -> str:
    return f"{NAME}{cut(name, 48).replace(NAME, '␀')}{NAME}"


def _first_few(names: Sequence[str], count: int = 0) -> str:
    """The first few of some names, as a phrase.

    Args:
        count: of what they are names of; more than there are names if some were not read.

    >>> _first_few(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    >>> _first_few(["a", "b"], 5)
    'a, b and 3 more'
    """
    more = max(len(names), count) - len(names[:NAMED])
    return ", ".join(names[:NAMED]) + (f" and {more:,} more" if more > 0 else "")


def _percent(share: float) -> str:
    return f"{share:.1%}" if 0 < share < 0.1 else f"{share:.0%}"
