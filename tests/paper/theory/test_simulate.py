"""The simulation: the regression values of the theory, independence of rows, ADMM, and what is refused."""

import math

import pytest
import torch
from scipy.optimize import minimize

import rvsm
from rvsm.paper.theory import Setting, angle, curvature, gradient, loss, simulate
from rvsm.paper.theory.counterexamples import equal_entries
from rvsm.paper.theory.methods import Remembering, minimise
from rvsm.paper.theory.penalty_formulas import penalty_values

PENALTIES = [rvsm.L1(lam=0.01), rvsm.L0(lam=0.01), rvsm.TransformedL1(lam=0.01, a=1.0)]


def vector(*entries: float) -> torch.Tensor:
    return torch.tensor(entries, dtype=torch.float64)


@pytest.mark.parametrize("order", ["proof", "printed"])
def test_regression_a(order) -> None:
    settings = [Setting(penalty, k=4, beta=0.04, eta=1.0) for penalty in PENALTIES]
    start = vector(-0.5, -0.5, 0.5, 0.5)
    path = simulate(settings, vector(0.8, 0.6, 0, 0), start, steps=200, order=order, every=200)
    w, lagrangian = path.w[-1, :, 0], path.lagrangian[-1, :, 0]
    expected = [[0.7820226035, 0.5761977966], [0.8207374600, 0.5269984504], [0.7910386904, 0.5634639516]]
    torch.testing.assert_close(w[:, :2], torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-9)
    torch.testing.assert_close(
        lagrangian, vector(0.01129123378452, 0.01633696111075, 0.01446836183485), rtol=0, atol=1e-9
    )
    assert w[:, 2:].abs().max() < 1e-9
    assert float(path.u[-1, 1, 0, 1]) == 0
    theta = float(path.theta[-1, 0, 0])
    assert theta == pytest.approx(0.008498727110, abs=1e-9)
    # C of Corollary 1.1, from the equation itself.
    truth, u = vector(0.8, 0.6, 0, 0), path.u[-1, 0, 0]
    rest = truth - 4 * math.pi / (math.pi - theta) * 0.04 * (w[0] - u)
    assert float(rest @ w[0] / (w[0] @ w[0])) == pytest.approx(0.9717001707, abs=1e-9)


@pytest.mark.parametrize(("d", "k", "beta", "expected"), [(4, 2, 0.1, 0.9241453007), (9, 5, 0.05, 0.9450123942)])
def test_regression_b(d: int, k: int, beta: float, expected: float) -> None:
    path, _ = equal_entries(d, k=k, beta=beta)
    assert float(path.norm[-1]) == pytest.approx(expected, abs=1e-9)


def test_regression_c() -> None:
    setting = Setting(rvsm.L1(lam=0.2), k=2, beta=0.1, eta=1.0)
    with pytest.warns(
        UserWarning, match="u is empty after 500 steps, in all runs of 1 of 1 settings: .*threshold 2 of"
    ):
        path = simulate(setting, vector(0.8, 0.6), vector(0, -1), steps=500)
    assert not path.support.any()
    assert float(path.norm[-1]) == pytest.approx(0.8682745849, abs=1e-9)


@pytest.mark.parametrize("order", ["proof", "printed"])
def test_every_row_is_a_run_of_its_own(order) -> None:
    settings = [Setting(p, k=k, beta=0.05, eta=eta) for p in PENALTIES for k, eta in ((2, 1.0), (6, 0.5))]
    truth, start = torch.randn(3, 4, dtype=torch.float64), torch.randn(3, 4, dtype=torch.float64)
    together = simulate(settings, truth, start, steps=40, order=order, every=7)
    assert together.w.shape == (7, 6, 3, 4)
    assert together.steps.tolist() == [0, 7, 14, 21, 28, 35, 40]
    for i, j in ((0, 0), (3, 1), (5, 2)):
        alone = simulate(settings[i], truth[j], start[j], steps=40, order=order, every=7)
        for name in ("w", "u", "lagrangian", "loss", "theta", "norm", "stationarity", "support"):
            torch.testing.assert_close(
                getattr(together, name)[:, i, j], getattr(alone, name)[:, 0, 0], rtol=1e-12, atol=1e-14
            )


