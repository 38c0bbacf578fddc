"""A run as typed, checked values: the one form that reports, tables and claims read.

It is made once, from the folder of a run or from a line of a results file. Neither is trusted.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any

from rvsm.records.outcome import Histogram, Outcome, Runtime
from rvsm.records.run import Run
from rvsm.records.values import (
    COUNT,
    FRACTION,
    INTEGER,
    LINE,
    LIST,
    NON_NEGATIVE,
    NON_NEGATIVES,
    NUMBER,
    TABLE,
    Kind,
    clean,
    inside,
    read_fields,
    read_with,
)

FORMAT = 1
"""The format of a line; no other format is read."""

_EPOCH = Kind("an epoch", lambda found: e if (e := NON_NEGATIVE.read(found)) is not None and e <= 1e9 else None)


def _thresholds(tree: Any, key: str) -> dict[str, float]:
    layers = (TABLE.at(tree, key) or {}).items()
    found = {clean(name): NON_NEGATIVE.at(layer, "threshold") for name, layer in layers}
    return {name: threshold for name, threshold in found.items() if threshold is not None}


@dataclass(frozen=True)
class Evaluation:
    """One evaluation in the course of training; values that were not measured, or not of their kind, are None."""

    epoch: float = read_with(_EPOCH.needed)
    learning_rate: float | None = read_with(NON_NEGATIVE.at)
    loss: float | None = read_with(NUMBER.at)  # the mean training loss since the previous evaluation
    accuracy: float | None = read_with(FRACTION.at)  # the training accuracy
    loss_w: float | None = read_with(NUMBER.at, "w", "loss")  # on the validation images, as the next three
    loss_u: float | None = read_with(NUMBER.at, "u", "loss")
    accuracy_w: float | None = read_with(FRACTION.at, "w", "accuracy")
    accuracy_u: float | None = read_with(FRACTION.at, "u", "accuracy")
    sparsity: float | None = read_with(FRACTION.at)  # the fraction of zeros in u
    speedup: float | None = read_with(NON_NEGATIVE.at)  # the predicted speed of u, if the target is a time
    gap: float | None = read_with(NON_NEGATIVE.at)  # ‖w − u‖
    lagrangian: float | None = read_with(NUMBER.at)  # ℒ(w, u)
    phase: str | None = read_with(LINE.at)  # "ramp", "hold" or "heal", if there is a target sparsity
    lam: tuple[float, ...] | None = read_with(NON_NEGATIVES.at)  # the smallest and the largest λ of the layers
    threshold: tuple[float, ...] | None = read_with(NON_NEGATIVES.at)  # the smallest and the largest of the layers
    thresholds: Mapping[str, float] = read_with(_thresholds, "layers")  # of each layer
    histogram: Histogram | None = read_with(Histogram.at)  # the magnitudes of the weights w


_PATHS = {one.name: one.metadata["path"] or (one.name,) for one in fields(Evaluation)}
_IN_LINES = ("epoch", "learning_rate", "loss", "loss_w", "accuracy_w", "loss_u", "accuracy_u", "sparsity", "gap")
CURVE = {"_".join(_PATHS[name]): name for name in _IN_LINES}
"""The columns of a line's curve, such as "w_loss", and the fields of an evaluation."""


