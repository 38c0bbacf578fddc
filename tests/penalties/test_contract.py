"""What every penalty of the registry must do; a new one is tested by being there."""

import math
import re
import sys
from dataclasses import fields, replace
from functools import cache
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rvsm.groups import Row
from rvsm.penalties import L0, L1, MCP, PENALTIES, SCAD, Grouped, LHalf, LogSum, Penalty, TransformedL1

every_penalty = pytest.mark.parametrize("cls", PENALTIES.values(), ids=PENALTIES)
DTYPES = [torch.float64, torch.float32, torch.bfloat16]
thorough = settings(derandomize=True, max_examples=100)
brief = settings(thorough, max_examples=30)


# Drawing an example takes as long as checking it: one serves several properties and all dtypes, and no strategy is
# built anew for each.
@cache
def log_uniform(low, high):
    return st.floats(math.log(low), math.log(high)).map(math.exp)


def accepts(cls, extras):
    try:
        cls(lam=1.0, **extras)
    except ValueError:
        return False
    return True


@cache
def extra_parameters(cls):
    extras = {f.name: st.just(f.default) | log_uniform(1e-2, 1e2) for f in fields(cls) if f.name != "lam"}
    return st.fixed_dictionaries(extras).filter(lambda values: accepts(cls, values))


beside = st.sampled_from([1 - 1e-6, 1 - 1e-12, 1.0, 1 + 1e-12, 1 + 1e-6])


@cache
@st.composite
def cases(draw, cls):
    """A penalty and a step, often on or beside the point where the penalty changes its regime."""
    extras = draw(extra_parameters(cls))
    steps = [x for e in extras.values() for x in (e - 1, e, e + 1) if 1e-3 <= x <= 200]
    if steps and draw(st.booleans()):
        step = draw(st.sampled_from(steps)) * draw(beside)
    else:
        step = draw(log_uniform(1e-3, 200))
    penalty = cls(lam=draw(log_uniform(1e-3, 200)), **extras)
    if extras and draw(st.booleans()):
        t = draw(st.sampled_from([x for e in extras.values() for x in (e / 2, e)])) * draw(beside)
        penalty = penalty.with_threshold(t, step)
    return penalty, step


def weights(penalty, step):
    """Magnitudes all around the threshold, and others very close to it and to where a formula may change."""
    t, lam = penalty.threshold(step), penalty.lam
    knees = [t, lam, lam * step, lam * (1 + step)]
    for f in fields(penalty):
        e = getattr(penalty, f.name)
        knees += [e / 2, e, e * lam, lam * (e + 1 + step) / 2]
    near = 10.0 ** torch.arange(-15, -1, 2, dtype=torch.float64)
    around = torch.cat([1 - near, torch.ones(1, dtype=torch.float64), 1 + near])
    far = torch.cat([torch.logspace(-2, 2, 50), torch.linspace(0.5, 3, 50)]).double()
    return torch.cat([t * far, torch.outer(torch.tensor(knees, dtype=torch.float64), around).flatten()])


def objective(penalty, u, w, step):
    entrywise = torch.vmap(penalty.value)(u.flatten()).view_as(u)
    return entrywise + (u - w) ** 2 / (2 * step)


@every_penalty
@given(data=st.data())
@thorough
def test_prox_is_the_minimiser_in_every_dtype(cls, data):
    penalty, step = data.draw(cases(cls))
    prox_beats_every_candidate(penalty, step)
    survivors_are_stationary(penalty, step)
    short_types_agree_with_float64(penalty, step)


