"""The theory laboratory: the paper's network, its simulation by the shipped methods, and its statements as functions.

>>> from rvsm.paper.theory import run
>>> next(run(["gradient"], quick=True)).verdict
'holds'
"""

from rvsm.paper.theory.bounds import beta_bound
from rvsm.paper.theory.conditions import Condition, Conditions, conditions
from rvsm.paper.theory.network import (
    CriticalPoints,
    Population,
    angle,
    critical_points,
    cross_moment,
    curvature,
    gradient,
    hessian_eigenvalues,
    loss,
)
from rvsm.paper.theory.sample import Empirical, inputs, monte_carlo, output
from rvsm.paper.theory.simulate import simulate, walk
from rvsm.paper.theory.statements import EXPECTED, STATEMENTS, differences, run
from rvsm.paper.theory.sweep import Sweep
from rvsm.paper.theory.trajectory import Setting, Trajectory
from rvsm.paper.theory.verdict import Verdict

__all__ = [
    "EXPECTED",
    "STATEMENTS",
    "Condition",
    "Conditions",
    "CriticalPoints",
    "Empirical",
    "Population",
    "Setting",
    "Sweep",
    "Trajectory",
    "Verdict",
    "angle",
    "beta_bound",
    "conditions",
    "critical_points",
    "cross_moment",
    "curvature",
    "differences",
    "gradient",
    "hessian_eigenvalues",
    "inputs",
    "loss",
    "monte_carlo",
    "output",
    "run",
    "simulate",
    "walk",
]
