"""The profile of a model's layers: measured with their own groups, or checked against a model to be trained."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import sqrt
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from rvsm.example_inputs import example_tuple
from rvsm.groups import Coupled, Grouping
from rvsm.modes import random_state_kept
from rvsm.splitting.budget import Budget
from rvsm.splitting.coupled import coupled
from rvsm.splitting.ends import without_ends
from rvsm.splitting.layers import Layer, Layers
from rvsm.splitting.naming import select
from rvsm.splitting.notices import warn
from rvsm.splitting.options import give_options
from rvsm.splitting.shards import is_distributed
from rvsm.splitting.units import units
from rvsm.splitting.weights import unwrap
from rvsm.timing import Profile

BATCH = 64
"""The batch size of a profile for which none is given."""
LEAST = 0.005
"""The least density that is measured: the floor that budgets have by default."""
INDEPENDENT = 8
"""How many weights of a group count as independent."""

Example = Tensor | tuple[Any, ...] | None


def profile(
    model: nn.Module,
    example_input: Tensor | Sequence[Tensor],
    *,
    groups: Grouping | str = "element",
    include: Iterable[str] | None = None,
    exclude: Iterable[str] | None = None,
    batch: int = BATCH,
    threads: int | None = None,
) -> Profile:
    """Measure how long each layer takes in the runtime on this machine, depending on its zeros.

    The network is compiled with random zeros at several densities and timed, layer by layer and as a whole; the weights
    of the model are not changed. Give the result to ``Budget(speedup=…, profile=…)``, or ``save`` it to a file.

    Args:
        model: a module that the runtime can run as a whole; if it would need PyTorch, a ValueError says for what.
        example_input: a batch, or a tuple of several inputs; only the shapes matter.
        groups: which weights are zero together, as in the training that the profile is for.
        include: shell patterns of the parameters that may have zeros; as for a method by default.
        exclude: shell patterns of the parameters that stay dense.
        batch: the number of examples in a call.
        threads: the number of threads of a call; by default ``OMP_NUM_THREADS`` if it is set, else all usable cores.

    >>> model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(128, 10))
    >>> times = profile(model, torch.zeros(1, 1, 6, 6), batch=8, threads=1)
    >>> list(times.layers), times.batch, times.dense > times.seconds({"0.weight": 0.1})
    (['0.weight', '3.weight'], 8, True)

    """
    network = unwrap(model)
    examples = example_tuple(example_input)
    layers = select(network, include, exclude)
    give_options(layers, {"groups": groups}, None, named=False)
    arranged = coupled if any(isinstance(layer.groups, Coupled) for layer in layers) else without_ends
    return measured(arranged(layers, network, examples), network, examples, batch=batch, threads=threads)


def with_profile(budget: Budget, layers: Layers, network: nn.Module | None, example_input: Example) -> Budget:
    """Return a budget by time with its profile, which is checked against the layers, or measured if there is none."""
    if (given := budget.times) is not None:
        inputs = None if example_input is None else [tuple(x.shape[1:]) for x in example_tuple(example_input)]
        require_fitting(given, layers, inputs)
        return budget
    if network is None or example_input is None:
        raise ValueError(
            "a budget by time needs profile=, a file that rvsm profile wrote, or the module and example_input=, a batch"
            " to measure the runtime with"
        )
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        raise ValueError(
            "several processes would measure different times; measure once, with rvsm profile or rvsm.profile(...) in"
            " one process, and give all of them the file as profile="
        )
    return replace(budget, profile=measured(layers, network, example_tuple(example_input)))


def measured(
    layers: Layers, network: nn.Module, examples: tuple[Tensor, ...], *, batch: int = BATCH, threads: int | None = None
) -> Profile:
    """Return the profile of layers with their groups, measured on this machine."""
    from rvsm.timing.measure import measure

    for name, value in (("batch", batch), *(() if threads is None else (("threads", threads),))):
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{name} must be an integer but is {value!r}")
        if value < 1:
            raise ValueError(f"{name} must be at least 1 but is {value}")
    examples = tuple(x.float() if x.is_floating_point() else x for x in examples)  # as the runtime computes
    if any(is_distributed(layer.parameter) for layer in layers):
        raise ValueError("the time of a sharded network cannot be measured; give profile=, measured before sharding")
    layers = Layers(layer for layer in layers if layer.parameter.requires_grad)  # frozen ones never have zeros
    if not layers:
        raise ValueError("the network has no weights that are trained, so there are no zeros to measure")
    groups = {layer.name: described(layer.groups) for layer in layers}
    with random_state_kept():
        try:
            return measure(network, examples, _RandomZeros(layers), groups, batch=batch, threads=threads)
        except ValueError as error:
            raise ValueError(f"the time of the network cannot be predicted: {error}") from None


def require_fitting(given: Profile, layers: Sequence[Layer], inputs: Iterable[tuple[int, ...]] | None) -> None:
    """Raise if a profile is of another network or of other groups; warn if it is of another kind of machine."""
    from rvsm.runtime.kernels.jit import machine

    matrices = [layer for layer in layers if layer.parameter.dim() > 1 and layer.parameter.requires_grad]
    shapes = {layer.name: tuple(layer.parameter.shape) for layer in matrices}
    if (difference := given.differences(shapes, inputs)) is not None:
        raise ValueError(
            f"the profile is of another network: {difference}; measure this one with rvsm profile, or exclude layers"
            " that the runtime does not have"
        )
    for layer in matrices:
        if (there := given.layers[layer.name].groups) != (here := described(layer.groups)):
            raise ValueError(
                f"the profile was measured with zeros by {there} in {layer.name!r}, but here they are by {here};"
                " measure it with the groups of the training"
            )
    if given.machine != (here := machine().name):
        warn(
            f"the profile is of a machine of the type {given.machine!r}, and this one is {here!r}: the speed is"
            " predicted for the former, and a measurement here will differ"
        )


def described(groups: Grouping) -> str:
    """Return the name of a grouping, with its size if it has one.

    >>> from rvsm.groups import Block, Element
    >>> described(Element()), described(Block(size=4))
    ('element', 'block of 4')
    """
    size = getattr(groups, "size", None)
    return type(groups).__name__.lower() + ("" if size is None else f" of {size}")


class _RandomZeros:
    """Makes random groups of layers zero, with given probabilities; one group of each unit always stays.

    The densities on the way of a budget are those that it would choose if the weights of each layer were independent
    and normally distributed, with the standard deviation that they have. The norms of large groups would then be nearly
    equal, which those of trained weights are not; so no more than INDEPENDENT weights of a group count.
    """

    def __init__(self, layers: Layers) -> None:
        self._units = units(layers)
        self._deviations = [unit.deviation() for unit in self._units]
        self._freedom = [min(unit.weights / unit.groups, INDEPENDENT) for unit in self._units]
        self._generator = torch.Generator().manual_seed(0)

    def uniform(self, density: float) -> Mapping[str, Tensor]:
        """Return which weights of each layer are zero if all layers have the same density."""
        return self._masks([density] * len(self._units))

    def on_the_way(self, profile: Profile, speed: float) -> Mapping[str, Tensor] | None:
        """Return which weights are zero if a budget has reached a speed, as a profile predicts; None if it cannot."""
        if profile.speedup(self._named(self._densities(profile, float("inf")))) < speed:
            return None
        low, high = 0.0, 1.0
        while profile.speedup(self._named(self._densities(profile, high))) < speed:
            low, high = high, 2 * high
        for _ in range(40):
            middle = (low + high) / 2
            reached = profile.speedup(self._named(self._densities(profile, middle))) >= speed
            low, high = (low, middle) if reached else (middle, high)
        return self._masks(self._densities(profile, high))

    def _densities(self, profile: Profile, threshold: float) -> list[float]:
        """Return the density of each unit if weights rank by |w|/√c."""
        prices = [unit.cost(lambda layer: profile.costs.get(layer.name, 0.0)) for unit in self._units]
        largest = max(prices)
        densities = []
        for price, deviation, freedom in zip(prices, self._deviations, self._freedom, strict=True):
            cut = threshold * sqrt(price / largest) / deviation  # of the root mean square of a group's weights
            above = torch.special.gammaincc(torch.tensor(freedom / 2), torch.tensor(freedom / 2 * cut**2))
            densities.append(max(float(above), LEAST))
        return densities

    def _named(self, densities: Sequence[float]) -> dict[str, float]:
        pairs = zip(self._units, densities, strict=True)
        return {layer.name: density for unit, density in pairs for layer in unit.layers}

    def _masks(self, densities: Sequence[float]) -> Mapping[str, Tensor]:
        masks: dict[str, Tensor] = {}
        for unit, density in zip(self._units, densities, strict=True):
            groups = unit.magnitudes()
            order = torch.rand(groups.numel(), generator=self._generator)
            chosen = (order >= density).index_fill_(0, order.argmin(), False)
            masks.update(unit.spread(chosen.view(groups.shape).to(groups.device)))
        return {name: mask.cpu() for name, mask in masks.items()}
