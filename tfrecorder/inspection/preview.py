"""`preview`: a page that shows a dataset, to look at before you trust it.

It is one HTML file that needs no network, no script and no other file.  A frame that is not
converted yet shows some of its images in a notebook.
"""

from __future__ import annotations

import html as markup
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from tfrecorder import storage
from tfrecorder.core.option import Whole
from tfrecorder.core.threads import ThreadPool, map_ahead
from tfrecorder.display.bars import is_shown, record_bar
from tfrecorder.display.tables import Report, Table, counted, one_line, readable_bytes
from tfrecorder.errors import OutputError, SourceError
from tfrecorder.format import layout
from tfrecorder.images.check import check_image, read_image
from tfrecorder.images.header import DEFAULT_MAX_PIXELS, Reject
from tfrecorder.images.near_copies import Copies
from tfrecorder.inspection.findings import Remark, find
from tfrecorder.inspection.gather import SHOWN_GROUPS, Gathered, gather
from tfrecorder.inspection.record_values import (
    SMALL_SIDE,
    Box,
    RecordView,
    read_picture,
    to_jpeg,
)
from tfrecorder.inspection.rendering import Format, Plot, histogram, render
from tfrecorder.inspection.sheets import NEIGHBOURS
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.options.keywords import Path, PreviewKeywords, Unpack
from tfrecorder.options.option import require, takes
from tfrecorder.options.read import PreviewOptions
from tfrecorder.plan.make_plan import sample_rows
from tfrecorder.reading.info import info
from tfrecorder.reading.record_set import open_stored
from tfrecorder.schema.keys import LABEL_COLUMN, SPLIT_COLUMN, URI_COLUMN
from tfrecorder.sources.cells import CellFault, File, file_in, name_of
from tfrecorder.sources.source import read_table
from tfrecorder.sources.table import Source
from tfrecorder.storage.local import local_path, write_whole
from tfrecorder.version import __version__

if TYPE_CHECKING:
    import numpy.typing as npt

#: The first line of every page; a file that does not start with it is not ours, and is not
#: replaced.
MARK = "<!doctype html><!-- tfrecorder preview -->\n"

#: How many images that cannot be shown are listed with their reasons.
_SHOWN_FAULTS = 20

#: Pictures of a split that are visible without a click.
_AT_ONCE = 8

#: Beyond the first number the most frequent classes come first, and only these can be chosen or
#: have a colour in the legend; beyond the second, the rest are left out.
MANY_CLASSES = 30
SHOWN_CLASSES = 2000

#: The title of each plot, its value, how one is written at its axis, and the axis's range.
Span = tuple[float, float] | None
_SHARE: Format = "{:.2g}".format
_PLOTS: Sequence[tuple[str, Callable[[RecordView], float], Format, Span]] = (
    ("Shorter side in pixels", lambda view: min(view.width, view.height), "{:,.0f}".format, None),
    ("Longer side in pixels", lambda view: max(view.width, view.height), "{:,.0f}".format, None),
    ("Aspect: width ÷ height", lambda view: view.width / view.height, "{:.3g}".format, None),
    ("File size in kB", lambda view: view.size / 1000, "{:,.4g}".format, None),
    ("Brightness: mean grey level", lambda view: view.brightness, "{:.0f}".format, (0, 255)),
    ("Contrast: deviation of grey levels", lambda view: view.contrast, "{:.0f}".format, (0, 128)),
)

#: The same of boxes.
_BOX_PLOTS: Sequence[tuple[str, Callable[[RecordView, Box], float], Format, Span]] = (
    ("Area: share of the picture", lambda view, box: box.area, "{:.3g}".format, None),
    ("Aspect: width ÷ height", lambda view, box: _aspect(view, box), "{:.3g}".format, None),
    ("Middle, from left to right", lambda view, box: _middle(box.xmin, box.xmax), _SHARE, (0, 1)),
    ("Middle, from top to bottom", lambda view, box: _middle(box.ymin, box.ymax), _SHARE, (0, 1)),
)

#: The height of the page in a notebook, in pixels.
_NOTEBOOK_HEIGHT = 720

MOST_ROWS = 200


