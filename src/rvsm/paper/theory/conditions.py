"""Which hypotheses of the theorem a choice of parameters meets, and with what margin."""

from dataclasses import dataclass
from math import isfinite, sqrt

from rvsm.paper.theory.bounds import beta_bound, require_margin, threshold_limit
from rvsm.paper.theory.network import curvature, require_patches
from rvsm.paper.theory.problems import PENALTIES
from rvsm.penalties import Penalty
from rvsm.penalties.base import require_positive


@dataclass(frozen=True)
class Condition:
    """One hypothesis: a value that must not exceed a bound."""

    name: str  # the bounded quantity
    value: float
    printed: str  # the condition as printed
    printed_bound: float
    corrected: str  # the condition that is known to suffice (or to be needed)
    corrected_bound: float

    @property
    def met_as_printed(self) -> bool:
        """Whether the value is within the printed bound."""
        return self.value <= self.printed_bound

    @property
    def met_as_corrected(self) -> bool:
        """Whether the value is within the corrected bound."""
        return self.value <= self.corrected_bound

    def __str__(self) -> str:
        def outcome(met: bool, bound: float) -> str:
            margin = f", {self.value / bound:.3g} of the bound {bound:.4g}" if isfinite(bound) else ""
            return f"{'met' if met else 'NOT met'}{margin}"

        return (
            f"{self.name} = {self.value:.4g}\n"
            f"  printed:   {self.printed}: {outcome(self.met_as_printed, self.printed_bound)}\n"
            f"  corrected: {self.corrected}: {outcome(self.met_as_corrected, self.corrected_bound)}"
        )


@dataclass(frozen=True)
class Conditions:
    """All hypotheses of Theorem 1 for one choice of parameters, with ‖w*‖ = 1."""

    conditions: tuple[Condition, ...]  # on step, relaxation, threshold and number of patches
    warnings: tuple[str, ...]  # other consequences of the parameters

    @property
    def met_as_printed(self) -> bool:
        """Whether Theorem 1 applies as printed."""
        return all(condition.met_as_printed for condition in self.conditions)

    @property
    def met_as_corrected(self) -> bool:
        """Whether the corrected theorem applies (in the proof's order)."""
        return all(condition.met_as_corrected for condition in self.conditions)

    def __getitem__(self, name: str) -> Condition:
        for condition in self.conditions:
            if condition.name == name:
                return condition
        raise KeyError(f"no condition on {name!r}; there are {', '.join(c.name for c in self.conditions)}")

    def __str__(self) -> str:
        whole = f"Theorem 1 as printed: {_yes(self.met_as_printed)}; as corrected: {_yes(self.met_as_corrected)}"
        return "\n".join([whole, *map(str, self.conditions), *(f"warning: {text}" for text in self.warnings)])


