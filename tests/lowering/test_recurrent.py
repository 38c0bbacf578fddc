"""Recurrent networks: native, equal to PyTorch with any batch, and run from files without PyTorch."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from files import run_files
from rvsm.lowering import MixedProgram, compile
from rvsm.runtime import Program
from rvsm.runtime.plan.recurrence import Recurrence

LENGTH, INPUTS, UNITS = 6, 5, 7


class Plain(nn.Module):
    """A recurrent layer as it is: its outputs and its last states, in which images come second."""

    def __init__(self, kind: type[nn.RNNBase], **options: Any) -> None:
        super().__init__()
        self.layer = kind(INPUTS, UNITS, **options)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        y, last = self.layer(x if self.layer.batch_first else x.transpose(0, 1))
        return (y, *last) if isinstance(last, tuple) else (y, last)


class Given(nn.Module):
    """Words, an LSTM with given first states, and what is read from its last ones."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(11, INPUTS), nn.Linear(UNITS, 3)
        self.layer = nn.LSTM(INPUTS, UNITS, 2, batch_first=True)

    def forward(self, words: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        first = (h.transpose(0, 1).contiguous(), c.transpose(0, 1).contiguous())
        y, (last, _) = self.layer(self.table(words), first)
        return self.head(y[:, -1]), last[-1], y.mean(1)


NETWORKS: dict[str, nn.Module] = {
    "gru": Plain(nn.GRU, bidirectional=True, num_layers=2),
    "rnn": Plain(nn.RNN, bias=False, num_layers=2, batch_first=True),
    "both": Plain(nn.LSTM, bidirectional=True, num_layers=2, dropout=0.3, batch_first=True),
    "given": Given(),
}


def inputs(name: str, batch: int) -> tuple[Tensor, ...]:
    if name == "given":
        return torch.randint(11, (batch, LENGTH)), torch.randn(batch, 2, UNITS), torch.randn(batch, 2, UNITS)
    return (torch.randn(batch, LENGTH, INPUTS),)


@pytest.fixture(scope="module")
def compiled() -> dict[str, Program | MixedProgram]:
    torch.manual_seed(0)
    for model in NETWORKS.values():
        for parameter in model.eval().parameters():
            parameter.data *= torch.rand_like(parameter) < 0.5
    return {name: compile(model, inputs(name, 2), threads=2) for name, model in NETWORKS.items()}


def test_like_pytorch(compiled: dict[str, Any]) -> None:
    for name, program in compiled.items():
        assert isinstance(program, Program), name
        for batch in (1, 3, 17):
            given = inputs(name, batch)
            with torch.inference_mode():
                expected = NETWORKS[name](*given)
            for found, wanted in zip(program(*given), expected, strict=True):
                assert found.shape == wanted.shape
                torch.testing.assert_close(found, wanted, rtol=0, atol=2e-6)


def test_the_zeros_of_both_matrices_are_used(compiled: dict[str, Any]) -> None:
    plan = compiled["both"].plan
    found = [k for k, operation in enumerate(plan.operations) if isinstance(operation, Recurrence)]
    wanted = [p for name, p in NETWORKS["both"].named_parameters() if "weight_hh" in name]
    assert [len(plan.weights[k].values) for k in found] == [int(p.count_nonzero()) for p in wanted]
    assert [plan.operations[k].label for k in found] == ["lstm", "lstm, backward"] * 2
    labels = [operation.label for operation in plan.operations]
    assert labels.count("1×1 convolution") == 4  # the gates of all positions
    assert labels.count("constant") == 1  # zeros as the first states of all layers and directions


def test_files_run_without_pytorch(compiled: dict[str, Any], tmp_path: Path) -> None:
    cases = {}
    for name, program in compiled.items():
        program.save(tmp_path / f"{name}.rvsm")
        cases[name] = (f"{name}.rvsm", inputs(name, 3))
    for name, results in run_files(tmp_path, cases).items():
        for found, wanted in zip(results.values(), compiled[name](*cases[name][1]), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-6)


def test_what_the_runtime_lacks_stays_in_pytorch() -> None:
    model = Plain(nn.LSTM, proj_size=3, batch_first=True).eval()
    program = compile(model, torch.randn(2, LENGTH, INPUTS))
    assert "aten.lstm.input (layer)" in program.outside  # type: ignore[union-attr]
    x = torch.randn(3, LENGTH, INPUTS)
    for found, wanted in zip(program(x), model(x), strict=True):
        torch.testing.assert_close(found, wanted)