def prox_beats_every_candidate(penalty, step):
    w = weights(penalty, step)
    u = penalty.prox(w, step)
    w, u = w[:, None], u[:, None]
    linear = w * torch.linspace(0, 1, 201, dtype=w.dtype)
    geometric = w * torch.logspace(-12, 0, 49, dtype=w.dtype)
    apart = torch.logspace(-9, -0.5, 18, dtype=w.dtype)
    candidates = torch.cat([linear, geometric, u * (1 + apart), u * (1 - apart)], dim=1)
    reached, best = objective(penalty, u, w, step), objective(penalty, candidates, w, step).amin(1, keepdim=True)
    rounding = 1e-14 * (w**2 / (2 * step) + objective(penalty, w, w, step))
    worse = reached - best - rounding
    assert worse.max() <= 0, f"{penalty}, step {step}: w = {w[worse.argmax()]}, prox = {u[worse.argmax()]}"


@every_penalty
@given(data=st.data())
@brief
def test_threshold_symmetry_extremes_and_value(cls, data):
    penalty, step = data.draw(cases(cls))
    threshold_is_where_zero_ends(penalty, step)
    prox_is_odd_and_shrinks(penalty, step)
    extreme_weights_stay_finite(penalty, step)
    value_is_a_sum_of_increasing_even_costs(penalty, step)


def threshold_is_where_zero_ends(penalty, step):
    t = penalty.threshold(step)
    assert isinstance(t, float)
    for dtype in DTYPES:
        at = torch.tensor(t, dtype=dtype)
        if at.double() > t:
            at = at.nextafter(torch.zeros((), dtype=dtype))
        below = at.nextafter(torch.zeros((), dtype=dtype))
        # One unit above the threshold, what is left of a continuous penalty may round to zero.
        above = torch.tensor(t * (1 + max(1e-9, 8 * torch.finfo(dtype).eps)), dtype=dtype)
        assert penalty.prox(at, step) == 0
        assert penalty.prox(below, step) == 0
        assert penalty.prox(above, step) > 0


@pytest.mark.parametrize(
    ("penalty", "step", "t", "jump"),
    [
        (L0(lam=2.0), 1.0, 2.0, 2.0),
        (L1(lam=2.0), 1.0, 2.0, 0.0),
        (TransformedL1(lam=4.0, a=1.0), 1.0, 3.5, 3.0),
        (TransformedL1(lam=0.125, a=1.0), 1.0, 0.25, 0.0),
        (MCP(lam=1.0, gamma=2.0), 1.0, 1.0, 0.0),
        (MCP(lam=1.0, gamma=1.0), 4.0, 2.0, 2.0),
        (SCAD(lam=1.0, a=3.0), 1.0, 1.0, 0.0),
        (SCAD(lam=1.0, a=3.0), 3.0, 3.0, 0.0),
        (SCAD(lam=1.0, a=3.0), 16.0, 8.0, 8.0),
        (LHalf(lam=8.0), 1.0, 6.0, 4.0),
        (LogSum(lam=0.25, eps=1.0), 2.0, 0.5, 0.0),
    ],
    ids=repr,
)
def test_ties_give_zero(penalty, step, t, jump):
    assert penalty.threshold(step) == t
    for dtype in DTYPES:
        assert penalty.prox(torch.tensor([t, -t], dtype=dtype), step).tolist() == [0, 0], dtype
        above = torch.tensor(t * (1 + 4 * torch.finfo(dtype).eps), dtype=dtype)
        assert penalty.prox(above, step).item() == pytest.approx(jump, rel=0, abs=t * 40 * torch.finfo(dtype).eps)


def prox_is_odd_and_shrinks(penalty, step):
    for dtype in DTYPES:
        w = weights(penalty, step).to(dtype)
        u = penalty.prox(w, step)
        assert torch.equal(penalty.prox(-w, step), -u)
        ratio = u.double() / w.double()
        assert ratio.min() >= 0
        assert ratio.max() <= 1 + 4 * torch.finfo(dtype).eps


@every_penalty
@given(data=st.data())
@brief
def test_small_steps_do_nothing(cls, data):
    penalty, _ = data.draw(cases(cls))
    penalty = replace(penalty, lam=data.draw(log_uniform(1e-3, 200)))
    w = torch.logspace(-3, 3, 61, dtype=torch.float64)
    torch.testing.assert_close(penalty.prox(w, 1e-22), w, rtol=1e-12, atol=0)


