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
    read_fields,
    read_with,
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
    """A sparsified tensor at the end."""

    shape: tuple[int, ...]
    density: float  # the fraction of its weights that are not zero
    multiplications: float | None = None  # of the whole layer for one image, including zeros, if known


@dataclass(frozen=True)
class Histogram:
    """The distribution of weight magnitudes: counts in bins of log10 |w|, and the number of zeros."""

    zeros: int
    counts: tuple[float, ...]
    low: float
    high: float

    @classmethod
    def at(cls, tree: Any, *path: str) -> "Histogram | None":
        """Read the histogram at a path; None if there is no valid one."""
        tree = inside(tree, *path)
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

    engine: str = read_with(LINE.needed)
    precision: str = read_with(LINE.needed)
    batch: int = read_with(COUNT.needed)
    milliseconds: float = read_with(NON_NEGATIVE.needed)

    @classmethod
    def of(cls, tree: Any) -> "Timing":
        """Read a timing."""
        if not NON_NEGATIVE.at(tree, "milliseconds"):
            raise ValueError("runtime.engines should have milliseconds > 0")
        return cls(**read_fields(cls, tree))


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
        whole = {"runtime": tree}  # for the errors
        return cls(
            COUNT.needed(TABLE.needed(whole, "runtime"), "file_bytes"),
            COUNT.at(tree, "threads"),
            tuple(map(Timing.of, LIST.given(whole, "runtime", "engines") or ())),
        )

    @property
    def largest_batch(self) -> int | None:
        """The largest batch size that was timed; reports show its speed."""
        return max((t.batch for t in self.engines), default=None)

    def speedup(self, batch: int | None, precision: str | None = None) -> tuple[float, str] | None:
        """Return how many times faster the packed network is than the fastest other engine, and which engine it is.

        With a precision, only other engines that compute in it count.
        """
        timings = [t for t in self.engines if t.batch == batch]
        ours = [t.milliseconds for t in timings if t.engine == OURS]
        others = [(t.milliseconds, t.engine) for t in timings if t.engine != OURS and precision in (None, t.precision)]
        if not ours or not others:
            return None
        fastest, engine = min(others)
        return fastest / ours[0], engine


@dataclass(frozen=True)
class Speed:
    """The speed in the runtime relative to the dense network there, if it was the target."""

    predicted: float = read_with(NON_NEGATIVE.needed)  # from the profile, for its machine
    measured: float = read_with(NON_NEGATIVE.needed)  # at the end, on the machine that trained
    milliseconds: float = read_with(NON_NEGATIVE.needed)  # of a call, as measured
    batch: int = read_with(COUNT.needed)
    threads: int = read_with(COUNT.needed)

    @property
    def sentence(self) -> str:
        """The speed in words."""
        threads = f"{self.threads} thread{'s' * (self.threads > 1)}"
        return (
            f"{self.measured:.2f} × as fast as the dense network in the runtime ({self.predicted:.2f} × predicted),"
            f" {self.milliseconds:.3g} ms for a batch of {self.batch} with {threads}"
        )


def speed_of(tree: Any, key: str = "speed") -> Speed | None:
    """Read the speed in a result; None if it was not the target."""
    found = TABLE.given(tree, key)
    return None if found is None else Speed(**read_fields(Speed, found))


def _minutes(tree: Any, key: str) -> float | None:
    seconds = NON_NEGATIVE.given(tree, "seconds")
    return NON_NEGATIVE.given(tree, key) if seconds is None else seconds / 60


def _layers(tree: Any, key: str) -> dict[str, Layer]:
    layers = {}
    for name, found in (TABLE.given(tree, key) or {}).items():
        shape, density = SHAPE.at(found, "shape"), FRACTION.at(found, "density")
        if not shape or density is None:
            raise ValueError(f"layers.{clean(name)} should have a shape of integers ≥ 1 and a density in [0, 1]")
        layers[clean(name)] = Layer(shape, density, NON_NEGATIVE.given(found, "multiplications"))
    return layers


def _norms(tree: Any, *copies: str) -> dict[str, tuple[float, ...]]:
    """Return the norms of the first of the copies that has some."""
    tables = {copy: TABLE.given(tree, "channel_norms", copy) for copy in copies}
    copy = next((copy for copy in copies if tables[copy]), copies[0])
    return {clean(name): NON_NEGATIVES.needed(tree, "channel_norms", copy, name) for name in tables[copy] or ()}


