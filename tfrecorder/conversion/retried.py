"""`retry_rejects` over a finished dataset: its rows without a record become an addition to it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pyarrow as pa

from tfrecorder.plan.plan import Plan, PlanKind, fingerprint
from tfrecorder.reading.commits import Commit
from tfrecorder.reading.row_lists import rejected_rows
from tfrecorder.schema.fields import from_json
from tfrecorder.schema.keys import SOURCE_ID
from tfrecorder.schema.splits import SPLIT_TYPE


def retried(
    directory: str, newest: Commit, whole: Commit, plan: Plan, planned: pa.Table
) -> tuple[Plan, pa.Table] | None:
    """Of the planned rows of a finished dataset those that are rejects, as a plan that adds them.

    They keep their numbers, their splits, and the classes that the dataset has by now, and get
    shards of the size of the others.  None if no row is a reject.

    Args:
        newest: the newest commit.
        whole: the commit that has all these rows.
    """
    rejected = np.isin(planned.column(SOURCE_ID).to_numpy(), rejected_rows(directory))
    if not rejected.any():
        return None
    splits = np.repeat(list(plan.split_rows), list(plan.split_rows.values()))[rejected]
    counts = {name: int((splits == name).sum()) for name in plan.split_rows}
    split_rows = {name: count for name, count in counts.items() if count}
    shards = whole.manifest["split_shards"]
    some = planned.filter(rejected)
    columns = {name: some.column(name).combine_chunks() for name in some.column_names}
    of_some = dataclasses.replace(
        plan,
        kind=PlanKind.APPEND,
        rows=len(some),
        source_rows=0,  # they were counted before, as in the statistics
        statistics={},
        split_rows=split_rows,
        split_shards={
            name: max(1, shards[name] * count // plan.split_rows[name])
            for name, count in split_rows.items()
        },
        fields=from_json(newest.manifest["fields"]),
        fingerprint=fingerprint(pd.Series(splits, dtype=SPLIT_TYPE), columns),
    )
    return of_some, some
