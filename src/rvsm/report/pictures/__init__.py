"""The pictures, one file for each kind; each returns None where there is nothing to draw."""

from rvsm.report.pictures.channels import channels
from rvsm.report.pictures.course import accuracy, sparsity_and_gap
from rvsm.report.pictures.lagrangian import lagrangian
from rvsm.report.pictures.layers import layers
from rvsm.report.pictures.plane import plane
from rvsm.report.pictures.weights import weights

__all__ = ["accuracy", "channels", "lagrangian", "layers", "plane", "sparsity_and_gap", "weights"]
