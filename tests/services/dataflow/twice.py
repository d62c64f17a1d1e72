"""Beam's own runner as a service that gives workers up for lost, while they go on."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

from apache_beam.runners.portability.fn_api_runner import fn_runner


class Twice(fn_runner.FnApiRunner):
    """Every bundle is run twice, both at the same time, and what one of them says is dropped.

    So shards are written by two attempts that overlap and end in either order, in one process or in
    two, and the dataset is committed twice.
    """

    def __init__(self, processes: int) -> None:
        super().__init__()
        self._num_workers = processes  # which it reads only of pipelines that it makes itself

    def _run_bundle_multiple_times_for_testing(
        self,
        context: Any,
        manager: Any,
        inputs: Any,
        outputs: Any,
        timers: Any,
        timers_out: Any,
    ) -> None:
        """Where Beam repeats a bundle to find what may not be repeated: one after the other."""
        workers = manager.bundle_context_manager.num_workers
        parts: list[dict[str, Any]] = [{} for _ in range(workers)]
        for name, found in inputs.items():
            for at, part in enumerate(found.partition(workers)):
                parts[at][name] = part

        def twin(part: dict[str, Any]) -> None:
            one = fn_runner.BundleManager(manager.bundle_context_manager)
            with contextlib.suppress(Exception):  # the job may end before it
                one.process_bundle(part, outputs, {}, timers_out, dry_run=True)

        for part in parts:
            threading.Thread(target=twin, args=(part,), daemon=True).start()
