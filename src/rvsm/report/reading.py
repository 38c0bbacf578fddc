"""A run as the report sees it: what could be read of its folder, and what could not."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from rvsm.records import Run
from rvsm.report.numbers import count, inside, listed, number, share

_RANGE = (-7.0, 1.0)  # of decimal logarithms, where a histogram does not say


@dataclass(frozen=True)
class Histogram:
    """How many weights there are of each size: counts in bins of log10 |w|, and those that are zero."""

    zeros: int
    counts: tuple[float, ...]
    low: float
    high: float

    @property
    def edges(self) -> list[float]:
        """The sizes between which the counts are."""
        width = (self.high - self.low) / len(self.counts)
        return [float(10 ** (self.low + width * i)) for i in range(len(self.counts) + 1)]


@dataclass(frozen=True)
class Layer:
    """A sparsified tensor at the end; None is what the result does not say.

    Attributes:
        shape: its shape.
        density: the share of weights that are left.
        multiplications: how many the whole layer makes for one image, zeros included.

    """

    shape: tuple[int, ...]
    density: float | None
    multiplications: float | None


@dataclass(frozen=True)
class Look:
    """One record of the metrics; None is what it does not have."""

    epoch: float
    rate: float | None
    loss: float | None
    loss_u: float | None
    accuracy: float | None
    w: float | None
    u: float | None
    sparsity: float | None
    gap: float | None
    lagrangian: float | None
    speed: float | None
    phase: str | None
    lam: tuple[float, ...] | None
    threshold: tuple[float, ...] | None
    thresholds: Mapping[str, float]
    histogram: Histogram | None


@dataclass(frozen=True)
class Outcome:
    """The result of a finished run; None is what it does not have."""

    w: float | None
    u: float | None
    sparsity: float | None
    sparsity_of_all: float | None
    weights: int | None
    nonzeros: int | None
    seconds: float | None
    layers: Mapping[str, Layer]
    before: Histogram | None
    after: Histogram | None
    norms_w: Mapping[str, tuple[float, ...]]
    norms_u: Mapping[str, tuple[float, ...]]
    multiplications_saved: float | None = None
    file_bytes: int | None = None
    speedup: float | None = None
    batch: int | None = None
    threads: int | None = None
    removed: int | None = None  # channels that the runtime leaves out, of so many; older results do not say
    channels: int | None = None

    @property
    def densities(self) -> dict[str, float]:
        """The share of weights left in each layer for which it is known."""
        return {name: layer.density for name, layer in self.layers.items() if layer.density is not None}


@dataclass(frozen=True)
class Reading:
    """A run that has been read.

    Attributes:
        folder: the name of its folder.
        name: the name of its configuration.
        seed: its seed, if it is known.
        config: the configuration as a table.
        about: where it ran.
        looks: how it went, by epoch.
        outcome: what came of it, if it is finished.
        complaints: sentences about what could not be read.

    """

    folder: str
    name: str
    seed: int | None
    config: Mapping[str, Any]
    about: Mapping[str, Any]
    looks: tuple[Look, ...]
    outcome: Outcome | None
    complaints: tuple[str, ...]

    def option(self, section: str, key: str) -> Any:
        """Return an option of the configuration, or None."""
        return inside(self.config, section, key)

    @property
    def method(self) -> str:
        """The method's name."""
        return clean(self.option("method", "name") or "unknown")

    @property
    def epochs(self) -> float:
        """The epochs that were asked for, or those that there are."""
        asked = number(self.config, "training", "epochs", low=1)
        return asked if asked is not None else max((look.epoch for look in self.looks), default=0.0)

    @property
    def phases(self) -> dict[str, tuple[float, float]]:
        """The epochs of ramp, hold and heal; nothing if the run had no such phases."""
        if not any(look.phase for look in self.looks) or self.option("budget", "sparsity") is None:
            return {}
        ramp, heal = (share(self.config, "budget", key) for key in ("ramp", "heal"))
        if ramp is None or heal is None or ramp + heal > 1:
            return {}
        ends = (0.0, ramp * self.epochs, (1 - heal) * self.epochs, self.epochs)
        spans = dict(zip(("ramp", "hold", "heal"), pairwise(ends), strict=True))
        return {name: (start, end) for name, (start, end) in spans.items() if end - start > 1e-9 * self.epochs}


