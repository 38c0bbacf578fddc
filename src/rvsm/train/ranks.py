"""The processes that train one network together: who they are, and what they tell each other.

They are started by torchrun, or by anything else that sets the environment variables of torch.distributed. One process
alone is rank 0 of 1, and sends nothing.
"""

import gc
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from safetensors.torch import load, save
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from rvsm.cores import usable_cores
from rvsm.records.states import Tree, join, split

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

T = TypeVar("T")
_PATIENCE = timedelta(minutes=5)  # with processes that start late


class LostError(RuntimeError):
    """Another process of the training has ended, so this one cannot continue."""


@dataclass(frozen=True)
class Ranks:
    """The place of this process among those that train one network.

    Args:
        rank: its number; only number 0 writes and prints.
        size: how many there are.
        local_rank: its number among those of this machine.
        local_size: how many there are on this machine.
        store: where they leave messages, even while one of them is failing.

    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    store: "Store | None" = field(default=None, repr=False, compare=False)

    @property
    def first(self) -> bool:
        """Whether this is the process that writes and prints."""
        return self.rank == 0

    @property
    def alone(self) -> bool:
        """Whether there is no other process."""
        return self.size == 1

    @property
    def threads(self) -> int | None:
        """The part of the usable cores that belongs to this process; None if it is alone, and PyTorch may choose."""
        return None if self.alone else max(1, usable_cores() // self.local_size)

    def shares(self, images: int, parts: int = 1) -> list[slice]:
        """Return which images of a batch this process computes, in each part of the batch.

        The parts do not depend on the number of processes. A share may be empty.

        >>> Ranks().shares(10, parts=2)
        [slice(0, 5, None), slice(5, 10, None)]
        >>> Ranks(rank=1, size=2).shares(10, parts=2)
        [slice(2, 5, None), slice(7, 10, None)]
        """
        longest = -(-images // parts)
        ends = [(start, min(start + longest, images)) for start in range(0, images, longest)]
        return [slice(*(a + (b - a) * n // self.size for n in (self.rank, self.rank + 1))) for a, b in ends]

    # Messages: every process must call these in the same order

    def sum(self, *numbers: float) -> list[float]:
        """Return the sum of each number over the processes, the same bits on all of them.

        >>> Ranks().sum(0.5, 2)
        [0.5, 2]
        """
        return list(numbers) if self.alone else self.total(torch.tensor(numbers, dtype=torch.float64)).tolist()

    def any(self, flag: bool) -> bool:
        """Return whether a flag is set on one of the processes."""
        return self.sum(flag)[0] > 0

    def total(self, tensor: Tensor) -> Tensor:
        """Return the sum of a tensor over the processes; it may be written into the given one."""
        if not self.alone:
            dist.all_reduce(tensor)
        return tensor

    def gather(self, tensor: Tensor) -> Tensor:
        """Return the tensors of all processes, one after another along a new first dimension."""
        if self.alone:
            return tensor.unsqueeze(0)
        found = [torch.empty_like(tensor) for _ in range(self.size)]
        dist.all_gather(found, tensor)
        return torch.stack(found)

    def share(self, make: Callable[[], Tree]) -> Tree:
        """Return what ``make`` returns on the first process, the only one that calls it.

        So all processes go on from the same files, even if only the first one can read them. What is sent is JSON and
        safetensors, never pickle.
        """
        if self.alone:
            return make()
        message = torch.empty(0, dtype=torch.uint8)
        if self.first:
            tensors, rest = split(make())
            text, data = json.dumps(rest).encode(), save(tensors)
            message = torch.frombuffer(bytearray(len(text).to_bytes(8, "little") + text + data), dtype=torch.uint8)
        length = torch.tensor(len(message))
        dist.broadcast(length, 0)
        if not self.first:
            message = torch.empty(int(length), dtype=torch.uint8)
        dist.broadcast(message, 0)
        whole = message.numpy().tobytes()
        end = 8 + int.from_bytes(whole[:8], "little")
        return join(load(whole[end:]), json.loads(whole[8:end]))

    def in_turn(self, load: Callable[[], T]) -> T:
        """Return what ``load`` returns; one process on each machine calls it first, and the others use its cache."""
        if self.local_rank:
            self.sum(0)
        found = load()
        if not self.local_rank:
            self.sum(0)
        return found

    def require_same(self, **values: Any) -> None:
        """Raise if a value differs from that of the first process."""
        for name, theirs in self.share(lambda: values).items():
            if values[name] != theirs:
                raise ValueError(
                    f"the {name} of process {self.rank} are not those of process 0; give all processes the same command"
                    " and the same files"
                )


ALONE = Ranks()
_current = ALONE


def current_ranks() -> Ranks:
    """Return the processes that this one has joined."""
    return _current


def join_ranks(environment: Mapping[str, str] = os.environ, patience: timedelta = _PATIENCE) -> Ranks:
    """Join the processes that the environment variables describe, for the rest of this process.

    Raises:
        ValueError: the variables are incomplete or contradict each other.
        RuntimeError: the other processes cannot be reached.

    """
    global _current  # noqa: PLW0603 - torch's default group, which is joined here, belongs to the process, too
    found = read_environment(environment)
    if torch.cuda.is_available():
        torch.cuda.set_device(found.local_rank % torch.cuda.device_count())
    try:
        store, *_ = next(iter(rendezvous("env://", rank=found.rank, world_size=found.size, timeout=patience)))
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend, store=store, rank=found.rank, world_size=found.size)
    except (RuntimeError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise RuntimeError(
            f"process {found.rank} of {found.size} cannot reach the others through the environment variables"
            f" MASTER_ADDR={environment['MASTER_ADDR']} and MASTER_PORT={environment['MASTER_PORT']} ({reason}); check"
            " that all were started, and that the address is that of the first"
        ) from error
    _current = Ranks(found.rank, found.size, found.local_rank, found.local_size, store)
    return _current


def leave_ranks() -> None:
    """Leave the other processes; those that still wait for this one get an error at once.

    Networks that were trained must be gone, or at least garbage. DistributedDataParallel would keep the connections
    open, and if it is the last to hold the group, torch can deadlock: it waits for gloo's threads, and they for Python.
    """
    global _current  # noqa: PLW0603
    _current = ALONE
    gc.collect()
    dist.destroy_process_group()


def read_environment(environment: Mapping[str, str]) -> Ranks:
    """Return the processes that the environment variables of torch.distributed describe.

    >>> read_environment({"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"})
    Ranks(rank=1, size=2, local_rank=1, local_size=2)
    """
    advice = "start with torchrun --nproc-per-node N -m rvsm …, or, for one process, unset WORLD_SIZE"
    needed = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    if missing := [name for name in needed if name not in environment]:
        raise ValueError(
            f"the environment variable WORLD_SIZE is set, as in a training on several processes, but {missing[0]} is"
            f" missing; {advice}"
        )
    rank, size = (_integer(environment, name, advice) for name in ("RANK", "WORLD_SIZE"))
    local_rank = _integer(environment, "LOCAL_RANK", advice, default=rank)
    local_size = _integer(environment, "LOCAL_WORLD_SIZE", advice, default=size)
    _integer(environment, "MASTER_PORT", advice)
    for kind, one, of in (("", rank, size), ("LOCAL_", local_rank, local_size)):
        if not 0 <= one < of:
            raise ValueError(
                f"the environment variable {kind}RANK should be in [0, {of}), since {kind}WORLD_SIZE is {of}, but is"
                f" {one}; {advice}"
            )
    return Ranks(rank, size, local_rank, local_size)


def is_loss(error: object) -> bool:
    """Return whether an error means that another process does not answer; gloo's errors have no type of their own.

    >>> is_loss(RuntimeError("[gloo/transport/tcp/pair.cc:553] Connection closed by peer")), is_loss(ValueError("bad"))
    (True, False)
    """
    return isinstance(error, LostError | dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error))


def _integer(environment: Mapping[str, str], name: str, advice: str, default: int | None = None) -> int:
    text = environment.get(name, str(default))
    if not text.isascii() or not text.isdecimal():
        raise ValueError(f"the environment variable {name} should be an integer ≥ 0 but is {text!r}; {advice}")
    return int(text)
