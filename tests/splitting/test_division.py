"""Where groups lie if a tensor is divided: the parts of all ranks, added up, are the groups of the whole tensor."""

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from rvsm.groups import GROUPS, Block, Element, Filter, Grouping
from rvsm.splitting.division import divide
from rvsm.splitting.layers import Layer
from rvsm.splitting.shards import Shard

GROUPINGS: list[Grouping] = [*(kind() for name, kind in GROUPS.items() if name != "element"), Block(size=7)]
SHAPES = [  # of the weight, the groups of its convolution, and whether that is transposed
    ((10, 6, 3, 3), 1, False),
    ((12, 2, 3), 3, False),
    ((3, 5), 1, False),
    ((7, 4, 2, 2), 1, True),
    ((12, 5, 2), 3, True),
]


def parts(w: Tensor, whole: Layer, dim: int, ranks: int) -> list[Layer]:
    """Return the layer as each of the ranks sees it."""
    seen = []
    for rank in range(ranks):
        shard = Shard(w.shape, dim, cast("Any", SimpleNamespace(rank=rank, size=ranks)))
        layer = replace(whole).at(shard.of(w))
        layer._shard = layer.parameter, shard
        seen.append(layer)
    return seen


@pytest.mark.parametrize("ranks", [2, 4, 13])
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize(("shape", "convolution_groups", "transposed"), SHAPES)
@pytest.mark.parametrize("groups", GROUPINGS, ids=str)
def test_the_parts_add_up_to_the_whole(  # noqa: PLR0917
    groups: Grouping, shape: tuple[int, ...], convolution_groups: int, transposed: bool, dim: int, ranks: int
) -> None:
    w = torch.randn(shape)
    whole = Layer("w", w, groups, convolution_groups=convolution_groups, transposed=transposed)
    seen = parts(w, whole, dim, ranks)
    norms = whole.norms(w)
    chosen = norms > norms.median()
    mask = whole.spread(chosen)
    if convolution_groups > 1 and dim == 1 and (transposed or groups == GROUPS["channel"]()):
        with pytest.raises(ValueError, match="divide it along dimension 0, or use groups='element'"):
            _ = seen[0].division
        return
    divisions = [layer.division for layer in seen]
    assert all(divisions)
    found = [layer.norms(layer.w) for layer in seen]
    shared = sum(d.to_shared(n.square()) for d, n in zip(divisions, found, strict=True) if d is not None).sqrt()
    owned = []
    for layer, division, n in zip(seen, divisions, found, strict=True):
        assert division is not None
        held = division.with_shared(n, shared)
        torch.testing.assert_close(held, division.held(norms).expand_as(held))
        owned.append(division.owned(held))
        assert layer.shard is not None
        assert torch.equal(layer.spread(division.held(chosen).expand_as(held)), layer.shard.of(mask))
        torch.testing.assert_close(layer._restored(layer._oriented(layer.w)), layer.w)
        assert division.disowned(division.owned(held)).shape == held.shape
    torch.testing.assert_close(torch.cat(owned, divisions[0].dim if divisions[0] else 0), norms)


def test_filters_of_whole_rows_need_no_message() -> None:
    for rank in range(4):
        assert divide(Filter(), torch.Size([10, 6, 3, 3]), dim=0, rank=rank, ranks=4).shared == ()
        assert divide(Block(size=4), torch.Size([16, 6]), dim=0, rank=rank, ranks=4).shared == ()
        assert divide(Element(), torch.Size([10, 6]), dim=0, rank=rank, ranks=4).shared == ()
        # Only the blocks at the boundaries: rows 3, 6 and 9 begin a part, and blocks 0, 1 and 2 go on in it.
        assert divide(Block(size=4), torch.Size([10, 6]), dim=0, rank=rank, ranks=4).shared == (0, 1, 2)


def test_a_grouping_without_a_span_says_what_is_missing() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Odd(Filter):
        def span(self, dim: int, dimensions: int) -> int | None:
            return Grouping.span(self, dim, dimensions)

    with pytest.raises(NotImplementedError, match=r"Odd does not define span\(dim, dimensions\)"):
        divide(Odd(), torch.Size([4, 4]), dim=0, rank=0, ranks=2)