@dataclass(frozen=True, repr=False)
class Preview(Report):
    """A page that shows a dataset; in a notebook it shows itself.

    Attributes:
        directory: the dataset's directory.
        html: the path that the page was written to, or None.
        page: the page itself.
        records: how many records the dataset has.
        looked_at: how many records were looked at.
        undecodable: how many of these have no image that can be decoded.
        compared: how many records were compared with each other to find duplicates.
        leaks: images that are in more than one split.
        repeats: images that occur more than once in one split, whether they are in others or not.
        copies: how many records are copies of earlier ones.
        near_constant: how many images have nearly one grey level, of all that are known to.
        findings: what deserves a look, a sentence each.
        sampling: a sentence that says how many records were looked at.
    """

    directory: str
    html: str | None
    page: str = field(repr=False)
    records: int
    looked_at: int
    compared: int
    leaks: int
    repeats: int
    copies: Copies
    undecodable: int
    near_constant: int
    findings: Sequence[str]
    sampling: str

    def _headline(self) -> str:
        size = readable_bytes(len(self.page.encode()))
        return f"{self.html} ({size})" if self.html else f"a page of {size}"

    def _notes(self) -> list[str]:
        compared = f"compared: {self.compared:,} of {counted(self.records, 'record')} by content"
        return [self.sampling, compared, *self.findings]

    def _repr_html_(self) -> str:
        page = markup.escape(self.page)
        style = f"width:100%;height:{_NOTEBOOK_HEIGHT}px;border:1px solid #8884;border-radius:8px"
        title = markup.escape(f"Preview of {self.directory}")
        return f'<iframe title="{title}" srcdoc="{page}" style="{style}" sandbox></iframe>'


@takes(PreviewKeywords, PreviewOptions)
def preview(
    directory: Path,
    html: Path | None = None,
    suspects: pd.DataFrame | None = None,
    embeddings: npt.ArrayLike | pd.DataFrame | None = None,
    **options: Unpack[PreviewKeywords],
) -> Preview:
    """Make a page that shows a dataset: one HTML file that works offline and on its own.

    It shows random records of each split with their labels, boxes and masks, the distribution of
    labels, plots of sizes and brightness, near-constant images, images that occur more than once or
    in several splits, rejects with their reasons, and the options.  It needs neither TensorFlow nor
    Beam.

    Args:
        directory: the output of a conversion, a TFDS directory of one version, or a pattern of
            TFRecord files.
        html: the file to write; an earlier page there is replaced.  With None nothing is written,
            and the result shows itself in a notebook.
        suspects: labels to show that a model doubts, as `tfrecorder.suspects` gives them.
        embeddings: what a network of yours makes of the pictures, to compare these by it: numbers,
            a row for each record in the order of `to_frame`.  Or a frame whose column or index
            `row` has the number of each row; records that it lacks are not compared.
        **options: what to look at.

    Returns:
        The page, with its main figures.

    Raises:
        OptionError: an argument is wrong.
        OutputError: `html` cannot be written, is inside the dataset, or is another file.
        DatasetError: the directory is not a whole dataset, or is damaged.

    Example:
        >>> tfrecorder.preview("out", html="report.html")  # doctest: +SKIP
    """
    chosen = PreviewOptions.of(options)
    target = None if html is None else _target(html, directory)
    stored = open_stored(directory, chosen.at, chosen.keys)
    with record_bar(is_shown(chosen.progress)) as stage:
        gathered = gather(
            stored,
            info(directory, chosen.at, *chosen.keys),
            chosen,
            stage,
            suspects=suspects,
            embeddings=embeddings,
        )
    findings = find(gathered)
    page = render_page(gathered, findings)
    if target is not None:
        write_whole(target, page.encode())
    duplicates = gathered.duplicates
    return Preview(
        directory=storage.given_path(directory),
        html=target,
        page=page,
        records=duplicates.records,
        looked_at=len(gathered.all_seen),
        compared=sum(duplicates.compared.values()),
        leaks=len(duplicates.leaks),
        repeats=len(duplicates.repeats),
        copies=(gathered.near or duplicates).counts,
        undecodable=len(gathered.unshown),
        near_constant=gathered.constants,
        findings=[f"{remark.severity}: {remark.text}" for remark in findings],
        sampling=looked_at(gathered),
    )


def _target(html: Path, directory: Path) -> str:
    """The file to write; refused before any work if writing it would do harm."""
    path = local_path("html", html)
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise OutputError(f"{folder}: there is no such folder; create it, or write elsewhere.")
    if os.path.isdir(path):
        raise OutputError(f"{path} is a folder; give a file, such as {path}/preview.html.")
    where = os.path.realpath(folder)
    dataset = os.path.realpath(storage.given_path(directory))
    private = os.path.join(dataset, layout.PRIVATE, "")
    if where == dataset or os.path.join(where, "").startswith(private):
        raise OutputError(
            f"{path} is inside the dataset, which holds only its own files; write the page "
            "next to it."
        )
    if os.path.exists(path) and not _is_preview(path):
        raise OutputError(f"{path} already exists, and is not a preview; give another name.")
    return path


def _is_preview(path: str) -> bool:
    try:
        return storage.read_bytes(path).startswith(MARK.encode())
    except storage.UnreadableError as error:
        raise OutputError(f"{path} already exists, but cannot be read: {error}.") from error


