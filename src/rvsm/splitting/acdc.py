"""Alternating compressed and decompressed training."""

from torch import Tensor

from rvsm.splitting.layers import Layer
from rvsm.splitting.targeted import Targeted


class ACDC(Targeted):
    """Dense phases and sparse ones take turns; the last is sparse.

    The ramp of the budget is divided into ``cycles`` of equal length. Each begins dense; in its second half the
    smallest weights, to the whole target, are zero. After the ramp the zeros are chosen once more and stay. So the
    network is trained at its sparse self early and often, and has a way back each time. No penalty and no pull.

    Args:
        cycles: how often a dense and a sparse phase follow each other in the ramp.

    Reference: Peste et al., "AC/DC: Alternating Compressed/DeCompressed Training of Deep Neural Networks", 2021.

    """

    name = "acdc"

    cycles: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.target  # raises if there is none
        if isinstance(self.cycles, bool) or not isinstance(self.cycles, int) or self.cycles < 1:
            raise ValueError(f"cycles must be an integer ≥ 1 but is {self.cycles!r}")

    def settings(self) -> dict[str, str]:
        """Return the number of cycles, too."""
        return {**super().settings(), "cycles": repr(self.cycles)}

    def sparse(self, layer: Layer) -> Tensor:
        """Return w, which is sparse in a sparse phase."""
        return layer.w.detach().clone()

    def fixed_sparsity(self, step: int) -> float | None:
        """Return the target in sparse phases, and after the ramp."""
        progress = self.target.progress(step)
        return self.target.sparsity if progress >= 1 or progress * self.cycles % 1 >= 1 / 2 else None