def extreme_weights_stay_finite(penalty, step):
    for dtype in DTYPES:
        largest, smallest = torch.finfo(dtype).max, torch.finfo(dtype).smallest_normal
        magnitudes = [0.0, smallest / 4, smallest, 1e-30, 1e-8, 1.0, 1e8, 1e30, 0.9 * largest]
        w = torch.tensor([sign * m for m in magnitudes for sign in (1, -1)], dtype=dtype)
        u = penalty.prox(w, step)
        assert u.isfinite().all(), dict(zip(w.tolist(), u.tolist(), strict=True))
        assert (u[w == 0] == 0).all()
        torch.testing.assert_close(u[w.abs() >= 1e30], w[w.abs() >= 1e30])
        w[3] = torch.nan
        assert penalty.prox(w, step).isnan().tolist() == w.isnan().tolist()


@every_penalty
def test_shape_dtype_and_input_are_kept(cls):
    penalty = cls(lam=0.1)
    for dtype, shape in product(DTYPES, [(), (0,), (5,), (2, 3), (2, 3, 3, 3)]):
        w = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)
        before = w.clone()
        u = penalty.prox(w, step=1.0)
        assert (u.shape, u.dtype, u.device) == (w.shape, w.dtype, w.device)
        assert torch.equal(w, before), (dtype, shape)
        if w.numel():
            assert u.data_ptr() != w.data_ptr(), (dtype, shape)
            # Vectorised and scalar kernels may differ in the last bit.
            alone = torch.stack([penalty.prox(entry, step=1.0) for entry in w.flatten()])
            torch.testing.assert_close(u.flatten(), alone)
        assert penalty.value(w).shape == (), (dtype, shape)
        assert torch.equal(w, before), (dtype, shape)


@every_penalty
def test_device_is_kept(cls):
    u = cls(lam=0.1).prox(torch.ones(2, 3, device="meta"), step=1.0)
    assert u.device.type == "meta"


@every_penalty
@pytest.mark.parametrize(
    "view",
    [
        lambda w: w.to(memory_format=torch.channels_last),
        lambda w: w.transpose(0, 1),
        lambda w: w[:, ::2],
        lambda w: w[:1].expand(4, -1, -1, -1),
    ],
    ids=["channels_last", "transposed", "strided", "expanded"],
)
def test_memory_layout_does_not_matter(cls, view):
    penalty = cls(lam=0.1)
    w = view(torch.randn(4, 5, 3, 3, generator=torch.Generator().manual_seed(0)))
    u = penalty.prox(w, step=1.0)
    torch.testing.assert_close(u, penalty.prox(w.contiguous(), step=1.0))
    if w.is_contiguous(memory_format=torch.channels_last):
        assert u.is_contiguous(memory_format=torch.channels_last)


@every_penalty
@given(data=st.data())
@thorough
def test_with_threshold_inverts_threshold(cls, data):
    penalty, step = data.draw(cases(cls))
    turning = st.sampled_from([getattr(penalty, f.name) for f in fields(cls)])
    scale = data.draw(log_uniform(1e-6, 1e2) | turning)
    for t in (scale * 1.07**k for k in range(-15, 15)):
        fitted = penalty.with_threshold(t, step)
        assert fitted == replace(penalty, lam=fitted.lam)
        assert fitted.threshold(step) == pytest.approx(t, rel=8 * sys.float_info.epsilon, abs=0)


