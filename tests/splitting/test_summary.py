"""What a sparsifier says of itself in a notebook."""

from functools import partial

import pytest
import torch

import networks
import rvsm

network = partial(networks.perceptron, 10, 8, 4)


def test_a_target_and_the_way_to_it() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = rvsm.RVSM(model, "l0", sparsity=0.5, steps=10)
    begun = "RVSM(L0, sparsity=0.5, steps=10, {}, 2 layers with 112 weights"
    assert repr(sparsifier) == begun.format("not attached") + ")"
    sparsifier.attach(optimizer)
    assert repr(sparsifier) == begun.format("at step 0, phase 'ramp'") + ", 0.00% zeros)"
    for _ in range(10):
        optimizer.zero_grad()
        model(torch.randn(4, 10)).square().mean().backward()
        optimizer.step()
    with sparsifier.sparse_weights():
        assert repr(sparsifier) == begun.format("at step 10, phase 'heal'") + ")"
    sparsifier.finalize()
    assert repr(sparsifier) == begun.format("finalized") + ", 50.00% zeros)"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda m: rvsm.RVSM(m, rvsm.L1(lam=1e-3), beta=1.0), "RVSM(L1(lam=0.001), not attached, 2 layers"),
        (lambda m: rvsm.ADMM(m, sparsity=0.6, rho=1.0), "ADMM(sparsity=0.6, not attached, 2 layers"),
        (lambda m: rvsm.Magnitude(m, sparsity=0.6, steps=9), "Magnitude(sparsity=0.6, steps=9, not attached, 2 layers"),
        (
            lambda m: rvsm.RVSM(
                m, rvsm.L0(lam=1e-3), beta=1.0, overrides={"2.*": {"penalty": rvsm.L1(lam=1.0)}}, exclude=["0.bias"]
            ),
            "RVSM(L0(lam=0.001), L1(lam=1.0), not attached",
        ),
        (lambda m: rvsm.ProxSGD(m, rvsm.L1(lam=1e-3), include=["0.*"]), "1 layer with 80 weights)"),
    ],
)
def test_every_method_has_its_words(make, said: str) -> None:
    assert said in repr(make(network()))


def test_weights_that_are_not_finite_do_not_keep_it_from_speaking() -> None:
    model = network()
    sparsifier = rvsm.RVSM(model, rvsm.L0(lam=1e-3), beta=1.0)
    sparsifier.attach(torch.optim.SGD(model.parameters(), lr=0.1))
    model[0].weight.data.fill_(torch.nan)
    assert repr(sparsifier).endswith("2 layers with 112 weights)")
