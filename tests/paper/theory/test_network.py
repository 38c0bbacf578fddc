"""The closed forms against automatic differentiation, Monte Carlo and the network itself."""

import math

import pytest
import torch

from rvsm.paper.theory import (
    Empirical,
    Population,
    angle,
    critical_points,
    cross_moment,
    curvature,
    gradient,
    hessian_eigenvalues,
    inputs,
    loss,
    monte_carlo,
)
from rvsm.paper.theory.sample import monte_carlo_cross_moment


def points(n: int = 40, d: int = 4) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    w = torch.randn(n, d, dtype=torch.float64)
    truth = torch.randn(n, d, dtype=torch.float64)
    return w, truth, torch.randint(1, 15, (n,)).double()


@pytest.mark.parametrize("k", [1, 2, 7])
def test_loss_against_monte_carlo(k: int) -> None:
    w, truth = torch.randn(12, 3, dtype=torch.float64), torch.tensor([0.6, -0.8, 0.0], dtype=torch.float64)
    estimate = monte_carlo(w, truth, k=k, samples=100_000, generator=torch.Generator().manual_seed(k))
    z = (estimate.value - loss(w, truth, k=k)) / estimate.error
    assert z.abs().max() < 4
    assert z.square().mean() < 3


def test_cross_moment_against_monte_carlo() -> None:
    v, w, _ = points(12, 3)
    estimate = monte_carlo_cross_moment(v, w, samples=200_000, generator=torch.Generator().manual_seed(0))
    assert ((estimate.value - cross_moment(v, w)) / estimate.error).abs().max() < 4


