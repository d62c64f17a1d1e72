"""A worker process of a local run: `python -m tfrecorder.runners.local_worker`."""

from __future__ import annotations

import sys

from tfrecorder.runners.beam_patches import silent_worker


def main() -> None:
    """Work until the launcher ends it; Beam names the launcher in the environment."""
    from apache_beam.runners.worker import sdk_worker_main

    silent_worker()
    sdk_worker_main.main(sys.argv)


if __name__ == "__main__":
    main()
