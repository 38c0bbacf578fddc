"""Our own statements, not the paper's: RVSM with the gradient at u, α = 0, or moving there from w."""

from collections.abc import Callable, Sequence
from functools import reduce
from operator import and_

import torch
from torch import Tensor

from rvsm.paper.theory.counterexamples import cycle_at_u
from rvsm.paper.theory.sparse_gradient import RESTED, Ends, ends
from rvsm.paper.theory.statements.descent import ROUNDING
from rvsm.paper.theory.sweep import Sweep
from rvsm.paper.theory.trajectory import GradientPoint
from rvsm.paper.theory.verdict import Verdict, check


def limits(sweep: Sweep) -> Verdict:
    """Measure how far ū is from a critical point of f + λP, at the limits of α = 0, of the homotopy and of RVSM."""
    sparse, dense = [*_runs(sweep, "u"), *_runs(sweep, "moving")], _runs(sweep, "w")
    ours, theirs = _at_rest(sparse, "critical"), _at_rest(dense, "critical")
    shown = ", ".join(f"{name} {_at_rest(dense, 'critical', name).median():.3f}" for name in ("l1", "l0", "tl1"))
    return Verdict(
        where="Ours: the limits at α = 0",
        claim="0 ∈ ∇f(ū) + λ∂P(ū): on the support ∇f(ū) = −λP'(ū); off it |∇f(ū)| ≤ βt, which is λ for ℓ1 and √(2λβ)"
        " for ℓ0. At RVSM's limits ū is no such point, unless ū = w̄",
        printed=check(1 - ours / RESTED) & check(theirs.median() - 1e-3),
        evidence=f"{len(ours)} limits of α = 0 and of an α that falls from 1 to 0, all penalties, β at"
        f" its bound for δ = 1 and at L⁺: the conditions are violated by ≤ {ours.max():.0e}; at {len(theirs)} of"
        f" RVSM's by up to {theirs.max():.2f} (medians: {shown})",
        ours=True,
    )


def descent(sweep: Sweep) -> Verdict:
    """Measure f(u) + λP(u) in every step with the gradient at u, and compare its decrease with the proved bound."""
    weak, strong = _runs(sweep, "u", strong=False), _runs(sweep, "u", strong=True)
    convex = _all([*weak, *strong], "excess_convex", "l1")
    every, rise = _all([*weak, *strong], "excess"), _all(strong, "rise")
    loose = _all(weak, "rise", "l0")
    return Verdict(
        where="Ours: descent at α = 0",
        claim="F = f + λP falls along uᵗ, if ηβ ≤ 1: for ℓ1, and every convex P, by ≥ (1/η−L⁺/2)‖Δu‖²; for every P by"
        " ≥ (1/η−β)⟨Δw,Δu⟩ + ((β−L⁺)/2)‖Δu‖², where ⟨Δw,Δu⟩ ≥ 0: so at β ≥ L⁺ it falls for every P",
        printed=check(ROUNDING - convex) & check(ROUNDING - every) & check(ROUNDING - rise),
        evidence=f"all steps of {len(every)} runs at η = 1/(β+L⁺): the bound for every P is exceeded by ≤"
        f" {every.max():.0e}, that for ℓ1 by ≤ {convex.max():.0e}; at β = L⁺ F rises by ≤"
        f" {rise.max():.0e} in {len(rise)} runs; with β at its bound for δ = 1, below L⁺, that of ℓ0 rises in"
        f" {int((loose > 1e-9).sum())} of {len(loose)}, by up to {loose.max():.2f} in a step",
        ours=True,
    )


def rest(sweep: Sweep) -> Verdict:
    """Count the runs that come to rest, and find a cycle with β below L⁺."""
    weak, strong = _runs(sweep, "u", strong=False), _runs(sweep, "u", strong=True)
    sure = torch.cat([_all(strong, "left"), _all(weak, "left", "l1")])
    rested = int((sure <= RESTED).sum())
    path = sweep.once(cycle_at_u)
    w, moved = path.w[:, 0, 0], (path.w[-1] - path.w[-2]).abs().max()
    back = (path.w[-1] - path.w[-3]).abs().max()
    moving = {
        name: f"{int((~_all(weak, 'rested', name)).sum())} of {len(_all(weak, 'rested', name))}"
        for name in ("l0", "tl1")
    }
    courses: tuple[GradientPoint, ...] = ("u", "moving", "w")
    empty = [(~_all(_runs(sweep, at, strong=False), "alive", "l0", "tl1")).sum() for at in courses]
    return Verdict(
        where="Ours: rest and cycles at α = 0",
        claim="ℓ1, and every penalty with β ≥ L⁺, comes to rest; with a smaller β ℓ0 can cycle for ever, for there may"
        " be no point to rest at",
        printed=check(1 - sure / RESTED) & check(moved - 0.01) & check(1e-9 - back),
        evidence=f"{rested} of {len(sure)} such runs rest (‖∇f(u)+β(w−u)‖ ≤ {sure.max():.0e}); with β at its"
        f" bound for δ = 1 these move on: ℓ0 {moving['l0']}, Tℓ1 {moving['tl1']}. From RVSM's own limit"
        f" {_point(w[0])} ℓ0 cycles {_point(w[-1])} ↔ {_point(w[-2])}. An empty u never fills again at α = 0: so"
        f" end {int(empty[0])} of {len(_all(weak, 'left', 'l0', 'tl1'))} runs of ℓ0 and Tℓ1, {int(empty[1])} if α falls"
        f" from 1, and {int(empty[2])} of RVSM's, whose u may fill again",
        counterexample={
            "penalty": "l0", "k": 4, "beta": path.settings[0].beta, "mu": path.settings[0].mu,
            "eta": path.settings[0].eta, "start": w[0].tolist(), "cycle": w[-2:].tolist(),
        },
        ours=True,
    )  # fmt: skip