def test_gradient_against_autograd() -> None:
    w, truth, k = points()
    w.requires_grad_()
    (expected,) = torch.autograd.grad(loss(w, truth, k=k).sum(), w)
    torch.testing.assert_close(gradient(w.detach(), truth, k=k), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("d", [2, 3, 6])
def test_hessian_eigenvalues_against_autograd(k: int, d: int) -> None:
    for _ in range(5):
        w, truth = torch.randn(d, dtype=torch.float64), torch.randn(d, dtype=torch.float64)
        hessian = torch.autograd.functional.hessian(lambda v, truth=truth: loss(v, truth, k=k), w)
        radial, plane, other = hessian_eigenvalues(w, truth, k=k)
        expected = torch.stack([radial, plane, *[other] * (d - 2)]).sort().values
        torch.testing.assert_close(torch.linalg.eigvalsh(hessian), expected, rtol=1e-9, atol=1e-12)
        axis = w / w.norm()
        torch.testing.assert_close(hessian @ axis, radial * axis, rtol=1e-9, atol=1e-12)


def test_l_plus_bounds_the_loss_from_above_everywhere() -> None:
    w, truth, k = points(2000)
    step = torch.randn_like(w) * 10 ** (2 * torch.rand(2000, 1, dtype=torch.float64) - 1)
    model = loss(w, truth, k=k) + (gradient(w, truth, k=k) * step).sum(-1) + curvature(k) / 2 * step.square().sum(-1)
    assert (loss(w + step, truth, k=k) <= model + 1e-12).all()
    assert (curvature(torch.arange(1, 200).double()) <= 1).all()


def test_k_may_differ_by_row_and_w_may_be_one_vector() -> None:
    w, truth, k = points()
    for row in range(3):
        one = loss(w[row], truth[row], k=float(k[row]))
        torch.testing.assert_close(one, loss(w, truth, k=k)[row])
        torch.testing.assert_close(
            gradient(w[row], truth[row], k=float(k[row])), Population(truth, k).evaluate(w).gradient[row]
        )


@pytest.mark.parametrize("size", [1e-12, 1e-9, 1e-5, 0.1, 1.0, math.pi - 1e-9])
def test_the_angle_keeps_its_digits(size: float) -> None:
    a = torch.tensor(size, dtype=torch.float64)
    v, w = torch.tensor([1.0, 0.0], dtype=torch.float64), 3 * torch.stack([a.cos(), a.sin()])
    assert float(angle(v, w)) == pytest.approx(size, rel=1e-12, abs=1e-15)


def test_critical_points() -> None:
    truth = torch.tensor([0.0, 0.6, 0.8], dtype=torch.float64)
    found = critical_points(truth, k=4)
    assert found.saddle is not None
    assert found.maximum is not None
    assert float(gradient(found.saddle, truth, k=4).norm()) < 1e-15
    assert hessian_eigenvalues(found.saddle, truth, k=4)[1:].abs().max() < 1e-15
    torch.testing.assert_close(found.saddle, -(16 - 4) / (16 + (math.pi - 1) * 4) * truth)
    assert critical_points(truth, k=1).maximum is None


def test_the_empirical_loss_and_its_gradient() -> None:
    truth = torch.tensor([0.6, 0.8, 0.0], dtype=torch.float64)
    data = Empirical(inputs(200_000, k=3, d=3, generator=torch.Generator().manual_seed(0)), truth)
    w = torch.randn(4, 3, dtype=torch.float64)
    found = data.evaluate(w)
    torch.testing.assert_close(found.value, loss(w, truth, k=3), rtol=0.03, atol=0)
    torch.testing.assert_close(found.gradient, gradient(w, truth, k=3), rtol=0, atol=0.01)
    v = w.clone().requires_grad_()
    data(v).sum().backward()
    torch.testing.assert_close(v.grad, found.gradient)


def test_bad_input() -> None:
    w = torch.ones(2, 3, dtype=torch.float64)
    zero = torch.zeros(2, 3, dtype=torch.float64)
    for call in (gradient, hessian_eigenvalues):
        with pytest.raises(ValueError, match="w must not be zero"):
            call(zero, w, k=2)
        with pytest.raises(ValueError, match="same dimension"):
            call(w, torch.ones(4), k=2)
        with pytest.raises(ValueError, match="k, the number of patches, must be ≥ 1 but is"):
            call(w, w, k=0.5)
        with pytest.raises(TypeError, match="k must be a number of patches, such as 4, but is '4'"):
            call(w, w, k="4")
        with pytest.raises(TypeError, match="w must be a tensor of weights but is"):
            call([1.0, 0.0], w[0], k=2)
        with pytest.raises(ValueError, match=r"w must be a tensor of weights \[d\] or \[n, d\] but has the shape \(\)"):
            call(torch.tensor(1.0), w[0], k=2)
    with pytest.raises(TypeError, match="k must be one number of patches here"):
        critical_points(w[0], k=torch.tensor([2.0, 4.0]))
    with pytest.raises(ValueError, match="truth must not be zero"):
        loss(w, zero, k=2)
    with pytest.raises(ValueError, match="one for each row"):
        loss(w, w, k=torch.ones(3))
    with pytest.raises(ValueError, match="rows do not match"):
        loss(w, torch.ones(3, 3), k=2)
    with pytest.raises(ValueError, match="must be ≥ 1"):
        critical_points(w[0], k=0)
    with pytest.raises(ValueError, match="must be finite"):
        gradient(w * math.nan, w, k=2)
    with pytest.raises(ValueError, match=r"x must be \[N, k, 3\]"):
        Empirical(torch.ones(5, 3), w[0])
    assert torch.isfinite(loss(zero, w, k=2)).all()


@pytest.mark.parametrize("bad", [torch.inf, -torch.inf, torch.nan])
def test_weights_that_are_not_finite_are_refused(bad: float) -> None:
    w, truth = torch.tensor([bad, 1.0]), torch.tensor([1.0, 0.0])
    for function in (loss, gradient, hessian_eigenvalues):
        with pytest.raises(ValueError, match="w must be finite but its norm is"):
            function(w, truth, k=2)
