"""Agreement with other people's proximal operators, in the regimes in which those are right."""

import math

import numpy as np
import pytest
import torch

from rvsm import L0, L1, MCP, SCAD, LHalf, LogSum, TransformedL1

LAMBDAS = [0.02, 0.3, 1.7]
STEPS = [0.05, 1.0, 2.5, 12.0, 60.0]
GRID = [(lam, step) for lam in LAMBDAS for step in STEPS]


def skglm():  # imported here: with Numba and SciPy it takes seconds, which only who runs these tests must pay
    import numba

    numba.config.DISABLE_JIT = True  # compiling takes longer than these tests
    from skglm.utils import prox_funcs

    return prox_funcs


def pyproximal():
    import pyproximal

    return pyproximal


def weights(t):
    """Both signs, from well below the threshold to far above, but not on it: others break ties otherwise."""
    magnitudes = t * np.concatenate([np.linspace(0.05, 4, 160), [1 - 1e-6, 1 + 1e-6, 30, 1000]])
    magnitudes = magnitudes[np.abs(magnitudes / t - 1) > 1e-7]
    return np.concatenate([magnitudes, -magnitudes])


def agree(penalty, step, oracle, *, rtol=1e-10):
    w = weights(penalty.threshold(step))
    expected = oracle(w)
    assert np.count_nonzero(expected) not in (0, len(w)), (penalty, step)
    u = penalty.prox(torch.from_numpy(w), step).numpy()
    atol = rtol * penalty.threshold(step)
    np.testing.assert_allclose(u, expected, rtol=rtol, atol=atol, err_msg=f"{penalty}, step {step}")


def entrywise(function, *args):
    return lambda w: np.array([function(x, *args) for x in w])


def objective(penalty, u, w, step):
    return (penalty.value(u) + (u - w).square().sum() / (2 * step)).item()


def test_l1_is_skglms_and_pyproximals():
    for lam, step in GRID:
        agree(L1(lam), step, lambda w, mu=lam * step: skglm().ST_vec(w, mu))
        agree(L1(lam), step, lambda w, lam=lam, step=step: pyproximal().L1(sigma=lam).prox(w, step))


@pytest.mark.parametrize("gamma", [1.5, 3.0, 80.0])
def test_mcp_is_skglms_for_small_steps(gamma):
    for lam, step in GRID:
        if step < gamma:
            agree(MCP(lam, gamma=gamma), step, entrywise(skglm().prox_MCP, step, lam, gamma))


@pytest.mark.parametrize("a", [2.5, 3.7, 30.0])
def test_scad_is_skglms_for_all_steps(a):
    # It compares the objectives of its three candidates, so it is right for large steps as well.
    for lam, step in GRID:
        agree(SCAD(lam, a=a), step, entrywise(skglm().prox_SCAD, step, lam, a))


@pytest.mark.parametrize("a", [3.7, 30.0])
def test_scad_is_pyproximals_for_small_steps(a):
    for lam, step in GRID:
        if step < a - 1:
            theirs = pyproximal().SCAD(sigma=lam, a=a)
            agree(SCAD(lam, a=a), step, lambda w, theirs=theirs, step=step: theirs.prox(w, step))


def test_lhalf_is_skglms():
    for lam, step in GRID:
        agree(LHalf(lam), step, entrywise(skglm().prox_05, lam * step))


@pytest.mark.parametrize("eps", [0.05, 1.0, 20.0])
def test_logsum_is_pyproximals(eps):
    for lam, step in GRID:
        # Its parameters: log(γ|x| + 1)·σ/log(γ + 1).
        theirs = pyproximal().Log(sigma=lam * math.log1p(1 / eps), gamma=1 / eps)
        agree(LogSum(lam, eps=eps), step, lambda w, theirs=theirs, step=step: theirs.prox(w, step), rtol=1e-9)


@pytest.mark.parametrize("eps", [0.05, 1.0, 20.0])
def test_logsum_is_skglms_without_a_jump(eps):
    for lam, step in GRID:
        # Where there is a jump, its bisection starts at a square root that rounding may have made NaN.
        if lam * step <= eps**2:
            agree(LogSum(lam, eps=eps), step, entrywise(skglm().prox_log_sum, lam * step, eps))


