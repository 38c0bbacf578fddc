"""Layers with a single position, for single images, against PyTorch's."""

from itertools import product

import numpy as np
import pytest
import torch
from torch.nn import functional

from rvsm.runtime.execute.program import Program
from rvsm.runtime.kernels import jit
from rvsm.runtime.kernels.jit import machine
from rvsm.runtime.plan.operation import RELU, Activation
from rvsm.runtime.plan.operations import Convolution
from rvsm.runtime.plan.plan import Output, Plan, Weights
from rvsm.runtime.schedule import matvec
from rvsm.runtime.schedule.matvec import BLOCKS, FILLED

DENSITIES = (0.0, 0.05, 0.5, 1.0)


def random_weights(outputs: int, inputs: int, density: float, size: tuple[int, int] = (1, 1)) -> np.ndarray:
    rng = np.random.default_rng(outputs + inputs)
    weights = rng.standard_normal((outputs, inputs, *size)).astype(np.float32)
    return np.asarray(weights * (rng.random(weights.shape) < density), np.float32)


def plan(
    weights: np.ndarray, *, residual: bool = False, activation: Activation = RELU, size: tuple[int, int] = (1, 1)
) -> Plan:
    """Return the plan of one layer; its last output is the input, the neighbour of the result in memory."""
    outputs, inputs = weights.shape[:2]
    layer = Convolution(
        name="layer", source=0, channels=outputs, kernel=size, activation=activation, residual=1 if residual else None
    )
    shapes = ((inputs, *size), (outputs, 1, 1)) if residual else ((inputs, *size),)
    results = (Output(len(shapes), "chw"), Output(0, "chw"))
    bias = np.arange(outputs, dtype=np.float32)
    return Plan(shapes, (layer,), results, {0: Weights.of(weights)}, {0: bias})


@pytest.mark.parametrize("choose", ["sparse", "dense"])
@pytest.mark.parametrize("outputs", [1, 7, 16, 33, 130, 300])
def test_every_size_and_density(outputs: int, choose: str) -> None:
    for inputs, density, residual in product((1, 9, 64), DENSITIES, (False, True)):
        weights = random_weights(outputs, inputs, density)
        x, other = torch.randn(1, inputs, 1, 1), torch.randn(1, outputs, 1, 1)
        bias = torch.arange(outputs, dtype=torch.float32)
        expected = functional.conv2d(x, torch.from_numpy(weights), bias) + (other if residual else 0)
        for threads in (1, 2, 3):
            program = Program(plan(weights, residual=residual), threads=threads, choose=choose)
            program.prepare(batches=False)._single.chunk_seconds = 1.0  # long enough for helpers
            for _ in range(2):
                y, same = program(*((x, other) if residual else (x,)))
                torch.testing.assert_close(y, expected.relu(), rtol=1e-5, atol=1e-5)
                assert torch.equal(same, x)


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("choose", ["sparse", "dense"])
def test_vectors_of_other_cpus(lanes: int, choose: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit._compiler(), "machine", jit.Machine(lanes, 2 * lanes, "another"))
    weights, x = random_weights(37, 50, 0.3), torch.randn(1, 50, 1, 1)
    expected = functional.conv2d(x, torch.from_numpy(weights), torch.arange(37.0)).relu()
    y, _ = Program(plan(weights), choose=choose)(x)
    torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("density", DENSITIES)
def test_a_convolution_as_large_as_its_map(density: float) -> None:
    weights = random_weights(20, 6, density, (3, 5))
    program = Program(plan(weights, size=(3, 5))).prepare()
    assert "matrix × vector" in str(program.explain(1))
    x = torch.randn(3, 6, 3, 5)
    expected = functional.conv2d(x, torch.from_numpy(weights), torch.arange(20.0)).relu()
    for k in range(3):
        torch.testing.assert_close(program(x[k : k + 1])[0], expected[k : k + 1], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(program(x)[0], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("choose", ["sparse", "dense"])
def test_an_activation_with_parameters(choose: str) -> None:
    weights = random_weights(19, 8, 0.5)
    x = torch.randn(1, 8, 1, 1)
    y, _ = Program(plan(weights, activation=Activation("clamp", -1.0, 2.0)), choose=choose)(x)
    expected = functional.conv2d(x, torch.from_numpy(weights), torch.arange(19.0)).clamp(-1, 2)
    torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-5)


def test_an_infinite_input_reaches_only_the_outputs_that_read_it() -> None:
    weights = np.zeros((3, 40, 1, 1), np.float32)
    weights[0, 0], weights[1, 5], weights[2, 5] = 1.0, 2.0, 3.0
    x = torch.ones(1, 40, 1, 1)
    x[0, 0] = torch.nan
    y, _ = Program(plan(weights), choose="sparse")(x)
    assert torch.isnan(y[0, 0])
    assert y[0, 1:].flatten().tolist() == [3.0, 5.0]


def test_larger_blocks_are_used_where_they_are_filled() -> None:
    for outputs, lanes in product(range(1, 600), (4, 8, 16)):
        vectors = matvec.vectors_together(outputs, lanes)
        least = -(-outputs // lanes)
        assert -(-least // vectors) * vectors <= FILLED * least
        larger = [size for size in BLOCKS if size > vectors]
        assert all(-(-least // size) * size > FILLED * least for size in larger)


def test_the_faster_kernel_is_chosen_by_trying_both() -> None:
    program = Program(plan(random_weights(64, 64, 0.4))).prepare(batches=False)
    assert program.explain(1).rows[0].kernel in {
        "sparse matrix × vector",
        f"dense matrix × vector, {matvec.vectors_together(64, machine().lanes) * machine().lanes} outputs at once",
    }
