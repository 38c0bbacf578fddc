"""Recurrent cells against PyTorch's: every cell, both directions, both layouts, both products, any threads."""

import copy
import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rvsm.runtime import file
from rvsm.runtime.execute.program import Program
from rvsm.runtime.kernels import jit
from rvsm.runtime.plan.operations import Convolution
from rvsm.runtime.plan.plan import Output, Plan, Weights
from rvsm.runtime.plan.recurrence import CELLS, Recurrence
from rvsm.runtime.schedule.limits import Limit
from rvsm.runtime.schedule.scheduler import costs, schedule

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
    ("units", "length", "choose", "threads"),
    [(5, 1, None, 1), (37, 6, "sparse", 2), (16, 9, "dense", 3), (130, 4, None, 2)],
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


def test_threads_share_a_position_only_if_it_is_long() -> None:
    def steps(units: int) -> int:
        made = schedule(plan_of(nn.GRU(7, units), "gru", 9), images=False, threads=2, choose="sparse")
        return sum(step.operation == 1 for step in made.steps)

    assert (steps(20), steps(100)) == (1 + 1, 1 + 9)  # the copy of the first state, and the positions


@pytest.mark.parametrize("images", [False, True])
@pytest.mark.parametrize("choose", ["sparse", "dense"])
def test_the_bytes_are_an_upper_bound(images: bool, choose: str) -> None:
    plan, machine = plan_of(nn.LSTM(7, 100), "lstm", 50), jit.machine()
    found = costs(plan, machine.lanes if images else 1, machine)
    schedule(plan, images=images, threads=2, choose=choose)  # what is kept by the process, such as kernels
    tracemalloc.start()
    made = schedule(plan, images=images, threads=2, choose=choose)
    kept, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert made.steps
    assert kept <= sum(cost.kept for cost in found) + 20_000
    assert most <= sum(cost.kept for cost in found) + max(cost.passing for cost in found) + 20_000


def test_any_number_changed_is_refused_or_runs() -> None:
    plan, accepted = plan_of(nn.LSTM(3, 4), "lstm", 5), 0
    plan = replace(plan, outputs=(Output(3, "cw", batch=1),))
    graph = file.graph_of(plan)
    assert file.plan_of(copy.deepcopy(graph)).operations == plan.operations
    for item in [graph["operations"][1], graph["outputs"][0], *graph["inputs"]]:
        for key, value in list(item.items()):
            for wrong in (0, 1, 2, 3, 5, -1, 1 << 31, 1.5, True, None, "gru", "relu", [], [4, 1, 1], [3, 1, 4000]):
                item[key] = wrong
                try:
                    again = replace(file.plan_of(graph), weights=plan.weights, biases=plan.biases, complete=True)
                    program = Program(again, threads=1, limit=Limit(memory=1 << 28, seconds=1.0))
                    program(*(np.zeros((9, *sizes), dtype=np.float32) for sizes in again.input_sizes()))
                    accepted += 1
                except ValueError:
                    pass
            item[key] = value
    assert 0 < accepted < 40  # the other direction, another place of the images, another length


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "cell": ({"cell": "lstn"}, "unknown cell 'lstn'; choose from lstm, gru, tanh, relu"),
    "gates": ({"cell": "gru"}, r"gru needs 3 gates for each unit, in one row, not \(16, 1, 5\)"),
    "state": ({"state": 0}, r"must have the shape \(8, 1, 1\) but has \(3, 1, 5\)"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said(name: str) -> None:
    plan = plan_of(nn.LSTM(3, 4), "lstm", 5)
    changes, message = WRONG[name]
    with pytest.raises(ValueError, match=message):
        replace(plan, operations=(plan.operations[0], replace(plan.operations[1], **changes)))  # type: ignore[arg-type]


def test_images_may_be_any_dimension_of_a_result() -> None:
    plan = replace(plan_of(nn.LSTM(3, 4), "lstm", 5), outputs=(Output(3, "cw"), Output(3, "cw", batch=2)))
    one, two = Program(plan, threads=1)(torch.randn(6, 5, 3), torch.zeros(6, 8))
    assert torch.equal(one.permute(1, 2, 0), two)
    with pytest.raises(ValueError, match="images must be one of 3 dimensions but are number 3"):
        replace(plan, outputs=(Output(3, "cw", batch=3),))
