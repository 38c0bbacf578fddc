"""The inputs and outputs of a simulation: a setting, a loss, one moment of all runs, the whole trajectory."""

from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from torch import Tensor

from rvsm.paper.theory.network import Evaluation, require_patches
from rvsm.penalties import Penalty
from rvsm.penalties.base import require_positive

MethodName = Literal["rvsm", "admm", "exact-admm"]
Order = Literal["proof", "printed"]
GradientPoint = Literal["w", "u", "moving"]


@dataclass(frozen=True)
class Setting:
    """One choice of the hyper-parameters."""

    penalty: Penalty  # with its λ
    k: float  # the number of patches
    beta: float  # the relaxation β (ρ for ADMM)
    eta: float  # the step η

    def __post_init__(self) -> None:
        if not isinstance(self.penalty, Penalty):
            raise TypeError(f"penalty must be an object with its λ, such as rvsm.L1(lam=0.01), but is {self.penalty!r}")
        require_patches(self.k)
        require_positive("beta", self.beta)
        require_positive("eta", self.eta)

    @property
    def lam(self) -> float:
        """λ."""
        return self.penalty.lam

    @property
    def mu(self) -> float:
        """μ = λ/β."""
        return self.penalty.lam / self.beta

    @property
    def threshold(self) -> float:
        """The largest |w_i| for which u_i is zero."""
        return self.penalty.threshold(1 / self.beta)


class Loss(Protocol):
    """A loss to minimise: the population loss, or that of a sample."""

    def evaluate(self, w: Tensor) -> Evaluation:
        """Return f, ∇f, θ and ‖w‖ at each row of w."""


class Moment(NamedTuple):
    """All runs at one step, one row each: settings × seeds, in that order.

    The loss, its gradient, θ and the norm are those at v = u + α(w − u), where the gradient is taken: at w in the
    paper's method, for ADMM, and at the start of every run. ``lagrangian`` and ``stationarity`` also use f and ∇f
    from there. ``u`` is the copy that belongs to this step: prox(w) in the proof's order, the stored one,
    uᵗ = prox(wᵗ⁻¹), in the printed order and for ADMM.
    ``stationarity`` is ‖∇_wℒ(w, u)‖.
    """

    step: int
    w: Tensor
    u: Tensor
    loss: Tensor
    gradient: Tensor
    lagrangian: Tensor
    theta: Tensor
    norm: Tensor
    stationarity: Tensor


@dataclass(frozen=True)
class Trajectory:
    """The recorded moments of all runs; S settings, n seeds, T recorded steps."""

    settings: tuple[Setting, ...]  # the S settings
    steps: Tensor  # the recorded step numbers, [T]; 0 is the start
    w: Tensor  # the weights, [T, S, n, d]
    u: Tensor  # the sparse copy, [T, S, n, d]
    lagrangian: Tensor  # ℒ(w, u), with ⟨z, w − u⟩ for ADMM, [T, S, n]
    loss: Tensor  # f(w), [T, S, n]
    theta: Tensor  # the angle between w and w*, [T, S, n]
    norm: Tensor  # ‖w‖, [T, S, n]
    stationarity: Tensor  # ‖∇_wℒ(w, u)‖, [T, S, n]
    support: Tensor  # the number of non-zeros of u, [T, S, n]
