"""Every penalty on every grouping: the true minimiser of the group objective."""

from dataclasses import fields
from functools import partial
from itertools import product

import pytest
import torch

from rvsm import Block, Element, Filter, Grouped
from rvsm.groups import GROUPS
from rvsm.penalties import L0, L1, PENALTIES

every_penalty = pytest.mark.parametrize("penalty_key", PENALTIES)
GROUPINGS = [grouping(weighted=weighted) for grouping in GROUPS.values() for weighted in (True, False)]
every_grouping = pytest.mark.parametrize("grouping", GROUPINGS, ids=repr)
weighting = pytest.mark.parametrize("weighted", [True, False], ids=["weighted", "unweighted"])
SHAPES = [(10, 6), (10, 3, 2, 2)]


def random(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def halfway(penalty, grouping, w, step):
    """The grouped penalty whose threshold is the median magnitude, so that some groups live and some die."""
    return Grouped(penalty, grouping).with_threshold(grouping.magnitudes(w).median().item(), step)


@every_penalty
@every_grouping
def test_prox_beats_every_candidate(penalty_key, grouping):
    for shape, step in product(SHAPES, (0.3, 3.0, 40.0)):
        w = random(*shape)
        grouped = halfway(PENALTIES[penalty_key](lam=1.0), grouping, w, step)
        u = grouped.prox(w, step)
        alive = grouped.by.norms(u) > 0
        assert alive.any(), (shape, step)
        assert not alive.all(), (shape, step)
        reached = objective(grouped, u, w, step)
        tried = torch.vmap(partial(objective, grouped, w=w, step=step))(candidates(grouped, alive, u, w))
        assert (tried - reached).min() >= -1e-12 * reached, (shape, step)


def objective(grouped, u, w, step):
    return grouped.value(u) + (u - w).square().sum() / (2 * step)


def candidates(grouped, alive, u, w):
    found = [torch.stack([torch.zeros_like(w), w, *(u * (1 + s) for s in (-0.3, -0.1, -1e-3, 1e-3, 0.1, 0.3))])]
    # The objective is a sum over groups, so replacing one group at a time must not help either.
    some = torch.eye(alive.numel(), dtype=torch.bool)[:: max(1, alive.numel() // 8)]
    chosen = torch.stack([grouped.by.spread(one.view_as(alive), w) for one in some])
    found += [torch.where(chosen, other, u) for other in (torch.zeros_like(w), w, 0.5 * w, 0.9 * w, 0.9 * u)]
    generator = torch.Generator().manual_seed(1)
    for size in (1e-3, 1e-2, 0.1, 1.0):
        noise = size * torch.randn(4, *w.shape, generator=generator, dtype=w.dtype)
        found += [u + noise, u * (1 + noise)]
    return torch.cat(found)


@every_penalty
@weighting
@pytest.mark.parametrize("step", [0.3, 40.0])
def test_elements_are_the_penalty_itself(penalty_key, weighted, step):
    w = random(10, 3, 2, 2)
    grouped = halfway(PENALTIES[penalty_key](lam=1.0), Element(weighted=weighted), w, step)
    torch.testing.assert_close(grouped.prox(w, step), grouped.penalty.prox(w, step), rtol=1e-14, atol=0)
    torch.testing.assert_close(grouped.value(w), grouped.penalty.value(w), rtol=1e-14, atol=0)


@pytest.mark.parametrize("group_key", GROUPS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_weighted_l1_is_the_group_lasso(group_key, shape):
    lam, step, w = 0.7, 0.9, random(*shape)
    grouped = Grouped(L1(lam=lam), GROUPS[group_key](weighted=True))
    norms = grouped.by.norms(w)
    weights = grouped.by.sizes(w).expand_as(norms).double().sqrt()
    torch.testing.assert_close(grouped.value(w), lam * (weights * norms).sum())
    scale = (1 - lam * step * weights / norms).clamp_min(0)
    torch.testing.assert_close(grouped.prox(w, step), w * grouped.by.spread(scale, w))


@pytest.mark.parametrize("group_key", GROUPS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_weighted_l0_counts_weights(group_key, shape):
    w = random(*shape)
    grouped = halfway(L0(lam=1.0), GROUPS[group_key](weighted=True), w, step=2.0)
    u = grouped.prox(w, step=2.0)
    assert 0 < u.count_nonzero() < u.numel()
    torch.testing.assert_close(grouped.value(u), grouped.lam * u.count_nonzero().double())


@every_grouping
def test_groups_of_zeros_stay_zero(grouping):
    for cls, dtype in product(PENALTIES.values(), (torch.float64, torch.float32, torch.bfloat16)):
        w = random(10, 3, 2, 2).to(dtype)
        w[:4], w[:, 1], w[..., 0] = 0, 0, 0
        before = w.clone()
        grouped = Grouped(cls(lam=1e-3), grouping)
        u = grouped.prox(w, step=1.0)
        assert u.isfinite().all(), (cls, dtype)
        assert (u[w == 0] == 0).all(), (cls, dtype)
        assert u.any(), (cls, dtype)
        assert (u.shape, u.dtype) == (w.shape, w.dtype), cls
        assert torch.equal(w, before), (cls, dtype)
        assert (grouped.prox(torch.zeros_like(w), step=1.0) == 0).all(), (cls, dtype)
        assert grouped.value(torch.zeros_like(w)) == 0, (cls, dtype)


@every_grouping
def test_threshold_is_a_magnitude(grouping):
    w, step = random(10, 3, 2, 2), 5.0
    for cls in PENALTIES.values():
        grouped = halfway(cls(lam=1.0), grouping, w, step)
        t = grouped.threshold(step)
        magnitudes = grouped.by.magnitudes(w)
        assert t == pytest.approx(magnitudes.median().item(), rel=1e-14), cls
        alive = grouped.by.norms(grouped.prox(w, step)) > 0
        # The median itself may be off its own threshold by a rounding.
        clear = (magnitudes / t - 1).abs() > 1e-9
        assert torch.equal(alive[clear], (magnitudes > t)[clear]), cls
        assert grouped.lam == grouped.penalty.lam, cls


@pytest.mark.parametrize("group_key", GROUPS)
def test_device_and_layout_are_kept(group_key):
    w = random(10, 3, 2, 2).to(memory_format=torch.channels_last)
    for cls in PENALTIES.values():
        grouped = Grouped(cls(lam=0.1), GROUPS[group_key]())
        assert grouped.prox(torch.ones(10, 3, 2, 2, device="meta"), step=1.0).device.type == "meta", cls
        u = grouped.prox(w, step=1.0)
        torch.testing.assert_close(u, grouped.prox(w.contiguous(), step=1.0))
        assert u.is_contiguous(memory_format=torch.channels_last), cls


@every_penalty
@weighting
def test_last_block_may_be_partial(penalty_key, weighted):
    w, step = random(10, 3, 2, 2), 3.0
    grouped = halfway(PENALTIES[penalty_key](lam=1.0), Block(size=4, weighted=weighted), w, step)
    u = grouped.prox(w, step)
    value = 0.0
    for start, stop in [(0, 4), (4, 8), (8, 10)]:
        size = stop - start if weighted else 1
        magnitudes = w[start:stop].norm(dim=0) / size**0.5
        shrunk = grouped.penalty.prox(magnitudes, step)
        torch.testing.assert_close(u[start:stop], w[start:stop] * shrunk / magnitudes)
        value += size * grouped.penalty.value(shrunk)
    torch.testing.assert_close(grouped.value(u), value)


@every_penalty
def test_with_threshold_changes_lam_only(penalty_key):
    penalty, by = PENALTIES[penalty_key](lam=1.0), Filter(weighted=False)
    fitted = Grouped(penalty, by).with_threshold(0.25, step=10.0)
    assert fitted.by == by
    others = [f.name for f in fields(penalty) if f.name != "lam"]
    assert [getattr(fitted.penalty, name) for name in others] == [getattr(penalty, name) for name in others]
    assert fitted.threshold(10.0) == pytest.approx(0.25, rel=1e-14)
