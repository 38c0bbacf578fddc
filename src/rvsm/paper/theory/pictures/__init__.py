"""The laboratory's pictures. Only these need matplotlib."""

from collections.abc import Callable

from rvsm.pages import Figure
from rvsm.paper.theory.pictures.convergence import descent, error_against_beta, rate, sparsity_against_error
from rvsm.paper.theory.pictures.data import batches, finite_samples, second_layer
from rvsm.paper.theory.pictures.hypotheses import beta_and_start, opposite, threshold
from rvsm.paper.theory.pictures.plane import phase_portrait, two_paths

PICTURES: dict[str, list[Callable[[bool], Figure]]] = {
    "Descent": [phase_portrait],
    "Theorem 1": [descent, rate, error_against_beta],
    "Claims in the text": [sparsity_against_error],
    "Ours: the gradient at u": [two_paths],
    "Outside the hypotheses": [beta_and_start, threshold, opposite],
    "Beyond the paper": [finite_samples, batches, second_layer],
}
"""The pictures of each section of the page; the argument of a picture is whether to draw a quick version."""
