"""A profile: how long each layer of a network takes in the runtime, depending on how many of its weights are zero."""

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path

from rvsm.timing import file
from rvsm.timing.curves import Curve

SPARSE = 0.25  # the density below which the sparse kernel runs in any case, and its time is close to a straight line
NEGLIGIBLE = 1e-3  # of the median cost of a weight: the least cost that a ranking works with


@dataclass(frozen=True)
class LayerTimes:
    """The seconds of one layer in a call, against the fraction of its weights that are not zero.

    Attributes:
        shape: the shape of the weights.
        groups: which weights were zero together in the measurement.
        seconds: the curve, from density 0 to density 1.

    >>> times = LayerTimes((8, 8), "element", Curve((0.0, 0.5, 1.0), (1.0, 3.0, 4.0)))
    >>> float(times.seconds(0.25)), times.slope
    (2.0, 0.0625)

    """

    shape: tuple[int, ...]
    groups: str
    seconds: Curve

    @property
    def weights(self) -> int:
        """The number of weights."""
        return prod(self.shape)

    @property
    def slope(self) -> float:
        """The seconds that one weight costs in a sparse layer."""
        return float(self.seconds(SPARSE) - self.seconds(0.0)) / (SPARSE * self.weights)


@dataclass(frozen=True)
class Profile:
    """A cost model of a network in the runtime, for one machine, batch size and number of threads.

    The time of a call follows from the sum of its parts: a fixed one, and the times of the layers, each a
    piecewise-linear function of the layer's own zeros. `rvsm.profile` measures it, and ``rvsm profile`` writes it to a
    file.

    Attributes:
        machine: the kind of processor.
        batch: the number of examples in a call.
        threads: the number of threads of a call.
        inputs: the shapes of one example's inputs.
        fixed: the seconds of a call that do not depend on zeros: other operations, copies, the call itself.
        layers: the times of the layers, by the names of their weights.
        calls: the seconds of a call against the sum of its parts, from (0, 0); None if they are equal. They differ
            because a layer is faster if the others are sparse, too: then the weights stay in the cache.

    >>> times = LayerTimes((4, 3), "element", Curve((0.0, 1.0), (1.0, 9.0)))
    >>> profile = Profile("znver4", 64, 2, ((3, 32, 32),), 1.0, {"conv.weight": times})
    >>> profile.dense, profile.speedup({"conv.weight": 0.0})
    (10.0, 5.0)

    """

    machine: str
    batch: int
    threads: int
    inputs: tuple[tuple[int, ...], ...]
    fixed: float
    layers: Mapping[str, LayerTimes]
    calls: Curve | None = None

    @cached_property
    def dense(self) -> float:
        """The seconds of a call of the dense network."""
        return self.seconds({})

    @cached_property
    def dense_parts(self) -> float:
        """The sum of the parts of the dense network."""
        return self.parts({})

    def seconds(self, densities: Mapping[str, float]) -> float:
        """Return the predicted seconds of a call, given the fraction of non-zero weights of some layers; 1 for others.

        Names that the profile does not have do not matter.
        """
        return self.call(self.parts(densities))

    def parts(self, densities: Mapping[str, float]) -> float:
        """Return the sum of the parts of a call: the fixed one, and that of each layer at its density."""
        each = (float(times.seconds(densities.get(name, 1.0))) for name, times in self.layers.items())
        return self.fixed + sum(each)

    def call(self, parts: float) -> float:
        """Return the seconds of a call whose parts have this sum."""
        return parts if self.calls is None else float(self.calls(parts))

    def saved_parts(self, saved: float) -> float:
        """Return the fraction of the parts that must be saved to save a fraction of the dense network's call.

        >>> profile = Profile("", 1, 1, ((1,),), 4.0, {}, Curve((0.0, 2.0, 4.0), (0.0, 1.0, 4.0)))
        >>> profile.saved_parts(0.75), profile.saved_parts(0.875)
        (0.5, 0.75)
        """
        if self.calls is None:
            return saved
        return 1 - float(self.calls.inverse((1 - saved) * self.dense)) / self.dense_parts

    def speedup(self, densities: Mapping[str, float]) -> float:
        """Return how many times faster than the dense network a network with these densities is, as predicted."""
        return self.dense / self.seconds(densities)

    @cached_property
    def costs(self) -> dict[str, float]:
        """The seconds that one more non-zero weight costs in each layer, always positive."""
        slopes = {name: times.slope for name, times in self.layers.items()}
        least = NEGLIGIBLE * sorted(slopes.values())[len(slopes) // 2]
        return {name: max(slope, least) for name, slope in slopes.items()}

    @cached_property
    def digest(self) -> str:
        """Eight characters that depend on all numbers."""
        return hashlib.sha256(file.encode(self).encode()).hexdigest()[:8]

    def differences(
        self, shapes: Mapping[str, tuple[int, ...]], inputs: Iterable[tuple[int, ...]] | None = None
    ) -> str | None:
        """Return how a network differs from the one that was measured, as a phrase; None if it does not.

        Args:
            shapes: the shapes of the layers that are to become sparse, by name.
            inputs: the shapes of one example's inputs, if they are known.

        """
        for name, shape in shapes.items():
            if name not in self.layers:
                return f"it has no times for {name!r}"
            if self.layers[name].shape != tuple(shape):
                return f"{name!r} has the shape {list(self.layers[name].shape)} there but {list(shape)} here"
        if inputs is not None and (given := tuple(map(tuple, inputs))) != self.inputs:
            return f"its input is {_shapes(self.inputs)} there but {_shapes(given)} here"
        return None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a JSON file, which can be copied from machine to machine; a kill leaves the old file or none."""
        file.write(self, Path(path))

    @staticmethod
    def load(path: str | os.PathLike[str]) -> "Profile":
        """Read a file that `save` has written. Everything in it is checked; a damaged file raises a ValueError."""
        return file.read(Path(path))

    def __repr__(self) -> str:
        size = f"{len(self.layers)} layer{'s' * (len(self.layers) != 1)}"
        return f"Profile({size}, batch {self.batch}, {self._threads}, {self.machine}, {self.digest})"

    def __hash__(self) -> int:
        return hash(self.digest)

    @property
    def _threads(self) -> str:
        return f"{self.threads} thread{'s' * (self.threads != 1)}"

    def __str__(self) -> str:
        width = max(map(len, ("layer", *self.layers)))
        table: list[tuple[str, ...]] = [("layer", "shape", "zeros by", "dense, µs", "empty, µs", "ns/weight")]
        for name, times in self.layers.items():
            ends = [f"{1e6 * float(times.seconds(density)):.1f}" for density in (1.0, 0.0)]
            table.append((name, "×".join(map(str, times.shape)), times.groups, *ends, f"{1e9 * times.slope:.3g}"))
        rows = [f"{name:{width}}  {shape:>16}  " + "  ".join(f"{x:>10}" for x in rest) for name, shape, *rest in table]
        least = self.seconds(dict.fromkeys(self.layers, 0.0))
        about = f"{self.machine}; batch {self.batch}, {self._threads}"
        total = (
            f"a call takes {1e3 * self.dense:.3g} ms without zeros and {1e3 * least:.3g} ms without any weight, so no"
            f" network of this kind is more than {self.dense / least:.1f} × as fast"
        )
        return "\n".join([about, *rows, total])


def _shapes(shapes: Iterable[tuple[int, ...]]) -> str:
    """Return shapes for an error message.

    >>> _shapes([(3, 32, 32), (7,)])
    '3×32×32 and 7'
    """
    return " and ".join("×".join(map(str, shape)) for shape in shapes)
