"""Divide a weight tensor into groups of weights that are kept or removed together.

A grouping gives each group one magnitude, a penalty shrinks the magnitudes, and the grouping scales the weights to
match. Weights have the layout of a convolution, ``[out, in, *kernel]``, or of a linear layer, ``[out, in]``.

With ``weighted=True`` a group's magnitude is its root mean square ‖w_g‖/√size, and its penalty counts size times:
Σ_g size_g·P(‖u_g‖/√size_g). For ℓ1 these are exactly the √size weights of the group lasso, and for ℓ0 this is the
number of non-zero weights. A threshold then has the same meaning for single weights, small groups and large groups, as
a budget over layers of different shapes requires. With ``weighted=False`` the magnitude is the norm ‖w_g‖ itself.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import ceil, prod

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Grouping(ABC):
    """How a tensor is divided into groups.

    Args:
        weighted: measure a group by its root mean square instead of its norm, so that its size does not matter.

    """

    weighted: bool = True

    @abstractmethod
    def norms(self, w: Tensor) -> Tensor:
        """Return ‖w_g‖ of each group."""

    @abstractmethod
    def sizes(self, w: Tensor) -> Tensor:
        """Return the number of weights in each group, broadcastable to the shape of ``norms(w)``."""

    @abstractmethod
    def spread(self, values: Tensor, w: Tensor) -> Tensor:
        """Give each weight of ``w`` the value of its group."""

    def span(self, dim: int, dimensions: int) -> int | None:
        """Return how many neighbours along a dimension are in the same group; None for all of them.

        It says which groups have parts on several processes if a tensor is divided among them along this dimension.
        """
        raise NotImplementedError(
            f"{type(self).__name__} does not define span(dim, dimensions), which is needed for parameters that are"
            " divided among processes"
        )

    def magnitudes(self, w: Tensor) -> Tensor:
        """Return the magnitude of each group: the root mean square if weighted, otherwise the norm."""
        norms = self.norms(w)
        return norms / self.sizes(w).to(norms).sqrt() if self.weighted else norms


@dataclass(frozen=True, kw_only=True)
class Element(Grouping):
    """Each weight is a group of its own.

    >>> Element().magnitudes(torch.tensor([-2.0, 0.5]))
    tensor([2.0000, 0.5000])
    """

    def norms(self, w: Tensor) -> Tensor:
        """Return |w|."""
        return w.abs()

    def magnitudes(self, w: Tensor) -> Tensor:
        """Return |w|: a group of one is its own root mean square."""
        return w.abs()

    def sizes(self, w: Tensor) -> Tensor:
        """Return one."""
        return torch.ones((), dtype=torch.int64)

    def spread(self, values: Tensor, w: Tensor) -> Tensor:
        """Return the values: there is already one for each weight."""
        return values

    def span(self, dim: int, dimensions: int) -> int:
        """Return one."""
        return 1


@dataclass(frozen=True, kw_only=True)
class _Slice(Grouping):
    """Groups that are slices of the tensor: the norm runs over some dimensions and keeps the others."""

    @abstractmethod
    def _within(self, dimensions: int) -> list[int]:
        """Return the dimensions that lie within a group."""

    def _dims(self, w: Tensor) -> list[int]:
        if w.dim() < 2:
            raise ValueError(
                f"groups by {type(self).__name__.lower()} need a tensor with at least 2 dimensions but this one has"
                f" shape {tuple(w.shape)}; use groups='element' for it, or exclude it"
            )
        return self._within(w.dim())

    def norms(self, w: Tensor) -> Tensor:
        norms: Tensor = torch.linalg.vector_norm(w, dim=self._dims(w), keepdim=True)
        return norms

    def sizes(self, w: Tensor) -> Tensor:
        return torch.tensor(prod(w.shape[d] for d in self._dims(w)))

    def spread(self, values: Tensor, w: Tensor) -> Tensor:
        return values.expand_as(w)

    def span(self, dim: int, dimensions: int) -> int | None:
        return None if dim in self._within(dimensions) else 1


@dataclass(frozen=True, kw_only=True)
class Filter(_Slice):
    """All weights of one output channel (of one neuron in a linear layer).

    >>> Filter(weighted=False).norms(torch.tensor([[3.0, 4.0], [0.0, 1.0]])).flatten()
    tensor([5., 1.])
    """

    def _within(self, dimensions: int) -> list[int]:
        return list(range(1, dimensions))


@dataclass(frozen=True, kw_only=True)
class Coupled(_Slice):
    """All parameters of one channel, in all layers that the channel spans.

    These are its weights in the layers that compute it, their biases, and the scale and shift of its batch norm. If the
    outputs of several layers are added, the parameters of all of them are included. Thus a group of zeros is a channel
    of zeros, which `rvsm.shrink` removes. The weights that read the channel are not in its group: each belongs to the
    group of the channel that it helps to compute, so groups do not overlap.

    This class handles the parts of the groups in one tensor. An example input shows which parts belong together.

    >>> Coupled().magnitudes(torch.tensor([3.0, -4.0]))
    tensor([3., 4.])
    """

    def _dims(self, w: Tensor) -> list[int]:
        return self._within(w.dim())

    def _within(self, dimensions: int) -> list[int]:
        return list(range(1, dimensions))

    def norms(self, w: Tensor) -> Tensor:
        """Return the norm of each channel's part; for a vector, this is |w|."""
        return super().norms(w) if w.dim() > 1 else w.abs()


