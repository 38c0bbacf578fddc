"""Compare engines: all of them take turns, so that slow moments of the machine affect all of them."""

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from rvsm import bfloat16
from rvsm.bench.engines import ENGINES, OURS, Engine, Inputs, called
from rvsm.example_inputs import difference, example_tuple, trial_inputs
from rvsm.markdown import pipe_table
from rvsm.threads import torch_threads

REST = 0.01  # seconds between engines, since threads of the previous one still spin
BLOCK = 0.05  # seconds for an engine in a round; at least one run

T = TypeVar("T")
_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@dataclass(frozen=True)
class Measurement:
    """One engine at one batch size: its median and least seconds, and the difference of its output from PyTorch's.

    ``memory`` is the peak memory for building it and running the largest batch, in bytes. ``problem`` says why there
    are no figures.
    """

    engine: str
    precision: str
    batch: int
    seconds: float | None = None
    least: float | None = None
    difference: float | None = None
    memory: float | None = None
    problem: str | None = None


@dataclass(frozen=True)
class Comparison:
    """All engines at all batch sizes; ``print`` it, or write ``records()`` and ``markdown()``."""

    title: str
    threads: int
    measurements: tuple[Measurement, ...]

    def speedup(self, batch: int, *, precision: str | None = None) -> float | None:
        """Return how many times faster ours is than the fastest other engine, of one ``precision`` if given."""
        rows = [(m, m.seconds) for m in self.measurements if m.batch == batch and m.seconds is not None]
        ours = [seconds for m, seconds in rows if m.engine == OURS]
        others = [seconds for m, seconds in rows if m.engine != OURS and precision in (None, m.precision)]
        return min(others) / ours[0] if ours and others else None

    def records(self) -> list[dict[str, Any]]:
        """Return a record for each measurement."""
        return [{"title": self.title, "threads": self.threads, **asdict(m)} for m in self.measurements]

    def rows(self) -> list[list[str]]:
        """Return the rows of the table, starting with the head."""
        batches = sorted({m.batch for m in self.measurements})
        columns = [*(f"batch {b}, ms" for b in batches), *(f"× ours, {b}" for b in batches)]
        table = [["engine", *columns, "difference", "MB"]]
        ours = {m.batch: m.seconds for m in self.measurements if m.engine == OURS}
        for name in dict.fromkeys(m.engine for m in self.measurements):
            mine = {m.batch: m for m in self.measurements if m.engine == name}
            first = mine[batches[0]]
            if all(m.seconds is None for m in mine.values()):
                table.append([name, f"not available: {first.problem}", *[""] * (2 * len(batches) + 1)])
                continue
            times = [_cell(mine[b].seconds, 1e3, 2) for b in batches]
            ratios = [_ratio(mine[b].seconds, ours.get(b)) for b in batches]
            difference = float(torch.tensor([m.difference or 0.0 for m in mine.values()]).max())  # NaN if one is
            table.append([name, *times, *ratios, f"{difference:.0e}", _cell(first.memory, 1e-6, 0)])
        return table

    def __str__(self) -> str:
        rows = self.rows()
        whole = [row for row in rows if "not available" not in row[1]]
        widths = [max(len(row[k]) for row in (whole if k else rows)) for k in range(len(rows[0]))]
        lines = [
            "  ".join(c.ljust(w) if k == 0 else c.rjust(w) for k, (c, w) in enumerate(zip(row, widths, strict=True)))
            for row in rows
        ]
        head = f"{self.title}, {self.threads} thread{'s' * (self.threads > 1)}"
        return "\n".join([head, *(line.rstrip() for line in lines), *self._verdicts()])

    def markdown(self) -> str:
        """Return the table in Markdown, followed by its conclusions."""
        head, *rows = self.rows()
        return "\n".join([f"### {self.title}", "", pipe_table(head, rows), *self._verdicts()])

    def _verdicts(self) -> list[str]:
        result = []
        for batch in sorted({m.batch for m in self.measurements}):
            single, any_ = self.speedup(batch, precision="float32"), self.speedup(batch)
            if single is not None and any_ is not None:
                result.append(
                    f"Batch {batch}: {single:.1f} × the fastest dense float32 engine, {any_:.1f} × the fastest of all."
                )
        return result


