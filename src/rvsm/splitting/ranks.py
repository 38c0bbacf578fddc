"""The processes among which weights are divided, and the few sums that they exchange."""

from weakref import WeakValueDictionary

import torch
import torch.distributed as dist
from torch import Tensor


class Ranks:
    """Processes among which the groups of a tensor are divided: each group belongs to exactly one of them.

    All of them must make the same calls in the same order. For one process, every operation is the identity. Sums of
    integers are exact: of int64, and of float64 up to 2⁵³. Tensors stay on their device, which the backend of the group
    must support.

    `Ranks.of` returns the same object for the same group, so that the messages of all layers are counted together, and
    those of one moment can be sent as one.

    Attributes:
        group: the process group; None for one process.
        size: the number of processes.
        rank: the number of this one, from 0.
        messages: the number of messages that this process has given to the group so far.
        sent: their size in bytes. An all-reduce among n processes moves up to 2(n − 1)/n times as much over each link.

    >>> Ranks.of(None).sum_(torch.tensor([1, 2]))
    tensor([1, 2])

    """

    def __init__(self, group: "dist.ProcessGroup | None") -> None:
        self.group = group
        self.size = 1 if group is None else dist.get_world_size(group)
        self.rank = 0 if group is None else dist.get_rank(group)
        if self.rank < 0:
            raise ValueError("the process must be a member of the group among which its weights are divided")
        self.messages = 0
        self.sent = 0

    @staticmethod
    def of(group: "dist.ProcessGroup | None") -> "Ranks":
        """Return the ranks of a process group; those of one process for None."""
        ranks = _KNOWN.get(group)
        if ranks is None:
            ranks = _KNOWN[group] = Ranks(group)
        return ranks

    def sum_(self, tensor: Tensor) -> Tensor:
        """Replace a tensor by its sum over the ranks."""
        if self.size > 1:
            self._count(tensor)
            dist.all_reduce(tensor, group=self.group)
        return tensor

    def max_(self, tensor: Tensor) -> Tensor:
        """Replace a tensor by its maximum over the ranks, entry by entry; NaN is not propagated by all backends."""
        if self.size > 1:
            self._count(tensor)
            dist.all_reduce(tensor, dist.ReduceOp.MAX, group=self.group)
        return tensor

    def before(self, tensor: Tensor) -> Tensor:
        """Return the sum over the lower ranks: zero on the first, what the first has on the second, and so on.

        By doubling, in ⌈log₂ size⌉ messages of the size of the tensor: gathering would send it ``size`` times.
        """
        lower, own = torch.zeros_like(tensor), tensor.clone()  # own: of the `distance` ranks that end with this one
        distance = 1
        while distance < self.size:
            received = torch.zeros_like(own)
            operations = []
            if self.rank + distance < self.size:
                self._count(own)
                operations.append(dist.P2POp(dist.isend, own, group=self.group, group_peer=self.rank + distance))
            if self.rank >= distance:
                operations.append(dist.P2POp(dist.irecv, received, group=self.group, group_peer=self.rank - distance))
            for request in dist.batch_isend_irecv(operations) if operations else ():
                request.wait()
            lower += received
            own += received
            distance *= 2
        return lower

    def _count(self, tensor: Tensor) -> None:
        self.messages += 1
        self.sent += tensor.numel() * tensor.element_size()

    def __copy__(self) -> "Ranks":
        return self

    def __deepcopy__(self, memo: object) -> "Ranks":
        return self  # a copy of a model is trained by the same processes


_KNOWN: "WeakValueDictionary[dist.ProcessGroup | None, Ranks]" = WeakValueDictionary()

ALONE = Ranks.of(None)