def render_page(gathered: Gathered, findings: Sequence[Remark]) -> str:
    """The whole page; `templates/page.html.jinja` lays it out."""
    sections = section_titles(gathered)
    usable = shown_by_split(gathered)
    body = render(
        "page.html.jinja",
        version=__version__,
        name=_name(gathered.info.directory),
        gathered=gathered,
        info=gathered.info,
        sampling=looked_at(gathered),
        findings=findings,
        filters=filters(gathered, findings),
        many=MANY_CLASSES,
        sections=sections,
        classes=class_table(gathered) if "labels" in sections else None,
        plotted=list(usable),
        plots=image_plots(usable) if usable else [],
        box_plots=box_plots(usable),
        unshown=gathered.unshown,
        at_once=_AT_ONCE,
        neighbours=NEIGHBOURS,
        shown_faults=_SHOWN_FAULTS,
        shown_groups=SHOWN_GROUPS,
        rejects_file=layout.REJECTS,
        suspects_file=layout.SUSPECTS,
    )
    return f"{MARK}{body}\n"


def filters(gathered: Gathered, findings: Sequence[Remark]) -> dict[str, Any]:
    """What the pictures of the page are filtered by; `macros.html.jinja` says which fit a picture.

    `choices` are by title, `places` those of the records of each finding, and `next` numbers the
    pictures.  The style sheet selects by numbers: a name of the data may hold anything.
    """
    places: dict[str, set[object]] = {}
    for remark in findings:
        if remark.kind:
            places.setdefault(remark.kind, set()).update(one[:2] for one in remark.found)
    classes = class_table(gathered)["names"][:MANY_CLASSES]
    choices = {"Class": classes, "Split": [*gathered.info.splits], "Finding": [*places]}
    return {"choices": choices, "places": places, "next": itertools.count(1).__next__}


def section_titles(gathered: Gathered) -> dict[str, str]:
    """The sections that have something to show, in the order of the page; each has a template."""
    own = gathered.rejects is not None and gathered.suspects is not None
    titles = {
        "splits": "Splits",
        "labels": "Labels" if gathered.class_totals else None,
        "suspects": "Labels that a model doubts" if gathered.suspects_by_model else None,
        "sheets": "Classes side by side" if gathered.sheets else None,
        "records": "Records",
        "images": "Images" if gathered.usable or gathered.unshown else None,
        "boxes": "Boxes" if gathered.boxes else None,
        "duplicates": "Duplicates and leakage",
        "rejects": "Rejects" if own else None,
        "options": "Options of the conversion" if gathered.info.options else None,
    }
    return {key: title for key, title in titles.items() if title}


def class_table(gathered: Gathered) -> dict[str, Any]:
    """Records by class and split: what the section shows beyond the counts.

    `names` are the classes that are shown; if there are many, `by_total` is true and the most
    frequent come first.  `records` are those of each split, `most` is the largest share of a class
    in a split, 0 to 1.
    """
    totals = gathered.class_totals
    by_total = len(totals) > MANY_CLASSES
    names = sorted(totals, key=lambda name: -totals[name]) if by_total else list(totals)
    counts = gathered.class_counts
    records = {split: sum(in_split.values()) for split, in_split in counts.items()}
    shares = [count / records[of] for of in counts for count in counts[of].values() if count]
    most = max(shares, default=1)
    shown = names[:SHOWN_CLASSES]
    return {
        "names": shown,
        "by_total": by_total,
        "records": records,
        "totals": totals,
        "most": most,
    }


def shown_by_split(gathered: Gathered) -> dict[str, list[RecordView]]:
    """The decoded records whose image can be shown, for each split that has any."""
    usable: dict[str, list[RecordView]] = {}
    for view in gathered.usable:
        usable.setdefault(view.split, []).append(view)
    return usable


def image_plots(seen: Mapping[str, Sequence[RecordView]]) -> list[Plot]:
    """Sizes, aspect ratio and grey levels of each split's images."""
    return [
        histogram(
            {split: list(map(value, views)) for split, views in seen.items()},
            form,
            title,
            span,
        )
        for title, value, form, span in _PLOTS
    ]


def box_plots(seen: Mapping[str, Sequence[RecordView]]) -> list[Plot]:
    """Areas, aspects and places of each split's boxes; none if there are no boxes."""
    pairs = {}
    for split, views in seen.items():
        if of_split := [(view, box) for view in views for box in view.boxes]:
            pairs[split] = of_split
    plots = []
    for title, value, form, span in _BOX_PLOTS if pairs else ():
        series = {split: [value(*pair) for pair in of_split] for split, of_split in pairs.items()}
        plots.append(histogram(series, form, title, span))
    return plots


def _aspect(view: RecordView, box: Box) -> float:
    height = (box.ymax - box.ymin) * view.height
    return (box.xmax - box.xmin) * view.width / height if height > 0 else 0.0


def _middle(low: float, high: float) -> float:
    return (low + high) / 2