@dataclass(frozen=True)
class Record:
    """One run."""

    name: str  # of its configuration
    seed: int | None  # None if it cannot be read
    options: Mapping[str, Any]  # the sections of its configuration
    about: Mapping[str, Any]  # the machine and the versions
    evaluations: tuple[Evaluation, ...]  # by epoch
    images_per_second: float | None  # the training speed, as the median over the epochs
    outcome: Outcome | None  # None if the run is not finished
    folder: str = ""  # the name of its folder, if it was read from one
    fingerprint: str = ""  # that of the options, if it was read from a results file
    complaints: tuple[str, ...] = ()  # sentences about what could not be read

    @classmethod
    def of_run(cls, run: Run, *, strict: bool = False) -> "Record":
        """Read a run's folder; a damaged file is left out and reported in ``complaints``, or an error if strict.

        A line of the metrics that cannot be read is never an error.
        """
        complaints: list[str] = []

        def attempt(read: Callable[[], Any], file: str = "") -> Any:
            try:
                return read()
            except ValueError as error:
                named = str(run.folder) in str(error)
                complaint = str(error) if named else f"{run.folder / file} is damaged: {error}"
                if strict:
                    raise ValueError(complaint) from None
                complaints.append(clean(complaint.replace(f"{run.folder}/", "")))
                return None

        config: Mapping[str, Any] = attempt(run.config) or {}
        about: Mapping[str, Any] = attempt(run.about) or {}
        trees, damaged = attempt(run.metrics_and_damage) or ([], 0)
        evaluations, without = _by_epoch(trees)
        for lines, why in ((damaged, "cannot be read"), (without, "without an epoch")):
            if lines:
                are = "line of metrics.jsonl is" if lines == 1 else "lines of metrics.jsonl are"
                complaints.append(f"{lines} {are} left out: {why}")
        speeds = [s for tree in trees if (s := NON_NEGATIVE.at(tree, "images_per_second")) is not None]
        runtime = attempt(lambda: Runtime.of(run.runtime()), "runtime.json")
        result = attempt(run.result)
        read_outcome = partial(Outcome.of, result, run.file_bytes(), runtime)
        return cls(
            name=clean(config.get("name") or run.name),
            seed=INTEGER.at(config, "seed"),
            options={key: value for key, value in config.items() if key not in ("name", "seed")},
            about=about,
            evaluations=evaluations,
            images_per_second=median(speeds) if speeds else None,
            outcome=None if result is None else attempt(read_outcome, "result.json"),
            folder=clean(run.name),
            complaints=tuple(complaints),
        )

    @classmethod
    def of_line(cls, line: Any) -> "Record":
        """Read a line of a results file.

        Raises:
            ValueError: it has another format, or a value is missing, of a wrong type or out of bounds.

        """
        if not isinstance(line, Mapping):
            raise ValueError("it should be an object")
        if line.get("format") != FORMAT:
            raise ValueError(f"its format is {line.get('format')!r}, but only {FORMAT} is known")
        return cls(
            name=LINE.needed(line, "name"),
            seed=INTEGER.needed(line, "seed"),
            options=TABLE.needed(line, "options"),
            about=TABLE.needed(line, "about"),
            evaluations=_by_epoch(_rows(TABLE.needed(line, "curve")))[0],
            images_per_second=NON_NEGATIVE.given(line, "images_per_second"),
            outcome=Outcome.of(line, COUNT.given(line, "file_bytes"), Runtime.of(line.get("runtime"))),
            fingerprint=LINE.needed(line, "config"),
        )

    def option(self, section: str, key: str) -> Any:
        """Return an option of the configuration, or None."""
        return inside(self.options, section, key)

    @property
    def method(self) -> str:
        """The name of the method; "dense" if there is none."""
        return clean(self.option("method", "name") or "unknown")

    @property
    def epochs(self) -> float:
        """The epochs of the configuration, or the last epoch so far."""
        target = NUMBER.at(self.options, "training", "epochs")
        return target if target is not None and target >= 1 else max((e.epoch for e in self.evaluations), default=0.0)

    @property
    def phases(self) -> dict[str, tuple[float, float]]:
        """The epochs of ramp, hold and heal; empty if the run had no such phases."""
        if not any(e.phase for e in self.evaluations) or self.option("budget", "sparsity") is None:
            return {}
        ramp, heal = (FRACTION.at(self.options, "budget", key) for key in ("ramp", "heal"))
        if ramp is None or heal is None or ramp + heal > 1:
            return {}
        ends = (0.0, ramp * self.epochs, (1 - heal) * self.epochs, self.epochs)
        spans = dict(zip(("ramp", "hold", "heal"), pairwise(ends), strict=True))
        return {name: (start, end) for name, (start, end) in spans.items() if end - start > 1e-9 * self.epochs}


def _by_epoch(trees: Iterable[Any]) -> tuple[tuple[Evaluation, ...], int]:
    """Return the evaluations by epoch, only the last one of each epoch, and the number of lines without an epoch."""
    listed = list(trees)
    found = [Evaluation(**read_fields(Evaluation, tree)) for tree in listed if _EPOCH.at(tree, "epoch") is not None]
    by_epoch = {one.epoch: one for one in found}
    return tuple(by_epoch[epoch] for epoch in sorted(by_epoch)), len(listed) - len(found)


def _rows(curve: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the columns of a curve in the form of lines of the metrics."""
    columns = {name: LIST.needed({"curve": curve}, "curve", name) for name in curve}
    if len({len(column) for column in columns.values()}) > 1:
        raise ValueError("the columns of the curve should have the same length")
    if any(_EPOCH.read(epoch) is None for epoch in columns.get("epoch", ())):
        raise ValueError("curve.epoch should be numbers")
    rows: list[dict[str, Any]] = [{} for _ in columns.get("epoch", ())]
    for column, name in CURVE.items():
        *outer, key = _PATHS[name]
        for row, found in zip(rows, columns.get(column, ()), strict=False):
            (row.setdefault(outer[0], {}) if outer else row)[key] = found
    return rows
