"""Run the shipped methods on the no-overlap network, thousands of runs at a time.

Every row of a parameter is a separate run, because all operations on it are row-wise or elementwise. Every setting of
(k, β, λ, η) is a separate parameter, in its own parameter group and with its own override. Gradients are set in closed
form, plain SGD makes the step, and the method acts through its hooks, as on any network.
"""

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD

from rvsm.paper.theory.methods import FallingRVSM, Remembering, minimise
from rvsm.paper.theory.network import Evaluation, Population, require_rows, size
from rvsm.paper.theory.penalty_formulas import PenaltyValues
from rvsm.paper.theory.trajectory import GradientPoint, Loss, MethodName, Moment, Order, Setting, Trajectory
from rvsm.splitting import ADMM, RVSM, Method

_LARGEST_RECORD = 1 << 30


def simulate(
    settings: Setting | Sequence[Setting],
    truth: Tensor,
    start: Tensor,
    *,
    steps: int,
    method: MethodName = "rvsm",
    order: Order = "proof",
    gradient: GradientPoint = "w",
    every: int = 1,
    loss: Loss | None = None,
    tolerance: float = 0.0,
    empty_ok: bool = False,
) -> Trajectory:
    """Run every setting from every start, and record the trajectories.

    Args:
        settings: one setting, or several.
        truth: the ground truth w*: [d], [n, d] with one for each seed, or [S, n, d].
        start: w⁰, of the same shapes.
        steps: the number of steps.
        method: "rvsm" and "admm" are the shipped classes; "exact-admm" minimises in w exactly.
        order: the order of RVSM, "proof" or "printed".
        gradient: where RVSM takes the gradient: at v = u + α(w − u) with "w" for α = 1, the paper's method; "u" for
            α = 0; "moving" for an α that falls linearly from 1 to 0 in the first half of the steps and stays there.
            The first gradient is at w in all cases. At v = 0, where f has no gradient, 0 is used.
        every: the number of steps between two records; the start and the last step are also recorded.
        loss: a loss for the S·n rows, instead of the population loss.
        tolerance: stop early once ‖∇_wℒ‖ is at most this in all runs.
        empty_ok: do not warn about settings whose u ends empty in all runs.

    >>> from rvsm import L1
    >>> truth = torch.tensor([0.8, 0.6, 0.0, 0.0], dtype=torch.float64)
    >>> start = torch.tensor([-0.5, -0.5, 0.5, 0.5], dtype=torch.float64)
    >>> path = simulate(Setting(L1(lam=0.01), k=4, beta=0.04, eta=1.0), truth, start, steps=600, every=100)
    >>> path.w.shape, path.steps.tolist()
    (torch.Size([7, 1, 1, 4]), [0, 100, 200, 300, 400, 500, 600])
    >>> round(path.theta[-1].item(), 9)
    0.008498727

    """
    listed = [settings] if isinstance(settings, Setting) else list(settings)
    truths, starts = lay_out(listed, truth, start)
    if isinstance(every, bool) or not isinstance(every, int) or every < 1:
        raise ValueError(f"every must be an integer ≥ 1 but is {every!r}; 1 records every step")
    _require_steps(steps)
    needed = (steps // every + 2) * starts.numel() * 16
    if needed > _LARGEST_RECORD:
        raise ValueError(f"recording {steps // every + 2} steps takes {needed / 1e9:.1f} GB; record less often: every=")
    moments = []
    options: dict[str, Any] = {"method": method, "order": order, "gradient": gradient}
    for moment in walk(listed, truths, starts, steps=steps, loss=loss, tolerance=tolerance, **options):
        if moment.step % every == 0:
            moments.append(moment)
    if moments[-1].step != moment.step:
        moments.append(moment)
    path = _trajectory(listed, moments)
    if method == "rvsm" and not empty_ok:
        _warn_of_empty_copies(path)
    return path


def walk(
    settings: Sequence[Setting],
    truth: Tensor,
    start: Tensor,
    *,
    steps: int,
    method: MethodName = "rvsm",
    order: Order = "proof",
    gradient: GradientPoint = "w",
    loss: Loss | None = None,
    tolerance: float = 0.0,
) -> Iterator[Moment]:
    """Yield every step of all runs without keeping any; arguments as for `simulate`."""
    truth, start = lay_out(settings, truth, start)
    if method not in ("rvsm", "admm", "exact-admm"):
        raise ValueError(f"unknown method {method!r}; choose from rvsm, admm, exact-admm")
    if gradient not in ("w", "u", "moving"):
        raise ValueError(f"unknown gradient {gradient!r}; choose from w, u, moving")
    if gradient != "w" and method != "rvsm":
        raise ValueError(f"the gradient at v is RVSM's, but the method is {method!r}; leave gradient= out")
    _require_steps(steps)
    seeds = start.shape[1]
    v = start.flatten(0, 1).clone()
    k = per_run(settings, "k", seeds)
    descended = loss if loss is not None else Population(truth.flatten(0, 1), k, zero_ok=gradient != "w")
    if method == "exact-admm":
        if loss is not None:
            raise ValueError("exact-admm minimises the population loss in closed form; use method='admm' on data")
        yield from _walk_exactly(settings, truth.flatten(0, 1), v, descended, steps=steps, tolerance=tolerance)
        return
    slope = torch.zeros_like(v)
    fall = steps // 2 if gradient == "moving" else 0
    optimizer, sparsifier = _assemble(settings, v, slope, method=method, order=order, gradient=gradient, fall=fall)
    record = _Record(settings, seeds)
    for step in range(steps + 1):
        at = descended.evaluate(v)
        # The parameters hold v between two steps; the method knows w.
        w = v.clone() if gradient == "w" else torch.cat([one.w.detach() for one in sparsifier.layers])
        moment = record.moment(step, w, _copies(sparsifier, order), at)
        yield moment
        if step == steps or (step >= fall and bool((moment.stationarity <= tolerance).all())):
            return
        slope.copy_(at.gradient)
        optimizer.step()


def lay_out(settings: Sequence[Setting], truth: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
    """Return truth and start as [S, n, d] in float64."""
    if not settings:
        raise ValueError("settings must have at least one setting but is empty; give Setting(penalty, k=…, …)")
    for setting in settings:
        if not isinstance(setting, Setting):
            raise TypeError(f"settings must be Setting objects but one is {setting!r}; give Setting(penalty, k=…, …)")
    require_rows(truth, "truth")
    require_rows(start, "start")
    if truth.shape[-1] != start.shape[-1]:
        raise ValueError(f"the truth has dimension {truth.shape[-1]} but the start has {start.shape[-1]}")
    shaped = [t.double().reshape((1,) * (3 - t.dim()) + t.shape) for t in (truth, start)]
    try:
        seeds = max(shaped[0].shape[1], shaped[1].shape[1])
        shape = (len(settings), seeds, truth.shape[-1])
        return shaped[0].expand(shape), shaped[1].expand(shape)
    except RuntimeError:
        raise ValueError(
            f"truth and start must be [d], [seeds, d] or [{len(settings)} settings, seeds, d] but have the shapes"
            f" {tuple(shaped[0].shape)} and {tuple(shaped[1].shape)}"
        ) from None


def _require_steps(steps: int) -> None:
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 0:
        raise ValueError(f"steps must be an integer ≥ 0 but is {steps!r}")


def _warn_of_empty_copies(path: Trajectory) -> None:
    empty = [i for i, filled in enumerate(path.support[-1].any(dim=-1).tolist()) if not filled]
    if empty:
        first = path.settings[empty[0]]
        warnings.warn(
            f"u is empty after {int(path.steps[-1])} steps, in all runs of {len(empty)} of {len(path.settings)}"
            f" settings: no weight exceeds the threshold {first.threshold:.4g} of {first.penalty} at β ="
            f" {first.beta:.4g}; lower λ/β, or pass empty_ok=True if that is meant",
            stacklevel=3,
        )


def _assemble(
    settings: Sequence[Setting],
    v: Tensor,
    slope: Tensor,
    *,
    method: MethodName,
    order: Order,
    gradient: GradientPoint,
    fall: int,
) -> tuple[SGD, Method]:
    """Split v into one parameter for each setting; the parameters and their gradients are views of v and slope."""
    seeds = len(v) // len(settings)
    named, groups, overrides = [], [], {}
    for i, setting in enumerate(settings):
        rows = slice(i * seeds, (i + 1) * seeds)
        parameter = nn.Parameter(v[rows])
        parameter.grad = slope[rows]
        named.append((f"w{i}", parameter))
        groups.append({"params": [parameter], "lr": setting.eta})
        overrides[f"w{i}"] = {
            "penalty": Remembering(setting.penalty),
            "beta" if method == "rvsm" else "rho": setting.beta,
        }
    optimizer = SGD(groups, lr=1.0, foreach=False)
    first = settings[0]
    sparsifier: Method
    if gradient != "w":
        sparsifier = FallingRVSM(named, first.penalty, beta=first.beta, order=order, overrides=overrides, fall=fall)
    elif method == "rvsm":
        sparsifier = RVSM(named, first.penalty, beta=first.beta, order=order, overrides=overrides)
    else:
        sparsifier = ADMM(named, first.penalty, rho=first.beta, overrides=overrides)
    return optimizer, sparsifier.attach(optimizer)


def _copies(sparsifier: Method, order: Order) -> tuple[Tensor, Tensor | None]:
    """Return u, and z if there is one, after the last step."""
    kept = sparsifier.layers.memory.get("u", {})
    stored = isinstance(sparsifier, ADMM) or order == "printed"
    copies = [kept[one.name] if stored and one.name in kept else sparsifier.sparse(one) for one in sparsifier.layers]
    multipliers = sparsifier.layers.memory.get("z", {})
    z = torch.cat([multipliers[one.name] for one in sparsifier.layers]) if multipliers else None
    return torch.cat(copies), z


def _walk_exactly(
    settings: Sequence[Setting], truth: Tensor, w: Tensor, loss: Loss, *, steps: int, tolerance: float
) -> Iterator[Moment]:
    seeds = len(w) // len(settings)
    beta, k = per_run(settings, "beta", seeds), per_run(settings, "k", seeds)

    def threshold(v: Tensor) -> Tensor:
        blocks = v.view(len(settings), seeds, -1)
        return torch.cat([s.penalty.prox(b, 1 / s.beta) for s, b in zip(settings, blocks, strict=True)])

    u, z = threshold(w), torch.zeros_like(w)
    record = _Record(settings, seeds)
    for step in range(steps + 1):
        yield (moment := record.moment(step, w, (u, z), loss.evaluate(w)))
        if step == steps or bool((moment.stationarity <= tolerance).all() and (w - u).abs().max() <= tolerance):
            return
        w = minimise(beta.unsqueeze(-1) * u - z, truth, k=k, beta=beta)
        u = threshold(w + z / beta.unsqueeze(-1))
        z = z + beta.unsqueeze(-1) * (w - u)


class _Record:
    """Makes moments; what is the same at all steps is computed once."""

    def __init__(self, settings: Sequence[Setting], seeds: int) -> None:
        self._beta = per_run(settings, "beta", seeds)
        self._values = PenaltyValues([s.penalty for s in settings])

    def moment(self, step: int, w: Tensor, copies: tuple[Tensor, Tensor | None], at: Evaluation) -> Moment:
        u, z = copies
        gap = w - u
        lagrangian = at.value + self._values(u) + self._beta / 2 * gap.square().sum(dim=-1)
        pulled = at.gradient + self._beta.unsqueeze(-1) * gap
        if z is not None:
            lagrangian = lagrangian + (z * gap).sum(dim=-1)
            pulled = pulled + z
        return Moment(step, w, u, at.value, at.gradient, lagrangian, at.theta, at.norm, size(pulled))


def per_run(settings: Sequence[Setting], name: str, seeds: int) -> Tensor:
    """Return one value of the settings, such as "beta", for each run."""
    values = [getattr(setting, name) for setting in settings]
    return torch.tensor(values, dtype=torch.float64).repeat_interleave(seeds)


def _trajectory(settings: list[Setting], moments: list[Moment]) -> Trajectory:
    def stack(name: str) -> Tensor:
        stacked = torch.stack([getattr(moment, name) for moment in moments])
        return stacked.view(len(moments), len(settings), -1, *stacked.shape[2:])

    columns = {name: stack(name) for name in ("w", "u", "lagrangian", "loss", "theta", "norm", "stationarity")}
    steps = torch.tensor([moment.step for moment in moments])
    return Trajectory(tuple(settings), steps, **columns, support=columns["u"].count_nonzero(dim=-1))