def beside_rvsm(sweep: Sweep) -> Verdict:
    """Compare f(ū) and ‖ū − w*‖ of the homotopy, and of α = 0, with RVSM's from the same starts."""
    shown, claimed, ratios = [], [], []
    for strong in (False, True):
        straight, homotopy, rvsm = (_runs(sweep, at, strong=strong) for at in ("u", "moving", "w"))
        for name in ("l1", "tl1", "l0"):
            both = _paired(homotopy, rvsm, name)
            (loss, rvsm_loss), (error, rvsm_error), (zeros, rvsm_zeros) = map(both, ("loss", "error", "zeros"))
            gain, closer = rvsm_loss - loss, rvsm_error - error
            if name == "l1":
                claimed += [check(gain - 1e-9), check(closer - 1e-9)]
            elif not strong:
                claimed.append(check(gain, tolerance=1e-12))
            straight_loss, rvsm_loss_too = _paired(straight, rvsm, name)("loss")
            shown.append(
                f"{name} at {'L⁺' if strong else 'the bound'}: f {_fraction(gain > 1e-9)}, distance"
                f" {_fraction(closer > 1e-9)}, median f {loss.median():.1e} for {rvsm_loss.median():.1e}, zeros"
                f" {100 * zeros.mean():.0f} % for {100 * rvsm_zeros.mean():.0f} %, f larger in"
                f" {_fraction(gain < -1e-12)}, and with α = 0 throughout in"
                f" {_fraction(rvsm_loss_too - straight_loss < -1e-12)}"
            )
        alike = _paired(homotopy, rvsm, "l1", "tl1", alike=True)
        ratios.append(alike("loss")[0] / alike("masked")[1])
    return Verdict(
        where="Ours: the homotopy beside RVSM",
        claim="at equal λ, β and start, limits with ū ≠ 0: for ℓ1 f(ū) of the homotopy is smaller than RVSM's and ū is"
        " closer to w*; for ℓ0 and Tℓ1, with β at its bound, f(ū) is not larger",
        printed=reduce(and_, claimed),
        evidence=f"limits in which the homotopy's is smaller, by penalty and β: {'; '.join(shown)}. Where both have one"
        f" support, f(ū) is {torch.cat(ratios).median():.2f} times that of RVSM's w on it (ℓ1 and Tℓ1, median)",
        ours=True,
    )


def _paired(
    ours: Sequence[Ends], theirs: Sequence[Ends], *names: str, alike: bool = False
) -> Callable[[str], tuple[Tensor, Tensor]]:
    """Return a function that returns a column for two courses of α from the same starts, for some penalties.

    It includes only limits at which neither u is empty and, with ``alike``, both have the same support.
    """
    chosen = [(a, b) for a, b in zip(ours, theirs, strict=True) if a.penalty in names]
    masks = [a.rested & a.alive & b.rested & b.alive for a, b in chosen]
    if alike:
        same = [((a.u != 0) == (b.u != 0)).all(dim=-1) for a, b in chosen]
        masks = [mask & one for mask, one in zip(masks, same, strict=True)]

    def both(name: str) -> tuple[Tensor, Tensor]:
        rows = [(getattr(a, name)[mask], getattr(b, name)[mask]) for (a, b), mask in zip(chosen, masks, strict=True)]
        return torch.cat([a for a, _ in rows]), torch.cat([b for _, b in rows])

    return both


def _runs(sweep: Sweep, at: GradientPoint, *, strong: bool | None = None) -> tuple[Ends, ...]:
    """Return the runs of one course of α with a weak β, a strong one, or both."""
    regimes = (False, True) if strong is None else (strong,)
    return tuple(one for regime in regimes for one in sweep.once(ends, at, strong=regime, quick=sweep.quick))


def _all(runs: Sequence[Ends], name: str, *penalties: str) -> Tensor:
    return torch.cat([getattr(one, name) for one in runs if not penalties or one.penalty in penalties])


def _at_rest(runs: Sequence[Ends], name: str, *penalties: str) -> Tensor:
    """Return one column of the limits whose u is not empty: f has a gradient there."""
    return _all(runs, name, *penalties)[_all(runs, "rested", *penalties) & _all(runs, "alive", *penalties)]


def _fraction(cases: Tensor) -> str:
    return f"{int(cases.sum())}/{len(cases)}"


def _point(w: Tensor) -> str:
    return "(" + ",".join(f"{x:.4f}" for x in w.tolist()) + ")"
