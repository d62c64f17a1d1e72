"""A worker process of a local run: Beam's own, which does not also print what it tells.

Run as `python -m tfrecorder.runners.local_worker`.  Beam's worker sends the traceback of a failed
step to the launcher and prints it too, on the terminal that they share: 200 lines above the
launcher's one.  What ends the process itself is printed still.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Work until the launcher, whom the environment names, ends it."""
    from apache_beam.runners.worker import sdk_worker, sdk_worker_main

    # In that module alone, where nothing else is printed (apache-beam 2.77, `_execute`).
    vars(sdk_worker)["print"] = lambda *told, **to: None
    sdk_worker_main.main(sys.argv)


if __name__ == "__main__":
    main()