@dataclass(frozen=True, kw_only=True)
class Channel(_Slice):
    """All weights that read one input channel.

    >>> Channel(weighted=False).norms(torch.tensor([[3.0, 0.0], [4.0, 1.0]])).flatten()
    tensor([5., 1.])
    """

    def _within(self, dimensions: int) -> list[int]:
        return [0, *range(2, dimensions)]


@dataclass(frozen=True, kw_only=True)
class Row(_Slice):
    """A row of the last two dimensions: of a linear layer's matrix, or of each kernel of a convolution.

    >>> Row().magnitudes(torch.ones(8, 4, 3, 3)).shape
    torch.Size([8, 4, 3, 1])
    """

    def _within(self, dimensions: int) -> list[int]:
        return [dimensions - 1]


@dataclass(frozen=True, kw_only=True)
class Column(_Slice):
    """A column of the last two dimensions: of a linear layer's matrix, or of each kernel of a convolution.

    >>> Column().magnitudes(torch.ones(8, 4, 3, 3)).shape
    torch.Size([8, 4, 1, 3])
    """

    def _within(self, dimensions: int) -> list[int]:
        return [dimensions - 2]


@dataclass(frozen=True, kw_only=True)
class Block(Grouping):
    """The weights at one position (input channel, dy, dx) of ``size`` neighbouring output channels.

    Output channels with the same pattern of zeros also share each loaded input, which makes a sparse convolution fast.
    The last block of a layer is smaller if ``size`` does not divide the number of channels.

    >>> Block(size=4).magnitudes(torch.ones(10, 3, 5, 5)).shape
    torch.Size([3, 3, 5, 5])

    Args:
        size: the number of output channels in a block.

    """

    size: int = 4

    def __post_init__(self) -> None:
        if isinstance(self.size, bool) or not isinstance(self.size, int) or self.size < 1:
            raise ValueError(f"size of a block must be an integer ≥ 1 but is {self.size!r}")

    def norms(self, w: Tensor) -> Tensor:
        """Return the norm over ``size`` output channels at each position."""
        blocks = w.shape[0] // self.size
        whole = blocks * self.size
        norms: Tensor = torch.linalg.vector_norm(w[:whole].view(blocks, self.size, *w.shape[1:]), dim=1)
        if whole == w.shape[0]:
            return norms
        return torch.cat([norms, torch.linalg.vector_norm(w[whole:], dim=0, keepdim=True)])

    def sizes(self, w: Tensor) -> Tensor:
        """Return ``size`` for each block, and the remainder for the last one."""
        out = w.shape[0]
        sizes = torch.full((ceil(out / self.size),), self.size)
        if out % self.size:
            sizes[-1] = out % self.size
        return sizes.view(-1, *[1] * (w.dim() - 1))

    def spread(self, values: Tensor, w: Tensor) -> Tensor:
        """Repeat the value of a block for each of its output channels."""
        return values.repeat_interleave(self.size, dim=0)[: w.shape[0]]

    def span(self, dim: int, dimensions: int) -> int:
        """Return ``size`` output channels, and one position."""
        return self.size if dim == 0 else 1


GROUPS: dict[str, type[Grouping]] = {
    "element": Element,
    "filter": Filter,
    "coupled": Coupled,
    "channel": Channel,
    "row": Row,
    "column": Column,
    "block": Block,
}
