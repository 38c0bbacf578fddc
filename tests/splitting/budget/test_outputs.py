"""What finalize writes: u, or w on the support of u."""

from typing import Any

import pytest
import torch

import rvsm
from rvsm.penalties import PENALTIES


@pytest.mark.parametrize("penalty", PENALTIES)
def test_masked_is_w_on_the_support_of_u(training: Any, penalty: str) -> None:
    sparsifier = training.attach(rvsm.RVSM, penalty=penalty, sparsity=0.9, steps=40, gradient="w")
    training.run(24)  # in the hold
    ws = training.copies
    seen = {}
    for output in ("u", "masked"):
        with sparsifier.sparse_weights(output=output):
            seen[output] = training.copies
    assert sum(map(rvsm.metrics.zeros, seen["u"].values())) > 0.8 * training.size
    for name, w in ws.items():
        u, masked = seen["u"][name], seen["masked"][name]
        assert torch.equal(masked, torch.where(u != 0, w, 0.0))
        if penalty == "l1":
            lam, beta = next((row.lam, row.beta) for row in sparsifier.statistics().layers if row.name == name)
            shrunk = (w.abs() - lam / beta)[u != 0]
            torch.testing.assert_close(u[u != 0].abs(), shrunk)
    with (
        pytest.raises(ValueError, match="unknown output 'w'; choose from u, masked"),
        sparsifier.sparse_weights(output="w"),
    ):
        pass


@pytest.mark.parametrize("output", ["u", "masked"])
def test_finalize_writes_the_output_with_the_exact_count(training: Any, output: str) -> None:
    budget = rvsm.Budget(0.9, training.steps, heal=0.0)
    sparsifier = training.attach(rvsm.RVSM, penalty="l1", budget=budget, pull=6.0, gradient="w")
    training.run(training.steps)
    ws = training.copies
    sparsifier.finalize(output=output, recalibrate=training.images)
    assert training.zeros == round(0.9 * training.size)
    for name, w in training.weights.items():
        kept = w != 0
        assert torch.equal(w[kept], ws[name][kept]) == (output == "masked")
        assert ws[name][kept].abs().min() >= ws[name][~kept].abs().max()


def test_finalizing_batch_norm_without_new_statistics_warns(training: Any) -> None:
    budget = rvsm.Budget(0.9, training.steps, heal=0.0)
    sparsifier = training.attach(rvsm.RVSM, penalty="l0", budget=budget, pull=6.0, gradient="w")
    training.run(training.steps)
    with pytest.warns(UserWarning, match="batch-norm statistics still belong to the dense weights"):
        sparsifier.finalize()
