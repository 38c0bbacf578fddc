"""One large set of runs inside the theorem's hypotheses, made once and shared by all statements."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import pi, sqrt
from typing import Any, TypeVar

import torch
from torch import Tensor

from rvsm.paper.theory.bounds import beta_bound, norm_floor
from rvsm.paper.theory.network import curvature, size
from rvsm.paper.theory.problems import PENALTIES, starts, truths
from rvsm.paper.theory.simulate import per_run, walk
from rvsm.paper.theory.trajectory import Moment, Order, Setting

T = TypeVar("T")


@dataclass(frozen=True)
class Plan:
    """The runs of a sweep: all combinations, each from as many starts as there are seeds."""

    dimensions: tuple[int, ...]  # d
    patches: tuple[int, ...]  # k
    margins: tuple[float, ...]  # δ, the margin of the initial angle
    shares: tuple[tuple[float, float], ...]  # pairs: β as a fraction of its bound, λ/β as a fraction of 1/√d
    seeds: int  # starts of each combination, with angles up to π − δ
    steps: int  # the maximum number of steps of a run


FULL = Plan((2, 10, 60), (2, 4, 12), (0.3, 1.0, 1.5, 2.2), ((1.0, 0.9), (0.3, 0.3)), 72, 1500)
QUICK = Plan((2, 10), (2, 12), (0.3, 2.2), ((1.0, 0.9), (0.3, 0.2)), 12, 1500)


@dataclass(frozen=True)
class Runs:
    """Runs of one dimension, one row each: their settings, the extremes on the way, and their ends.

    The largest change over a subset of the steps is −inf if the subset is empty.
    """

    d: int
    settings: tuple[Setting, ...]  # one for each block of seeds
    penalty: tuple[str, ...]  # the name of the penalty of each row
    k: Tensor
    beta: Tensor
    mu: Tensor
    eta: Tensor
    delta: Tensor
    threshold: Tensor
    truth: Tensor  # w*, of norm 1
    start: Tensor  # w⁰
    theta_start: Tensor  # θ⁰
    w: Tensor  # this and the next four are values after the last step
    u: Tensor
    theta: Tensor
    norm: Tensor
    stationarity: Tensor
    lagrangian_rise: Tensor  # the largest increase of ℒ in one step (negative if there is none)
    angle_rise: Tensor  # the largest increase of θ in one step
    angle_rise_far: Tensor  # the same for steps that start at θ ≥ δ
    angle_max: Tensor  # the largest θ
    rate: Tensor  # the largest of min_{t<T}‖∇_wℒ‖²·ηT/(2(ℒ⁰ − ℒᵀ)) over T
    contraction: Tensor  # the factor by which ‖∇_wℒ‖ fell per step, on average over the run
    lipschitz: Tensor  # the largest ‖∇f(wᵗ) − ∇f(wᵗ⁺¹)‖/‖wᵗ − wᵗ⁺¹‖
    quadratic: Tensor  # the largest f(wᵗ⁺¹) − f(wᵗ) − ⟨∇f(wᵗ), wᵗ⁺¹ − wᵗ⟩ − (L⁺/2)‖wᵗ⁺¹ − wᵗ‖²
    descent: Tensor  # the largest ℒᵗ⁺¹ − ℒᵗ + (1/η − (β+L⁺)/2)‖wᵗ⁺¹ − wᵗ‖²
    norm_min: Tensor  # the smallest ‖w‖ on the way
    norm_max: Tensor
    fall_inside: Tensor  # the largest decrease of ‖w‖ in a step that starts at ‖w‖ < ‖w*‖
    fall_below_floor: Tensor  # the same for steps that start below ‖w*‖·B/(A+βk²)
    rise_outside: Tensor  # the largest increase of ‖w‖ in a step that starts at ‖w‖ > ‖w*‖

    @property
    def gap(self) -> Tensor:
        """‖w̄ − ū‖."""
        return size(self.w - self.u)

    @property
    def error(self) -> Tensor:
        """‖w̄ − w*‖."""
        return size(self.w - self.truth)

    @property
    def error_bound(self) -> Tensor:
        """(π/(π−θ̄))·kβ‖w̄ − ū‖, the corrected bound on the error."""
        return pi / (pi - self.theta) * self.k * self.beta * self.gap

    def only(self, *names: str) -> Tensor:
        """Return a mask of the rows with one of these penalties."""
        return torch.tensor([name in names for name in self.penalty])


class Sweep:
    """The runs of a plan (a small one if quick) in both orders; each is made when it is first needed."""

    def __init__(self, *, quick: bool = False) -> None:
        self.quick = quick
        self.plan = QUICK if quick else FULL
        self._made: dict[tuple[Any, ...], Any] = {}

    def once(self, make: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Return make(*arguments, **options), called once, for runs that statements share."""
        key = (make, arguments, tuple(sorted(options.items())))
        if key not in self._made:
            self._made[key] = make(*arguments, **options)
        made: T = self._made[key]
        return made

    @cached_property
    def proof(self) -> tuple[Runs, ...]:
        """All three penalties in the proof's order, at η = 1/(β + L⁺)."""
        # One penalty at a time, because a walk lasts as long as its slowest run.
        each = product(self.plan.dimensions, PENALTIES)
        return tuple(_run(self.plan, d, "proof", (name,), 1.0) for d, name in each)

    @cached_property
    def printed_l1(self) -> tuple[Runs, ...]:
        """ℓ1 in the printed order, at the largest step that the correction allows, η = 1/(β + L⁺/2)."""
        plan = _smaller(self.plan)
        return tuple(_run(plan, d, "printed", ("l1",), 0.5) for d in plan.dimensions)

    @cached_property
    def printed_nonconvex(self) -> tuple[Runs, ...]:
        """ℓ0 and Tℓ1 in the printed order, at η = 1/(β + L⁺)."""
        plan = _smaller(self.plan)
        return tuple(_run(plan, d, "printed", ("l0", "tl1"), 1.0) for d in plan.dimensions)

    @cached_property
    def long_starts(self) -> tuple[Runs, ...]:
        """The proof's order from 2‖w*‖ < ‖w⁰‖ < 10‖w*‖, with λ/β so small that √d·t < ‖w*‖ for each penalty."""
        shares = {"l1": 0.9, "l0": 0.15, "tl1": 0.45}
        each = product(self.plan.dimensions[:2], shares.items())
        plan = _smaller(self.plan)
        return tuple(
            _run(replace(plan, shares=((1.0, share),)), d, "proof", (name,), 1.0, norms=(2.0, 10.0))
            for d, (name, share) in each
        )


