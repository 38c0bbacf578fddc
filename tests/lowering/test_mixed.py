"""Programs of which a part stays in PyTorch: what they take, keep and say."""

import copy
import pickle
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_structure

from rvsm.lowering import MixedProgram, compile
from rvsm.lowering.fallback import Guard
from rvsm.runtime.execute.explanation import Explanation, Row


class Angle(nn.Module):
    """What the runtime does not have, with a parameter for each channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return torch.atan2(x, self.scale)


class Sine(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(x)


def network() -> nn.Sequential:
    return nn.Sequential(Angle(3), nn.Conv2d(3, 8, 3), Angle(8), nn.ReLU()).eval()


@cache
def compiled() -> tuple[nn.Sequential, MixedProgram]:
    """Return a network and its program, one for all tests: capturing it takes most of a second."""
    model = network()
    program = compile(model, torch.zeros(1, 3, 6, 6), threads=1)
    assert isinstance(program, MixedProgram)
    return model, program


def test_later_changes_of_the_weights_do_not_matter() -> None:
    model, program = compiled()
    x = torch.randn(4, 3, 6, 6)
    first = program(x)
    for parameter in model.parameters():
        parameter.data.normal_()
    assert torch.equal(program(x), first)
    assert len(program._captured.tensors) == 2, "the convolution's own are not kept"


class Pair(NamedTuple):
    """What a network may return."""

    first: Tensor
    second: Tensor


@pytest.mark.parametrize(
    "pack",
    [
        lambda a, b: (a, (b, a + 1)),
        Pair,
        lambda a, b: {"states": [a, b]},
    ],
    ids=["nested", "named", "list"],
)
def test_results_come_as_the_model_returns_them(pack) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())

        def forward(self, x: Tensor):
            hidden = self.net(x)
            return pack(hidden.mean((2, 3)), hidden)

    model = Model().eval()
    program = compile(model, torch.zeros(1, 3, 6, 6), threads=1)
    assert isinstance(program, MixedProgram)
    x = torch.randn(5, 3, 6, 6)
    with torch.no_grad():
        expected = model(x)
    for taken_over in (False, True):
        program.guard = Guard(model, taken_over, taken_over)
        found = program(x)
        assert type(found) is type(expected)
        assert tree_structure(found) == tree_structure(expected)
        for mine, theirs in zip(tree_leaves(found), tree_leaves(expected), strict=True):
            torch.testing.assert_close(mine, theirs)
        assert all(isinstance(leaf, np.ndarray) for leaf in tree_leaves(program(x.numpy())))
        with pytest.raises(ValueError, match="cannot be saved, because it needs PyTorch for results in a "):
            program.save("model.rvsm")


def test_a_result_that_is_no_tensor_is_refused() -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor):
            return {"out": x + 1, "loss": None}

    with pytest.raises(ValueError, match="the model must return tensors, in any structure, but one result is None"):
        compile(Model().eval(), torch.zeros(2, 3))


@pytest.mark.parametrize("action", [copy.copy, copy.deepcopy, pickle.dumps])
def test_copies_are_refused_with_the_reason(action) -> None:
    _, program = compiled()
    with pytest.raises(
        TypeError, match=r"because parts of it run in PyTorch: aten\.atan2 .*; compile the network again"
    ):
        action(program)


def test_inputs_are_converted_as_a_program_does() -> None:
    _, program = compiled()
    x = torch.randn(4, 3, 6, 6)
    expected = program(x)
    assert torch.equal(program(x.double()), expected)
    assert np.array_equal(program(x.double().numpy()), expected.numpy())


class Two(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.erf(x) + y


def test_inputs_of_other_batch_sizes_are_refused() -> None:
    program = compile(Two().eval(), (torch.zeros(2, 3), torch.zeros(2, 3)), threads=1)
    with pytest.raises(ValueError, match=r"must have the same batch size but have \[4, 1\]"):
        program(torch.zeros(4, 3), torch.zeros(1, 3))


class Forms(nn.Module):
    """Results in forms that a file does not have."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.layer, self.form = nn.Conv2d(3, 8, 1), form

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        y = self.layer(x)
        return (y,) if self.form == "one" else (y, x)


@pytest.mark.parametrize(("form", "said"), [("one", "a tuple of one result"), ("input", "one of its inputs")])
def test_why_a_network_of_native_operations_cannot_be_saved(form: str, said: str, tmp_path: Path) -> None:
    program = compile(Forms(form).eval(), torch.zeros(1, 3, 4, 4), threads=1)
    assert said in str(program.explain())
    with pytest.raises(ValueError, match=f"because it needs PyTorch for .*{said}"):
        program.save(tmp_path / "model.rvsm")


class Unused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 8, 1)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        return self.layer(x)


def test_an_input_of_another_kind_that_is_not_used() -> None:
    model = Unused().eval()
    program = compile(model, (torch.zeros(2, 3, 4, 4), torch.zeros(2, dtype=torch.float64)), threads=1)
    assert isinstance(program, MixedProgram)
    assert program.outside == ("the input 'labels', which is not a batch of float32 numbers or integers",)
    x, labels = torch.randn(5, 3, 4, 4), torch.zeros(5, dtype=torch.float64)
    with torch.inference_mode():
        torch.testing.assert_close(program(x, labels), model(x, labels), rtol=1e-4, atol=1e-5)