def read(run: Run) -> Reading:
    """Read a run; what is damaged is left out and complained about."""
    complaints: list[str] = []

    def attempt(what: Callable[[], Any]) -> Any:
        try:
            return what()
        except ValueError as error:
            complaints.append(clean(str(error).replace(f"{run.folder}/", "")))
            return None

    config: Mapping[str, Any] = attempt(run.config) or {}
    about: Mapping[str, Any] = attempt(run.about) or {}
    records, damaged = attempt(run.metrics_and_damage) or ([], 0)
    looks = [look for look in map(_look, records) if look is not None]
    for lines, what in ((damaged, "cannot be read"), (len(records) - len(looks), "without an epoch")):
        if lines:
            are = "line of metrics.jsonl is" if lines == 1 else "lines of metrics.jsonl are"
            complaints.append(f"{lines} {are} left out: {what}")
    by_epoch = {look.epoch: look for look in looks}  # of two, the later line
    result = attempt(run.result)
    return Reading(
        folder=clean(run.name),
        name=clean(config.get("name") or run.name),
        seed=_seed(config),
        config=config,
        about=about,
        looks=tuple(by_epoch[epoch] for epoch in sorted(by_epoch)),
        outcome=None if result is None else _outcome(result, attempt(run.runtime) or {}),
        complaints=tuple(complaints),
    )


def _seed(config: Mapping[str, Any]) -> int | None:
    seed = config.get("seed")
    return seed if isinstance(seed, int) and not isinstance(seed, bool) else None


def clean(text: object) -> str:
    r"""Return a text without what cannot be written or would break a line.

    >>> clean("a\nb\x00\ud800")
    'a b ?'
    """
    shown = "".join(c if c.isprintable() or "\ud800" <= c <= "\udfff" else " " for c in str(text))
    return shown.encode("utf-8", "replace").decode("utf-8")


def _look(record: Mapping[str, Any]) -> Look | None:
    epoch = number(record, "epoch", low=0.0, high=1e9)
    if epoch is None:
        return None
    phase = record.get("phase")
    return Look(
        epoch=epoch,
        rate=number(record, "learning_rate", low=0.0),
        loss=number(record, "loss"),
        loss_u=number(record, "u", "loss"),
        accuracy=share(record, "accuracy"),
        w=share(record, "w", "accuracy"),
        u=share(record, "u", "accuracy"),
        sparsity=share(record, "sparsity"),
        gap=number(record, "gap", low=0.0),
        lagrangian=number(record, "lagrangian"),
        speed=number(record, "images_per_second", low=0.0),
        phase=phase if isinstance(phase, str) else None,
        lam=listed(record.get("lam"), low=0.0),
        threshold=listed(record.get("threshold"), low=0.0),
        thresholds=_thresholds(record.get("layers")),
        histogram=_histogram(record.get("histogram")),
    )


def _outcome(result: Mapping[str, Any], runtime: Mapping[str, Any]) -> Outcome:
    return Outcome(
        w=share(result, "test", "w", "accuracy"),
        u=share(result, "test", "u", "accuracy"),
        sparsity=share(result, "sparsity"),
        sparsity_of_all=share(result, "sparsity_of_all"),
        weights=count(result, "weights"),
        nonzeros=count(result, "nonzeros"),
        seconds=number(result, "seconds", low=0.0),
        layers={clean(name): _layer(layer) for name, layer in _table(inside(result, "layers")).items()},
        before=_histogram(inside(result, "histogram", "w")),
        after=_histogram(inside(result, "histogram", "u")),
        norms_w=_norms(inside(result, "channel_norms", "w")),
        norms_u=_norms(inside(result, "channel_norms", "u")),
        multiplications_saved=share(result, "multiplications_saved"),
        file_bytes=count(runtime, "file_bytes"),
        speedup=number(runtime, "speedup", low=0.0),
        batch=count(runtime, "batch"),
        threads=count(runtime, "threads"),
        removed=count(result, "channels", "removed"),
        channels=count(result, "channels", "total"),
    )


def _histogram(found: Any) -> Histogram | None:
    counts, zeros = listed(inside(found, "counts"), low=0.0), count(found, "zeros")
    ends = listed(inside(found, "range")) or _RANGE
    if not counts or zeros is None or len(ends) != 2 or not -30 <= ends[0] < ends[1] <= 30:
        return None
    return Histogram(zeros, counts, *ends)


def _layer(found: Any) -> Layer:
    shape = listed(inside(found, "shape"), low=0.0) or ()
    return Layer(
        shape=tuple(map(int, shape)),
        density=share(found, "density"),
        multiplications=number(found, "multiplications", low=0.0),
    )


def _thresholds(found: Any) -> dict[str, float]:
    named = {clean(name): number(layer, "threshold", low=0.0) for name, layer in _table(found).items()}
    return {name: threshold for name, threshold in named.items() if threshold is not None}


def _norms(found: Any) -> dict[str, tuple[float, ...]]:
    named = {clean(name): listed(norms, low=0.0) for name, norms in _table(found).items()}
    return {name: norms for name, norms in named.items() if norms}


def _table(found: Any) -> Mapping[str, Any]:
    return found if isinstance(found, Mapping) else {}
