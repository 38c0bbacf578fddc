"""A run as typed, checked values: the one form that reports, tables and claims read.

It is made once, from the folder of a run or from a line of a results file. Neither is trusted.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
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
)

FORMAT = 1
"""The format of a line; no other format is read."""

CURVE: dict[str, tuple[str, ...]] = {
    "epoch": ("epoch",),
    "learning_rate": ("learning_rate",),
    "loss": ("loss",),
    "w_loss": ("w", "loss"),
    "w_accuracy": ("w", "accuracy"),
    "u_loss": ("u", "loss"),
    "u_accuracy": ("u", "accuracy"),
    "sparsity": ("sparsity",),
    "gap": ("gap",),
}
"""The columns of a line's curve, and their paths in a line of the metrics."""

_EPOCH = Kind("an epoch", lambda found: e if (e := NON_NEGATIVE.read(found)) is not None and e <= 1e9 else None)


@dataclass(frozen=True)
class Evaluation:
    """One evaluation in the course of training; values that were not measured are None.

    Attributes:
        epoch: when it was made.
        learning_rate: the learning rate at that time.
        loss: the mean training loss since the previous evaluation.
        accuracy: the training accuracy, if no images were held out for validation.
        loss_w: the validation loss of w.
        loss_u: the validation loss of u.
        accuracy_w: the validation accuracy of w.
        accuracy_u: the validation accuracy of u.
        sparsity: the fraction of zeros in u.
        gap: ‖w − u‖.
        lagrangian: ℒ(w, u).
        phase: "ramp", "hold" or "heal", if there is a target sparsity.
        lam: the smallest and the largest λ of the layers.
        threshold: the smallest and the largest threshold of the layers.
        thresholds: the threshold of each layer.
        histogram: the magnitudes of the weights w.

    """

    epoch: float
    learning_rate: float | None
    loss: float | None
    accuracy: float | None
    loss_w: float | None
    loss_u: float | None
    accuracy_w: float | None
    accuracy_u: float | None
    sparsity: float | None
    gap: float | None
    lagrangian: float | None
    phase: str | None
    lam: tuple[float, ...] | None
    threshold: tuple[float, ...] | None
    thresholds: Mapping[str, float]
    histogram: Histogram | None

    @classmethod
    def of(cls, tree: Any) -> "Evaluation | None":
        """Read a line of the metrics; None if it has no epoch. Values of a wrong type are left out."""
        epoch = _EPOCH.at(tree, "epoch")
        if epoch is None:
            return None
        named = {
            clean(name): NON_NEGATIVE.at(layer, "threshold") for name, layer in (TABLE.at(tree, "layers") or {}).items()
        }
        return cls(
            epoch=epoch,
            learning_rate=NON_NEGATIVE.at(tree, "learning_rate"),
            loss=NUMBER.at(tree, "loss"),
            accuracy=FRACTION.at(tree, "accuracy"),
            loss_w=NUMBER.at(tree, "w", "loss"),
            loss_u=NUMBER.at(tree, "u", "loss"),
            accuracy_w=FRACTION.at(tree, "w", "accuracy"),
            accuracy_u=FRACTION.at(tree, "u", "accuracy"),
            sparsity=FRACTION.at(tree, "sparsity"),
            gap=NON_NEGATIVE.at(tree, "gap"),
            lagrangian=NUMBER.at(tree, "lagrangian"),
            phase=LINE.at(tree, "phase"),
            lam=NON_NEGATIVES.at(tree, "lam"),
            threshold=NON_NEGATIVES.at(tree, "threshold"),
            thresholds={name: threshold for name, threshold in named.items() if threshold is not None},
            histogram=Histogram.of(inside(tree, "histogram")),
        )


@dataclass(frozen=True)
class Record:
    """One run.

    Attributes:
        name: the name of its configuration.
        seed: its seed; None if it cannot be read.
        options: the sections of its configuration.
        about: the machine and the versions.
        evaluations: the evaluations, by epoch.
        images_per_second: the training speed, as the median over the epochs.
        outcome: the result; None if the run is not finished.
        folder: the name of its folder, if it was read from one.
        fingerprint: the fingerprint of the options, if it was read from a results file.
        complaints: sentences about what could not be read.

    """

    name: str
    seed: int | None
    options: Mapping[str, Any]
    about: Mapping[str, Any]
    evaluations: tuple[Evaluation, ...]
    images_per_second: float | None
    outcome: Outcome | None
    folder: str = ""
    fingerprint: str = ""
    complaints: tuple[str, ...] = ()

    @classmethod
    def of_run(cls, run: Run, *, strict: bool = False) -> "Record":
        """Read a run's folder.

        Args:
            run: the folder.
            strict: whether a damaged file is an error; otherwise, it is left out and reported in ``complaints``. A
                line of the metrics that cannot be read is never an error.

        """
        complaints: list[str] = []

        def attempt(what: Callable[[], Any]) -> Any:
            try:
                return what()
            except ValueError as error:
                if strict:
                    raise
                complaints.append(clean(str(error).replace(f"{run.folder}/", "")))
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
        runtime = attempt(lambda: _named(run, "runtime.json", lambda: Runtime.of(run.runtime())))
        result = attempt(run.result)
        return cls(
            name=clean(config.get("name") or run.name),
            seed=INTEGER.at(config, "seed"),
            options={key: value for key, value in config.items() if key not in ("name", "seed")},
            about=about,
            evaluations=evaluations,
            images_per_second=median(speeds) if speeds else None,
            outcome=attempt(
                lambda: _named(
                    run,
                    "result.json",
                    lambda: None if result is None else Outcome.of(result, run.file_bytes(), runtime),
                )
            ),
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
    found = [Evaluation.of(tree) for tree in trees]
    by_epoch = {one.epoch: one for one in found if one is not None}
    return tuple(by_epoch[epoch] for epoch in sorted(by_epoch)), found.count(None)


def _rows(curve: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the columns of a curve in the form of lines of the metrics."""
    columns = {name: LIST.needed({"curve": curve}, "curve", name) for name in curve}
    if len({len(column) for column in columns.values()}) > 1:
        raise ValueError("the columns of the curve should have the same length")
    if any(_EPOCH.read(epoch) is None for epoch in columns.get("epoch", ())):
        raise ValueError("curve.epoch should be numbers")
    rows: list[dict[str, Any]] = [{} for _ in columns.get("epoch", ())]
    for name, (*outer, key) in CURVE.items():
        for row, value in zip(rows, columns.get(name, ()), strict=False):
            (row.setdefault(outer[0], {}) if outer else row)[key] = value
    return rows


def _named(run: Run, file: str, read: Callable[[], Any]) -> Any:
    """Read something, with errors that name the file."""
    try:
        return read()
    except ValueError as error:
        named = str(run.folder) in str(error)
        raise error if named else ValueError(f"{run.folder / file} is damaged: {error}") from None
