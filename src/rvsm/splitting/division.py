"""Where the groups of a divided tensor lie: which are whole on a rank, and which have parts on several."""

from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from math import ceil

import torch
from torch import Tensor
from torch.nn.functional import pad

from rvsm.groups import Channel, Grouping
from rvsm.splitting.shards import parts


@dataclass(frozen=True)
class Division:
    """The groups of a tensor of which this rank holds parts.

    They are a range of all groups along one dimension, after the tensor has been brought into the order
    [out, in, *kernel]. A part that begins or ends within a group of a convolution, or within a block of rows, is
    completed with zeros, which do not change norms. Each group belongs to the first rank that holds a part of it: in
    the order of the ranks, these are all groups, each once.

    Attributes:
        convolution_groups: the number of groups of the convolution that the completed part covers.
        missing: the rows of zeros that complete the first and the last of them.
        dim: the dimension, of weights in the order [out, in, *kernel] and of magnitudes, along which they are divided.
        skipped: the zeros along it that complete the first block.
        begin: the number of the first group along it.
        end: the number after the last one.
        own: the number of the first group that belongs to this rank; those before it belong to earlier ranks.
        shared: the numbers of the groups of which several ranks hold parts, in ascending order.

    """

    convolution_groups: int
    missing: tuple[int, int]
    dim: int
    skipped: int
    begin: int
    end: int
    own: int
    shared: tuple[int, ...]

    def completed(self, w: Tensor) -> Tensor:
        """Complete the groups of a convolution, before the order is changed."""
        return _padded(w, 0, *self.missing)

    def aligned(self, w: Tensor) -> Tensor:
        """Complete the first block, after the order is changed."""
        return _padded(w, self.dim, self.skipped, 0)

    def unaligned(self, w: Tensor) -> Tensor:
        """Undo `aligned`."""
        return w.narrow(self.dim, self.skipped, w.shape[self.dim] - self.skipped)

    def uncompleted(self, w: Tensor) -> Tensor:
        """Undo `completed`."""
        return w.narrow(0, self.missing[0], w.shape[0] - sum(self.missing))

    def held(self, values: Tensor) -> Tensor:
        """Return the values of the groups of which this rank holds parts, given those of all groups, or one for all."""
        return values if self._alike(values, 0) else values.narrow(self.dim, self.begin, self.end - self.begin)

    def owned(self, values: Tensor) -> Tensor:
        """Return the values of the groups that belong to this rank, given those of which it holds parts."""
        alike = self._alike(values, self.end - self.begin)
        return values if alike else values.narrow(self.dim, self.own - self.begin, self.end - self.own)

    def disowned(self, values: Tensor) -> Tensor:
        """Undo `owned`, with zeros for groups of other ranks."""
        return _padded(values, self.dim, self.own - self.begin, 0)

    def shared_of(self, values: Tensor) -> Tensor:
        """Return the values of the shared groups, given those of all groups, or one for all."""
        shared = torch.tensor(self.shared, dtype=torch.int64, device=values.device)
        return values if self._alike(values, 0) else values.index_select(self.dim, shared)

    def to_shared(self, values: Tensor) -> Tensor:
        """Return values for the shared groups, given those of which this rank holds parts; zero for the others."""
        shape = [*values.shape]
        shape[self.dim] = len(self.shared)
        here, there = self._positions(values.device)
        shared = torch.zeros(shape, dtype=values.dtype, device=values.device)
        return shared.index_copy_(self.dim, there, values.index_select(self.dim, here))

    def with_shared(self, values: Tensor, shared: Tensor) -> Tensor:
        """Return the values of the groups of which this rank holds parts, with those of the shared groups replaced."""
        here, there = self._positions(values.device)
        return values.index_copy(self.dim, here, shared.to(values).index_select(self.dim, there))

    def _alike(self, values: Tensor, groups: int) -> bool:
        """Return whether there is one value for all groups, and not because there is one group."""
        return values.dim() == 0 or values.shape[self.dim] == 1 != groups

    def _positions(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return where the shared groups are among those of which this rank holds parts, and where among the shared."""
        found = [(n - self.begin, i) for i, n in enumerate(self.shared) if self.begin <= n < self.end]
        here, there = torch.tensor(found, dtype=torch.int64, device=device).view(-1, 2).unbind(1)
        return here, there


@lru_cache(maxsize=4096)
def divide(
    groups: Grouping,
    shape: torch.Size,
    *,
    dim: int,
    rank: int,
    ranks: int,
    convolution_groups: int = 1,
    transposed: bool = False,
) -> Division:
    """Return where the groups of a tensor lie, for one of the ranks among which it is divided along a dimension.

    Six rows of four weights on two ranks, in blocks of two rows: the second block has a row on each.

    >>> from rvsm import Block
    >>> on = [divide(Block(size=2), torch.Size([6, 4]), dim=0, rank=rank, ranks=2) for rank in (0, 1)]
    >>> [(division.begin, division.own, division.end, division.shared) for division in on]
    [(0, 0, 2, (1,)), (1, 2, 3, (1,))]
    """
    ranges = parts(shape[dim], ranks)
    missing, covered = (0, 0), convolution_groups
    if convolution_groups > 1 and (transposed or isinstance(groups, Channel)):
        if dim != 0:
            raise ValueError(
                f"a convolution with {convolution_groups} groups that is divided along dimension {dim} cannot be"
                " sparsified by groups of weights; divide it along dimension 0, or use groups='element' for it"
            )
        each = shape[0] // convolution_groups
        # A part that is empty counts as a part of the last group.
        touched = [(min(begin // each, convolution_groups - 1), ceil(end / each)) for begin, end in ranges]
        touched = [(begin, max(end, begin + 1)) for begin, end in touched]
        begin, end = touched[rank]
        missing, covered = (ranges[rank][0] - begin * each, end * each - ranges[rank][1]), end - begin
        dim = int(isinstance(groups, Channel))  # the input channels of each group in turn, or its outputs
        width = each if transposed == (dim == 1) else shape[1]
        ranges = [(begin * width, end * width) for begin, end in touched]
    elif transposed and dim < 2:
        dim = 1 - dim
    span = groups.span(dim, len(shape))
    skipped = 0 if span is None else ranges[rank][0] % span
    held = [(0, 1) if span is None else (begin // span, ceil(end / span)) for begin, end in ranges]
    reached = [0, *accumulate((end for _, end in held), max)]  # by earlier ranks
    shared = {n for (begin, end), last in zip(held, reached, strict=False) for n in range(begin, min(end, last))}
    begin, end = held[rank]
    own = min(max(begin, reached[rank]), end)
    return Division(covered, missing, dim, skipped, begin, end, own, tuple(sorted(shared)))


def _padded(w: Tensor, dim: int, before: int, after: int) -> Tensor:
    """Return a tensor with zeros added along a dimension."""
    if before == after == 0:
        return w
    return pad(w, [*[0, 0] * (w.dim() - dim - 1), before, after])
