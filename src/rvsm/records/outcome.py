"""The outcome of a run: the typed form of ``result.json`` and ``runtime.json``, also in a results file."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import nan
from typing import Any

from rvsm.records.values import (
    COUNT,
    FRACTION,
    LARGE,
    LINE,
    LIST,
    NON_NEGATIVE,
    NON_NEGATIVES,
    NUMBERS,
    SHAPE,
    TABLE,
    Kind,
    clean,
    inside,
)

OURS = "rvsm"
"""The name of the sparse runtime among the engines that were timed."""

_LOSS = Kind(
    "a number ≥ 0, or null",
    lambda found: nan if isinstance(found, float) and not found <= LARGE else NON_NEGATIVE.read(found),
)
_RANGE = (-7.0, 1.0)  # decimal logarithms, used if a histogram has no range


@dataclass(frozen=True)
class Test:
    """Accuracy and loss on the test images; the loss is NaN if it was not finite."""

    __test__ = False  # otherwise pytest would collect it as a test

    accuracy: float
    loss: float

    @classmethod
    def of(cls, tree: Any, copy: str) -> "Test":
        """Read the values of w or of u."""
        loss = _LOSS.given(tree, "test", copy, "loss")
        return cls(FRACTION.needed(tree, "test", copy, "accuracy"), nan if loss is None else loss)


@dataclass(frozen=True)
class Layer:
    """A sparsified tensor at the end.

    Attributes:
        shape: its shape.
        density: the fraction of its weights that are not zero.
        multiplications: the multiplications of the whole layer for one image, including zeros, if known.

    """

    shape: tuple[int, ...]
    density: float
    multiplications: float | None = None


@dataclass(frozen=True)
class Histogram:
    """The distribution of weight magnitudes: counts in bins of log10 |w|, and the number of zeros."""

    zeros: int
    counts: tuple[float, ...]
    low: float
    high: float

    @classmethod
    def of(cls, tree: Any) -> "Histogram | None":
        """Read a histogram; None if it is not valid."""
        counts, zeros = NON_NEGATIVES.at(tree, "counts"), COUNT.at(tree, "zeros")
        ends = NUMBERS.at(tree, "range") or _RANGE
        if not counts or zeros is None or len(ends) != 2 or not -30 <= ends[0] < ends[1] <= 30:
            return None
        return cls(zeros, counts, *ends)

    @property
    def edges(self) -> list[float]:
        """The edges of the bins, as magnitudes."""
        width = (self.high - self.low) / len(self.counts)
        return [float(10 ** (self.low + width * i)) for i in range(len(self.counts) + 1)]


@dataclass(frozen=True)
class Timing:
    """The time of one engine at one batch size."""

    engine: str
    precision: str
    batch: int
    milliseconds: float

    @classmethod
    def of(cls, tree: Any) -> "Timing":
        """Read a timing."""
        milliseconds = NON_NEGATIVE.at(tree, "milliseconds")
        if not milliseconds:
            raise ValueError("runtime.engines should have milliseconds > 0")
        named = LINE.needed(tree, "engine"), LINE.needed(tree, "precision")
        return cls(*named, COUNT.needed(tree, "batch"), milliseconds)


@dataclass(frozen=True)
class Runtime:
    """The packed network: its size, and its speed compared with other engines."""

    file_bytes: int
    threads: int | None
    engines: tuple[Timing, ...]

    @classmethod
    def of(cls, tree: Any) -> "Runtime | None":
        """Read the measurements; None if there are none."""
        if tree is None:
            return None
        return cls(
            COUNT.needed(TABLE.needed({"runtime": tree}, "runtime"), "file_bytes"),
            COUNT.at(tree, "threads"),
            tuple(map(Timing.of, LIST.given({"runtime": tree}, "runtime", "engines") or ())),
        )

    @property
    def largest_batch(self) -> int | None:
        """The largest batch size that was timed; reports show its speed."""
        return max((t.batch for t in self.engines), default=None)

    def speedup(self, batch: int | None) -> tuple[float, str] | None:
        """Return how many times faster the packed network is than the fastest other engine, and which engine it is."""
        timings = [t for t in self.engines if t.batch == batch]
        ours = [t.milliseconds for t in timings if t.engine == OURS]
        others = [(t.milliseconds, t.engine) for t in timings if t.engine != OURS]
        if not ours or not others:
            return None
        fastest, engine = min(others)
        return fastest / ours[0], engine


@dataclass(frozen=True)
class Outcome:
    """The result of a finished run.

    Attributes:
        epochs: passes over the training images.
        steps: steps of the optimizer.
        minutes: the training time, if known.
        w: the weights at the end of training, on the test images.
        u: the sparse network, on the test images.
        test_images: how many test images there were.
        sparsity: the fraction of zeros over the sparsified weights.
        sparsity_of_all: the fraction of zeros over all parameters.
        multiplications_saved: the fraction of multiplications by zero, if known.
        weights: the number of sparsified weights.
        parameters: the number of all parameters.
        nonzeros: the number of parameters that are not zero.
        layers: the sparsified layers.
        before: the magnitudes of the weights w.
        after: the magnitudes of the weights u.
        norms_w: the norms of the output channels of w, by layer.
        norms_u: the norms of the output channels of u, by layer.
        channels: how many channels the runtime removes, and the total; None in older results.
        images: a fingerprint of the images.
        file_bytes: the size of the unpacked weights.
        runtime: the measurements of the packed network.

    """

    epochs: int
    steps: int
    minutes: float | None
    w: Test
    u: Test
    test_images: int | None
    sparsity: float
    sparsity_of_all: float
    multiplications_saved: float | None
    weights: int
    parameters: int
    nonzeros: int
    layers: Mapping[str, Layer]
    before: Histogram | None
    after: Histogram | None
    norms_w: Mapping[str, tuple[float, ...]]
    norms_u: Mapping[str, tuple[float, ...]]
    channels: tuple[int, int] | None
    images: str | None
    file_bytes: int | None
    runtime: Runtime | None

    @classmethod
    def of(cls, tree: Any, file_bytes: int | None, runtime: Runtime | None) -> "Outcome":
        """Read ``result.json``, or a line of a results file, which has the same keys.

        Raises:
            ValueError: a value is missing, of a wrong type or out of bounds.

        """
        seconds, norms_w = NON_NEGATIVE.given(tree, "seconds"), _norms(tree, "w")
        return cls(
            epochs=COUNT.needed(tree, "epochs"),
            steps=COUNT.needed(tree, "steps"),
            minutes=NON_NEGATIVE.given(tree, "minutes") if seconds is None else seconds / 60,
            w=Test.of(tree, "w"),
            u=Test.of(tree, "u"),
            test_images=COUNT.given(tree, "test_images"),
            sparsity=FRACTION.needed(tree, "sparsity"),
            sparsity_of_all=FRACTION.needed(tree, "sparsity_of_all"),
            multiplications_saved=FRACTION.given(tree, "multiplications_saved"),
            weights=COUNT.needed(tree, "weights"),
            parameters=COUNT.needed(tree, "parameters"),
            nonzeros=COUNT.needed(tree, "nonzeros"),
            layers=_layers(TABLE.given(tree, "layers") or {}),
            before=Histogram.of(inside(tree, "histogram", "w")),
            after=Histogram.of(inside(tree, "histogram", "u")),
            norms_w=norms_w,
            norms_u=_norms(tree, "u") or norms_w,
            channels=_channels(tree),
            images=LINE.given(tree, "images"),
            file_bytes=file_bytes,
            runtime=runtime,
        )

    @property
    def speedup(self) -> float | None:
        """How many times faster the packed network is than the fastest other engine, at the largest batch."""
        found = None if self.runtime is None else self.runtime.speedup(self.runtime.largest_batch)
        return None if found is None else found[0]


def _layers(table: Mapping[str, Any]) -> dict[str, Layer]:
    layers = {}
    for name, found in table.items():
        shape, density = SHAPE.at(found, "shape"), FRACTION.at(found, "density")
        if not shape or density is None:
            raise ValueError(f"layers.{clean(name)} should have a shape of integers ≥ 1 and a density in [0, 1]")
        layers[clean(name)] = Layer(shape, density, NON_NEGATIVE.given(found, "multiplications"))
    return layers


def _norms(tree: Any, copy: str) -> dict[str, tuple[float, ...]]:
    """Return the norms of w or of u; those of u are omitted in a file if they are the same."""
    table = TABLE.given(tree, "channel_norms", copy) or {}
    return {clean(name): NON_NEGATIVES.needed(tree, "channel_norms", copy, name) for name in table}


def _channels(tree: Any) -> tuple[int, int] | None:
    if not TABLE.given(tree, "channels"):
        return None
    return COUNT.needed(tree, "channels", "removed"), COUNT.needed(tree, "channels", "total")
