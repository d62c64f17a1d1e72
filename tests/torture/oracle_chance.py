"""Draws the steps of a dataset's life by chance."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping, Sequence

from torture.oracle import read
from torture.oracle_life import Life, Step
from torture.oracle_model import BROKEN, FED, IMAGES, LABELS, MISSING, SPLITS, Row, State

#: How often each step is drawn, where all are.
WEIGHTS = {
    "append": 14,
    "append_again": 4,
    "retry": 4,
    "stream": 7,
    "overwrite_same": 5,
    "overwrite": 4,
    "labels": 8,
    "move_shards": 10,
    "move_some": 6,
    "missing": 7,
    "own_table": 6,
    "remove": 9,
    "compact": 6,
    "drop": 3,
    "undo": 11,
    "repair": 12,
}


#: How often each kind of file is lost or damaged.
LOST = {
    "shard": 10,
    "public": 6,
    "tables": 10,
    "index": 6,
    "commits": 6,
    "removed": 2,
    "private": 2,
    "before": 2,
    "everything": 1,
}


class Chance:
    """Draws the steps of a life."""

    def __init__(self, seed: str, weights: Mapping[str, int] = WEIGHTS) -> None:
        self.random = random.Random(seed)
        self._names, self._weights = [*weights], [*weights.values()]
        #: The splits of new rows.
        self._splits = self.random.choice((("TRAIN", "TEST"), ("TRAIN", "TRAIN", *SPLITS)))

    def step(self, life: Life) -> Step:
        """The next step of a life."""
        draw, state = self.random, life.state
        if state is None:
            step = self._stream(life) if draw.random() < 0.1 else self._convert()
        else:
            (name,) = draw.choices(self._names, self._weights)
            step = getattr(self, f"_{name}")(life)
        if step.name in ("repair", "appear"):
            return step
        tried = step.name != "stream" and draw.random() < 0.1
        killed = draw.random() if draw.random() < 0.15 else None
        again = draw.random() < 0.6
        looked = draw.random() < 0.2
        return dataclasses.replace(step, tried=tried, killed=killed, again=again, looked=looked)

    def rows(
        self, most: int, rejects: float = 0.2, labels: Sequence[str] = LABELS, least: int = 1
    ) -> list[Row]:
        """Rows of any pictures that are in files."""
        draw = self.random
        good = [n for n in range(IMAGES) if f"img-{n:02d}" not in (*MISSING, BROKEN)]
        names = [f"img-{n:02d}" for n in draw.sample(good, draw.randint(least, most))]
        if len(names) > 3 and draw.random() < rejects:
            names.append(draw.choice([*MISSING, BROKEN]))
        draw.shuffle(names)
        return [Row(name, draw.choice(labels), draw.choice(self._splits)) for name in names]

    def of_state(self, state: State) -> list[Row]:
        """Rows as the dataset has them."""
        rows = [Row(name, fact.label, fact.split) for name, fact in state.records.items()]
        rows += [Row(name, "ant", split) for name, split in state.rejects.items()]
        return rows

    def some(self, names: Sequence[str], most: int) -> list[str]:
        many = min(len(names), self.random.randint(1, most))
        return self.random.sample(sorted(names), many)

    def _convert(self) -> Step:
        draw = self.random
        labels = draw.sample(LABELS[:4], draw.randint(1, 3))
        rows = self.rows(16, labels=labels, least=4)
        return Step("convert", {"rows": rows, "shards": draw.choice((1, 1, 2, 3))})

    def _append(self, life: Life) -> Step:
        draw = self.random
        given = {"rows": self.rows(8), "shards": draw.randint(1, 2)}
        (kind,) = draw.choices(("", "keep", "content", "readmit"), (6, 1, 1, 2))
        if kind == "readmit":
            given["readmit"] = True
        elif kind:
            given["duplicates"] = kind
        return Step("append", given)

    def _append_again(self, life: Life) -> Step:
        """What is there, or was, and some more."""
        rows = self._all_of(life)
        names = {row.name for row in rows}
        rows += [row for row in self.rows(3) if row.name not in names]
        self.random.shuffle(rows)
        (duplicates,) = self.random.choices(("name", "content", "keep"), (6, 2, 1))
        return Step("append", {"rows": rows, "shards": 1, "duplicates": duplicates})

    def _retry(self, life: Life) -> Step:
        absent = [name for name in MISSING if name not in life.sources.files]
        if absent and self.random.random() < 0.4:
            return Step("appear", {"name": self.random.choice(absent)})
        names = {*life.now.rejects}
        rows = [Row(name, "bee", "TRAIN") for name in sorted(names)]
        rows += [row for row in self.rows(4, rejects=0) if row.name not in names]
        return Step("append", {"rows": rows, "shards": 1, "retry": True})

    def _stream(self, life: Life) -> Step:
        position = life.state.position if life.state else 0
        return Step("stream", {"count": min(FED, position + self.random.randint(1, 4))})

    def _all_of(self, life: Life) -> list[Row]:
        """Rows of what is there, and of what was."""
        rows = self.of_state(life.now)
        names = {row.name for row in rows}
        rows += [Row(name, "cat", "TRAIN") for name in sorted(life.now.gone - names)]
        return [row for row in rows if not row.name.startswith("fed")]

    def _overwrite_same(self, life: Life) -> Step:
        """A table of what is there and of what was, as before."""
        rows = self._all_of(life) or self.rows(5)
        self.random.shuffle(rows)
        everything = life.now.grown and self.random.random() < 0.8
        shards = self.random.randint(1, 3)
        return Step("overwrite", {"rows": rows, "shards": shards, "everything": everything})

    def _overwrite(self, life: Life) -> Step:
        draw = self.random
        rows = self.rows(10, labels=draw.sample(LABELS, 2), least=3)
        everything = life.now.grown or draw.random() < 0.3
        return Step(
            "overwrite", {"rows": rows, "shards": draw.randint(1, 3), "everything": everything}
        )

    def _changed(self, rows: Sequence[Row], share: float) -> list[Row]:
        """Some rows get another label, and another caption."""
        draw = self.random
        return [
            row._replace(label=draw.choice(LABELS), text=draw.randint(0, 3))
            if draw.random() < share
            else row
            for row in rows
        ]

    def _labels(self, life: Life) -> Step:
        rows = self._changed(self.of_state(life.now), self.random.choice((0.1, 0.3, 1)))
        return self._update(life, rows)

    def _move_shards(self, life: Life) -> Step:
        """All rows of some shards, or of a split, go to another split."""
        draw, rows = self.random, self.of_state(life.now)
        contents = read(life.out)
        records = contents.records if contents else []
        shards = sorted({record.shard for record in records})
        chosen = {*draw.sample(shards, draw.randint(1, min(2, len(shards))))}
        if draw.random() < 0.5:  # the whole split
            split = draw.choice(sorted({record.split for record in records}))
            chosen = {record.shard for record in records if record.split == split}
        names = {life.name_of(one) for one in records if one.shard in chosen}
        to = draw.choice(SPLITS)
        rows = [row._replace(split=to) if row.name in names else row for row in rows]
        if draw.random() < 0.3:
            rows = [row for row in rows if row.name in names]
        draw.shuffle(rows)
        share = draw.choice((0, 0, 0.2, 1))
        rows = [self._changed([row], share)[0] if row.name in names else row for row in rows]
        return self._update(life, rows, more=0.1)

    def _move_some(self, life: Life) -> Step:
        rows = self.of_state(life.now)
        names = {*self.some([row.name for row in rows], 4)}
        to = self.random.choice(SPLITS)
        rows = [row._replace(split=to) if row.name in names else row for row in rows]
        return self._update(life, self._changed(rows, 0.1))

    def _missing(self, life: Life) -> Step:
        rows = self.of_state(life.now)
        left = {*self.some([row.name for row in rows], 4)}
        rows = [row for row in rows if row.name not in left]
        return self._update(life, self._changed(rows, 0.1), missing="remove")

    def _update(
        self, life: Life, rows: Sequence[Row], more: float = 0.5, missing: str = "keep"
    ) -> Step:
        draw, names = self.random, {row.name for row in rows}
        rows = [*rows]
        if draw.random() < more:
            rows += [row for row in self.rows(3) if row.name not in names]
        if draw.random() < 0.5:
            draw.shuffle(rows)
        given = {"rows": rows, "missing": missing, "shards": draw.choice((None, 1, 2))}
        if draw.random() < 0.15:
            given["readmit"] = True
        return Step("update", given)

    def _own_table(self, life: Life) -> Step:
        rows = self._changed(self.of_state(life.now), self.random.choice((0, 0.2, 1)))
        return Step("own_table", {"rows": rows})

    def _remove(self, life: Life) -> Step:
        draw = self.random
        given = {"names": self.some([*life.now.names], 3), "by_row": draw.random() < 0.3}
        if life.now.gone and draw.random() < 0.3:
            given["before"] = self.some([*life.now.gone], 2)
        if draw.random() < 0.2:
            given["copies"] = True
        return Step("remove", given)

    def _compact(self, life: Life) -> Step:
        return Step("compact", {"shards": self.random.choice((None, 1, 2, 3))})

    def _drop(self, life: Life) -> Step:
        shards = self.random.choice((None, 1, 2))
        return Step("compact", {"shards": shards, "drop": self.some([*life.now.records], 2)})

    def _undo(self, life: Life) -> Step:
        return Step("undo")

    def _repair(self, life: Life) -> Step:
        (of,) = self.random.choices([*LOST], [*LOST.values()])
        damage = self.random.choice(("delete", "delete", "flip", "cut"))
        given = {"of": of, "place": self.random.random(), "damage": damage}
        if self.random.random() < 0.2:
            given["killed"] = self.random.random()
        return Step("repair", given)
