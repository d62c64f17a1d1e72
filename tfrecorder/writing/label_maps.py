"""Label maps: class names of boxes for the tools that number classes from 1."""

from __future__ import annotations

from tfrecorder.format import layout
from tfrecorder.plan.plan import Plan
from tfrecorder.schema.labels import to_label_map_csv, to_label_map_pbtxt


def label_maps(plan: Plan) -> dict[str, bytes]:
    """`label_map.csv` and `label_map.pbtxt`; none unless class 0 is reserved for the background."""
    names = plan.label_map
    if not names:
        return {}
    return {
        layout.LABEL_MAP_CSV: to_label_map_csv(names).encode(),
        layout.LABEL_MAP_PBTXT: to_label_map_pbtxt(names).encode(),
    }
