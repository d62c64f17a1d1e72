"""The codes of a validation report, by severity; the option `warnings` names some of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tfrecorder.core.option import spelled

ERROR = "error"
WARNING = "warning"
#: Good to know, and possibly intended.
NOTE = "note"

SEVERITIES = (ERROR, WARNING, NOTE)

#: The remedy for each reason code, by severity; `remedy_of` words it.
REMEDIES = {
    ERROR: {
        "missing_column": "If another column is it, rename that: {rename}. If none is, give a "
        "schema, which names the source's own columns and may do without an image (`tfrecorder "
        "schema` suggests one), or drop what only looks like it.",
        "empty_frame": "Give at least one row.",
        "repeated_heading": "Remove it: files were joined into one. Several may be given as they "
        "are, as a list.",
        "null_uri": "Drop the row or give its image.",
        "null_label": "Label the row or drop it. To keep rows without a class, give "
        "`Label(required=False)` in a schema; for a dataset without labels, leave out the column. "
        "Only TEST may lack all its labels.",
        "unknown_split": "Use TRAIN, VALIDATION, TEST or UNASSIGNED.",
        "not_text": "Drop the row, or give its image: a path or uri, the bytes of its file, or a "
        "Pillow image.",
        "bad_text": "Correct the text, or rename the file, so that it is valid Unicode.",
        "unsupported_scheme": "Copy the images to a disk or a bucket, and give their paths there.",
        "mixed_label_types": "Make all labels text or all integers.",
        "unsupported_label": "Make the labels text or integers.",
        "negative_label": "Number the classes from 0. If the number means no label, leave the cell "
        "empty, and give `Label(required=False)` in a schema; or drop the row.",
        "reserved_label": "Number the classes from 1, or rename the class. If the box is around "
        "nothing, drop it.",
        "unknown_label": "Add it to the class names of the schema, or correct the row.",
        "missing_value": "Give the value, drop the row, or set a default in the schema: "
        "`default=…`.",
        "wrong_value": "Correct the value, or give the column another kind.",
        "bad_box": "Correct the box or drop its row.",
        "conflicting_rows": "Rows with boxes of one image must agree in every other column: "
        "correct or drop one.",
        "no_strata": "Leave {stratify} out, or give each row one label.",
        "other_columns": "Give the columns of the dataset, of the same kinds.",
        "unusable_image": "Fix or drop the image; a conversion lists it as a reject, or stops if "
        "most cannot be read.",
        "box_outside": "Correct the box or drop it; a conversion would list its image as a reject.",
        "no_annotations": "Put the files where they are looked for, or leave the split out. If the "
        "images show no objects, give each an empty label file or an XML without objects.",
        "bad_annotation": "Correct the file of annotations, or drop the object from it.",
    },
    WARNING: {
        "rounded_number": "Numbers with a fraction are float32, exact only up to 16,777,216. Give "
        "the column the dtype int64 if its numbers are whole; or store the difference from the "
        "first, or text.",
        "no_train": "Assign rows to TRAIN, or leave the splits out for 80/10/10.",
        "empty_split": "Give it a larger share, try another seed, or assign rows to it.",
        "splits_ignored": "Leave that out, or drop the split column to divide all rows.",
        "leakage": "Keep each image in one split; otherwise the evaluation looks too good.",
        "near_leakage": "Keep near copies in one split, as {group_copies} does for rows "
        "without one; otherwise the evaluation looks too good.",
        "near_copy": "Drop one of them, or it counts nearly twice.",
        "exact_leakage": "Keep it in one split; otherwise the evaluation looks too good.",
        "exact_copy": "Drop one of them, or it counts twice.",
        "duplicate_row": "Drop it, or it counts twice.",
        "conflicting_labels": "Keep one label for each image.",
        "similar_labels": "If they are one class, spell it the same way everywhere.",
        "text_among_integers": "Correct it if the classes are integers. If it means no label, "
        "leave the cell empty, and give `Label(required=False)` in a schema.",
        "padded_labels": "Remove the white space around them, or do nothing if it is meant.",
        "label_gaps": "Number the classes from 0 without gaps, or make them text.",
        "label_not_in_train": "Add training images of it, or drop the label.",
        "column_left_out": "If you do not need it, do nothing: it does not become a feature. To "
        "keep it, give a schema (`tfrecorder schema` suggests one).",
        "empty_box": "It is left out. Correct the box, if there is an object.",
        "repeated_box": "Drop one of them from the file of annotations.",
        "missing_annotations": "Fine if these images show no objects. Otherwise put the files "
        "where they are looked for.",
        "annotations_without_image": "Put the images there if you want them; the objects in these "
        "files are left out.",
        "other_file_name": "The image with the name of the XML file is taken. If `<filename>` is "
        "right, rename the files.",
        "listed_twice": "They make one record, which has the objects of both. If they are two "
        "images, correct the names.",
        "not_decoded": "Save the file as UTF-8; a conversion would list its image as a reject.",
        "new_class": "Correct the label if it is a mistake. If not, do nothing, or give "
        "{new_classes}.",
        "fraction_boxes": "All boxes of a source have one unit. If these are fractions, multiply "
        "them by the width and height of their images.",
        "orientation_unsaid": "Give `upright=True` to `Boxes` or `Mask` in a schema if they were "
        "drawn on the picture as one sees it; `upright=False` if they are right.",
        "same_bytes_leakage": "Put it into the split of the other, or drop it; `append` does with "
        "{by_content}.",
        "same_bytes": "Drop it, or it counts twice; `append` does with {by_content}.{moved}",
        "near_there_leakage": "Put it into the split of the other, as {group_copies} does for "
        "rows without one.",
        "near_there": "Leave it out, or it counts nearly twice.",
        "other_values": "`update` corrects the dataset; {kept} adds a further record.",
    },
    NOTE: {
        "too_alike": "Fine for drawings and digits. Near copies of such images are not found.",
        "not_compared": "Fine if none of them is a copy. {fingerprints} of a conversion sees them.",
        "not_seen": "Fine if training may do without; {exif} of a conversion turns images.",
        "suspect_image": "Look at it: it may be cut off or damaged. {strict} rejects it.",
        "scaled_boxes": "Fine if the images were resized after they were annotated.",
        "image_again": "Fine if both are right. Otherwise keep one of these rows.",
        "few_images": "Fine for a trial. To train on it, add images, or merge it with another "
        "label.",
        "same_bytes_skipped": "{by_name} adds it all the same.",
    },
}

#: Every reason code: its severity and its remedy.
CODES = {
    code: (severity, remedy)
    for severity, remedies in REMEDIES.items()
    for code, remedy in remedies.items()
}


def remedy_of(
    code: str,
    values: Sequence[Any],
    renames: Mapping[str, str],
) -> str:
    """What to do about the findings of a code in a column, which are the same for each value."""
    # Not by `storage`, whose errors lead back here.
    is_relative = any("://" not in uri and uri[:1] != "/" for uri in map(str, values))
    moved = f" If the files only moved, give the folder where they were as {spelled('base')}."
    return CODES[code][1].format(
        rename=spelled("columns", renames, f"frame.rename(columns={renames})"),
        moved=moved if is_relative else "",
        exif=spelled("apply_exif", True),
        strict=spelled("check", "strict"),
        fingerprints=spelled("fingerprints", True),
        by_content=spelled("duplicates", "content"),
        by_name=spelled("duplicates", "name"),
        group_copies=spelled("group_copies", True),
        kept=spelled("duplicates", "keep"),
        new_classes=spelled("new_classes", "allow"),
        stratify=spelled("stratify", True),
    )
