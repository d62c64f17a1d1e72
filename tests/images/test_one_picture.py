"""One picture, whichever way it is read: files of every kind, by every way to their pixels."""

from __future__ import annotations

import base64
import html
import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers.image_cases import save
from helpers.picture_kinds import HEIGHT, LOSSY, WIDTH, Kind, alpha, kinds
from PIL import Image
from support import rejects

import tfrecorder

#: Half the size, as `short_side=SHORT` makes it.
SHORT = 24
HALF = (SHORT, round(WIDTH * SHORT / HEIGHT))

#: A preview is a JPEG of such a quality.
PREVIEW = 72

#: Pictures by the names of their kinds.
Pictures = dict[str, np.ndarray]


class Sweep:
    """All kinds, converted once, and what is read of them.

    Attributes:
        kinds: by name.
        rejected: the reason of each kind that gave no record.
        stored: the pixels of the others, in colours, as records give them.
    """

    def __init__(self, folder: Path) -> None:
        self.kinds = kinds()
        self.folder = folder
        self.convert("kept", {name: kind.data for name, kind in self.kinds.items()})
        table = rejects(folder / "kept")
        names = [[*self.kinds][row] for row in table["row"]]
        self.rejected = dict(zip(names, table["reason"], strict=True))
        self.stored = self.records("kept")

    def convert(self, out: str, files: dict[str, bytes], **options: object) -> None:
        """A dataset of these files, in which each has its name for a label."""
        frame = pd.DataFrame({"split": "TRAIN", "image_uri": [*files.values()], "label": [*files]})
        tfrecorder.convert(
            frame,
            self.folder / out,
            fingerprints=True,
            max_reject_fraction=1.0,
            num_shards=1,
            progress=False,
            **options,
        )

    def names(self, out: str) -> list[str]:
        return tfrecorder.to_frame(self.folder / out)["label"].tolist()

    def records(self, out: str, **options: object) -> Pictures:
        """The pictures of a dataset, read without TensorFlow."""
        images = [image for image, _ in tfrecorder.Records(self.folder / out, "TRAIN", **options)]
        return dict(zip(self.names(out), images, strict=True))

    def accepted(self) -> dict[str, bytes]:
        return {name: self.kinds[name].data for name in self.stored}

    def differing(
        self,
        found: Pictures,
        allowed: Callable[[Kind], float],
        wanted: Pictures | None = None,
    ) -> set[str]:
        """The kinds whose picture is not there, or lies too far from what is wanted.

        Args:
            allowed: by how many levels, in the mean.
            wanted: by default what records give.
        """
        wanted = self.stored if wanted is None else wanted
        return {
            name
            for name, picture in wanted.items()
            if name not in found
            or found[name].shape != picture.shape
            or apart(found[name], picture) > allowed(self.kinds[name])
        }


def apart(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.abs(one.astype(float) - other).mean())


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return Sweep(tmp_path_factory.mktemp("sweep"))


def of_jpeg(kind: Kind) -> float:
    """Two decoders of JPEG round in different ways."""
    return 1.5 if kind.data.startswith(b"\xff\xd8") else 0


def exactly(kind: Kind) -> float:
    return 0


@pytest.mark.slow
def test_a_kind_is_the_picture_that_it_stands_for(sweep: Sweep) -> None:
    known = {
        name: kind.truth
        for name, kind in sweep.kinds.items()
        if kind.truth is not None and name not in sweep.rejected
    }
    wrong = sweep.differing(sweep.stored, lambda kind: kind.off, known)
    assert wrong == set()


@pytest.mark.slow
def test_a_kind_that_is_no_picture_here_is_rejected_with_its_reason(sweep: Sweep) -> None:
    accepted = {
        name for name, kind in sweep.kinds.items() if kind.is_rejected and name in sweep.stored
    }
    # All of these files are sound, so none is damaged or ends too early.
    poor = {
        name
        for name, reason in sweep.rejected.items()
        if not reason.startswith("unsupported: ") or len(reason) < 40
    }
    assert accepted | poor == set()
    assert len(sweep.stored) > 150


@pytest.mark.slow
def test_no_kind_is_a_suspect(sweep: Sweep) -> None:
    table = rejects(sweep.folder / "kept", "suspects.csv")
    assert {[*sweep.kinds][row] for row in table["row"]} == set()


@pytest.mark.slow
def test_every_reader_gives_what_records_give(sweep: Sweep) -> None:
    size = {"batch_size": 1, "shuffle": False}
    kept = sweep.folder / "kept"
    names = sweep.names("kept")
    batches = [images[0] for images, _ in tfrecorder.batches(kept, "TRAIN", **size)]
    tensors = [image.numpy() for image, _ in tfrecorder.load(kept, "TRAIN", shuffle=False)]
    arrays = dict(zip(names, batches, strict=True))
    assert sweep.differing(arrays, exactly) == set()
    of_graph = dict(zip(names, tensors, strict=True))
    assert sweep.differing(of_graph, of_jpeg) == set()


