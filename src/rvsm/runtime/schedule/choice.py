"""The choice between the sparse and the dense kernel, where the density decides it."""

from rvsm.runtime.plan.operations import Convolution
from rvsm.runtime.schedule.step import Site

SPARSE_BELOW = 0.1  # the densities at which the choice is clear
DENSE_ABOVE = 0.9


def clear_choice(site: Site[Convolution]) -> str | None:
    """Return "sparse" or "dense" if it is given, or clear from the density; None if both must be tried."""
    assert site.weights is not None
    density = 1 - site.weights.sparsity
    if site.choose is not None:
        return site.choose
    if SPARSE_BELOW < density < DENSE_ABOVE:
        return None
    return "dense" if density >= DENSE_ABOVE else "sparse"
