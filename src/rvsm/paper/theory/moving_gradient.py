"""The homotopy with a given λ and β: RVSM whose gradient moves from w to u in a given number of steps."""

from typing import Any

from rvsm.penalties import Penalty
from rvsm.splitting import RVSM
from rvsm.splitting.layers import Layer
from rvsm.splitting.naming import Named


class FallingRVSM(RVSM):
    """RVSM with an α that falls linearly from 1 to 0 in the first steps, and stays there.

    The shipped ``gradient="moving"`` follows the ramp of a target, which sets λ as it goes. Here λ is given, so that
    its limits can be compared with those of the same λ at α = 1 and α = 0. Only the course of α is another.

    Args:
        named: pairs of name and parameter.
        penalty: the penalty with its λ.
        fall: in how many steps α falls to 0.
        **options: those of `RVSM`.

    """

    def __init__(self, named: Named, penalty: Penalty, *, fall: int, **options: Any) -> None:
        super().__init__(named, penalty, gradient="u", **options)
        self.fall = fall

    def temper(self, layer: Layer, lr: float) -> None:
        """Limit nothing: there is no batch norm here, and the statements are about the gradient as it is."""

    @property
    def alpha(self) -> float:
        """1 at w, 0 at u."""
        return max(0.0, 1 - self.step / self.fall) if self.fall else 0.0
