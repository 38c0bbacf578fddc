"""One captured network with several weights."""

import numpy as np
import pytest
import torch
from torch import nn

from rvsm.lowering.variants import Variants
from rvsm.runtime.execute.program import Program


class Twice(nn.Module):
    """A residual network that uses one layer twice, and two weights of one module in it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.shared = nn.Conv2d(2, 6, 3), nn.BatchNorm2d(6), nn.Conv2d(6, 6, 3, padding=1)
        self.one, self.two = nn.Parameter(torch.randn(5, 6)), nn.Parameter(torch.randn(4, 5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.first(x)))
        x = x + self.shared(torch.relu(self.shared(x)))
        x = torch.relu(nn.functional.linear(x.mean((2, 3)), self.one))
        return nn.functional.linear(x, self.two)


def test_a_plan_computes_with_the_given_weights_and_names_them() -> None:
    model = Twice().eval()
    x = torch.randn(3, 2, 7, 7)
    variants = Variants(model, (x,))
    names = {"first.weight", "shared.weight", "one", "two"}
    assert variants.weights == names
    for density in (1.0, 0.5):
        weights = {name: w * (torch.rand_like(w) < density) for name, w in model.named_parameters() if name in names}
        plan = variants.plan(weights)
        found = [operation.name for k, operation in enumerate(plan.operations) if k in plan.weights]
        assert sorted(found) == ["first.weight", "one", "shared.weight", "shared.weight", "two"]
        with torch.no_grad():
            expected = torch.func.functional_call(model, weights, x)
        np.testing.assert_allclose(Program(plan, threads=1)(x.numpy()), expected.numpy(), atol=1e-5)
    assert torch.equal(torch.from_numpy(Program(variants.plan({}), threads=1)(x.numpy())) > 0, model(x) > 0)


def test_a_network_that_needs_pytorch_is_refused_with_what_it_needs() -> None:
    class Sorted(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sort(x, 1).values

    model = nn.Sequential(nn.Linear(4, 4), Sorted(), nn.Linear(4, 4)).eval()
    with pytest.raises(ValueError, match=r"the runtime needs PyTorch for aten\.sort"):
        Variants(model, (torch.zeros(1, 4),))
