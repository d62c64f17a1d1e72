"""A conversion that is planned here and written by any number of machines, without Beam."""

from __future__ import annotations

import dataclasses
import os
from typing import IO, TYPE_CHECKING, Any

from tfrecorder import storage
from tfrecorder.conversion.prepare import prepare, warn_of_escapes
from tfrecorder.conversion.table import read_and_check, warn_of_source
from tfrecorder.errors import OptionError
from tfrecorder.options.convert import NOT_STAGED, ConvertOptions
from tfrecorder.plan.directory import claim, refuse_nested
from tfrecorder.plan.output_path import output_path
from tfrecorder.validation.report import count_warnings
from tfrecorder.writing.status import ConversionStatus, status

if TYPE_CHECKING:
    import pandas as pd
    from datasets import Dataset, DatasetDict


def stage(
    source: pd.DataFrame | Dataset | DatasetDict | str | os.PathLike[str] | IO[Any],
    output_dir: str | os.PathLike[str],
    **options: Any,
) -> ConversionStatus:
    """Check a table and plan its shards, for any number of machines to write without Beam.

    Then call `tfrecorder.work` on each machine, and `tfrecorder.commit` once all are done.  The
    dataset has the same bytes as one written by `tfrecorder.convert`.  To continue a staged
    conversion that was not finished, repeat the call.

    Args:
        source: as for `tfrecorder.convert`.
        output_dir: as for `tfrecorder.convert`; all machines must see it under this path, and the
            images under theirs.
        **options: those of `tfrecorder.ConvertOptions` that decide what is written.  on_error,
            num_threads and progress are options of `work`, max_reject_fraction of `commit`.

    Returns:
        What is planned and how much of it is done, as `tfrecorder.status` returns it.

    Raises:
        TfrecorderError: what `tfrecorder.convert` raises before its launch.

    Example:
        >>> tfrecorder.stage("flowers.csv", "out", num_shards=64)  # doctest: +SKIP
        >>> tfrecorder.work("out", part=(1, 2))                    # doctest: +SKIP
        >>> tfrecorder.work("out", part=(2, 2))                    # doctest: +SKIP
        >>> tfrecorder.commit("out")                               # doctest: +SKIP
    """
    for name in options:
        if name in NOT_STAGED:
            raise OptionError(f"{name}={options[name]!r}: {NOT_STAGED[name]}.")
    chosen = ConvertOptions.of(options)
    path = output_path(output_dir, chosen)
    where = storage.absolute(path)
    refuse_nested(where, chosen)
    table, checked, report = read_and_check(source, where, chosen, lambda stage: None)
    warn_of_source(count_warnings(report), source, chosen)
    with claim(where):
        prepared = prepare(where, table, checked, chosen)
        if prepared is not None:
            warn_of_escapes(prepared.plan)
    return dataclasses.replace(status(where), output_dir=path)
