"""Beyond the paper: each study in a small size, with the trend that it is there to show."""

import torch

from rvsm.paper.theory import extensions, outside_hypotheses
from rvsm.paper.theory.sample import inputs
from rvsm.paper.theory.statements.theorem import limit_errors


def test_a_finite_sample_comes_closer_as_it_grows() -> None:
    found = extensions.finite_sample((100, 3200), seeds=3, steps=80)
    mean = found.distance.mean(dim=1)
    assert mean[1] < mean[0] / 2
    assert found.rise.max() < 1e-6
    assert found.distance.shape == (2, 3)


def test_the_noise_floor_falls_with_the_batch() -> None:
    found = extensions.mini_batches((8, 128), seeds=4, steps=300)
    assert found.floor[1] < found.floor[0] / 2
    assert found.distance.shape == (2, 61, 4)


def test_the_gradient_on_fresh_data_is_that_of_its_loss() -> None:
    truth = torch.tensor([0.6, 0.8, 0.0], dtype=torch.float64)
    w = torch.randn(2, 3, dtype=torch.float64)

    def evaluate(v: torch.Tensor):
        return extensions._Fresh(truth, 3, 50, 0.1, torch.Generator().manual_seed(1)).evaluate(v)

    step = 1e-6 * torch.randn_like(w)
    change = evaluate(w + step).value - evaluate(w - step).value
    torch.testing.assert_close(change, 2 * (evaluate(w).gradient * step).sum(-1), rtol=1e-5, atol=1e-13)


def test_two_layers_descend_to_the_truth() -> None:
    found = extensions.two_layers(seeds=6, steps=400)
    assert found.lagrangian.diff(dim=0).max() < 1e-12
    assert found.theta[0].max() > 1
    assert found.theta[-1].max() < 0.05
    assert found.output_theta[-1].max() < 0.01
    assert (found.support[-1] <= found.truth_support).all()


def test_the_loss_of_two_layers_against_data() -> None:
    truth, v_truth = torch.randn(1, 3, dtype=torch.float64), torch.rand(2, dtype=torch.float64)
    w, v = torch.randn(1, 3, dtype=torch.float64), torch.rand(1, 2, dtype=torch.float64)
    x = inputs(400_000, k=2, d=3, generator=torch.Generator().manual_seed(0))
    error = ((x @ w[0]).relu() @ v[0] - (x @ truth[0]).relu() @ v_truth).square()
    z = (error.mean() - extensions._two_layer_loss(w, v, truth, v_truth)) / (error.std() / 400_000**0.5)
    assert abs(float(z)) < 4


def test_the_map_is_inside_the_theorem_below_the_bound_and_not_far_above() -> None:
    found = outside_hypotheses.angle_map(multiples=4, margins=4, seeds=4, steps=300)
    assert found.theta.shape == (4, 4)
    inside = found.multiples <= 1
    assert (found.theta[inside] < found.margins).all()
    assert (found.theta[~inside] >= found.margins).any()
    assert found.empty[inside].max() == 0
    assert found.empty[-1, -1] == 1


def test_a_large_threshold_empties_u() -> None:
    found = outside_hypotheses.threshold_study(points=5, seeds=6, steps=200)
    assert (found.empty[:, -1] == 1).all()
    assert (found.empty[:, 0] == 0).all()
    assert found.sparsity.shape == (3, 5)


def test_a_start_opposite_to_the_truth() -> None:
    found = outside_hypotheses.start_at_pi(seeds=3, steps=200)
    assert found.steps.shape == (13, 3)
    assert float(found.offsets[-1]) == 0
    assert (found.theta[0][found.steps[0] >= 0] < 0.1).all()


def test_the_parts_of_the_error_add_up() -> None:
    errors = limit_errors("l1", torch.tensor([1e-3, 1e-2], dtype=torch.float64), d=4, k=2, seeds=3)
    torch.testing.assert_close(errors.total**2, errors.radial**2 + errors.angular**2)
