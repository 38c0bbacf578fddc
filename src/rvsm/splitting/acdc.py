"""Alternating compressed and decompressed training."""

from torch import Tensor

from rvsm.splitting.layers import Layer
from rvsm.splitting.targeted import Targeted


class ACDC(Targeted):
    """Alternate dense and sparse phases, ending with a sparse one.

    The ramp of the budget is divided into ``cycles`` of equal length. Each cycle begins dense. In its second half the
    smallest weights are zero, as many as the full target requires. After the ramp, the zeros are chosen once more and
    stay fixed. Thus the network is trained as a sparse network early and often, but zeroed weights can return each
    time. There is no penalty and no pull.

    Args:
        cycles: the number of pairs of a dense and a sparse phase in the ramp.

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
        """Add the number of cycles."""
        return {**super().settings(), "cycles": repr(self.cycles)}

    def sparse(self, layer: Layer) -> Tensor:
        """Return w, which is sparse during a sparse phase."""
        return layer.w.detach().clone()

    def fixed_sparsity(self, step: int) -> float | None:
        """Return the target during sparse phases and after the ramp."""
        progress = self.target.progress(step)
        return self.target.goal if progress >= 1 or progress * self.cycles % 1 >= 1 / 2 else None
