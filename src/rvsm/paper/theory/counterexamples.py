"""The small runs that decide statements, each as a function, for statements and pictures."""

from math import pi, sqrt

import torch
from torch import Tensor

from rvsm.paper.theory.bounds import beta_bound
from rvsm.paper.theory.network import curvature, unit
from rvsm.paper.theory.problems import standard, starts, truths
from rvsm.paper.theory.simulate import simulate
from rvsm.paper.theory.trajectory import Order, Setting, Trajectory
from rvsm.penalties import L0, Penalty


def two_cycle(
    penalty: Penalty | None = None, *, truth_angle: float = 1.2, order: Order = "printed", steps: int = 400
) -> Trajectory:
    """Run counterexample 1: in the printed order w alternates between two points forever; in the proof's it converges.

    All hypotheses hold with δ = 1: d = 2, k = 4, β = .066, η = 1.8, start 1.3 rad from the truth. L may be .485,
    because no quotient of the run, which Lemma 2 bounds, exceeds it. With Lemma 4's L ≥ 4 the step could be at most a
    seventh of this, and no cycle is known; but ℒ rises in `short_step`.
    """
    truth, start = (_direction(angle) for angle in (truth_angle, truth_angle + 1.3))
    chosen = L0(lam=0.36 * 0.066) if penalty is None else penalty
    return simulate(Setting(chosen, k=4, beta=0.066, eta=1.8), truth, start, steps=steps, order=order, empty_ok=True)


TWO_CYCLE = {
    "order": "printed", "penalty": "l0", "d": 2, "k": 4, "beta": 0.066, "mu": 0.36, "eta": 1.8, "delta": 1.0,
    "truth": "(cos 1.2, sin 1.2)", "start": "(cos 2.5, sin 2.5)",
}  # fmt: skip
"""The parameters of counterexample 1, for verdicts."""


def cycle_at_u() -> Trajectory:
    """Run ℓ0 with the gradient at u from RVSM's limit: one entry of w crosses the threshold forever.

    As in `two_cycle`, d = 2, k = 4, β = .066 and δ = 1. λ/β = .18, so t = .6, and η = 1/(β+L⁺). The second entry of w*
    is .479. Outside the support the gradient takes it above t, because β is small; inside it falls below t again.
    """
    setting, truth = standard("l0", k=4, beta=0.066, mu=0.18), _direction(0.5)
    end = simulate(setting, truth, _direction(1.8), steps=300, every=300, tolerance=1e-14, empty_ok=True)
    return simulate(setting, truth, end.w[-1, 0, 0], steps=300, gradient="u", empty_ok=True)


def short_step() -> Trajectory:
    """Run ℓ0 in the printed order at η = 1/(β+4), as short as Lemma 4 requires: ℒ rises in the second and third step.

    All hypotheses hold with δ = 2. The first entry of w⁰ is 5e-8 above the threshold; it falls below and returns.
    """
    beta = beta_bound(k=4, delta=2.0)
    truth = torch.full((2,), sqrt(0.5), dtype=torch.float64)
    start = torch.tensor([0.70568207, 0.71151125], dtype=torch.float64)
    penalty = L0(lam=1.0).with_threshold(0.70568202, 1 / beta)
    setting = Setting(penalty, k=4, beta=beta, eta=1 / (beta + 4))
    return simulate(setting, truth, start, steps=10, order="printed", empty_ok=True)


def rising_angle() -> Trajectory:
    """Run counterexample 2: ℓ1 from w⁰ = w* = (.8, .6), whose angle to w* can only rise."""
    truth = torch.tensor([0.8, 0.6], dtype=torch.float64)
    return simulate(standard("l1", k=2, beta=0.1, mu=0.5 / sqrt(2)), truth, truth, steps=400, tolerance=1e-14)


