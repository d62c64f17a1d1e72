"""Removed means gone: after any history and any removal, no file holds a thing of the row."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import PIL.Image
import pytest
from helpers.growing_cases import QUIET
from support import PHOTOS, slow_cases, whose_turn
from torture.kills import Disk, bucket, write
from torture.model import name_of
from traces import Secret, traces

import tfrecorder
from tfrecorder.errors import DatasetError, OutputError
from tfrecorder.schema import Boxes, Image, Label, Mask, Number, Schema, Split, Text

#: What is looked for: of the row, and of one that was to be added and was given up.
GONE, NEVER = "img/sécret 7.png", "img/never.png"

COLUMNS = Schema(
    split=Split(required=False), image_uri=Image(), label=Label(), caption=Text(), age=Number()
)
TOLERANT: dict[str, Any] = {"max_reject_fraction": 1.0, **QUIET}
ONCE: dict[str, Any] = {"until_idle": 0.3, "source_options": {"settle": 0.05}, "progress": False}


@pytest.fixture(autouse=True)
def images() -> None:
    """Twelve images of noise, which no compression makes alike."""
    Path("img").mkdir()
    for number, name in enumerate([*(f"img/{n}.png" for n in range(10)), GONE, NEVER]):
        Path(name).write_bytes(noise(number))


def noise(seed: int, form: str = "PNG") -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (12, 12, 3), np.uint8)
    file = io.BytesIO()
    PIL.Image.fromarray(pixels).save(file, form)
    return file.getvalue()


def table(*names: str) -> pd.DataFrame:
    """Rows by the names of their images, each with values of its own."""
    rows = [
        ("TEST" if number % 3 == 2 else "TRAIN", name, "ab"[number % 2], f"shows {name}", number)
        for number, name in enumerate(names)
    ]
    frame = pd.DataFrame(rows, columns=["split", "image_uri", "label", "caption", "age"])
    frame["age"] = frame["age"].astype(float)
    frame.loc[frame["image_uri"] == GONE, ["caption", "age"]] = ["an unmistakable face", 99991.5]
    frame.loc[frame["image_uri"] == NEVER, ["caption", "age"]] = ["a face never taken", 77773.25]
    return frame


def plain(*numbers: int) -> list[str]:
    return [f"img/{number}.png" for number in numbers]


def secret(name: str = GONE, image: bool = True, **more: str) -> Secret:
    (row,) = table(name).to_dict("records")
    texts = {"uri": name, "base name": Path(name).name, "caption": row["caption"], **more}
    images = {"image": Path(name).read_bytes()} if image else {}
    return Secret(texts, {"age": row["age"]}, images)


# ---------------------------------------------------------------------------------- what happened


@dataclass(frozen=True)
class Happened:
    """A history of the dataset "out", which holds the row in the end.

    Attributes:
        rest: a table of other rows that it holds.
        secret: what is of the row.
        schema: of the dataset.
    """

    rest: pd.DataFrame
    secret: Secret
    schema: Schema | None = COLUMNS


def convert(rows: pd.DataFrame, **options: Any) -> None:
    tfrecorder.convert(rows, "out", schema=COLUMNS, **{"num_shards": 2, **TOLERANT, **options})


def append(rows: pd.DataFrame, **options: Any) -> None:
    tfrecorder.append(rows, "out", **{**TOLERANT, **options})


def converted() -> Happened:
    rows = table(*plain(0, 1, 2), GONE, *plain(3, 4, 5))
    convert(rows)
    return Happened(rows[rows["image_uri"] != GONE], secret())


def appended() -> Happened:
    convert(table(*plain(0, 1, 2)))
    rows = table(*plain(0, 1, 2, 3), GONE, *plain(4, 5))
    append(rows)
    return Happened(rows[rows["image_uri"] != GONE], secret())


def corrected() -> Happened:
    """Its shard is kept for undo, once with its old values."""
    happened = appended()
    rows = table(GONE, *plain(0)).assign(split=["TEST", "TRAIN"], label=["b", "b"])
    tfrecorder.update(rows.drop(columns="split"), "out", **QUIET)
    return happened


def corrected_beside_it() -> Happened:
    happened = converted()
    tfrecorder.update(happened.rest.assign(label="b"), "out", **QUIET)
    return happened


def with_an_image_read_again() -> Happened:
    old = secret()
    happened = converted()
    Path(GONE).write_bytes(noise(99))
    tfrecorder.update(table(GONE).drop(columns="split"), "out", reread=True, **QUIET)
    images = {"old image": old.images["image"], "image": Path(GONE).read_bytes()}
    return Happened(happened.rest, Secret(old.texts, old.numbers, images))


def moved() -> Happened:
    happened = converted()
    tfrecorder.update(table(GONE).assign(split="VALIDATION"), "out", **QUIET)
    return happened


def update_taken_back() -> Happened:
    happened = corrected()
    tfrecorder.undo("out")
    return happened


def compacted() -> Happened:
    happened = appended()
    tfrecorder.compact("out", num_shards=1, **QUIET)
    return happened


def readmitted() -> Happened:
    happened = appended()
    tfrecorder.remove("out", {"image_uri": GONE}, **QUIET)
    append(table(GONE), readmit=True)
    return happened


def overwritten() -> Happened:
    convert(table(GONE, *plain(8, 9)))
    rows = table(*plain(0, 1), GONE)
    convert(rows, overwrite=True)
    return Happened(rows[:2], secret())


def with_another_abandoned() -> Happened:
    happened = appended()
    tfrecorder.append(table(NEVER), "out", stage_only=True, **TOLERANT)
    tfrecorder.parts.work("out", progress=False)
    tfrecorder.undo("out")
    return happened


def rejected() -> Happened:
    Path(GONE).write_bytes(b"this is the unmistakable content of what is no image at all, " * 3)
    return appended()


def rejected_and_retried() -> Happened:
    good = Path(GONE).read_bytes()
    Path(GONE).write_bytes(b"no image")
    happened = appended()
    Path(GONE).write_bytes(good)
    append(table(GONE), retry_rejects=True)
    return Happened(happened.rest, secret())


def suspected() -> Happened:
    data = noise(50, "JPEG")
    Path(GONE).write_bytes(data[:-2] + b"\0" * 100 + data[-2:])
    happened = appended()
    assert Path(GONE).name in Path("out/suspects.csv").read_text()
    return happened


def same_bytes_noted() -> Happened:
    happened = appended()
    shutil.copy(GONE, "img/copy.png")
    append(table("img/copy.png"))
    return Happened(happened.rest, secret(image=False))


def copies_noted() -> Happened:
    with PIL.Image.open(PHOTOS[3]) as photo:
        image = photo.convert("RGB")
    image.save("photo 7.jpg", quality=90)
    image.resize((image.width // 2, image.height // 2)).save("small 7.jpg", quality=90)
    convert(table("photo 7.jpg", *plain(0, 1)))
    append(table("small 7.jpg", *plain(2)), group_copies=True)
    uri = {"uri": "photo 7.jpg"}
    image_of = {"image": Path("photo 7.jpg").read_bytes()}
    return Happened(table("small 7.jpg", *plain(0, 1, 2)), Secret(uri, {}, image_of))


def on_a_card() -> Happened:
    happened = appended()
    tfrecorder.card("out", progress=False)
    return happened


def in_many_shards() -> Happened:
    """Their rows are merged to be searched."""
    names = [f"img/many {number}.png" for number in range(36)]
    for number, name in enumerate(names):
        Path(name).write_bytes(noise(100 + number))
    rows = table(*names, GONE).assign(split="TRAIN")
    convert(rows, num_shards=36)
    append(rows)
    assert Path("out/_tfrecorder/rows.parquet").exists()
    return Happened(rows[rows["image_uri"] != GONE], secret())


def annotated() -> Happened:
    """With two boxes and a mask an image, the extreme ones on what goes."""
    names = [*plain(0, 1, 2), GONE]
    rows = []
    for number, name in enumerate(names):
        mask = f"img/mask of {Path(name).name}"
        PIL.Image.fromarray(np.full((12, 12), number, np.uint8)).save(mask)
        left = 15 / 128 if name == GONE else 0.25
        rows += [("TRAIN", name, mask, edge, edge, 0.75, 0.75) for edge in (left, 0.5)]
    edges = ["x_min", "y_min", "x_max", "y_max"]
    frame = pd.DataFrame(rows, columns=["split", "image_uri", "mask_uri", *edges])
    kinds = Schema(split=Split(), image_uri=Image(), mask_uri=Mask(), boxes=Boxes(label=None))
    tfrecorder.convert(frame[:4], "out", schema=kinds, **TOLERANT)
    append(frame)
    texts = {"uri": GONE, "mask": f"mask of {Path(GONE).name}"}
    of_row = Secret(texts, {"edge": 15 / 128}, {"image": Path(GONE).read_bytes()})
    return Happened(frame[frame["image_uri"] != GONE], of_row, kinds)


class Feed:
    """Rows with texts as their places."""

    name = "feed"

    def __init__(self, rows: pd.DataFrame, ordered: bool) -> None:
        self._rows, self.ordered, self.base = rows.to_dict("records"), ordered, os.getcwd()

    def rows(self, position: Any) -> Iterator[tuple[Mapping[str, Any], Any]]:
        places = [f"place of {Path(name_of(row['image_uri'])).name}" for row in self._rows]
        first = places.index(position) + 1 if self.ordered and position else 0
        for row, place in [*zip(self._rows, places, strict=True)][first:]:
            if self.ordered or place not in (position or ()):
                yield row, place

    def wait(self, seconds: float) -> None:
        time.sleep(0)


def streamed(ordered: bool = True, last: int = 3) -> Happened:
    rows = table(*plain(0, 1), GONE, *plain(*range(2, last)))
    for end in (2, len(rows)):
        feed = Feed(rows[:end], ordered)
        tfrecorder.stream(feed, "out", schema=COLUMNS, until_idle=0, **QUIET)
    place = f"place of {Path(GONE).name}"
    return Happened(rows[rows["image_uri"] != GONE], secret(place=place))


def streamed_without_order() -> Happened:
    return streamed(ordered=False, last=2)


def streamed_from_a_folder() -> Happened:
    shutil.copytree("img", "in")
    tfrecorder.stream("in", "out", **ONCE)
    place = json.dumps([Path(GONE).name, len(Path(GONE).read_bytes())])[:-1]
    return Happened(in_folder(), Secret({"uri": Path(GONE).name, "place": place}), None)


def in_folder() -> pd.DataFrame:
    """Rows of the folder that a stream read, as a table states them."""
    rows = tfrecorder.to_frame("out")[["split", "image_uri"]]
    rows = rows[rows["image_uri"] != Path(GONE).name]
    return rows.assign(image_uri="in/" + rows["image_uri"])


def manifest_made_again(happened: Happened) -> Happened:
    newest = max(Path("out/_tfrecorder/commits").iterdir())
    newest.unlink()
    tfrecorder.repair("out", progress=False)
    return happened


def folder_made_again() -> Happened:
    shutil.copytree("img", "in")
    os.utime(Path("in", Path(GONE).name))  # it is read last
    tfrecorder.stream("in", "out", **ONCE)
    manifest_made_again(Happened(pd.DataFrame(), Secret()))
    texts = {"uri": Path(GONE).name}
    return Happened(in_folder(), Secret(texts, {}, {"image": Path(GONE).read_bytes()}), None)


def without_order_made_again() -> Happened:
    return manifest_made_again(streamed_without_order())


def everything() -> Happened:
    """Many of these, one after another."""
    Path("img/8.png").write_bytes(b"no image")
    data = noise(50, "JPEG")
    Path("img/9.png").write_bytes(data[:-2] + b"\0" * 100 + data[-2:])
    convert(table(*plain(0, 1, 8)))
    rows = table(*plain(0, 1, 2), GONE, *plain(3, 9))
    append(rows)
    tfrecorder.append(table(NEVER), "out", stage_only=True, **TOLERANT)
    tfrecorder.undo("out")
    shutil.copy(GONE, "img/copy.png")
    append(table("img/copy.png"))
    tfrecorder.card("out", progress=False)
    tfrecorder.update(rows.drop(columns="split").assign(label="b"), "out", **QUIET)
    return Happened(rows[rows["image_uri"] != GONE], secret(image=False))


HISTORIES: list[Callable[[], Happened]] = [
    *(converted, appended, corrected, corrected_beside_it, with_an_image_read_again, moved),
    *(update_taken_back, compacted, readmitted, overwritten, with_another_abandoned, rejected),
    *(rejected_and_retried, suspected, same_bytes_noted, copies_noted, on_a_card, in_many_shards),
    annotated,
    *(streamed, streamed_without_order, streamed_from_a_folder, folder_made_again),
    *(without_order_made_again, everything),
]


# ------------------------------------------------------------------------------- what takes it out


def remove(happened: Happened) -> str:
    tfrecorder.remove("out", {"image_uri": happened.secret.texts["uri"]}, **QUIET)
    return "out"


def remove_elsewhere(happened: Happened) -> str:
    """As on several machines."""
    where = {"image_uri": happened.secret.texts["uri"]}
    tfrecorder.remove("out", where, stage_only=True)
    tfrecorder.parts.work("out", progress=False)
    tfrecorder.parts.commit("out")
    return "out"


def drop(happened: Happened) -> str:
    tfrecorder.compact("out", drop=[happened.secret.texts["uri"]], **QUIET)
    return "out"


def drop_from_a_copy(happened: Happened) -> str:
    tfrecorder.compact("out", "copy", drop=[happened.secret.texts["uri"]], **QUIET)
    return "copy"


def missing(happened: Happened) -> str:
    tfrecorder.update(happened.rest, "out", missing="remove", **TOLERANT)
    return "out"


def overwrite(happened: Happened) -> str:
    schema = happened.schema
    tfrecorder.convert(happened.rest, "out", schema=schema, overwrite="all", **TOLERANT)
    return "out"


REMOVERS = [remove, drop, missing, overwrite]
SLOW = [remove_elsewhere, drop, drop_from_a_copy, overwrite]


def check(out: str, happened: Happened) -> None:
    found = traces(out, happened.secret)
    assert not found, "\n".join(found)
    uris = {*tfrecorder.to_frame(out)["image_uri"]}
    names = {Path(uri).name for uri in uris}
    good = [uri for uri in happened.rest["image_uri"] if uri not in plain(8)]
    assert names >= {Path(uri).name for uri in good}
    assert tfrecorder.verify(out, progress=False).ok


@pytest.mark.parametrize("take_out", [remove, *slow_cases(missing, *SLOW)])
def test_nothing_is_left_after_much_has_happened(take_out: Callable[[Happened], str]) -> None:
    happened = everything()
    assert {of.partition(": ")[2] for of in traces("out", happened.secret)} == {
        *happened.secret.pieces
    }
    check(take_out(happened), happened)
    assert not traces("out", secret(NEVER))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("happen", "take_out"),
    [
        (happen, take_out)
        for at, happen in enumerate(HISTORIES)
        for take_out in whose_turn(at, REMOVERS, 2)
    ],
)
def test_nothing_is_left(
    happen: Callable[[], Happened], take_out: Callable[[Happened], str]
) -> None:
    happened = happen()
    wanted = {*happened.secret.pieces} - ({"image"} if happen is rejected else set())
    assert {of.partition(": ")[2] for of in traces("out", happened.secret)} >= wanted
    check(take_out(happened), happened)


@pytest.mark.slow
def test_nothing_is_left_in_a_bucket(tmp_path: Path) -> None:
    rows = table(*plain(0, 1, 2), GONE, NEVER)
    with bucket() as place:
        tfrecorder.convert(rows, place.out, schema=COLUMNS, **TOLERANT)
        tfrecorder.update(rows.assign(label="b"), place.out, **QUIET)
        write(tmp_path / "before", place.files())
        assert traces(tmp_path / "before", secret())
        tfrecorder.update(rows[rows["image_uri"] != GONE], place.out, missing="remove", **QUIET)
        write(tmp_path / "updated", place.files())
        tfrecorder.remove(place.out, {"image_uri": NEVER}, **QUIET)
        write(tmp_path / "removed", place.files())
    assert not traces(tmp_path / "updated", secret())
    assert not traces(tmp_path / "removed", secret(NEVER))


# ------------------------------------------------------------------------------- what is killed


@contextlib.contextmanager
def refused(error: type[Exception], *words: str) -> Iterator[None]:
    """Nothing, or what is refused in these words."""
    try:
        yield
    except error as raised:
        if not any(part in str(raised) for part in words):
            raise


def the_same(happened: Happened, take_out: Callable[[Happened], str]) -> None:
    """The same call again, which succeeds, whether it ended before or not."""
    take_out(happened)


def another(happened: Happened, take_out: Callable[[Happened], str]) -> None:
    """Another call that writes, unless it is refused because the killed one must come first."""
    with refused(OutputError, "holds an unfinished"):
        append(table(*plain(0)))


def undo(happened: Happened, take_out: Callable[[Happened], str]) -> None:
    with refused(DatasetError, "it was committed", "is not taken back"):
        tfrecorder.undo("out")


def repair(happened: Happened, take_out: Callable[[Happened], str]) -> None:
    tfrecorder.repair("out", progress=False)


CALLS = [the_same, another, undo, repair]


@pytest.mark.slow
@pytest.mark.parametrize("take_out", REMOVERS)
def test_nothing_is_left_by_what_is_killed_at_any_change(
    take_out: Callable[[Happened], str], tmp_path: Path
) -> None:
    disk = Disk(tmp_path)
    happened = everything()
    with disk.recorded() as states:
        take_out(happened)
    ended = 0
    for at, state in enumerate(states, REMOVERS.index(take_out)):
        for call in whose_turn(at, CALLS):
            disk.restore(state)
            call(happened, take_out)
            if GONE in {*tfrecorder.to_frame("out")["image_uri"]}:
                assert call is not the_same
                continue
            ended += 1
            found = traces("out", happened.secret)
            assert not found, "\n".join(found)
    assert ended > 3


# -------------------------------------------------------------------------------- what is given up


def conversion() -> None:
    tfrecorder.convert(table(NEVER), "out", schema=COLUMNS, **TOLERANT)


def append_() -> None:
    tfrecorder.append(table(NEVER, *plain(9)), "out", **TOLERANT)


def update_() -> None:
    tfrecorder.update(table(NEVER, *plain(0)).assign(label="b"), "out", **TOLERANT)


def as_bytes() -> None:
    """It is spooled."""
    cell = {"path": NEVER, "bytes": Path(NEVER).read_bytes()}
    tfrecorder.append(table(NEVER).assign(image_uri=[cell]), "out", **TOLERANT)


def stream() -> None:
    """It is spooled, and its place known."""
    cell = {"path": NEVER, "bytes": Path(NEVER).read_bytes()}
    feed = Feed(table(NEVER).assign(image_uri=[cell]), ordered=True)
    tfrecorder.stream(feed, "out", until_idle=0, **QUIET)


def undone() -> None:
    tfrecorder.undo("out")


def replaced() -> None:
    convert(table(*plain(4, 5)), overwrite="all")


@pytest.mark.slow
@pytest.mark.parametrize("begin", [conversion, append_, update_, as_bytes, stream])
def test_nothing_is_left_of_what_was_given_up(begin: Callable[[], None], tmp_path: Path) -> None:
    """Wherever it was killed before its commit."""
    disk = Disk(tmp_path)
    if begin is not conversion:
        converted()
    with disk.recorded() as states:
        begin()
    given_up = 0
    begun = [state for state in states if "_tfrecorder/plan.json" in state]
    for at, state in enumerate(begun):
        for give_up in whose_turn(at, [undone, replaced]):
            disk.restore(state)
            with refused(DatasetError, "it was committed"):
                give_up()
                given_up += 1
            is_there = Path("out/dataset_info.json").exists()
            if is_there and NEVER in {*tfrecorder.to_frame("out")["image_uri"]}:
                continue  # it was committed
            found = traces("out", secret(NEVER))
            assert not found, "\n".join(found)
    assert given_up > 3


# ------------------------------------------------------------------------------- what comes again


def again_by_append(**options: Any) -> Callable[[pd.DataFrame], Any]:
    return lambda rows: tfrecorder.append(rows, "out", **{**TOLERANT, **options})


def again_by_update(**options: Any) -> Callable[[pd.DataFrame], Any]:
    return lambda rows: tfrecorder.update(rows, "out", **{**TOLERANT, **options})


def again_by_stream(**options: Any) -> Callable[[pd.DataFrame], Any]:
    return lambda rows: tfrecorder.stream(
        Feed(rows, ordered=False), "out", until_idle=0, **{**QUIET, **options}
    )


AGAIN = {
    "append": again_by_append(),
    "content": again_by_append(duplicates="content"),
    "keep": again_by_append(duplicates="keep"),
    "retry": again_by_append(retry_rejects=True),
    "grouped": again_by_append(group_copies=True),
    "update": again_by_update(),
    "missing": again_by_update(missing="remove"),
    "reread": again_by_update(reread=True),
    "stream": again_by_stream(),
    "overwrite": lambda rows: convert_again(rows, overwrite=True),
}


def convert_again(rows: pd.DataFrame, **options: Any) -> Any:
    return tfrecorder.convert(rows, "out", schema=COLUMNS, **TOLERANT, **options)


@pytest.mark.slow
@pytest.mark.parametrize("is_good", [True, False], ids=["record", "reject"])
@pytest.mark.parametrize("again", [*AGAIN])
def test_what_was_removed_stays_out_and_nothing_names_it(again: str, is_good: bool) -> None:
    """Though an image that stays has its bytes."""
    shutil.copy(GONE, "img/copy.png")
    if not is_good:
        Path(GONE).write_bytes(b"no image")
    rows = table(*plain(0, 1, 2), GONE, "img/copy.png")
    convert(rows)
    tfrecorder.remove("out", {"image_uri": GONE}, **QUIET)
    more = pd.concat([rows, table(*plain(9))], ignore_index=True)
    result = AGAIN[again](more)
    assert result.removed >= 1
    found = traces("out", secret(image=False))
    assert not found, "\n".join(found)
    assert {*plain(0, 1, 2, 9)} <= {*tfrecorder.to_frame("out")["image_uri"]}
    assert tfrecorder.verify("out", progress=False).ok


@pytest.mark.slow
@pytest.mark.parametrize("again", [again_by_append, again_by_update, again_by_stream])
def test_what_was_removed_comes_in_if_asked(again: Callable[..., Any]) -> None:
    convert(table(*plain(0, 1, 2), GONE))
    tfrecorder.remove("out", {"image_uri": GONE}, **QUIET)
    again(readmit=True)(table(*plain(0, 1, 2), GONE))
    assert GONE in {*tfrecorder.to_frame("out")["image_uri"]}


@pytest.mark.slow
def test_a_row_without_an_image_may_come_in_again_and_the_result_says_so() -> None:
    rows = table(*plain(0, 1, 2), GONE)[["split", "caption", "age"]]
    schema = Schema(split=Split(), caption=Text(), age=Number())
    tfrecorder.convert(rows, "out", schema=schema, **QUIET)
    would = tfrecorder.remove("out", {"age": 99991.5}, dry_run=True, **QUIET)
    result = tfrecorder.remove("out", {"age": 99991.5}, **QUIET)
    for said in (would, result):
        assert "1 removed row may come in again: it has no image" in str(said)
    of_row = secret()
    assert not traces("out", Secret({"caption": of_row.texts["caption"]}, of_row.numbers))
    assert tfrecorder.append(rows, "out", **QUIET).records == 1


# ---------------------------------------------------------------------------- what is taken back


def appended_last() -> None:
    convert(table(*plain(0, 1, 2)))
    append(table(GONE, *plain(3)))


def appended_with_a_note() -> None:
    convert(table(*plain(0, 1, 2)))
    shutil.copy(plain(0)[0], GONE)
    append(table(GONE, *plain(3)))
    Path(GONE).write_bytes(noise(99))


def updated_last() -> None:
    convert(table(*plain(0, 1, 2)))
    rows = table(*plain(0), GONE).drop(columns="split").assign(label="b")
    tfrecorder.update(rows, "out", **QUIET)


def searched_last() -> None:
    """Its rows are merged, to be searched."""
    names = [f"img/many {number}.png" for number in range(36)]
    for number, name in enumerate(names):
        Path(name).write_bytes(noise(100 + number))
    convert(table(*names).assign(split="TRAIN"), num_shards=36)
    append(table(GONE), duplicates="keep")
    append(table(GONE))  # it is there
    assert Path("out/_tfrecorder/rows.parquet").exists()


def streamed_last() -> None:
    streamed(last=2)


ADDITIONS = [appended_last, appended_with_a_note, updated_last, searched_last, streamed_last]


@pytest.mark.slow
@pytest.mark.parametrize("add", ADDITIONS)
def test_nothing_is_left_of_what_is_taken_back(add: Callable[[], None]) -> None:
    add()
    assert traces("out", secret())
    tfrecorder.undo("out")
    found = traces("out", secret())
    assert not found, "\n".join(found)
    assert tfrecorder.verify("out", progress=False).ok
