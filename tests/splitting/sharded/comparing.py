"""A training with shards beside the same training without."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from rvsm.splitting import Method
from splitting.sharded.models import Make, network, shard, train


def both(alone: nn.Module, ours: Method, divided: nn.Module, theirs: Method, *, exact: bool) -> None:
    """Train the model without and that with shards, finalize them, and compare everything that can be seen."""
    one: list[float] = []
    many: list[float] = []
    train(alone, ours, seen=one), train(divided, theirs, seen=many)
    for found, expected in zip(many, one, strict=True):
        assert close(found, expected, exact=exact), f"a threshold or λ is {found} and not {expected}"
    ours.finalize(), theirs.finalize()
    same(alone, ours, divided, theirs, exact=exact)
    assert theirs.statistics().sparsity > 0.1


def whole(w: Tensor) -> Tensor:
    """Return a parameter as one tensor."""
    return w.full_tensor().detach() if hasattr(w, "full_tensor") else w.detach().clone()


def weights(model: nn.Module) -> dict[str, Tensor]:
    """Return all weights of a model as whole tensors."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()
    return {name: whole(w) for name, w in model.named_parameters()}


def compare(
    make: Make,
    model: Callable[[], nn.Sequential] = network,
    sharded: Callable[[nn.Sequential], nn.Sequential] = shard,
    *,
    exact: bool = True,
) -> tuple[nn.Module, Method]:
    """Train with and without shards, compare everything that can be seen, and return the model with shards."""
    alone, divided = model(), sharded(model())
    ours, theirs = make(alone), make(divided)
    both(alone, ours, divided, theirs, exact=exact)
    theirs.release()
    return divided, theirs


def same(alone: nn.Module, ours: Method, divided: nn.Module, theirs: Method, *, exact: bool) -> None:
    """Compare weights, zeros and statistics, and these between the ranks."""
    one, many = weights(alone), weights(divided)
    for name in one:
        equal(many[name], one[name], name, exact=exact)
        assert torch.equal(many[name] == 0, one[name] == 0), f"zeros of {name}"
    found, expected = theirs.statistics(), ours.statistics()
    for row, like in zip(found.layers, expected.layers, strict=True):
        assert (row.name, row.shape, row.zeros) == (like.name, like.shape, like.zeros), (row, like)
        assert (row.groups, row.zero_groups) == (like.groups, like.zero_groups), (row, like)
        assert close(row.gap, like.gap), (row, like)
    assert (found.parameters, found.parameter_zeros) == (expected.parameters, expected.parameter_zeros)
    assert close(found.penalty, expected.penalty)
    assert close(found.coupling, expected.coupling)
    everywhere: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everywhere, repr(found))
    assert len(set(everywhere)) == 1, everywhere


def equal(found: Tensor, expected: Tensor, name: str, *, exact: bool) -> None:
    if exact:
        assert torch.equal(found, expected), f"{name}: differs by {float((found - expected).abs().max()):.3g}"
    else:
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6, msg=lambda said: f"{name}: {said}")


def close(found: float, expected: float, *, exact: bool = False) -> bool:
    return found == expected if exact else abs(found - expected) <= 1e-5 * abs(expected) + 1e-12


def zeros_of(model: nn.Module, method: Method) -> tuple[int, int]:
    """Return how many sparsified weights are zero, and how many there are."""
    of_all = weights(model)
    found = [of_all[layer.name] for layer in method.layers]
    return sum(int((w == 0).sum()) for w in found), sum(w.numel() for w in found)


def raises(kind: type[BaseException], words: str, act: Callable[[], object]) -> None:
    with pytest.raises(kind, match=re.escape(words)):
        act()