def _channels(tree: Any, key: str) -> tuple[int, int] | None:
    if not TABLE.given(tree, key):
        return None
    return COUNT.needed(tree, key, "removed"), COUNT.needed(tree, key, "total")


@dataclass(frozen=True)
class Outcome:
    """The result of a finished run."""

    epochs: int = read_with(COUNT.needed)  # passes over the training images
    steps: int = read_with(COUNT.needed)  # of the optimizer
    minutes: float | None = read_with(_minutes)  # the training time
    w: Test = read_with(Test.of)  # the weights at the end of training
    u: Test = read_with(Test.of)  # the sparse network
    test_images: int | None = read_with(COUNT.given)
    sparsity: float = read_with(FRACTION.needed)  # the fraction of zeros over the sparsified weights
    sparsity_of_all: float = read_with(FRACTION.needed)  # the fraction of zeros over all parameters
    multiplications_saved: float | None = read_with(FRACTION.given)  # the fraction of multiplications by zero
    speed: Speed | None = read_with(speed_of)  # in the runtime, if it was the target
    weights: int = read_with(COUNT.needed)  # the number of sparsified weights
    parameters: int = read_with(COUNT.needed)
    nonzeros: int = read_with(COUNT.needed)  # the number of parameters that are not zero
    layers: Mapping[str, Layer] = read_with(_layers)  # the sparsified layers
    before: Histogram | None = read_with(Histogram.at, "histogram", "w")
    after: Histogram | None = read_with(Histogram.at, "histogram", "u")
    norms_w: Mapping[str, tuple[float, ...]] = read_with(_norms, "w")  # the norms of the output channels of w, by layer
    norms_u: Mapping[str, tuple[float, ...]] = read_with(_norms, "u", "w")  # a file omits them if they are those of w
    channels: tuple[int, int] | None = read_with(_channels)  # how many the runtime removes, and the total
    images: str | None = read_with(LINE.given)  # a fingerprint of the images
    file_bytes: int | None = None  # the size of the unpacked weights
    runtime: Runtime | None = None  # the measurements of the packed network

    @classmethod
    def of(cls, tree: Any, file_bytes: int | None, runtime: Runtime | None) -> "Outcome":
        """Read ``result.json``, or a line of a results file, which has the same keys.

        Raises:
            ValueError: a value is missing, of a wrong type or out of bounds.

        """
        return cls(**read_fields(cls, tree), file_bytes=file_bytes, runtime=runtime)

    @property
    def speedup(self) -> float | None:
        """How many times faster the packed network is than the fastest other engine, at the largest batch."""
        found = None if self.runtime is None else self.runtime.speedup(self.runtime.largest_batch)
        return None if found is None else found[0]


_SIDE = 1 << 20
_NEEDED: dict[str, Kind[Any]] = {
    "test": Kind(
        "the accuracies of w and u",
        lambda found: found if all(FRACTION.at(found, of, "accuracy") is not None for of in "wu") else None,
    ),
    "sparsity": FRACTION,
    "sparsity_of_all": FRACTION,
    "multiplications_saved": Kind(
        "a fraction in [0, 1], or null", lambda found: "unknown" if found is None else FRACTION.read(found)
    ),
    "seconds": NON_NEGATIVE,
    "input": Kind(
        f"three integers from 1 to {_SIDE}",
        lambda found: s if (s := SHAPE.read(found)) and len(s) == 3 and max(s) <= _SIDE else None,
    ),
    "classes": Kind(
        "a list of names", lambda found: found if LIST.read(found) and all(isinstance(n, str) for n in found) else None
    ),
    "mean": Kind("a list of numbers", lambda found: NUMBERS.read(found) or None),
    "std": Kind("a list of numbers > 0", lambda found: v if (v := NUMBERS.read(found)) and min(v) > 0 else None),
}
"""The kinds of the values that are used by their key, without an `Outcome`."""


def check_result(result: Mapping[str, Any], needed: tuple[str, ...]) -> None:
    """Raise unless a result has all needed keys, each with a value of its kind.

    >>> check_result({"sparsity": "half"}, ("sparsity",))
    Traceback (most recent call last):
    ...
    ValueError: 'sparsity' should be a fraction in [0, 1] but is 'half'
    """
    for key in needed:
        if key not in result:
            raise ValueError(f"{key!r} is missing")
        if _NEEDED[key].read(result[key]) is None:
            raise ValueError(f"{key!r} should be {_NEEDED[key].expected} but is {repr(result[key])[:60]}")
