"""Each grouping against its definition, written as a loop over the entries."""

from collections import Counter
from itertools import product
from math import sqrt

import pytest
import torch

from rvsm.groups import GROUPS, Block

# Which group the entry at index i belongs to.
GROUP_OF = {
    "element": lambda i: i,
    "filter": lambda i: i[0],
    "coupled": lambda i: i[0],
    "channel": lambda i: i[1],
    "row": lambda i: i[:-1],
    "column": lambda i: (*i[:-2], i[-1]),
    "block": lambda i: (i[0] // 4, *i[1:]),
}

every_grouping = pytest.mark.parametrize("key", GROUPS)
slices = pytest.mark.parametrize("key", ["filter", "channel", "row", "column"])
shapes = pytest.mark.parametrize("shape", [(8, 3), (10, 7), (3, 5), (10, 4, 3, 3), (8, 3, 1, 2), (1, 1, 1, 1)], ids=str)


def random(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@every_grouping
@shapes
@pytest.mark.parametrize("weighted", [True, False])
def test_each_weight_sees_its_group(key, shape, weighted):
    grouping, w = GROUPS[key](weighted=weighted), random(*shape)
    squares, sizes = Counter(), Counter()
    for i in product(*map(range, shape)):
        squares[GROUP_OF[key](i)] += w[i].item() ** 2
        sizes[GROUP_OF[key](i)] += 1
    norms = grouping.norms(w)
    assert norms.numel() == len(sizes)
    spread = {
        "norm": grouping.spread(norms, w),
        "size": grouping.spread(grouping.sizes(w).expand_as(norms), w),
        "magnitude": grouping.spread(grouping.magnitudes(w), w),
    }
    for i in product(*map(range, shape)):
        norm, size = sqrt(squares[GROUP_OF[key](i)]), sizes[GROUP_OF[key](i)]
        assert spread["norm"][i].item() == pytest.approx(norm, rel=1e-12)
        assert spread["size"][i].item() == size
        assert spread["magnitude"][i].item() == pytest.approx(norm / sqrt(size) if weighted else norm, rel=1e-12)


@every_grouping
@shapes
def test_sizes_add_up_to_all_weights(key, shape):
    grouping, w = GROUPS[key](), random(*shape)
    sizes = grouping.sizes(w)
    assert not sizes.is_floating_point()
    assert sizes.expand_as(grouping.norms(w)).sum() == w.numel()


@every_grouping
def test_spread_has_one_value_for_each_weight(key):
    w = random(10, 4, 3, 3)
    grouping = GROUPS[key]()
    assert grouping.spread(grouping.norms(w), w).shape == w.shape


@every_grouping
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("view", ["channels_last", "transposed"])
def test_memory_layout_does_not_matter(key, weighted, view):
    w = random(10, 4, 3, 3)
    w = w.to(memory_format=torch.channels_last) if view == "channels_last" else w.transpose(0, 1)
    grouping = GROUPS[key](weighted=weighted)
    torch.testing.assert_close(grouping.magnitudes(w), grouping.magnitudes(w.contiguous()))
    spread = grouping.spread(grouping.magnitudes(w), w)
    torch.testing.assert_close(spread, grouping.spread(grouping.magnitudes(w.contiguous()), w.contiguous()))


@slices
@pytest.mark.parametrize("shape", [(5,), ()], ids=str)
def test_slices_of_a_vector_are_refused(key, shape):
    sentence = rf"groups by {key} need a tensor with at least 2 dimensions .* shape \({','.join(map(str, shape))},?\)"
    for operation in (GROUPS[key]().norms, GROUPS[key]().sizes, GROUPS[key]().magnitudes):
        with pytest.raises(ValueError, match=sentence):
            operation(torch.ones(shape))


@pytest.mark.parametrize("size", [1, 3, 4, 16])
def test_block_of_any_size(size):
    grouping, w = Block(size=size, weighted=False), random(10, 3)
    blocks = w.split(size)
    torch.testing.assert_close(grouping.norms(w), torch.stack([block.norm(dim=0) for block in blocks]))
    assert grouping.sizes(w).flatten().tolist() == [len(block) for block in blocks]
    values = torch.arange(len(blocks) * 3).view(-1, 3)
    expected = torch.cat([row.expand(len(block), 3) for row, block in zip(values, blocks, strict=True)])
    assert torch.equal(grouping.spread(values, w), expected)


@pytest.mark.parametrize("size", [0, -4])
def test_blocks_without_channels_are_refused(size):
    with pytest.raises(ValueError, match=f"size of a block must be an integer ≥ 1 but is {size}"):
        Block(size=size)
