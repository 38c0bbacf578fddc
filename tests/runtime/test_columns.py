"""Dense layers with few positions, for single images, against PyTorch's."""

from itertools import product

import numpy as np
import pytest
import torch
from torch.nn import functional

from rvsm.runtime.execute.program import Program
from rvsm.runtime.kernels import jit
from rvsm.runtime.kernels.jit import machine
from rvsm.runtime.plan.operation import NOTHING, RELU, Activation
from rvsm.runtime.plan.operations import Convolution
from rvsm.runtime.plan.plan import Output, Plan, Weights

LAYERS = {
    "1×1": ({"kernel": (1, 1)}, (2, 2)),
    "3×3, padding": ({"kernel": (3, 3), "padding": (1, 1)}, (3, 2)),
    "3×3, stride 2": ({"kernel": (3, 3), "stride": (2, 2), "padding": (1, 1)}, (4, 4)),
    "1×1, stride 2": ({"kernel": (1, 1), "stride": (2, 2)}, (4, 3)),
    "2×3, dilation": ({"kernel": (2, 3), "dilation": (2, 1)}, (4, 4)),
    "one row": ({"kernel": (1, 3), "padding": (0, 1)}, (1, 4)),
}
"""Options of layers, and sizes of their maps: at most 4 positions, as many as the smallest vectors have, and 6."""


def compared(
    outputs: int, inputs: int, layer: str, *, threads: int = 1, residual: bool = False, activation: Activation = NOTHING
) -> None:
    """Run one layer and compare it with PyTorch; its last result is the input, the neighbour of the first in memory."""
    options, size = LAYERS[layer]
    torch.manual_seed(outputs + inputs)
    weights, bias = torch.randn(outputs, inputs, *options["kernel"]), torch.randn(outputs)
    x = torch.randn(1, inputs, *size)
    named = {key: options[key] for key in ("stride", "padding", "dilation") if key in options}
    expected = functional.conv2d(x, weights, bias, **named)
    other = torch.randn_like(expected)
    operation = Convolution(
        name="layer", source=0, channels=outputs, activation=activation, residual=1 if residual else None, **options
    )
    shapes = ((inputs, *size), tuple(expected.shape[1:])) if residual else ((inputs, *size),)
    results = (Output(len(shapes), "chw"), Output(0, "chw"))
    plan = Plan(shapes, (operation,), results, {0: Weights.of(weights.numpy())}, {0: bias.numpy()})
    program = Program(plan, threads=threads).prepare(batches=False)
    program._single.chunk_seconds = 1.0  # long enough for helpers
    positions = expected[0, 0].numel()
    assert f"matrix × {positions} columns" in str(program.explain(1))
    if residual:
        expected = expected + other
    if activation == RELU:
        expected = expected.relu()
    elif activation != NOTHING:
        expected = expected.clamp(-1, 2)
    for _ in range(2):
        y, same = program(*((x, other) if residual else (x,)))
        torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-4)
        assert torch.equal(same, x)


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("layer", ["1×1", "3×3, stride 2", "1×1, stride 2", "2×3, dilation", "one row"])
def test_layers_and_vectors_of_all_cpus(layer: str, lanes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit._compiler(), "machine", jit.Machine(lanes, 2 * lanes, "another"))
    for outputs, inputs in product((16, 17, 45, 130), (2, 7, 40)):
        compared(outputs, inputs, layer)


@pytest.mark.parametrize("layer", LAYERS)
def test_threads_residuals_and_activations(layer: str) -> None:
    if machine().lanes < 6 and layer == "3×3, padding":
        pytest.skip("the map has more positions than a vector")
    for threads, residual in product((1, 2, 3), (False, True)):
        for activation in (NOTHING, RELU, Activation("clamp", -1.0, 2.0)):
            compared(50, 9, layer, threads=threads, residual=residual, activation=activation)


def test_layers_with_fewer_outputs_than_a_vector_are_computed_over_positions() -> None:
    weights = np.ones((2, 5, 1, 1), np.float32)
    layer = Convolution(name="layer", source=0, channels=2, kernel=(1, 1))
    plan = Plan(((5, 2, 2),), (layer,), (Output(1, "chw"),), {0: Weights.of(weights)}, {0: np.zeros(2, np.float32)})
    assert "columns" not in str(Program(plan).prepare(batches=False).explain(1))
