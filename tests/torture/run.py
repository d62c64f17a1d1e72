"""All attacks, long, and the table of what was survived.

    make torture
    PYTHONPATH=tests python -m torture.run --only crashes --kills 500 --seed 7

Ends with exit code 1 if a promise was broken; what broke it then stays in the folder named.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("SOURCE_DATE_EPOCH", "1800000000")  # private files are compared

from torture import (
    agreement,
    control_groups,
    corpora,
    crashes,
    disks,
    expense,
    faults,
    frames,
    fuzzing,
    growing,
    hostile_directories,
    hostile_links,
    hostile_records,
    hostile_streams,
    hostile_tables,
    kills,
    loader_workers,
    losses,
    lost,
    oracle_machine,
    outages,
    places,
    second_day,
    streams,
    topics,
    trainings,
)
from torture.counts import BrokenError, Count, print_table
from torture.material import make_material

#: Rows of the conversions that are killed and disturbed.
ROWS = 3000


def main(arguments: list[str]) -> int:
    options = _options(arguments)
    warnings.simplefilter("ignore")
    folder = Path(tempfile.mkdtemp(prefix="torture-"))
    counts: list[Count] = []
    broken = 0
    for name, attack in _attacks(options, folder).items():
        if options.only and name not in options.only:
            continue
        began = time.monotonic()
        try:
            counts += attack()
        except BrokenError as error:
            broken += 1
            print(f"BROKEN by {name}: {error}", file=sys.stderr)
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    print_table(counts)
    if broken or any(one.lost for one in counts):
        print(f"A promise is broken; see {folder}", file=sys.stderr)
        return 1
    shutil.rmtree(folder)
    return 0


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="torture.run")
    parser.add_argument("--only", action="append", help="one of the attacks; may be repeated")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kills", type=int, default=120)
    parser.add_argument("--often", type=int, default=20, help="full disks and the like")
    parser.add_argument("--mutations", type=int, default=25_000)
    parser.add_argument("--end-to-end", type=int, default=3000, help="of these, also converted")
    parser.add_argument("--trainings", type=int, default=1000, help="killed at any step")
    parser.add_argument("--calls", type=int, default=10_000, help="on datasets, killed or not")
    parser.add_argument("--lives", type=int, default=10_000, help="calls before the oracle")
    parser.add_argument("--files", type=int, default=5000, help="put into a watched folder")
    parser.add_argument("--watch-kills", type=int, default=20, help="of its watcher")
    parser.add_argument("--messages", type=int, default=100_000, help="of a topic of Kafka")
    parser.add_argument("--records", type=int, default=350, help="files of other tools' records")
    parser.add_argument("--share", type=float, default=0.2, help="of the hostile directories")
    return parser.parse_args(arguments)


def _attacks(options: argparse.Namespace, folder: Path) -> dict[str, Callable[[], list[Count]]]:
    """Each kind of attack by the name of its module."""

    def attack_conversions() -> list[Count]:
        material = make_material(folder / "killed", ROWS)
        return crashes.kill(options.kills, material, folder / "rounds", options.seed)

    def attack_disks() -> list[Count]:
        return disks.torment(
            make_material(folder / "disturbed", ROWS), folder / "disks", options.often
        )

    return {
        "crashes": attack_conversions,
        "growing": lambda: growing.grow(folder / "growing"),
        "kills": lambda: kills.kill(folder / "kills"),
        "places": lambda: places.attack(folder / "places", options.often // 4, options.seed),
        "disks": attack_disks,
        "faults": lambda: faults.disturb(options.often, ROWS // 3, folder / "faults", options.seed),
        "oracle": lambda: [oracle_machine.attack(options.lives, options.seed)],
        "outages": lambda: outages.outlast(ROWS // 10),
        "fuzzing": lambda: fuzzing.fuzz(
            options.mutations, folder / "fuzz", options.end_to_end, options.seed * 1000
        ),
        "corpora": lambda: corpora.collect(folder / "corpora"),
        "expense": expense.charge,
        "hostile_tables": lambda: hostile_tables.insult(folder / "hostile"),
        "hostile_streams": lambda: hostile_streams.torment(folder / "hostile_streams"),
        "hostile_records": lambda: hostile_records.feed(
            folder / "records", options.records, options.seed
        ),
        "hostile_directories": lambda: hostile_directories.poison(
            folder / "poison", options.share, options.seed
        ),
        "agreement": lambda: agreement.agree(folder / "agree", options.often, options.seed),
        "control_groups": lambda: control_groups.entangle(
            folder / "groups", options.trainings, options.seed
        ),
        "own_groups": lambda: control_groups.live_in(
            folder / "own", options.often // 2, options.seed
        ),
        "frames": lambda: frames.flatten(folder / "frames", 5 * options.often),
        "loader_workers": lambda: loader_workers.torment(
            folder / "loader_workers", 10 * options.often, options.often
        ),
        "losses": lambda: losses.lose_each(folder / "losses"),
        "lost": lambda: lost.lose(folder / "lost"),
        "shut": lambda: lost.shut(folder / "shut"),
        "refused": lambda: lost.refuse(folder / "refused"),
        "second_day": lambda: [second_day.live(folder / "second_day", options.calls, options.seed)],
        "streams": lambda: streams.torment(folder / "streams", options.files, options.watch_kills),
        "trainings": lambda: trainings.interrupt(
            options.trainings, folder / "trainings", options.seed
        ),
        "topics": lambda: topics.stream_topics(
            folder / "topics", options.messages, options.often, options.seed
        ),
        "hostile_links": lambda: hostile_links.swap(folder / "links", options.often),
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
