"""Draws what the benchmarks measured: results/*.json -> docs/plots/*.svg.

    plots.py [--results DIR] [--out DIR] [--png] [NAME ...]

A plot whose results are not there is skipped with a word.  The same results give the same bytes.
Needs matplotlib: `pip install --group docs`, or `make plots`.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
OUT = HERE.parent / "docs" / "plots"

#: Text stays text, in the reader's own fonts; white behind it, for dark pages too.
STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "tfrecorder",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.axisbelow": True,
    "hatch.linewidth": 0.6,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
}

#: Of Okabe and Ito's colours, which differ for all kinds of sight, and in lightness too.
BLUE, SKY, ORANGE = "#0072B2", "#56B4E9", "#E69F00"
GREY, INK = "#C8C8C8", "#333333"

#: Of growth.py, as the plot calls its kinds.
KINDS = {"photographs": "500×375", "synthetic": "32×32"}

#: A word for a kind of bar: its colour and its hatching.
Looks = Mapping[str, tuple[str, str]]

#: A benchmark's file, as harness.report writes it.
Record = dict[str, Any]


@dataclass(frozen=True)
class Bar:
    """A case: its name, its kind, and a number for each panel."""

    name: str
    kind: str
    values: tuple[float, ...]


def writing(record: Record) -> Any:
    """Images a second and CPU an image of every writer, by the slope between two sizes."""
    looks = {
        "tfrecorder; decode checks each image in full": (BLUE, ""),
        "others": (ORANGE, ""),
        "the floor: nothing checked, nothing recorded of the whole": (GREY, "///"),
    }
    ours, others, nothing = looks
    cases, (small, large), bars = measured(record), record["sizes"], []
    for name in (case.removesuffix(f" {large}") for case in cases if case.endswith(f" {large}")):
        floor = name == "tar" or name.startswith(("bare", "TFRecordWriter"))
        kind = ours if "check=" in name else nothing if floor else others
        pairs = list(zip(cases[f"{name} {small}"], cases[f"{name} {large}"], strict=True))
        seconds, cpu = (
            statistics.median((more[key] - few[key]) / (large - small) for few, more in pairs)
            for key in ("seconds", "cpu")
        )
        # Of a single round on a busy machine the smaller size may be the slower one.
        if seconds > 0:
            bars.append(Bar(name, kind, (1 / seconds, cpu * 1e3)))
    titles = ("images a second", "ms of CPU an image (less is better)")
    return panels(record, "Writing photographs of 500×375", bars, titles, looks)


def reading(record: Record) -> Any:
    """Images for each CPU second of every reader."""
    looks = {
        "tfrecorder": (BLUE, ""),
        "tfrecorder, plain": (SKY, "///"),
        "others": (ORANGE, ""),
        "others, plain: resized with aliasing": (GREY, "///"),
    }
    ours, ours_plain, others, others_plain = looks
    bars = []
    for name, rounds in measured(record).items():
        plain = name.endswith("plain") or name == "image_dataset_from_directory"
        kind = others_plain if plain else others
        if name.startswith(("tfrecorder.", "load(")):
            kind = ours_plain if "antialias=False" in name else ours
        bars.append(Bar(name, kind, (median(rounds, "images/CPU s"), median(rounds, "images/s"))))
    titles = ("images for each CPU second", "images a second")
    return panels(record, "Reading photographs of 500×375 as 224×224", bars, titles, looks)


def raw(record: Record) -> Any:
    """Small pictures as raw pixels, as JPEG, and in HDF5."""
    looks = {"tfrecorder": (BLUE, ""), "HDF5: no record, no checksum": (GREY, "///")}
    ours, other = looks
    bars = [
        Bar(
            name.removeprefix("128x128 "),
            other if name.startswith("hdf5") else ours,
            (median(rounds, "images/CPU s"), median(rounds, "images/s")),
        )
        for name, rounds in measured(record).items()
        if name.startswith(("128x128", "hdf5"))
    ]
    titles = ("images for each CPU second", "images a second")
    return panels(record, "Reading pictures of 128×128", bars, titles, looks)


def growth(record: Record) -> Any:
    """Time and memory of a conversion against the number of records, both logarithmic."""
    from matplotlib.figure import Figure

    cases = measured(record)
    figure = Figure(figsize=(9.6, 4.8), layout="constrained")
    time, memory = figure.subplots(1, 2)
    for kind, colour, marker in (("photographs", BLUE, "o"), ("synthetic", ORANGE, "s")):
        sizes = record["sizes"][kind]
        for axes, key, suffix, dashes, above, words in (
            (time, "cpu", "", "-", 7, "CPU"),
            (time, "start_s", "", ":", 7, "start-up"),
            (memory, "launcher_mb", ", workers", ":", 7, "launcher"),
            (memory, "worker_mb", ", workers", "-", -15, "a worker"),
        ):
            values = [median(cases[f"{kind} {size}{suffix}"], key) for size in sizes]
            axes.plot(
                sizes,
                values,
                dashes,
                color=colour,
                marker=marker,
                markeredgecolor=INK,
                label=f"{KINDS[kind]}: {words}",
            )
            axes.annotate(
                shown(values[-1]),
                (sizes[-1], values[-1]),
                xytext=(0, above),
                textcoords="offset points",
                ha="center",
                fontsize=9,
            )
    sizes = record["sizes"]["synthetic"]
    last = median(cases[f"synthetic {sizes[-1]}"], "cpu")
    straight = [last * size / sizes[-1] for size in sizes]
    time.plot(sizes, straight, "--", color=GREY, zorder=0, label="a straight line")
    for axes, title in ((time, "seconds"), (memory, "largest memory of a process, MB")):
        axes.set_title(title)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.margins(x=0.08, y=0.12)
        axes.set_xlabel("records")
        axes.grid(color="#E4E4E4", linewidth=0.6)
        axes.minorticks_off()
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.legend(
            fontsize=9, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2
        )
    memory.set_ylim(100, 3000)
    memory.set_yticks([100, 200, 500, 1000, 2000], ["100", "200", "500", "1,000", "2,000"])
    time.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    title = f'Converting with check="decode", {where(record)}'
    figure.suptitle(title, fontsize=12, x=0.01, ha="left")
    return figure


#: Each plot: the benchmarks that it takes its results from, the first that is there.
PLOTS: dict[str, tuple[tuple[str, ...], Callable[[Record], Any]]] = {
    "writing": (("peers_writing-rehearsed", "peers_writing"), writing),
    "reading": (("peers_reading",), reading),
    "growth": (("growth",), growth),
    "raw": (("raw",), raw),
}


# ---------------------------------------------------------------------------------------------
# What was measured.


def measured(record: Record) -> dict[str, list[dict[str, Any]]]:
    """The rounds of each case that was not skipped."""
    return {case["name"]: case["rounds"] for case in record["cases"] if case["rounds"]}


def median(rounds: Sequence[Mapping[str, float]], key: str) -> float:
    return statistics.median(one[key] for one in rounds)


# ---------------------------------------------------------------------------------------------
# How it is drawn.


def panels(
    record: Record, title: str, bars: Sequence[Bar], titles: Sequence[str], looks: Looks
) -> Any:
    """A figure of horizontal bars, the largest of the first panel on top."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    bars = sorted(bars, key=lambda bar: bar.values[0])
    height = 1.5 + 0.3 * len(bars)
    figure = Figure(figsize=(9.6, height))
    # Fonts of other widths need some room at the edges.
    figure.set_layout_engine("constrained", w_pad=0.12)
    drawings = figure.subplots(1, len(titles), sharey=True)
    for at, axes in enumerate(drawings):
        drawn = axes.barh(
            range(len(bars)),
            [bar.values[at] for bar in bars],
            color=[looks[bar.kind][0] for bar in bars],
            edgecolor=INK,
            linewidth=0.5,
            hatch=[looks[bar.kind][1] for bar in bars],
            height=0.72,
        )
        axes.bar_label(drawn, [shown(bar.values[at]) for bar in bars], padding=3, fontsize=9)
        axes.set_title(titles[at])
        axes.margins(x=0.2, y=0.02)
        axes.grid(axis="x", color="#E4E4E4", linewidth=0.6)
        axes.tick_params(axis="y", length=0)
        axes.locator_params(axis="x", nbins=5)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    drawings[0].set_yticks(range(len(bars)), [bar.name for bar in bars])
    for label, bar in zip(drawings[0].get_yticklabels(), bars, strict=True):
        label.set_fontweight("bold" if bar.kind.startswith("tfrecorder") else "normal")
    shown_kinds = {bar.kind for bar in bars}
    figure.legend(
        [
            Patch(facecolor=colour, hatch=hatch, edgecolor=INK, linewidth=0.5)
            for kind, (colour, hatch) in looks.items()
            if kind in shown_kinds
        ],
        [kind for kind in looks if kind in shown_kinds],
        loc="outside lower center",
        ncols=len(shown_kinds),
        frameon=False,
        fontsize=9,
    )
    figure.suptitle(f"{title}, {where(record)}", fontsize=12, x=0.01, ha="left")
    return figure


