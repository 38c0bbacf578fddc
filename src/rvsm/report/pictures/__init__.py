"""The pictures, one module for each kind; each function returns None if there is nothing to draw."""

from rvsm.report.pictures.channels import channels
from rvsm.report.pictures.course import accuracy, sparsity_and_gap
from rvsm.report.pictures.lagrangian import lagrangian
from rvsm.report.pictures.layers import layers
from rvsm.report.pictures.losses import losses
from rvsm.report.pictures.panels import key
from rvsm.report.pictures.plane import plane
from rvsm.report.pictures.weights import weights

NAMES = (
    "accuracy-sparsity",
    "accuracy-by-epoch",
    "loss-and-learning-rate",
    "sparsity-and-gap",
    "lagrangian",
    "density-by-layer",
    "weights-histogram",
    "channel-norms",
)
"""The names of all pictures in the order of the page, so that obsolete files can be removed."""

__all__ = [
    "NAMES",
    "accuracy",
    "channels",
    "key",
    "lagrangian",
    "layers",
    "losses",
    "plane",
    "sparsity_and_gap",
    "weights",
]
