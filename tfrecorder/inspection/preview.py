"""`preview`: a page that shows a dataset, to look at before you trust it."""

from __future__ import annotations

import html as markup
import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from tfrecorder import storage
from tfrecorder.display.bars import is_shown, record_bar
from tfrecorder.display.tables import Report, counted, readable_bytes
from tfrecorder.errors import OutputError
from tfrecorder.format import layout
from tfrecorder.inspection.findings import find
from tfrecorder.inspection.gather import gather
from tfrecorder.inspection.page import MARK, looked_at, render_page
from tfrecorder.options.keywords import Path, PreviewKeywords, Unpack
from tfrecorder.options.option import takes
from tfrecorder.options.preview import PreviewOptions
from tfrecorder.reading.info import info
from tfrecorder.reading.stored_records import open_stored
from tfrecorder.storage.local import local_path, write_whole

#: The height of the page in a notebook, in pixels.
_NOTEBOOK_HEIGHT = 720


@dataclass(frozen=True)
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
        gathered = gather(stored, info(directory, chosen.at, *chosen.keys), chosen, stage)
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