def survivors_are_stationary(penalty, step):
    for dtype in DTYPES:
        w = weights(penalty, step).to(dtype)
        u = penalty.prox(w, step)
        w, u = w[u != 0].double(), u[u != 0].double()
        # Autograd counts both sides of a kink, as SCAD has at lam, so the slope is taken on either side of u.
        beside = u * torch.tensor([[1 - 1e-15], [1 + 1e-15]], dtype=torch.float64)
        beside.requires_grad_()
        value = penalty.value(beside)
        slope = torch.autograd.grad(value, beside)[0] if value.requires_grad else torch.zeros_like(beside)
        residual = (u - w + step * slope).abs().amin(0)
        # The survivor's own rounding, and a few of float32 (float64) relative to w for the arithmetic.
        rounding = torch.finfo(dtype).eps * u + 16 * torch.finfo(torch.promote_types(dtype, torch.float32)).eps * w
        wrong = residual > rounding
        assert not wrong.any(), f"{penalty}, step {step}: {w[wrong]}, {u[wrong]}, {(residual / rounding)[wrong]}"


def short_types_agree_with_float64(penalty, step):
    for dtype in [torch.float32, torch.bfloat16]:
        w = weights(penalty, step).to(dtype).double()
        u = penalty.prox(w.to(dtype), step)
        # The operator is monotone. So a result that is exact for a weight a few float32 roundings away, which is all
        # that arithmetic in float32 can promise at a jump or a steep slope, lies between the exact results at the ends.
        slack = 16 * torch.finfo(torch.float32).eps
        low = (penalty.prox(w * (1 - slack), step) - slack * w).to(dtype)
        high = (penalty.prox(w * (1 + slack), step) + slack * w).to(dtype)
        outside = (u < low) | (u > high)
        assert not outside.any(), (
            f"{penalty}, step {step}: w = {w[outside]}, {low[outside]} {u[outside]} {high[outside]}"
        )


def value_is_a_sum_of_increasing_even_costs(penalty, step):
    u = torch.cat([torch.zeros(1, dtype=torch.float64), weights(penalty, step).sort().values])
    costs = torch.vmap(penalty.value)(u)
    assert costs[0] == 0
    assert costs[1] > 0
    assert (costs.diff() >= -1e-15 * costs[1:]).all()
    assert torch.equal(torch.vmap(penalty.value)(-u), costs)
    torch.testing.assert_close(penalty.value(u), costs.sum())


def parameters(cls):
    return [field.name for field in fields(cls)]


@pytest.mark.parametrize("dtype", [torch.complex64, torch.int64])
@every_penalty
def test_weights_that_are_not_real_numbers_are_refused(cls: type[Penalty], dtype: torch.dtype) -> None:
    w, penalty = torch.ones(3, 3, dtype=dtype), cls(lam=0.1)
    grouped = Grouped(penalty, Row())
    for act in (penalty.value, grouped.value, lambda w: penalty.prox(w, 1.0), lambda w: grouped.prox(w, 1.0)):
        with pytest.raises(
            TypeError, match=r"a penalty needs real floating-point weights .* this tensor is \w+; convert it first"
        ):
            act(w)


every_parameter = pytest.mark.parametrize(
    ("cls", "name"),
    [(cls, name) for cls in PENALTIES.values() for name in parameters(cls)],
    ids=[f"{key}-{name}" for key, cls in PENALTIES.items() for name in parameters(cls)],
)


@every_parameter
def test_values_that_make_no_sense_are_refused(cls, name):
    for bad in (0, 0.0, -1, -0.5, math.nan, math.inf, -math.inf):
        with pytest.raises(ValueError, match=rf"^{name} must be .* but is {re.escape(str(bad))}\b"):
            cls(**{"lam": 1.0, name: bad})


@every_parameter
def test_what_is_no_number_is_refused(cls, name):
    for bad in ("0.1", None, True):
        with pytest.raises(TypeError, match=rf"^{name} must be a number .* but is {bad!r}"):
            cls(**{"lam": 1.0, name: bad})


def test_scad_needs_a_above_two():
    with pytest.raises(ValueError, match=r"^a must be > 2 .* but is 2\.0"):
        SCAD(lam=1.0, a=2.0)


@every_penalty
def test_registry_holds_penalties(cls):
    assert issubclass(cls, Penalty)
    with pytest.raises(AttributeError):
        cls(lam=1.0).lam = 2.0
