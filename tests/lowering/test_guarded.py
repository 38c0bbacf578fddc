"""Programs that leave to PyTorch what is faster there: they take what other programs take."""

import pytest
import torch
from torch import Tensor, nn

from rvsm.lowering import compile, guarded
from rvsm.runtime import Program


@pytest.fixture
def slower(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let PyTorch be the faster one, always."""
    monkeypatch.setattr(guarded, "_is_slower", lambda *given: True)


@pytest.mark.usefixtures("slower")
def test_the_callers_input_is_left_alone() -> None:
    program = compile(nn.Sequential(nn.ReLU(inplace=True), nn.Conv2d(2, 3, 1)).eval(), torch.zeros(1, 2, 4, 4))
    x = -torch.ones(3, 2, 4, 4)
    program(x)
    array = x.numpy()
    program(array)
    assert (array == -1).all()


class Sum(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x.relu() + y


@pytest.mark.usefixtures("slower")
def test_inputs_of_other_batch_sizes_are_refused() -> None:
    program = compile(Sum().eval(), (torch.zeros(2, 3), torch.zeros(2, 3)), threads=1)
    assert isinstance(program, guarded.GuardedProgram)
    with pytest.raises(ValueError, match=r"must have the same batch size but have \[3, 1\]"):
        program(torch.zeros(3, 3), torch.zeros(1, 3))


class Counting(nn.Module):
    """Notes the threads that PyTorch may use."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(torch.get_num_threads())
        return x.relu()

    def __deepcopy__(self, memo: object) -> "Counting":
        return self


def test_pytorch_has_the_threads_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    real = guarded._is_slower

    def measured(program: Program, model: nn.Module, examples: tuple[Tensor, ...], batch: int) -> bool:
        real(program, model, examples, batch)
        return True

    monkeypatch.setattr(guarded, "_is_slower", measured)
    model = Counting().eval()
    program = compile(model, torch.zeros(2, 3), threads=before + 1)
    assert set(model.seen) == {before + 1}, "when it is timed"
    model.seen.clear()
    program(torch.zeros(4, 3))
    assert model.seen == [before + 1], "and when it takes over"
    assert torch.get_num_threads() == before
