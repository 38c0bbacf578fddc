"""Recurrent cells against PyTorch's: every cell, both directions, both layouts, both products, any threads."""

import numpy as np
import pytest
import torch
from torch import nn

from rvsm.runtime.execute.program import Program
from rvsm.runtime.plan.operations import Convolution
from rvsm.runtime.plan.plan import Output, Plan, Weights
from rvsm.runtime.plan.recurrence import CELLS, Recurrence

MODULES = {"lstm": nn.LSTM, "gru": nn.GRU, "tanh": nn.RNN, "relu": lambda *a, **k: nn.RNN(*a, nonlinearity="relu", **k)}


def plan_of(module: nn.RNNBase, cell: str, length: int, *, backward: bool = False, padded: bool = False) -> Plan:
    """Return gates and cell of a layer; ``padded`` beside a convolution of the same map, with a border."""
    units, inputs = module.hidden_size, module.input_size
    arrays = [p.detach().numpy() for p in module.parameters()]
    gates, states = CELLS[cell]
    operations = [
        Convolution(name="gates", source=0, channels=gates * units, kernel=(1, 1)),
        Recurrence(name="cell", source=2, state=1, cell=cell, backward=backward),
    ]
    weights = {0: Weights.of(arrays[0][:, :, None, None]), 1: Weights.of(arrays[1])}
    biases = {0: arrays[2], 1: arrays[3]}
    outputs = [Output(3, "cw")]
    if padded:
        for value, channels in ((2, gates * units), (3, states * units)):
            weights[len(operations)] = Weights.of(np.ones((1, channels, 1, 3), dtype=np.float32))
            biases[len(operations)] = np.zeros(1, dtype=np.float32)
            outputs.append(Output(2 + len(operations), "cw"))
            operations.append(Convolution(name="c", source=value, channels=1, kernel=(1, 3), padding=(0, 1)))
    return Plan(
        ((inputs, 1, length), (states * units, 1, 1)), tuple(operations), tuple(outputs), weights, biases, ("wc", "c")
    )


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize(
    ("units", "length", "choose", "threads"), [(5, 1, None, 1), (37, 6, "sparse", 2), (16, 9, "dense", 3), (130, 4, None, 2)]
)
def test_like_pytorch(cell: str, units: int, length: int, choose: str | None, threads: int) -> None:
    torch.manual_seed(units)
    module = MODULES[cell](7, units, batch_first=True).eval()
    for parameter in module.parameters():
        parameter.data *= torch.rand_like(parameter) < 0.4
    for backward, padded in ((False, False), (True, True)):
        program = Program(
            plan_of(module, cell, length, backward=backward, padded=padded), threads=threads, choose=choose
        )
        for batch in (1, 3, 16, 35):
            x, first = torch.randn(batch, length, 7), torch.randn(CELLS[cell].states, 1, batch, units)
            start = (first[0], first[1]) if cell == "lstm" else first[0]
            with torch.inference_mode():
                wanted, last = module(x.flip(1) if backward else x, start)
            result = program(x, first[:, 0].transpose(0, 1).reshape(batch, -1))
            found = (result[0] if padded else result).reshape(batch, -1, units, length)
            if backward:
                found = found.flip(-1)
            torch.testing.assert_close(found[:, 0].transpose(1, 2), wanted, rtol=0, atol=2e-6)
            if cell == "lstm":
                torch.testing.assert_close(found[:, 1, :, -1], last[1][0], rtol=0, atol=4e-6)
