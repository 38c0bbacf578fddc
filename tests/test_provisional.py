"""Compiling a network whose sparsifier has not been finalized is probably a mistake."""

import gc
import warnings

import pytest
import torch

import networks
import rvsm

X = torch.zeros(1, 20)


def trained(make: type[rvsm.splitting.Method], *given: object, **options: object) -> tuple[torch.nn.Module, object]:
    model = networks.perceptron(seed=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    method = make(model, *given, **options).attach(optimizer)
    for k in range(3):
        model(torch.randn(4, 20, generator=torch.Generator().manual_seed(k))).square().mean().backward()
        optimizer.step()
    model.eval()
    return model, method


def quiet(model: torch.nn.Module) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rvsm.compile(model, X)


def test_a_sparsifier_that_was_not_finalized_is_named() -> None:
    model, method = trained(rvsm.RVSM, rvsm.L0(lam=1e-3), beta=0.08)
    with pytest.warns(UserWarning, match=r"only a copy is sparse; call finalize\(\) on the sparsifier first") as found:
        rvsm.compile(model, X)
    assert found[0].filename == __file__
    with method.sparse_weights():
        quiet(model)
    method.finalize()
    quiet(model)


def test_no_warning_without_a_copy_or_a_sparsifier() -> None:
    model, method = trained(rvsm.RVSM, rvsm.L0(lam=1e-3), beta=0.08)
    method.detach()
    quiet(model)
    model, method = trained(rvsm.RVSM, rvsm.L0(lam=1e-3), beta=0.08)
    del method
    gc.collect()
    quiet(model)
    # The weights of magnitude pruning are the sparse ones, and after three steps the zeros of RVSM are fixed.
    for make, given, steps in ((rvsm.Magnitude, (), 10), (rvsm.RVSM, ("l0",), 3)):
        model, method = trained(make, *given, sparsity=0.5, steps=steps)
        quiet(model)
        assert "0.weight" in str(method.statistics())
