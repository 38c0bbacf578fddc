"""The theory laboratory: the paper's network, its simulation by the shipped methods, and its statements as functions.

>>> from rvsm.theory import run
>>> next(run(["gradient"], quick=True)).verdict
'holds'
"""

from rvsm.theory.bounds import beta_bound
from rvsm.theory.conditions import Condition, Conditions, conditions
from rvsm.theory.expected import EXPECTED, differences
from rvsm.theory.network import (
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
from rvsm.theory.sample import Empirical, inputs, monte_carlo, output
from rvsm.theory.simulate import simulate, walk
from rvsm.theory.statements import STATEMENTS, run
from rvsm.theory.sweep import Sweep
from rvsm.theory.trajectory import Setting, Trajectory
from rvsm.theory.verdict import Verdict

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