def _name(directory: str) -> str:
    return os.path.basename(os.path.normpath(directory)) or directory


def looked_at(gathered: Gathered) -> str:
    """A sentence that says how many records the page is made from."""
    seen = len(gathered.all_seen)
    records = gathered.info.records or 0
    if seen == records:
        return f"Pictures and plots cover all {counted(records, 'record')}."
    each = ", ".join(
        f"{len(of_split):,} of {gathered.info.splits[split].records or 0:,} in {split}"
        for split, of_split in gathered.seen.items()
    )
    return (
        f"Sampled: pictures and plots cover {counted(seen, 'record')}, drawn at random "
        f"from {records:,} (seed {gathered.seed}): {each}."
    )


@dataclass(frozen=True)
class FrameRow:
    """One row of a frame.

    Attributes:
        row: its number, from 0.
        split, label, image_uri: as the frame gives them, as text.
        width, height: of the image; 0 if it cannot be shown.
        jpeg: a small picture; empty if it cannot be shown.
        fault: why it cannot be shown.
    """

    row: int
    split: str
    label: str
    image_uri: str
    width: int = 0
    height: int = 0
    jpeg: bytes = field(default=b"", repr=False)
    fault: str = ""


@dataclass(frozen=True, repr=False)
class FramePreview(Report):
    """Some images of a frame, which a notebook shows.

    Attributes:
        rows: the rows that are shown.
        total: the number of rows in the frame.
    """

    rows: tuple[FrameRow, ...]
    total: int

    def _tables(self) -> list[Table]:
        table = [["row", "split", "label", "size", "image"]]
        for row in self.rows:
            size = row.fault or f"{row.width} x {row.height}"
            cells = map(one_line, (row.split, row.label, size))
            table.append([str(row.row), *cells, one_line(row.image_uri, 80)])
        return [Table(table)]

    def _repr_html_(self) -> str:
        return render("frame.html.jinja", headline=self._headline(), rows=self.rows)

    def _headline(self) -> str:
        if len(self.rows) == self.total:
            return f"all {counted(self.total, 'row')}"
        return f"{len(self.rows):,} of {counted(self.total, 'row')}, drawn at random"


def preview_frame(
    frame: pd.DataFrame,
    num_rows: int = 24,
    *,
    seed: int = 0,
    base: Path | None = None,
) -> FramePreview:
    """Random images of a frame with their labels, before a conversion.

    Args:
        frame: has the column image_uri and, if known, split and label.
        num_rows: how many images, at most.
        seed: for the random choice.
        base: the folder of relative paths; None is the current one.

    Returns:
        A value that shows itself in a notebook, and as a table when printed.  If an image cannot be
        shown, the reason is in its place.

    Raises:
        OptionError: an argument is wrong.
        SourceError: the frame has no column image_uri.

    Example:
        >>> df.tensorflow.preview()  # doctest: +SKIP
    """
    require(Whole(1, MOST_ROWS), num_rows=num_rows)
    require(Whole(0), seed=seed)
    source = read_table(frame, ConvertOptions.of({} if base is None else {"base": base}))
    if URI_COLUMN not in source.frame:
        raise SourceError(
            f"the frame has no column {URI_COLUMN!r}; rename the column of the images: "
            f"`frame.rename(columns={{'path': '{URI_COLUMN}'}})`."
        )
    rows = sample_rows(len(source.frame), num_rows, seed).tolist()
    with ThreadPool() as pool:
        shown = tuple(map_ahead(pool, lambda row: _read_row(source, row), rows, ahead=8))
    return FramePreview(shown, len(source.frame))


def _read_row(source: Source, row: int) -> FrameRow:
    split, label = (
        _cell_text(source.frame[name].iloc[row]) if name in source.frame else ""
        for name in (SPLIT_COLUMN, LABEL_COLUMN)
    )
    cell = file_in(source.frame[URI_COLUMN].iloc[row])
    if isinstance(cell, CellFault):
        return FrameRow(row, split, label, cell.shown, fault=cell.reason)
    uri = cell.name or name_of(cell.data) if isinstance(cell, File) else _cell_text(cell)
    shown = FrameRow(row, split, label, storage.unsigned(uri))
    if not uri:
        return replace(shown, fault="the image is missing")
    try:
        data = cell.data if isinstance(cell, File) else read_image(uri, source.base)[0]
        image = check_image(data, "header", DEFAULT_MAX_PIXELS)
        pixels, (width, height) = read_picture(image.data, SMALL_SIDE)
    except (Reject, ValueError) as error:
        return replace(shown, fault=str(error))
    return replace(
        shown,
        width=width,
        height=height,
        jpeg=to_jpeg(pixels),
    )


def _cell_text(value: Any) -> str:
    return "" if pd.api.types.is_scalar(value) and pd.isna(value) else str(value)