def first_turn(multiple: float, *, delta: float = 1.0, k: int = 4, d: int = 2, norm: float = 1.0) -> float:
    """Return θ¹ − θ⁰ of counterexample 3: ℓ0, half of the entries just above the threshold, β a multiple of its bound.

    w⁰, w* and u are in one plane, with w⁰ between the others and θ⁰ = π − δ: the worst case of the paper's proof.
    """
    beta = multiple * beta_bound(k=k, delta=delta)
    w, truth = _worst_case(norm / sqrt(d), d=d, delta=delta)
    # A small step: to first order in η, the turn is η times the pull across w.
    penalty = L0(lam=1.0).with_threshold(norm / sqrt(d), 1 / beta)
    setting = Setting(penalty, k=k, beta=beta, eta=1e-3 / (beta + float(curvature(k))))
    path = simulate(setting, truth, w, steps=1, empty_ok=True)
    return float(path.theta[1] - path.theta[0])


def all_entries_below_threshold() -> Trajectory:
    """Run ℓ1 with w* = (1, 1)/√2, k = 2, μ = .9/√2 and β at its bound for δ = 1: u ends empty though μ < 1/√d."""
    truth, start = torch.tensor([[sqrt(0.5), sqrt(0.5)], [1.0, 0.2]], dtype=torch.float64)
    setting = standard("l1", k=2, beta=beta_bound(k=2, delta=1.0), mu=0.9 / sqrt(2))
    return simulate(setting, truth, start, steps=600, tolerance=1e-14, empty_ok=True)


def equal_entries(d: int, *, k: int, beta: float, spread: float = 0.0) -> tuple[Trajectory, Tensor]:
    """Run ℓ1 with w* = (1, …, 1)/√d and μ = .5/√d, where w̄ and ū are parallel to w* and all error is radial.

    With a spread, the entries of w* alternate between 1 ± spread before they are scaled. Also return w*.
    """
    truth = unit(1 + spread * (-1.0) ** torch.arange(d, dtype=torch.float64))
    start = truth.clone()
    start[0] += 0.3
    setting = standard("l1", k=k, beta=beta, mu=0.5 / sqrt(d))
    return simulate(setting, truth, start, steps=800, every=800, tolerance=1e-14), truth


def beta_far_too_large(*, seeds: int) -> tuple[Trajectory, Tensor]:
    """Run counterexample 4: k = 128, β = .1 (bound .0021 for δ = 1), d = 10, ℓ1; also return the truths."""
    generator = torch.Generator().manual_seed(0)
    truth = truths(seeds, 10, generator)
    start = starts(truth, torch.linspace(0.1, pi - 1, seeds, dtype=torch.float64), generator)
    setting = standard("l1", k=128, beta=0.1, mu=0.5 / sqrt(10))
    return simulate(setting, truth, start, steps=1500, tolerance=1e-12), truth


def large_start() -> Trajectory:
    """Run ℓ0 from ‖w⁰‖ > 2‖w*‖ at θ⁰ = π − δ, half of the entries just above the threshold: θ leaves π − δ.

    This is the worst case of the paper's proof again, with β at its bound, but without ‖u‖ ≤ 1, which the proof
    assumes. The threshold is also large, √d·t > ‖w*‖: with a smaller one, u is too close to w to turn it, for any w⁰.
    """
    d, beta = 64, beta_bound(k=4, delta=1.0)
    penalty = L0(lam=0.9 / sqrt(d) * beta)
    w, truth = _worst_case(penalty.threshold(1 / beta), d=d, delta=1.0)
    return simulate(Setting(penalty, k=4, beta=beta, eta=0.05), truth, w, steps=20, empty_ok=True)


def _worst_case(threshold: float, *, d: int, delta: float) -> tuple[Tensor, Tensor]:
    """Return w⁰, half of whose entries are just above the threshold, and w* on the opposite side from u."""
    half = torch.arange(d) < d // 2
    w = threshold * torch.where(half, 1.0 + 1e-6, 1.0 - 1e-6).double()
    axis, across = unit(w), torch.where(half, -1.0, 1.0).double()
    across = unit(across - (across @ axis) * axis)
    angle = torch.tensor(pi - delta, dtype=torch.float64)
    return w, angle.cos() * axis + angle.sin() * across


def _direction(angle: float) -> Tensor:
    a = torch.tensor(angle, dtype=torch.float64)
    return torch.stack([a.cos(), a.sin()])
