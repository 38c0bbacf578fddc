"""A table of what a program does and where it spends its time."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rvsm.files import printable
from rvsm.runtime.execute.stage import Stage
from rvsm.runtime.plan.plan import Plan


@dataclass(frozen=True)
class Row:
    """A layer: its name, operation, output shape, fraction of zeros, kernel and seconds."""

    name: str
    kind: str
    shape: tuple[int, ...]
    sparsity: float | None
    kernel: str
    seconds: float


@dataclass(frozen=True)
class Explanation:
    """A table with a row for each layer and each part in PyTorch; ``print`` it.

    ``outside`` names the operations that run in PyTorch. The last row is the rest of a call's time, so the rows add up
    to the whole. ``note`` is an additional remark.
    """

    rows: tuple[Row, ...]
    images: int
    outside: tuple[str, ...] = ()
    note: str = ""

    @property
    def seconds(self) -> float:
        """The time of all rows, on one thread."""
        return sum(row.seconds for row in self.rows)

    def whole(self, seconds: float, name: str) -> "Explanation":
        """Return the table of a call that takes ``seconds``, with a row for the rest of the time."""
        rest = Row(name, "dispatch", (), None, "", max(0.0, seconds - self.seconds))
        return replace(self, rows=(*self.rows, rest))

    def __str__(self) -> str:
        head = ("layer", "operation", "output", "zeros", "kernel", "µs", "share")
        lines = [head]
        for row in self.rows:
            zeros = "" if row.sparsity is None else f"{100 * row.sparsity:.1f} %"
            shape = "×".join(map(str, row.shape))
            share = f"{100 * row.seconds / max(self.seconds, 1e-12):.1f} %"
            lines.append((printable(row.name), row.kind, shape, zeros, row.kernel, f"{1e6 * row.seconds:.0f}", share))
        widths = [max(len(line[k]) for line in lines) for k in range(len(head))]
        left = (True, True, True, False, True, False, False)
        text = [
            "  ".join(c.ljust(w) if to_left else c.rjust(w) for c, w, to_left in zip(line, widths, left, strict=True))
            for line in lines
        ]
        total = f"{self.images} image{'s' * (self.images > 1)} on one thread: {1e3 * self.seconds:.2f} ms"
        outside = f"in PyTorch: {', '.join(self.outside)}" if self.outside else ""
        return "\n".join([*(line.rstrip() for line in text), *filter(None, (total, outside, self.note))])


def explain_stage(
    plan: Plan, stage: Stage, inputs: Sequence[NDArray[np.float32]], outputs: Sequence[NDArray[np.float32]]
) -> Explanation:
    """Return the table of a native program, timed with these arrays."""
    seconds = stage.times(inputs, outputs)
    totals: dict[int, float] = defaultdict(float)
    notes: dict[int, list[str]] = defaultdict(list)
    for step, taken in zip(stage.schedule.steps, seconds, strict=True):
        totals[step.operation] += taken
        notes[step.operation] += [step.note] if step.note else []
    rows = []
    for k, operation in enumerate(plan.operations):
        sparsity = plan.weights[k].sparsity if k in plan.weights else None
        shape = plan.shapes[plan.value_of(k)]
        rows.append(Row(operation.name, operation.label, shape, sparsity, "; ".join(notes[k]), totals[k]))
    rows.append(Row("input and output", "layout", (), None, "", totals[-1]))
    return Explanation(tuple(rows), stage.schedule.images)