@pytest.mark.parametrize("order", ["proof", "printed"])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_rvsm_against_its_formulas(order, penalty) -> None:
    truth, w = vector(0.6, 0.0, -0.8), vector(0.1, 0.9, 0.4)
    k, beta, eta = 3, 0.06, 1.1
    path = simulate(Setting(penalty, k=k, beta=beta, eta=eta), truth, w, steps=12, order=order)
    u = penalty.prox(w, 1 / beta)
    for t in range(13):
        now = penalty.prox(w, 1 / beta)
        used = now if order == "proof" else u
        torch.testing.assert_close(path.w[t, 0, 0], w, rtol=1e-12, atol=1e-14)
        torch.testing.assert_close(path.u[t, 0, 0], used, rtol=1e-12, atol=1e-14)
        value = loss(w, truth, k=k) + penalty.value(used) + beta / 2 * (w - used).square().sum()
        assert float(path.lagrangian[t]) == pytest.approx(float(value), rel=1e-12)
        pulled = gradient(w, truth, k=k) + beta * (w - used)
        assert float(path.stationarity[t]) == pytest.approx(float(pulled.norm()), abs=1e-14)
        assert float(path.theta[t]) == pytest.approx(float(angle(w, truth)), abs=1e-14)
        w, u = w - eta * pulled, now


