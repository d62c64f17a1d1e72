"""`README.md` of a dataset in the form of the Hugging Face Hub, and its pictures."""

from __future__ import annotations

import io
from collections.abc import Sequence

from tfrecorder.display.tables import in_markdown
from tfrecorder.exports.card_fields import CardFields
from tfrecorder.format import layout
from tfrecorder.inspection.gather import Gathered
from tfrecorder.inspection.pictures import SMALL_SIDE, to_jpeg

#: Pictures in a row of the sheet.
_ACROSS = 8


def readme(
    gathered: Gathered, fields: CardFields, name: str, findings: Sequence[str], pictures: bool
) -> str:
    """The page, with the values at its head that the Hub reads.

    Args:
        gathered: what is known of the dataset.
        fields: what people state.
        name: of the dataset.
        findings: what deserves a look.
        pictures: whether there is a sheet of them.
    """
    import yaml

    license = {"license": fields.license} if fields.license else {}
    rows = [{"config_name": "records", "data_files": layout.RECORDS}]
    head = {"pretty_name": name, **license, "tags": ["tfrecord", "croissant"], "configs": rows}
    stated = {"Licence": fields.license, "Homepage": fields.homepage, **(fields.rai or {})}
    stated["Cite"] = fields.citation
    texts = {
        name: "; ".join(text) if isinstance(text, list) else text for name, text in stated.items()
    }
    said = [f"{name}: {text}" for name, text in texts.items() if text is not None]
    parts = [
        f"---\n{yaml.safe_dump(head, sort_keys=False, allow_unicode=True)}---",
        f"# {in_markdown(name)}",
    ]
    if fields.description:
        parts.append(in_markdown(fields.description))
    if pictures:
        parts.append(f"![Random records of each split]({layout.PICTURES})")
    parts += [
        "\n".join(f"- {in_markdown(remark)}" for remark in (*said, *findings)),
        gathered.info.as_markdown(),
        f"[A row a record]({layout.RECORDS}), and [the sum of each file]({layout.CROISSANT}).",
    ]
    return "\n\n".join(parts) + "\n"


def sheet(gathered: Gathered) -> bytes:
    """Random pictures of each split in rows, as one JPEG; empty if there are none."""
    from PIL import Image, ImageOps

    views = [view for of_split in gathered.sheet.values() for view in of_split if view.jpeg]
    if not views:
        return b""
    side = SMALL_SIDE
    across = min(_ACROSS, len(views))
    made = Image.new("RGB", (across * side, -(-len(views) // across) * side), "white")
    for place, view in enumerate(views):
        with Image.open(io.BytesIO(view.jpeg)) as picture:
            row, column = divmod(place, across)
            made.paste(ImageOps.fit(picture, (side, side)), (column * side, row * side))
    return to_jpeg(made)
