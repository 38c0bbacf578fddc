"""Recurrent layers: their matrices count as those of linear layers do."""

import copy

import pytest
import torch
from torch import Tensor, nn

import rvsm

STEPS = 30


class Reader(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.recurrent = nn.LSTM(8, 16, num_layers=2, bidirectional=True, batch_first=True)
        self.cell = nn.GRUCell(32, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        y, _ = self.recurrent(x)
        return self.head(self.cell(y[:, -1]))


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for t in range(steps):
        generator = torch.Generator().manual_seed(t)
        optimizer.zero_grad()
        model(torch.randn(4, 5, 8, generator=generator)).square().mean().backward()
        optimizer.step()


def sparsifier(model: nn.Module, groups: str = "element") -> rvsm.RVSM:
    return rvsm.RVSM(model, "l0", sparsity=0.8, steps=STEPS, overrides={"*": {"groups": groups}})


def matrices(model: nn.Module) -> list[Tensor]:
    return [w.detach() for w in model.parameters() if w.dim() > 1]


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


@pytest.mark.parametrize("groups", ["element", "filter", "channel", "row", "column", "block"])
def test_the_target_is_met_over_all_matrices(groups: str) -> None:
    model = Reader()
    optimizer = sgd(model)
    method = sparsifier(model, groups).attach(optimizer)
    train(model, optimizer, STEPS)
    method.finalize()
    assert len(method.layers) == len(matrices(model)) == 11
    achieved = rvsm.metrics.sparsity(matrices(model))
    assert achieved == pytest.approx(0.8, abs=64 / sum(w.numel() for w in matrices(model)))
    assert all(p.all() for p in model.parameters() if p.dim() == 1)


def test_the_network_computes_with_the_sparse_copy_and_gets_its_weights_back() -> None:
    model, x = Reader(), torch.randn(4, 5, 8)
    optimizer = sgd(model)
    method = sparsifier(model).attach(optimizer)
    train(model, optimizer, STEPS // 4)  # on the ramp, where the model holds neither w nor u
    with torch.no_grad():
        before = model(x)
        with method.sparse_weights():
            literal = Reader()
            literal.load_state_dict(model.state_dict())
            assert torch.equal(model(x), literal(x))
            assert not torch.equal(model(x), before)
        assert torch.equal(model(x), before)


def test_a_training_is_resumed_bit_for_bit() -> None:
    model = Reader()
    optimizer = sgd(model)
    method = sparsifier(model).attach(optimizer)
    train(model, optimizer, STEPS - 5)
    fresh = Reader()
    fresh.load_state_dict(model.state_dict())
    other = sgd(fresh)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    resumed = sparsifier(fresh).attach(other)
    resumed.load_state_dict(method.state_dict())
    for network, opt in ((model, optimizer), (fresh, other)):
        train(network, opt, 5)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), fresh.parameters(), strict=True))