@pytest.mark.slow
def test_a_kind_that_is_stored_anew_at_its_own_size_is_the_same_picture(sweep: Sweep) -> None:
    upright = {name for name, image in sweep.stored.items() if image.shape[:2] == (HEIGHT, WIDTH)}
    files = {name: data for name, data in sweep.accepted().items() if name in upright}
    wanted = {name: sweep.stored[name] for name in files}
    sweep.convert("raw", files, image_size=(HEIGHT, WIDTH), image_format="raw")
    raw = sweep.records("raw")
    assert sweep.differing(raw, exactly, wanted) == set()
    sweep.convert("png", files, image_format="png")
    assert sweep.differing(sweep.records("png"), exactly, wanted) == set()


@pytest.mark.slow
def test_a_kind_that_is_stored_smaller_is_what_readers_make_of_it(sweep: Sweep) -> None:
    sweep.convert("half", sweep.accepted(), short_side=SHORT)
    wanted = {
        name: picture
        for name, picture in sweep.records("kept", image_size=HALF).items()
        if sweep.stored[name].shape[:2] == (HEIGHT, WIDTH)
    }

    def allowed(kind: Kind) -> float:
        return 1.5 * LOSSY if kind.data.startswith(b"\xff\xd8") else 1

    assert sweep.differing(sweep.records("half"), allowed, wanted) == set()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kinds_of", "channels"), [(r"grey, \d+ bits|pgm", 1), (r"png rgba|tiff rgba(?! with)", 4)]
)
def test_channels_that_all_images_have_are_read_alike(
    sweep: Sweep, kinds_of: str, channels: int
) -> None:
    named = {n: data for n, data in sweep.accepted().items() if re.search(kinds_of, n)}
    out = f"{channels} channels"
    sweep.convert(out, named)
    wanted = {name: sweep.stored[name] for name in named}
    for name in named:
        if channels == 1:
            wanted[name] = wanted[name][:, :, :1]
        else:
            wanted[name] = np.concatenate([wanted[name], alpha()], 2)
    found = sweep.records(out)
    assert found[next(iter(found))].shape[2] == channels
    assert sweep.differing(found, exactly, wanted) == set()
    tensors = tfrecorder.load(sweep.folder / out, "TRAIN", shuffle=False)
    images = [image.numpy() for image, _ in tensors]
    of_graph = dict(zip(sweep.names(out), images, strict=True))
    assert sweep.differing(of_graph, exactly, wanted) == set()
    sweep.convert(f"half of {out}", named, short_side=SHORT)
    smaller = sweep.records(out, image_size=HALF)
    wrong = sweep.differing(sweep.records(f"half of {out}"), lambda kind: 1, smaller)
    assert wrong == set()


#: A picture on a page, and what it shows.
_ON_PAGE = re.compile(r'src="data:image/jpeg;base64,([^"]+)" alt="([^"]+)"')


def pictures_in(page: str, named: str) -> Iterator[tuple[str, np.ndarray]]:
    """The pictures of a page by the names of their kinds, which follow some words."""
    for data, words in _ON_PAGE.findall(page):
        name = re.sub(named, "", html.unescape(words))
        yield name, np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB"))


@pytest.mark.slow
def test_a_preview_shows_the_picture_that_is_read(sweep: Sweep) -> None:
    wanted = {}
    for name, picture in sweep.stored.items():
        data = save(Image.fromarray(picture), "JPEG", quality=PREVIEW)
        wanted[name] = np.asarray(Image.open(io.BytesIO(data)))
    options = {"num_records": 200, "per_split": 200, "progress": False}
    page = tfrecorder.preview(sweep.folder / "kept", **options).page
    shown = dict(pictures_in(page, "TRAIN record [0-9]+: "))
    assert sweep.differing(shown, lambda kind: 1, wanted) == set()
    accepted = sweep.accepted()
    frame = pd.DataFrame({"image_uri": [*accepted.values()], "label": [*accepted]})
    page = frame.tensorflow.preview(num_rows=200)._repr_html_()
    shown = dict(pictures_in(page, "row [0-9]+, label "))
    assert sweep.differing(shown, lambda kind: 1, wanted) == set()


def looks_of(dataset: Path) -> pd.DataFrame:
    """What a dataset knows of how its images look, by label."""
    (table,) = Path(dataset, "_tfrecorder/tables").glob("*.parquet")
    rows = pd.read_parquet(table, dtype_backend="numpy_nullable").set_index("image/class/text")
    names = ["hash", "mean", "deviation"]
    return rows[[f"tfrecorder.source.{name}/image" for name in names]].set_axis(names, axis=1)


@pytest.mark.slow
def test_a_fingerprint_is_that_of_the_picture_that_is_read(sweep: Sweep) -> None:
    stored = sweep.stored.items()
    sweep.convert("pictures", {n: save(Image.fromarray(image), "PNG") for n, image in stored})
    of_kinds, wanted = looks_of(sweep.folder / "kept"), looks_of(sweep.folder / "pictures")
    of_kinds = of_kinds.loc[wanted.index]
    wrong = (of_kinds["mean"] - wanted["mean"]).abs() > 150
    wrong |= (of_kinds["deviation"] - wanted["deviation"]).abs() > 150
    wrong |= of_kinds["hash"].isna()
    hashes = of_kinds["hash"].fillna(0), wanted["hash"]
    for name, one, other in zip(wanted.index, *hashes, strict=True):
        if wanted["deviation"][name] > 200:  # of what is flat the hash is noise
            wrong[name] |= (int(one) ^ int(other)).bit_count() > 6
    assert {*wrong[wrong].index} == set()
