"""The pictures, one module for each kind."""

from collections.abc import Callable, Sequence

from rvsm.pages import Figure
from rvsm.report.configurations import Configuration
from rvsm.report.pictures.channels import channels
from rvsm.report.pictures.course import accuracy, losses, sparsity_and_gap
from rvsm.report.pictures.lagrangian import lagrangian
from rvsm.report.pictures.layers import layers
from rvsm.report.pictures.plane import plane
from rvsm.report.pictures.weights import weights

PICTURES: dict[str, Callable[[Sequence[Configuration]], Figure | None]] = {
    "accuracy-sparsity": plane,
    "accuracy-by-epoch": accuracy,
    "loss-and-learning-rate": losses,
    "sparsity-and-gap": sparsity_and_gap,
    "lagrangian": lagrangian,
    "density-by-layer": layers,
    "weights-histogram": weights,
    "channel-norms": channels,
}
"""All pictures by the names of their files, in the order of the page; None if there is nothing to draw."""