def column(runs: tuple[Runs, ...], name: str, *penalties: str) -> Tensor:
    """Return one column of all runs, or of those with one of the penalties."""
    return torch.cat([getattr(p, name)[p.only(*penalties)] if penalties else getattr(p, name) for p in runs])


def worst(runs: tuple[Runs, ...], slack: Tensor) -> dict[str, Any]:
    """Return the parameters of the run with the smallest slack; slack has one entry for each run, in order."""
    row = int(slack.argmin())
    for part in runs:
        if row < len(part.k):
            numbers = {name: float(getattr(part, name)[row]) for name in ("k", "beta", "mu", "eta", "delta")}
            ends = {name: getattr(part, name)[row].tolist() for name in ("truth", "start")}
            return {"d": part.d, "penalty": part.penalty[row], **numbers, **ends}
        row -= len(part.k)
    raise IndexError("the slack has more entries than there are runs")


def _smaller(plan: Plan) -> Plan:
    shares = ((1.0, 0.9), (1.0, 0.3))
    return Plan(plan.dimensions[:2], plan.patches, plan.margins, shares[: len(plan.shares)], 24, 4 * plan.seeds)


def _settings(plan: Plan, d: int, penalties: tuple[str, ...], share: float) -> Iterator[tuple[str, float, Setting]]:
    """Yield (penalty's name, δ, setting); the step is 1/(β + share·L⁺)."""
    for name, k, delta, (beta_share, mu_share) in product(penalties, plan.patches, plan.margins, plan.shares):
        beta = beta_share * beta_bound(k=k, delta=delta)
        penalty = PENALTIES[name](mu_share / sqrt(d) * beta)
        yield name, delta, Setting(penalty, k=k, beta=beta, eta=1 / (beta + share * float(curvature(k))))