def test_the_row_values_of_penalties_are_the_shipped_ones() -> None:
    u = torch.randn(14, 5, dtype=torch.float64) * (torch.rand(14, 5) > 0.5)
    penalties = [*PENALTIES, rvsm.L1(lam=2.0), rvsm.TransformedL1(lam=0.3, a=0.2), rvsm.MCP(lam=0.3), rvsm.L0(lam=7.0)]
    expected = [penalties[i // 2].value(row) for i, row in enumerate(u)]
    torch.testing.assert_close(penalty_values(penalties, u), torch.stack(expected))


@pytest.mark.parametrize("penalty", PENALTIES)
def test_a_proximal_point_is_computed_again_only_where_it_may_differ(penalty, monkeypatch) -> None:
    asked = []
    prox = type(penalty).prox
    monkeypatch.setattr(type(penalty), "prox", lambda self, w, step: asked.append(step) or prox(self, w, step))
    remembering, w = Remembering(penalty), torch.randn(3, 4, dtype=torch.float64)
    for v, step, computed in ((w, 2.0, 1), (w.flatten(), 2.0, 1), (w, 3.0, 2), (w + 1, 3.0, 3), (w, 3.0, 4)):
        torch.testing.assert_close(remembering.prox(v, step), prox(penalty, v, step), rtol=0, atol=0)
        assert len(asked) == computed
    w += 1  # in place, as a method changes its weights
    torch.testing.assert_close(remembering.prox(w, 3.0), prox(penalty, w, 3.0), rtol=0, atol=0)
    assert torch.equal(remembering.value(w), penalty.value(w))
    assert remembering.threshold(2.0) == penalty.threshold(2.0)
    assert remembering.with_threshold(0.5, 2.0).threshold(2.0) == pytest.approx(0.5)


def test_the_exact_step_of_admm_is_the_minimiser() -> None:
    generator = torch.Generator().manual_seed(3)
    for trial in range(6):
        d, k, beta = 2 + trial % 3, [2, 4, 12][trial % 3], [0.02, 0.3][trial % 2]
        truth = torch.randn(d, generator=generator, dtype=torch.float64)
        p = torch.randn(d, generator=generator, dtype=torch.float64) * [0.01, 0.1, 1.0][trial % 3]

        def objective(w, truth=truth, p=p, k=k, beta=beta) -> float:
            v = torch.as_tensor(w)
            return float(loss(v, truth, k=k) - p @ v + beta / 2 * v @ v)

        def slope(w, truth=truth, p=p, k=k, beta=beta):
            v = torch.as_tensor(w)
            return (gradient(v, truth, k=k) - p + beta * v).numpy()

        found = minimise(p.unsqueeze(0), truth.unsqueeze(0), k=k, beta=beta)[0]
        starts = [
            truth.numpy(),
            -truth.numpy(),
            p.numpy() / beta,
            *torch.randn(3, d, generator=generator).double().numpy(),
        ]
        best = min(minimize(objective, s, jac=slope, method="BFGS", options={"gtol": 1e-10}).fun for s in starts[:4])
        assert objective(found) <= best + 1e-10
        if float(found.norm()) > 0:
            residual = gradient(found, truth, k=k) - p + beta * found
            assert float(residual.norm()) < 1e-9


def test_the_exact_step_at_its_corners() -> None:
    truth = vector(1, 0, 0)
    at_zero = minimise(torch.zeros(1, 3, dtype=torch.float64), truth, k=2, beta=0.1)[0]
    torch.testing.assert_close(at_zero, truth * float(curvature(2)) / (float(curvature(2)) + 0.1))
    opposite = minimise(-5 * truth.unsqueeze(0), truth, k=2, beta=0.1)[0]
    assert torch.isfinite(opposite).all()
    assert float(gradient(opposite, truth, k=2).add(5 * truth).add(0.1 * opposite).norm()) < 1e-9


def test_admm_closes_the_gap_and_both_admms_agree_for_l1() -> None:
    truth, start = vector(0.8, 0.6, 0, 0), vector(-0.5, -0.5, 0.5, 0.5)
    setting = Setting(rvsm.L1(lam=0.01), k=4, beta=0.04, eta=1.0)
    ends = [
        simulate(setting, truth, start, steps=1000, method=m, every=1000, tolerance=1e-10)
        for m in ("admm", "exact-admm")
    ]
    for end in ends:
        assert (end.w[-1] - end.u[-1]).abs().max() < 1e-8
        assert float(end.stationarity[-1]) < 1e-8
    torch.testing.assert_close(ends[0].w[-1], ends[1].w[-1], rtol=0, atol=1e-8)


def test_bad_input() -> None:
    setting = Setting(PENALTIES[0], k=2, beta=0.1, eta=1.0)
    with pytest.raises(ValueError, match="dimension 2 but the start has 3"):
        simulate(setting, vector(1, 0), vector(1, 0, 0), steps=1)
    with pytest.raises(ValueError, match="w must not be zero"):
        simulate(setting, vector(1, 0), vector(0, 0), steps=1)
    with pytest.raises(ValueError, match="must be ≥ 1 but is 0"):
        Setting(PENALTIES[0], k=0, beta=0.1, eta=1.0)
    with pytest.raises(ValueError, match=r"beta must be > 0 and finite but is -0\.1"):
        Setting(PENALTIES[0], k=2, beta=-0.1, eta=1.0)
    with pytest.raises(ValueError, match="eta must be > 0 and finite but is nan"):
        Setting(PENALTIES[0], k=2, beta=0.1, eta=math.nan)
    with pytest.raises(TypeError, match=r"beta must be a number > 0 but is '0\.1'"):
        Setting(PENALTIES[0], k=2, beta="0.1", eta=1.0)
    with pytest.raises(
        TypeError, match=r"penalty must be an object with its λ, such as rvsm.L1\(lam=0.01\), but is 'l1'"
    ):
        Setting("l1", k=2, beta=0.1, eta=1.0)
    with pytest.raises(TypeError, match="k must be a number of patches, such as 4, but is '4'"):
        Setting(PENALTIES[0], k="4", beta=0.1, eta=1.0)
    with pytest.raises(TypeError, match="k must be one number of patches here but is tensor"):
        Setting(PENALTIES[0], k=torch.tensor([2.0, 4.0]), beta=0.1, eta=1.0)
    with pytest.raises(TypeError, match="settings must be Setting objects but one is 'l1'"):
        simulate(["l1"], vector(1, 0), vector(1, 1), steps=1)
    with pytest.raises(TypeError, match=r"start must be a tensor of weights but is \[1.0, 1.0\]; wrap it"):
        simulate(setting, vector(1, 0), [1.0, 1.0], steps=1)
    with pytest.raises(ValueError, match=r"start must be a tensor of weights \[d\] or \[n, d\] but has the shape \(\)"):
        simulate(setting, vector(1, 0), torch.tensor(1.0), steps=1)
    with pytest.raises(ValueError, match="truth must be a tensor of weights"):
        simulate(setting, torch.tensor(1.0), vector(1, 0), steps=1)
    with pytest.raises(ValueError, match=r"steps must be an integer ≥ 0 but is 2\.5"):
        simulate(setting, vector(1, 0), vector(1, 1), steps=2.5)
    with pytest.raises(ValueError, match="unknown method"):
        simulate(setting, vector(1, 0), vector(1, 1), steps=1, method="sgd")
    with pytest.raises(ValueError, match="record less often"):
        simulate(setting, vector(1, 0), vector(1, 1), steps=10**9)
    with pytest.raises(ValueError, match="every must be an integer ≥ 1 but is 0"):
        simulate(setting, vector(1, 0), vector(1, 1), steps=3, every=0)
    with pytest.raises(ValueError, match="settings, seeds, d"):
        simulate([setting] * 3, vector(1, 0), torch.ones(2, 4, 2), steps=1)
    with pytest.raises(ValueError, match="at least one setting"):
        simulate([], vector(1, 0), vector(1, 1), steps=1)
    with pytest.raises(ValueError, match="learning rate × β must be < 1"):
        simulate(Setting(PENALTIES[0], k=2, beta=1.0, eta=1.5), vector(1, 0), vector(1, 1), steps=1)


def test_an_empty_u_is_warned_of_only_where_it_is_empty() -> None:
    large, small = (Setting(rvsm.L1(lam=lam), k=2, beta=0.1, eta=1.0) for lam in (0.2, 0.001))
    truth, start = vector(0.8, 0.6), vector(0, -1)
    with pytest.warns(UserWarning, match="in all runs of 1 of 2 settings"):
        simulate([small, large], truth, start, steps=50, every=50)
    simulate(small, truth, start, steps=50, every=50)  # warnings are errors here
    simulate(large, truth, start, steps=50, every=50, empty_ok=True)
    simulate(large, truth, start, steps=50, every=50, method="admm")  # its multiplier fills u again


def test_ten_thousand_short_runs_take_seconds() -> None:
    settings = [Setting(p, k=4, beta=b, eta=1.0) for p in PENALTIES for b in (0.03, 0.05)]
    truth, start = torch.randn(1700, 4, dtype=torch.float64), torch.randn(1700, 4, dtype=torch.float64)
    path = simulate(settings, truth, start, steps=30, every=30)
    assert path.w.shape == (2, 6, 1700, 4)
    assert torch.isfinite(path.lagrangian).all()


def falling(step: int, steps: int) -> float:
    return max(0.0, 1 - step / (steps // 2))


COURSES = {"w": lambda step, steps: 1.0, "u": lambda step, steps: 0.0 if step else 1.0, "moving": falling}


@pytest.mark.parametrize("at", COURSES)
@pytest.mark.parametrize("penalty", PENALTIES)
def test_where_the_gradient_is_taken_against_the_formulas(at, penalty) -> None:
    truth, w = vector(0.6, 0.0, -0.8), vector(0.1, 0.9, 0.8)
    k, beta, eta, steps = 3, 0.06, 1.1, 14
    path = simulate(Setting(penalty, k=k, beta=beta, eta=eta), truth, w, steps=steps, gradient=at)
    for t in range(steps + 1):
        u = penalty.prox(w, 1 / beta)
        v = u + COURSES[at](t, steps) * (w - u)  # the first gradient is at w in all courses
        torch.testing.assert_close(path.w[t, 0, 0], w, rtol=1e-12, atol=1e-14)
        torch.testing.assert_close(path.u[t, 0, 0], u, rtol=1e-12, atol=1e-14)
        assert float(path.loss[t]) == pytest.approx(float(loss(v, truth, k=k)), rel=1e-12)
        pulled = gradient(v, truth, k=k) + beta * (w - u)
        assert float(path.stationarity[t]) == pytest.approx(float(pulled.norm()), abs=1e-14)
        w = w - eta * pulled


def test_an_empty_u_is_never_filled_again_by_a_gradient_at_u() -> None:
    setting = Setting(rvsm.L1(lam=0.05), k=2, beta=0.1, eta=1.0)
    path = simulate(setting, vector(0.8, 0.6), vector(0, -0.4), steps=50, gradient="u", empty_ok=True)
    assert not path.support.any()
    torch.testing.assert_close(path.w[2:, 0, 0], 0.9 * path.w[1:-1, 0, 0])  # pulled to 0, and nothing else
    torch.testing.assert_close(path.loss[-1, 0, 0], loss(vector(0, 0), vector(0.8, 0.6), k=2))
    # With the gradient at w, or moving from there, it fills.
    for at in ("w", "moving"):
        assert simulate(setting, vector(0.8, 0.6), vector(0, -0.4), steps=50, gradient=at).support[-1].all()


def test_the_gradient_at_v_is_that_of_rvsm() -> None:
    setting = Setting(PENALTIES[0], k=2, beta=0.1, eta=1.0)
    with pytest.raises(ValueError, match="the gradient at v is RVSM's, but the method is 'admm'"):
        simulate(setting, vector(1, 0), vector(1, 1), steps=1, method="admm", gradient="u")
    with pytest.raises(ValueError, match="unknown gradient 'v'; choose from w, u, moving"):
        simulate(setting, vector(1, 0), vector(1, 1), steps=1, gradient="v")
    with pytest.raises(ValueError, match="order='printed' is the algorithm as the paper prints it"):
        simulate(setting, vector(1, 0), vector(1, 1), steps=1, order="printed", gradient="u")