def conditions(
    *, eta: float, beta: float, lam: float, k: float, d: int, delta: float, penalty: str | Penalty = "l1"
) -> Conditions:
    """Return which hypotheses of Theorem 1 the parameters meet.

    The paper leaves its L to a lemma. The value used here as printed is the smallest that Lemma 4 can give,
    L = 1 + 3‖w*‖/M = 4 at M = ‖w*‖. The corrected hypotheses are those of the laboratory's sweep: L⁺ = A/k², the
    largest curvature, instead of L; and √d·t ≤ ‖w*‖, which the printed λ/β < 1/√d implies for ℓ1, or else
    ‖w⁰‖ ≤ 2‖w*‖, which cannot be checked here. Descent alone holds up to η = 2/(β+L⁺), but there the iteration
    need not converge.

    Args:
        eta: the step η.
        beta: the relaxation β.
        lam: the penalty's weight λ.
        k: the number of patches.
        d: the dimension of a patch.
        delta: the margin δ of the initial angle, θ⁰ ≤ π − δ.
        penalty: "l1", "l0" or "tl1", or a penalty (whose λ is then replaced by ``lam``).

    >>> found = conditions(eta=0.2, beta=0.03, lam=0.003, k=4, d=10, delta=1.0)
    >>> found.met_as_printed, found.warnings
    (True, ())
    >>> print(found["beta"])
    beta = 0.03
      printed:   β ≤ δ sin δ/(kπ): met, 0.448 of the bound 0.06696
      corrected: the same, from every start, for √d·t ≤ ‖w*‖: met, 0.448 of the bound 0.06696

    """
    for name, value in {"eta": eta, "beta": beta, "lam": lam}.items():
        require_positive(name, value)
    require_patches(k)
    if isinstance(d, bool) or not isinstance(d, int) or d < 1:
        raise ValueError(f"d must be an integer ≥ 1 but is {d!r}; it is the dimension of a patch")
    require_margin(delta)
    t, mu = _threshold(penalty, lam, beta), lam / beta
    high, keeps = float(curvature(k)), float(threshold_limit(k=k, beta=beta, d=d))
    bound = beta_bound(k=k, delta=delta)
    start = "from every start, for √d·t ≤ ‖w*‖" if sqrt(d) * t <= 1 else "with ‖w⁰‖ ≤ 2‖w*‖, for √d·t > ‖w*‖"
    kept = "any; ū ≠ 0 is guaranteed if √d·t < A/(A+βk²)"
    listed = (
        Condition("eta", eta, "η ≤ 1/(β+L), L = 4", 1 / (beta + 4), "η ≤ 1/(β+L⁺)", 1 / (beta + high)),
        Condition("beta", beta, "β ≤ δ sin δ/(kπ)", bound, f"the same, {start}", bound),
        # The inequality is strict, so its bound is just below 1/√d.
        Condition("lam/beta", mu, "λ/β < 1/√d", 1 / sqrt(d) * (1 - 1e-15), kept, float("inf")),
        Condition("2/k", 2 / k, "k ≥ 2", 1.0, "k ≥ 2", 1.0),
    )
    cap = 2 * k * lam * sqrt(d)
    return Conditions(listed, tuple(_warnings(eta=eta, beta=beta, high=high, t=t, d=d, keeps=keeps, cap=cap)))


def _warnings(*, eta: float, beta: float, high: float, t: float, d: int, keeps: float, cap: float) -> list[str]:
    found = []
    if t >= 1:
        found.append(f"the threshold {t:.4g} is ≥ ‖w*‖ = 1, so u ends empty: no weight can exceed it; lower λ/β")
    elif t >= keeps:
        found.append(
            f"u may end empty: the threshold {t:.4g} is above {keeps:.4g}, which the largest weight is guaranteed to"
            f" reach in {d} dimensions; lower λ/β"
        )
    if eta * beta >= 1:
        found.append(f"ηβ = {eta * beta:.3g} ≥ 1: the pull would move w past u, and rvsm.RVSM refuses it; lower η or β")
    elif eta > 1 / (beta + high / 2):
        found.append(f"the printed order needs η ≤ 1/(β+L⁺/2) = {1 / (beta + high / 2):.4g} even for ℓ1")
    if cap >= 1:
        found.append(f"2kλ√d = {cap:.3g} ≥ 1: Corollary 1.1's printed bound on C does not apply; C ≤ 1 still holds")
    return found


def _threshold(penalty: str | Penalty, lam: float, beta: float) -> float:
    if isinstance(penalty, Penalty):
        # The threshold depends on λ and the step 1/β only through their product.
        return penalty.threshold(lam / (penalty.lam * beta))
    if not isinstance(penalty, str) or penalty not in PENALTIES:
        raise ValueError(f"unknown penalty {penalty!r}; choose from {', '.join(PENALTIES)}, or pass an object")
    return PENALTIES[penalty](lam).threshold(1 / beta)


def _yes(met: bool) -> str:
    return "all hypotheses met" if met else "NOT all hypotheses met"
