"""RVSM beside ADMM: outputs, and the comparison at equal numbers of zeros."""

import torch

from rvsm.paper.theory.comparison import SparsityStudy, compared, sparsity_study


def test_masked_weights_are_closer_than_u() -> None:
    found = sparsity_study((0.1, 0.2), seeds=6, steps=200)
    assert found.loss.shape == found.sparsity.shape == (3, 3, 2)
    assert (found.loss[1, 0] < found.loss[0, 0]).all()
    assert (found.sparsity[0] > found.sparsity[2]).all()
    assert (found.sparsity[0] == found.sparsity[1]).all()


def test_several_shares_are_the_runs_of_each() -> None:
    both, truth = compared("rvsm", seeds=3, shares=(0.1, 0.4), steps=30)
    alone, same = compared("rvsm", seeds=3, shares=(0.4,), steps=30)
    assert torch.equal(truth, same)
    torch.testing.assert_close(both.w[-1, 3:], alone.w[-1], rtol=1e-12, atol=1e-14)


def test_a_rival_is_interpolated_at_the_same_zeros() -> None:
    sparsity = torch.tensor([[[0.0, 0.5, 0.95]], [[0.0, 0.5, 0.95]], [[0.1, 0.3, 0.9]]])
    loss = torch.tensor([[[1.0, 1.0, 1.0]], [[9.0, 9.0, 9.0]], [[1e-4, 1e-2, 1e-5]]])
    study = SparsityStudy(("l1",), sparsity, loss)
    # Only 0.5 lies between the rival's zeros; a third of the way from 0.3 to 0.9 its log f is a third of the way, too.
    ratio = study.loss_at_equal_sparsity("u", "admm")["l1"]
    torch.testing.assert_close(ratio, torch.tensor([10.0**3]))
    torch.testing.assert_close(study.loss_at_equal_sparsity("masked", "admm")["l1"], 9 * ratio)
