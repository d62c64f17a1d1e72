"""Datasets of form 4 with different histories are read and gone on with as by the version of then.

`kept_datasets.py` says how they were made.  `datasets/public.json` says what the last version of
that form made of each: the SHA-256 of all public files after each operation, and the digests of
the plans, of both the first 16 digits, as

    PYTHONPATH=tests python tests/format/test_kept_histories.py

wrote them.  That is never made again.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from helpers.kept_datasets import (
    DATASETS,
    HEIGHT,
    QUIET,
    SUSPECT,
    TO_ITS_END,
    WIDTH,
    Camera,
    Post,
    append_bytes,
    pixels_of,
)
from kept_cases import (
    KEPT,
    Kept,
    State,
    begin,
    case_id,
    check,
    finished,
    numbers_in,
    state_of,
    values_of,
)
from support import examples, public_files

import tfrecorder
from tfrecorder.errors import DatasetError, OutputError

PUBLIC = DATASETS / "public.json"

ONE_EACH: dict[str, Any] = {"num_shards": 1, **QUIET}

READY = [kept for kept in KEPT if not kept.pending]
PENDING = [kept for kept in KEPT if kept.pending]


def append(kept: Kept) -> str:
    tfrecorder.append(kept.table(kept.new), "out", **ONE_EACH)
    return "out"


def append_again(kept: Kept) -> str:
    """What is there by its place, what was removed, and what is new."""
    known = kept.known([kept.numbers[0], kept.corrected, *kept.stays_out])
    both = pd.concat([known, kept.table(kept.new)], ignore_index=True)
    result = tfrecorder.append(both, "out", **ONE_EACH)
    assert (result.rows_there, result.removed) == (2, len(kept.stays_out))
    return "out"


def update(kept: Kept) -> str:
    table = kept.known([kept.corrected, kept.removed])
    for column, value in correction(kept).items():
        table[column] = [value, table[column][1]]
    changes = tfrecorder.update(table, "out", **QUIET).changes
    assert (changes.corrected, changes.added, changes.moved) == (1, 0, {})
    return "out"


def move(kept: Kept) -> str:
    table = kept.known([kept.corrected]).assign(split="TEST")
    changes = tfrecorder.update(table, "out", **QUIET).changes
    assert (changes.corrected, changes.added) == (0, 0)
    assert changes.moved == {"TRAIN → TEST": 1}
    return "out"


def remove(kept: Kept) -> str:
    tfrecorder.remove("out", {"image_uri": kept.uri(kept.removed)}, **QUIET)
    return "out"


def remove_missing(kept: Kept) -> str:
    rest = [number for number in kept.numbers if number != kept.removed]
    changes = tfrecorder.update(kept.known(rest), "out", missing="remove", **QUIET).changes
    assert (changes.corrected, changes.added) == (0, 0)
    return "out"


def undo(kept: Kept) -> str:
    tfrecorder.undo("out")
    return "out"


def append_and_undo(kept: Kept) -> str:
    append(kept)
    return undo(kept)


def update_and_undo(kept: Kept) -> str:
    update(kept)
    return undo(kept)


def compact(kept: Kept) -> str:
    tfrecorder.compact("out", **ONE_EACH)
    return "out"


def compact_elsewhere(kept: Kept) -> str:
    shutil.rmtree("elsewhere", ignore_errors=True)
    tfrecorder.compact("out", "elsewhere", **ONE_EACH)
    return "elsewhere"


def compact_dropping(kept: Kept) -> str:
    tfrecorder.compact("out", drop=[kept.uri(kept.removed)], **ONE_EACH)
    return "out"


def all_in_turn(kept: Kept) -> str:
    append(kept)
    update(kept)
    remove(kept)
    compact(kept)
    assert tfrecorder.append(kept.table([33, kept.removed]), "out", **ONE_EACH).removed == 1
    return "out"


def stream_on(kept: Kept) -> str:
    """Both sources are read on from where they were left."""
    assert tfrecorder.stream(Camera(11), "out", **TO_ITS_END).records == 2
    assert tfrecorder.stream(Post([*kept.as_bytes, 23]), "out", **TO_ITS_END).records == 1
    return "out"


def undo_and_stream(kept: Kept) -> str:
    """The rows of the batch that was taken back come again."""
    assert tfrecorder.undo("out").streams == {Camera.name: 6}
    assert tfrecorder.stream(Camera(9), "out", **TO_ITS_END).rows == 3
    assert tfrecorder.stream(Post(kept.as_bytes), "out", **TO_ITS_END).rows == 0
    return "out"


def work_and_commit(kept: Kept) -> str:
    tfrecorder.parts.work("out", part=(1, 2), **QUIET)
    tfrecorder.parts.work("out", part=(2, 2), **QUIET)
    tfrecorder.parts.commit("out")
    return "out"


def call_again(kept: Kept) -> str:
    """The call that was staged, and no more than staged."""
    if kept.name == "staged-correction":
        tfrecorder.update(kept.known([3, 5]).assign(label="owl"), "out", **QUIET)
    else:
        append_bytes("out")
    return "out"


def abandon_and_append(kept: Kept) -> str:
    undo(kept)
    return append(kept)


def before(kept: Kept) -> State:
    return state_of(kept)


def longer(kept: Kept) -> State:
    return state_of(kept, [*kept.numbers, *kept.new])


def shorter(kept: Kept) -> State:
    return state_of(kept, [number for number in kept.numbers if number != kept.removed])


def correction(kept: Kept) -> dict[str, Any]:
    """What of the corrected picture is otherwise then."""
    return {"thing": ["bowl"]} if kept.has_boxes else {"label": "dog"}


def as_corrected(kept: Kept) -> State:
    return state_of(kept, **correction(kept))


def as_moved(kept: Kept) -> State:
    return state_of(kept, split="TEST")


def as_undone(kept: Kept) -> State:
    return {kept.uri(number): values_of(kept, number, {}) for number in kept.undone or ()}


def after_all(kept: Kept) -> State:
    numbers = [*kept.numbers, *kept.new, 33]
    left = [number for number in numbers if number != kept.removed]
    return state_of(kept, left, **correction(kept))


def streamed_on(kept: Kept) -> State:
    return state_of(kept, [*kept.numbers, 9, 10, 23])


def is_ready(kept: Kept) -> bool:
    return not kept.pending


def is_pending(kept: Kept) -> bool:
    return bool(kept.pending)


def is_streamed(kept: Kept) -> bool:
    return kept.name == "stream"


def has_undo(kept: Kept) -> bool:
    return kept.undone is not None


class Operation(NamedTuple):
    """Something that is done to a dataset.

    Attributes:
        run: does it to `out`, and returns where its result is.
        becomes: what that holds then.
        fits: to which datasets it can be done.
    """

    run: Callable[[Kept], str]
    becomes: Callable[[Kept], State]
    fits: Callable[[Kept], bool] = is_ready


OPERATIONS = {
    "append": Operation(append, longer),
    "append again": Operation(append_again, longer),
    "update": Operation(update, as_corrected),
    "move": Operation(move, as_moved),
    "remove": Operation(remove, shorter),
    "remove missing": Operation(remove_missing, shorter),
    "undo": Operation(undo, as_undone, has_undo),
    "append and undo": Operation(append_and_undo, before),
    "update and undo": Operation(update_and_undo, before),
    "compact": Operation(compact, before),
    "compact elsewhere": Operation(compact_elsewhere, before),
    "compact dropping": Operation(compact_dropping, shorter),
    "all in turn": Operation(all_in_turn, after_all),
    "stream on": Operation(stream_on, streamed_on, is_streamed),
    "undo and stream": Operation(undo_and_stream, before, is_streamed),
    "work and commit": Operation(work_and_commit, finished, is_pending),
    "call again": Operation(call_again, finished, is_pending),
    "abandon and append": Operation(abandon_and_append, longer, is_pending),
}

CASES = [(kept, name) for kept in KEPT for name, of in OPERATIONS.items() if of.fits(kept)]


def public_digests(out: str) -> dict[str, str]:
    """The SHA-256 of each public file, without the digest of the plan that one names."""
    files = public_files(out)
    files["dataset_info.json"] = re.sub(rb"plan [0-9a-f]{64}", b"", files["dataset_info.json"])
    return {name: hashlib.sha256(data).hexdigest()[:16] for name, data in sorted(files.items())}


def plan_digest(out: str) -> str:
    """The digest of the plan that the newest commit came from."""
    info = Path(out, "dataset_info.json").read_text()
    (digest,) = re.findall("plan ([0-9a-f]{64})", info)
    return digest[:16]


def made_then(kept: Kept, name: str, what: str) -> Any:
    """The same, "files" or "plans", as it was recorded."""
    return json.loads(PUBLIC.read_text())[what][kept.name][name]


class Made(NamedTuple):
    """What an operation made of a dataset.

    Attributes:
        out: where it is.
        numbers: the row number that each record had before.
    """

    out: str
    numbers: dict[str, int]


def make(kept: Kept, name: str) -> Made:
    """What an operation makes of a copy of a dataset, in the working directory."""
    begin(kept)
    numbers = numbers_in("out")
    return Made(os.path.abspath(OPERATIONS[name].run(kept)), numbers)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Kept, str], Made]:
    """`make`, once for all tests that look at the same, in a folder of its own."""

    @functools.cache
    def once(kept_name: str, name: str) -> Made:
        (kept,) = (one for one in KEPT if one.name == kept_name)
        here = os.getcwd()
        os.chdir(tmp_path_factory.mktemp("made"))
        try:
            return make(kept, name)
        finally:
            os.chdir(here)

    return lambda kept, name: once(kept.name, name)


def number_of(uri: str) -> int:
    """The number of a picture, by its name."""
    return int(uri.removeprefix("picture_").removesuffix(".png"))


#: The split, the classes and the pixels of each picture that is a PNG.
Told = dict[str, tuple[str, list[str], bytes]]


def told(kept: Kept, state: State) -> Told:
    """What a reader must say of a dataset that holds this."""
    return {
        uri: (
            values["split"].lower(),
            values["thing"] if kept.has_boxes else [values["label"]],
            pixels_of(number_of(uri)),
        )
        for uri, values in state.items()
        if uri != SUSPECT
    }


def told_by_tfds(out: str) -> Told:
    """What TFDS says of a dataset."""
    import tensorflow_datasets as tfds

    builder = tfds.builder_from_directory(out)
    found: Told = {}
    for split, of in builder.info.splits.items():
        records = list(tfds.as_numpy(builder.as_dataset(split)))
        assert len(records) == of.num_examples
        for record in records:
            (key,) = (key for key in record if key.endswith("class/text"))
            texts = [text.decode() for text in np.ravel(record[key])]
            uri = record["image/filename"].decode()
            found[uri] = (split, texts, record["image/encoded"].tobytes())
    found.pop(SUSPECT, None)
    return found


all_kept = pytest.mark.parametrize("kept", KEPT, ids=case_id)
all_cases = pytest.mark.parametrize(("kept", "name"), CASES, ids=case_id)


@all_kept
def test_it_is_read(kept: Kept) -> None:
    begin(kept)
    wanted = state_of(kept)
    check(kept, wanted)
    size = {} if kept.name == "raw" else {"image_size": (HEIGHT, WIDTH)}
    boxes = {"max_boxes": 2} if kept.has_boxes else {}
    names = tfrecorder.info("out").class_names
    frame = tfrecorder.to_frame("out")
    for split, uris in frame.groupby("split", observed=True)["image_uri"]:
        records = tfrecorder.Records("out", split, **size)
        of_all = {"batch_size": len(uris), "shuffle": False}
        batches = tfrecorder.batches("out", split, **of_all, **size, **boxes)
        images, labels = next(iter(batches))
        for at, uri in enumerate(uris):
            image, label = records[at]
            assert images[at].tobytes() == image.tobytes()
            if uri != SUSPECT:
                assert image.tobytes() == pixels_of(number_of(uri))
            if not kept.has_boxes:
                assert names[labels[at]] == names[label] == wanted[uri]["label"]


@pytest.mark.slow
@all_kept
def test_it_is_read_by_others(kept: Kept) -> None:
    begin(kept)
    assert told_by_tfds("out") == told(kept, state_of(kept))


@pytest.mark.slow
@pytest.mark.parametrize("kept", READY[:3], ids=case_id)  # boxes, a stream, corrections
def test_others_read_it_after_all(made: Any, kept: Kept) -> None:
    assert told_by_tfds(made(kept, "all in turn").out) == told(kept, after_all(kept))


@pytest.mark.slow
@all_cases
def test_an_operation_leaves_what_it_says(made: Any, kept: Kept, name: str) -> None:
    out, numbers = made(kept, name)
    check(kept, OPERATIONS[name].becomes(kept), out)
    now = numbers_in(out)
    both = now.keys() & numbers
    if name == "undo and stream":  # a number is given once: what comes again gets new ones
        again = {uri for uri in both if now[uri] != numbers[uri]}
        assert again
        assert min(now[uri] for uri in again) > max(numbers.values())
        both -= again
    assert {uri: now[uri] for uri in both} == {uri: numbers[uri] for uri in both}


@pytest.mark.slow
@all_cases
def test_its_public_files_are_what_they_were(made: Any, kept: Kept, name: str) -> None:
    assert public_digests(made(kept, name).out) == made_then(kept, name, "files")


@pytest.mark.slow
@all_cases
def test_its_plan_has_the_digest_that_it_had(made: Any, kept: Kept, name: str) -> None:
    """Apart: a plan of another form has another digest, and is no other plan for it."""
    assert plan_digest(made(kept, name).out) == made_then(kept, name, "plans")


@pytest.mark.slow
def test_what_cannot_be_taken_back_stays() -> None:
    (kept,) = (kept for kept in READY if kept.undone is None)
    begin(kept)
    with pytest.raises(DatasetError, match="removed rows or moved some"):
        tfrecorder.undo("out")
    check(kept, state_of(kept))


@pytest.mark.parametrize("kept", PENDING, ids=case_id)
def test_nothing_else_begins_beside_what_is_staged(kept: Kept) -> None:
    begin(kept)
    for operation in (append, remove, compact):
        with pytest.raises(OutputError, match=r"unfinished|not finished|another"):
            operation(kept)
    check(kept, state_of(kept))
    assert not tfrecorder.status("out").committed


REMOVALS = [
    "remove",
    "compact dropping",
    "all in turn",
    "remove missing",
]


@pytest.mark.slow
@pytest.mark.parametrize("kept", READY, ids=case_id)
@pytest.mark.parametrize("name", REMOVALS)
def test_no_name_of_what_was_removed_is_left(made: Any, kept: Kept, name: str) -> None:
    out = made(kept, name).out
    gone = [kept.uri(kept.removed), *map(kept.uri, kept.stays_out)]
    report = tfrecorder.verify(out, absent=gone, progress=False)
    assert report.ok, report


@pytest.mark.slow
@pytest.mark.parametrize("kept", READY, ids=case_id)
def test_all_rows_of_a_shard_go_to_another_split(kept: Kept) -> None:
    begin(kept)
    state = state_of(kept)
    shard = max(sorted(Path("out").glob("*.tfrecord")), key=lambda path: len(examples(path)))
    uris = [record["image/filename"][0].decode() for record in examples(shard)]
    split = "TEST" if shard.name.startswith("train") else "TRAIN"
    moved = kept.known(n for n in kept.numbers if kept.uri(n) in uris)
    tfrecorder.update(moved.assign(split=split), "out", **QUIET)
    for uri in uris:
        state[uri]["split"] = split
    check(kept, state)
    tfrecorder.remove("out", {"image_uri": uris[1]}, **QUIET)
    del state[uris[1]]
    check(kept, state)


def record() -> dict[str, Any]:
    """What this version makes of each dataset."""
    files: dict[str, Any] = {}
    plans: dict[str, Any] = {}
    for kept, name in CASES:
        out = make(kept, name).out
        files.setdefault(kept.name, {})[name] = public_digests(out)
        plans.setdefault(kept.name, {})[name] = plan_digest(out)
    return {"files": files, "plans": plans}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        text = json.dumps(record(), indent=1)
    PUBLIC.write_text(text + "\n")