def test_a_network_that_is_too_large_runs_in_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    from rvsm.runtime.schedule import layout

    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()).eval()
    monkeypatch.setattr(layout, "MAX_ARENA", 1000)
    program = compile(model, torch.zeros(1, 3, 6, 6), threads=1)
    assert isinstance(program, MixedProgram)
    assert program.outside == ("aten.conv2d (0)", "aten.relu (1)")
    x = torch.randn(3, 3, 6, 6)
    with torch.inference_mode():
        torch.testing.assert_close(program(x), model(x))


class Slow(nn.Module):
    """Nothing for the runtime; zeros would be an error."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.linalg.inv(x)


def test_the_time_in_pytorch_is_explained() -> None:
    program = compile(Slow().eval(), torch.eye(3)[None], threads=1)
    for batch, said in ((1, "1 image on one thread"), (None, "images on one thread")):
        table = program.explain(batch)
        assert [row.name for row in table.rows] == ["in PyTorch", "between the parts"]
        assert table.seconds > 0
        assert f"{table.images} {said.removeprefix('1 ')}: " in str(table)
        assert (table.images == 1) == (batch == 1)
        assert table.rows[0].seconds > 0
    table = compiled()[1].explain()
    assert [row.name for row in table.rows] == [
        "in PyTorch",
        "1",
        "input and output",
        "call",
        "in PyTorch",
        "between the parts",
    ]
    assert table.rows[-2].kind == "aten.atan2 (2) and 1 more"
    assert all(row.seconds > 0 for row in table.rows if row.kind != "dispatch")
    assert table.seconds == sum(row.seconds for row in table.rows)


class Sums(nn.Module):
    """Operations that the runtime has, between others, with nothing in them that could be zero."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.cumprod(x, 1).relu() + torch.cumprod(x, 2)
        return torch.cumprod(self.layer(torch.cumprod(y, 3)).relu(), 1).relu()


def test_parts_without_weights_stay_in_pytorch() -> None:
    model = Sums().eval()
    program = compile(model, torch.zeros(1, 3, 6, 6), threads=1)
    assert [row.name for row in program.explain().rows] == [
        "in PyTorch",
        "layer",
        "input and output",
        "call",
        "in PyTorch",
        "between the parts",
    ]
    x = torch.randn(5, 3, 6, 6)
    with torch.inference_mode():
        torch.testing.assert_close(program(x), model(x), rtol=1e-4, atol=1e-5)


class Branches(nn.Module):
    """What is computed depends on the numbers, also inside of a branch."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.other = nn.Linear(8, 4), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        def negative(y: Tensor) -> Tensor:
            return torch.cond(y.mean() > -2, self.other, lambda z: self.other(z) - 1, (y,))

        return torch.cond(x.mean() > 0, self.layer, negative, (self.layer(x) @ self.layer.weight,))


def test_branches_run_in_pytorch() -> None:
    model = Branches().eval()
    program = compile(model, torch.zeros(2, 8), threads=1)
    assert isinstance(program, MixedProgram)
    assert "cond (cond)" in program.outside
    inputs = [torch.randn(5, 8) + shift for shift in (-9.0, -1.0, 9.0)]
    with torch.inference_mode():
        expected = [model(x) for x in inputs]
    for parameter in model.parameters():
        parameter.data.zero_()
    for x, wanted in zip(inputs, expected, strict=True):
        torch.testing.assert_close(program(x), wanted, rtol=1e-4, atol=1e-5)


def test_each_operation_outside_is_listed_once() -> None:
    layers = [(nn.Conv2d(3, 3, 1), Angle(3), Sine()) for _ in range(5)]
    model = nn.Sequential(*(layer for three in layers for layer in three))
    program = compile(model.eval(), torch.zeros(1, 3, 6, 6), threads=1)
    assert isinstance(program, MixedProgram)
    said = ("aten.atan2 (5 times, first in 1)", "aten.sin (5 times, first in 2)")
    assert program.outside == said
    with pytest.raises(ValueError, match=r"needs PyTorch for aten.atan2 \(5 times, first in 1\), aten.sin"):
        program.save("model.rvsm")
    program.guard = Guard(model, single=True, batches=True)
    table = program.explain()
    assert table.outside == said
    assert str(table).count("in PyTorch: ") == 2
    assert "in PyTorch: the whole network (" in str(table)


def test_a_part_that_takes_a_while_between_is_in_the_sum() -> None:
    """The rows add up to a call of the parts, which is what a guard compares with PyTorch."""
    table = Explanation((Row("a", "linear", (), None, "", 2.0),), 1).whole(5.0, "call")
    assert [row.seconds for row in table.rows] == [2.0, 3.0]
    assert "call   dispatch" in str(table)
    assert table.whole(4.0, "more").rows[-1].seconds == 0.0
