"""Every penalty on every grouping: the true minimiser of the group objective."""

from dataclasses import fields

import pytest
import torch

from rvsm import Block, Element, Filter, Grouped
from rvsm.groups import GROUPS
from rvsm.penalties import L0, L1, PENALTIES

every_penalty = pytest.mark.parametrize("penalty_key", PENALTIES)
every_grouping = pytest.mark.parametrize("group_key", GROUPS)
weighting = pytest.mark.parametrize("weighted", [True, False], ids=["weighted", "unweighted"])
SHAPES = [(10, 6), (10, 3, 2, 2)]


def random(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def halfway(penalty, grouping, w, step):
    """The grouped penalty whose threshold is the median magnitude, so that some groups live and some die."""
    return Grouped(penalty, grouping).with_threshold(grouping.magnitudes(w).median().item(), step)


@every_penalty
@every_grouping
@weighting
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("step", [0.3, 3.0, 40.0])
def test_prox_beats_every_candidate(penalty_key, group_key, weighted, shape, step):
    w = random(*shape)
    grouped = halfway(PENALTIES[penalty_key](lam=1.0), GROUPS[group_key](weighted=weighted), w, step)

    def objective(u):
        return grouped.value(u) + (u - w).square().sum() / (2 * step)

    u = grouped.prox(w, step)
    alive = grouped.by.norms(u) > 0
    assert alive.any()
    assert not alive.all()
    candidates = [torch.zeros_like(w), w, *(u * (1 + s) for s in (-0.3, -0.1, -1e-3, 1e-3, 0.1, 0.3))]
    # The objective is a sum over groups, so replacing one group at a time must not help either.
    for other in (torch.zeros_like(w), w, 0.5 * w, 0.9 * w, 0.9 * u):
        some = torch.eye(alive.numel(), dtype=torch.bool)[:: max(1, alive.numel() // 8)]
        candidates += [torch.where(grouped.by.spread(one.view_as(alive), w), other, u) for one in some]
    generator = torch.Generator().manual_seed(1)
    for size in (1e-3, 1e-2, 0.1, 1.0):
        noise = torch.randn(4, *shape, generator=generator, dtype=w.dtype)
        candidates += [u + size * n for n in noise] + [u * (1 + size * n) for n in noise]
    reached = objective(u)
    worse = [objective(candidate) - reached for candidate in candidates]
    assert min(worse) >= -1e-12 * reached


@every_penalty
@weighting
@pytest.mark.parametrize("step", [0.3, 40.0])
def test_elements_are_the_penalty_itself(penalty_key, weighted, step):
    w = random(10, 3, 2, 2)
    grouped = halfway(PENALTIES[penalty_key](lam=1.0), Element(weighted=weighted), w, step)
    torch.testing.assert_close(grouped.prox(w, step), grouped.penalty.prox(w, step), rtol=1e-14, atol=0)
    torch.testing.assert_close(grouped.value(w), grouped.penalty.value(w), rtol=1e-14, atol=0)


@every_grouping
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_weighted_l1_is_the_group_lasso(group_key, shape):
    lam, step, w = 0.7, 0.9, random(*shape)
    grouped = Grouped(L1(lam=lam), GROUPS[group_key](weighted=True))
    norms = grouped.by.norms(w)
    weights = grouped.by.sizes(w).expand_as(norms).double().sqrt()
    torch.testing.assert_close(grouped.value(w), lam * (weights * norms).sum())
    scale = (1 - lam * step * weights / norms).clamp_min(0)
    torch.testing.assert_close(grouped.prox(w, step), w * grouped.by.spread(scale, w))


@every_grouping
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_weighted_l0_counts_weights(group_key, shape):
    w = random(*shape)
    grouped = halfway(L0(lam=1.0), GROUPS[group_key](weighted=True), w, step=2.0)
    u = grouped.prox(w, step=2.0)
    assert 0 < u.count_nonzero() < u.numel()
    torch.testing.assert_close(grouped.value(u), grouped.lam * u.count_nonzero().double())


@every_penalty
@every_grouping
@weighting
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_groups_of_zeros_stay_zero(penalty_key, group_key, weighted, dtype):
    w = random(10, 3, 2, 2).to(dtype)
    w[:4], w[:, 1], w[..., 0] = 0, 0, 0
    before = w.clone()
    grouped = Grouped(PENALTIES[penalty_key](lam=1e-3), GROUPS[group_key](weighted=weighted))
    u = grouped.prox(w, step=1.0)
    assert u.isfinite().all()
    assert (u[w == 0] == 0).all()
    assert u.any()
    assert (u.shape, u.dtype) == (w.shape, w.dtype)
    assert torch.equal(w, before)
    assert (grouped.prox(torch.zeros_like(w), step=1.0) == 0).all()
    assert grouped.value(torch.zeros_like(w)) == 0


@every_penalty
@every_grouping
@weighting
def test_threshold_is_a_magnitude(penalty_key, group_key, weighted):
    w, step = random(10, 3, 2, 2), 5.0
    grouped = halfway(PENALTIES[penalty_key](lam=1.0), GROUPS[group_key](weighted=weighted), w, step)
    t = grouped.threshold(step)
    magnitudes = grouped.by.magnitudes(w)
    assert t == pytest.approx(magnitudes.median().item(), rel=1e-14)
    alive = grouped.by.norms(grouped.prox(w, step)) > 0
    # The median itself may be off its own threshold by a rounding.
    clear = (magnitudes / t - 1).abs() > 1e-9
    assert torch.equal(alive[clear], (magnitudes > t)[clear])
    assert grouped.lam == grouped.penalty.lam


@every_penalty
@every_grouping
def test_device_and_layout_are_kept(penalty_key, group_key):
    grouped = Grouped(PENALTIES[penalty_key](lam=0.1), GROUPS[group_key]())
    assert grouped.prox(torch.ones(10, 3, 2, 2, device="meta"), step=1.0).device.type == "meta"
    w = random(10, 3, 2, 2).to(memory_format=torch.channels_last)
    u = grouped.prox(w, step=1.0)
    torch.testing.assert_close(u, grouped.prox(w.contiguous(), step=1.0))
    assert u.is_contiguous(memory_format=torch.channels_last)


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