def compare(
    model: nn.Module,
    example: Tensor | Sequence[Tensor],
    *,
    title: str = "",
    program: Callable[..., Any] | None = None,
    batches: Sequence[int] = (1, 16, 64),
    engines: Sequence[str] | None = None,
    threads: int | None = None,
    rounds: int = 7,
) -> Comparison:
    """Run a network in all engines and return the figures.

    Args:
        model: the network in eval mode, as it is: the other engines do their own folding.
        example: a batch of any size, or a tuple of several inputs, for the shapes; floats are replaced by random ones.
        title: the title of the table.
        program: the program to measure as ours; by default, ``rvsm.compile`` of the model.
        batches: the batch sizes.
        engines: names from ``ENGINES``; all by default.
        threads: the number of threads of every engine; by default, PyTorch's current number.
        rounds: the number of turns of each engine; medians are over all runs.

    """
    names = list(ENGINES if engines is None else engines)
    unknown = [name for name in names if name not in ENGINES]
    if unknown:
        raise ValueError(f"unknown engine {unknown[0]!r}; choose from {', '.join(ENGINES)}")
    if not batches or min(batches) < 1 or rounds < 1:
        raise ValueError("batches must be integers ≥ 1, and rounds at least 1")
    examples = example_tuple(example)
    inputs = {b: trial_inputs(examples, b) for b in sorted(set(batches))}
    count = threads or torch.get_num_threads()
    with torch_threads(count), _settled():
        with torch.inference_mode():
            expected = {b: model(*x) for b, x in inputs.items()}
        largest = inputs[max(inputs)]
        built = [_build(name, model, examples, largest, threads=count, program=program) for name in names]
        rows = [row for batch, x in inputs.items() for row in _measure(batch, x, built, expected[batch], rounds)]
    order = {name: k for k, name in enumerate(names)}
    return Comparison(title, count, tuple(sorted(rows, key=lambda m: (order[m.engine], m.batch))))


def _build(
    name: str, model: nn.Module, examples: Inputs, largest: Inputs, *, threads: int,
    program: Callable[..., Any] | None,
) -> tuple[Engine | None, Measurement]:  # fmt: skip
    """Build an engine and run the largest batch once; return it with its memory, or the reason why it is missing."""
    blank = Measurement(name, ENGINES[name].precision, 0)

    def first() -> Engine:
        if blank.precision == "bfloat16" and bfloat16.crashes():
            raise RuntimeError("products of bfloat16 crash on this machine")
        ready = None if program is None or name != OURS else called(program)
        engine = ready or ENGINES[name].build(model, examples, threads)
        engine.run(engine.prepare(largest))
        return engine

    try:
        engine, memory = peak_memory(first)
        return engine, replace(blank, memory=memory)
    except Exception as problem:  # any failure of another engine is shown in its row
        if name == OURS:
            raise
        reason = (str(problem).strip().splitlines() or [type(problem).__name__])[0][:80]
        return None, replace(blank, problem=reason)


def _measure(
    batch: int, x: Inputs, built: Sequence[tuple[Engine | None, Measurement]], expected: Any, rounds: int
) -> list[Measurement]:
    running = [(engine, engine.prepare(x), blank, list[float]()) for engine, blank in built if engine is not None]
    differences = [difference(engine.run(prepared), expected) for engine, prepared, *_ in running]
    for _ in range(rounds):
        for engine, prepared, _, times in running:
            engine.run(prepared)
            stop = time.perf_counter() + BLOCK
            while True:
                begin = time.perf_counter()
                engine.run(prepared)
                end = time.perf_counter()
                times.append(end - begin)
                if end > stop:
                    break
            time.sleep(REST)
    rows = [replace(blank, batch=batch) for engine, blank in built if engine is None]
    for (*_, blank, times), found in zip(running, differences, strict=True):
        rows.append(replace(blank, batch=batch, seconds=statistics.median(times), least=min(times), difference=found))
    return rows


def _cell(value: float | None, factor: float, digits: int) -> str:
    return "" if value is None else f"{value * factor:.{digits}f}"


def _ratio(seconds: float | None, ours: float | None) -> str:
    return "" if seconds is None or not ours else f"{seconds / ours:.2f}"


@contextmanager
def _settled() -> Iterator[None]:
    """Collect all garbage once, so that `peak_memory` then only collects that of engines.

    Walking through all of torch's modules takes longer than measuring an engine.
    """
    if gc.get_freeze_count():  # by somebody else, whose objects must stay as they are
        yield
        return
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def peak_memory(action: Callable[[], T]) -> tuple[T, float | None]:
    """Return the result of ``action`` and the peak growth of the process in bytes; None if that is not known."""
    gc.collect()
    try:
        _RESET.write_text("5")  # Linux: resets the peak to the current size
        before = _read("VmRSS")
    except (OSError, ValueError):
        return action(), None
    result = action()
    return result, max(0.0, _read("VmHWM") - before)


def _read(name: str) -> float:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(name + ":"):
            return 1024.0 * int(line.split()[1])
    raise ValueError(f"{_STATUS} does not have {name}")