def where(record: Record) -> str:
    """The machine, in two words."""
    return f"{record['machine']['cores']} cores of an {record['machine']['cpu']}"


def shown(value: float) -> str:
    """A number with three digits that count."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 1 else f"{value:.3f}"


def save(figure: Any, path: Path, png: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # No date and no version: the same results give the same file.
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    if png:
        figure.savefig(path.with_suffix(".png"), dpi=100)


def main(arguments: Sequence[str] | None = None) -> bool:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"of {', '.join(PLOTS)}; all by default")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--png", action="store_true", help="each as PNG too, to look at")
    chosen = parser.parse_args(arguments)
    if unknown := set(chosen.names) - set(PLOTS):
        parser.error(f"{', '.join(sorted(unknown))}: there are {', '.join(PLOTS)}")
    import matplotlib

    for name in chosen.names or PLOTS:
        sources, draw = PLOTS[name]
        there = [path for one in sources if (path := chosen.results / f"{one}.json").exists()]
        if not there:
            print(f"{name}: skipped, {sources[0]}.json is not in {chosen.results}")
            continue
        with matplotlib.rc_context(STYLE):
            path = chosen.out / f"{name}.svg"
            save(draw(json.loads(there[0].read_text())), path, chosen.png)
        print(f"{path}: {path.stat().st_size / 1000:.0f} KB, from {there[0].name}")
    return True


if __name__ == "__main__":
    raise SystemExit(0 if main() else 1)