def _run(
    plan: Plan,
    d: int,
    order: Order,
    penalties: tuple[str, ...],
    share: float,
    *,
    norms: tuple[float, float] = (0.2, 2.0),
) -> Runs:
    generator = torch.Generator().manual_seed(1000 + d)
    listed = list(_settings(plan, d, penalties, share))
    settings = [setting for _, _, setting in listed]
    truth = truths(plan.seeds, d, generator).expand(len(listed), -1, -1)
    delta = torch.tensor([delta for _, delta, _ in listed], dtype=torch.float64).unsqueeze(-1)
    share_of_angle = torch.linspace(0.05, 1, plan.seeds, dtype=torch.float64)
    norm = norms[0] + (norms[1] - norms[0]) * torch.rand(
        len(listed), plan.seeds, generator=generator, dtype=torch.float64
    )
    start = starts(truth, share_of_angle * (pi - delta), generator, norm=norm)
    rows = {name: per_run(settings, name, plan.seeds) for name in ("k", "beta", "eta")}
    rows["delta"] = delta.expand(-1, plan.seeds).flatten()
    path = walk(settings, truth, start, steps=plan.steps, order=order, tolerance=1e-12)
    return Runs(
        d=d,
        settings=tuple(settings),
        penalty=tuple(name for name, _, _ in listed for _ in range(plan.seeds)),
        mu=per_run(settings, "mu", plan.seeds),
        threshold=per_run(settings, "threshold", plan.seeds),
        truth=truth.flatten(0, 1),
        start=start.flatten(0, 1),
        **rows,
        **_follow(path, **rows),
    )


def _follow(path: Iterator[Moment], *, delta: Tensor, eta: Tensor, k: Tensor, beta: Tensor) -> dict[str, Tensor]:
    """Run to the end and keep only the extremes."""
    first = last = next(path)
    low = torch.full_like(delta, -torch.inf)
    extremes: dict[str, Tensor] = {}
    high, floor = curvature(k), norm_floor(k=k, beta=beta)
    angle_max, norm_min, norm_max = first.theta, first.norm, first.norm
    least = first.stationarity.square()
    for moment in path:
        turn, grown, rise = moment.theta - last.theta, moment.norm - last.norm, moment.lagrangian - last.lagrangian
        step = moment.w - last.w
        moved = size(step)
        bound = 2 * (first.lagrangian - moment.lagrangian) / (eta * moment.step)
        rest = moment.loss - last.loss - (last.gradient * step).sum(dim=-1)
        news = {
            "lagrangian_rise": rise,
            "angle_rise": turn,
            "angle_rise_far": torch.where(last.theta >= delta, turn, low),
            "rate": least / (bound + 1e-15),
            # Below this, the two differences are rounding errors, and so is their quotient.
            "lipschitz": torch.where(moved > 1e-7, size(moment.gradient - last.gradient) / moved, 0.0),
            "quadratic": rest - high / 2 * moved.square(),
            "descent": rise + (1 / eta - (beta + high) / 2) * moved.square(),
            "fall_inside": torch.where(last.norm < 1, -grown, low),
            "fall_below_floor": torch.where(last.norm < floor, -grown, low),
            "rise_outside": torch.where(last.norm > 1, grown, low),
        }
        extremes = {name: torch.maximum(extremes.get(name, low), new) for name, new in news.items()}
        angle_max = torch.maximum(angle_max, moment.theta)
        norm_min, norm_max = torch.minimum(norm_min, moment.norm), torch.maximum(norm_max, moment.norm)
        least = torch.minimum(least, moment.stationarity.square())
        last = moment
    fall = (last.stationarity.clamp_min(1e-16) / first.stationarity.clamp_min(1e-16)).clamp_max(1.0)
    ends = {name: getattr(last, name) for name in ("w", "u", "theta", "norm", "stationarity")}
    return {
        **extremes,
        **ends,
        "theta_start": first.theta,
        "angle_max": angle_max,
        "norm_min": norm_min,
        "norm_max": norm_max,
        "contraction": fall ** (1 / max(last.step, 1)),
    }