@pytest.mark.parametrize(("lam", "step"), [(0.02, 1.0), (0.02, 10.0), (1.0, 50.0), (8.0, 1.0)])
def test_l0_of_pyproximal_has_another_threshold_and_a_higher_objective(lam, step):
    # It cuts at lam·step instead of √(2·lam·step); the two agree by chance where lam·step = 2.
    ours, theirs = math.sqrt(2 * lam * step), lam * step
    assert L0(lam).threshold(step) == pytest.approx(ours, rel=1e-15)
    w = torch.linspace(0, 2 * max(ours, theirs), 402, dtype=torch.float64)
    u, v = L0(lam).prox(w, step), torch.from_numpy(pyproximal().L0(sigma=lam).prox(w.numpy(), step))
    between = (w > min(ours, theirs)) & (w <= max(ours, theirs))
    assert between.any()
    assert torch.equal(u != v, between)
    for i in between.nonzero():
        assert objective(L0(lam), u[i], w[i], step) < objective(L0(lam), v[i], w[i], step)


@pytest.mark.parametrize("a", [0.05, 1.0, 20.0])
def test_transformed_l1_is_the_papers_cosine(a):
    for lam, step in GRID:
        mu = lam * step
        t = mu * (a + 1) / a if mu <= a * a / (2 * (a + 1)) else math.sqrt(2 * mu * (a + 1)) - a / 2

        def closed_form(w, mu=mu, t=t):
            x = np.abs(w)
            phi = np.arccos(np.clip(1 - 27 * mu * a * (a + 1) / (2 * (a + x) ** 3), -1, 1))
            u = 2 / 3 * (a + x) * np.cos(phi / 3) - 2 * a / 3 + x / 3
            return np.where(x > t, np.sign(w) * u, 0)

        # The cosine loses what the arc cosine's argument near 1 has lost: some roundings of a.
        agree(TransformedL1(lam, a=a), step, closed_form, rtol=1e-10 * max(1, a / t))


@pytest.mark.parametrize(("gamma", "step"), [(3.0, 3.0), (3.0, 12.0), (1.5, 54.0)])
def test_mcp_is_hard_thresholding_for_large_steps(gamma, step):
    penalty, t = MCP(lam=0.5, gamma=gamma), 0.5 * math.sqrt(gamma * step)
    assert penalty.threshold(step) == pytest.approx(t, rel=1e-15)
    w = torch.tensor([0.2, 0.5, 0.999, 1.001, 1.5, 4.0], dtype=torch.float64) * t
    assert penalty.prox(w, step).tolist() == [0, 0, 0, *w[3:].tolist()]


@pytest.mark.parametrize(("gamma", "step"), [(3.0, 12.0), (1.5, 54.0)])
def test_firm_thresholding_has_a_higher_objective_for_large_steps(gamma, step):
    penalty = MCP(lam=0.5, gamma=gamma)
    w = torch.linspace(1.01 * penalty.threshold(step), 0.5 * step, 50, dtype=torch.float64)
    assert torch.equal(penalty.prox(w, step), w)
    for x in w:
        firm = torch.tensor(skglm().prox_MCP(x.item(), step, 0.5, gamma), dtype=torch.float64)
        assert objective(penalty, x, x, step) < objective(penalty, firm, x, step)


@pytest.mark.parametrize(
    ("step", "points"),
    [
        # Soft, then the steeper line, then the identity.
        (1.0, {0.9: 0, 1.0: 0, 1.5: 0.5, 2.0: 1.0, 2.5: 2.0, 3.0: 3.0, 7.0: 7.0}),
        # Soft up to (a + 1 + step)/2 = 3.5, then the identity, with a jump between.
        (3.0, {2.9: 0, 3.0: 0, 3.2: 0.2, 3.49: 0.49, 3.51: 3.51, 7.0: 7.0}),
        # Hard at √(step·(a + 1)) = 8.
        (16.0, {4.0: 0, 7.99: 0, 8.0: 0, 8.01: 8.01, 17.0: 17.0}),
    ],
)
def test_scad_in_its_three_regimes(step, points):
    u = SCAD(lam=1.0, a=3.0).prox(torch.tensor(list(points), dtype=torch.float64), step)
    torch.testing.assert_close(u, torch.tensor(list(points.values()), dtype=torch.float64))
