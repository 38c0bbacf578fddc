"""Programs that leave to PyTorch what is faster there: they take what other programs take."""

import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import rvsm.runtime
from rvsm.lowering import MixedProgram, compile, fallback
from rvsm.runtime import Program

measured = fallback._is_slower  # the real one; the fixture of all tests here replaces it


@pytest.fixture
def slower(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let PyTorch be the faster one, always."""
    monkeypatch.setattr(fallback, "_is_slower", lambda *given: True)


@pytest.fixture
def slower_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let PyTorch be the faster one with batches."""
    monkeypatch.setattr(fallback, "_is_slower", lambda program, model, examples, threads, batch: batch > 1)


def native() -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.Conv2d(3, 2, 1))


class Sine(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(x)


def partly() -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), Sine(), nn.Conv2d(4, 2, 1))


class Pieces(nn.Module):
    """Nothing for the runtime, and a module that notes when it is called."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(torch.get_num_threads())
        return torch.cumprod(x, 1)

    def __deepcopy__(self, memo: object) -> "Pieces":
        return self


@pytest.mark.usefixtures("slower_batches")
@pytest.mark.parametrize("build", [native, partly])
def test_a_network_that_is_faster_in_pytorch_runs_there(build: type[nn.Module]) -> None:
    model = build().eval()
    program = compile(model, torch.zeros(1, 2, 8, 8), threads=1)
    assert isinstance(program, MixedProgram)
    for batch in (1, 3, 16, 18):
        x = torch.randn(batch, 2, 8, 8)
        with torch.inference_mode():
            expected = model(x)
        torch.testing.assert_close(program(x), expected, rtol=1e-4, atol=1e-5)
        assert isinstance(program(x.numpy()), np.ndarray)
    assert torch.equal(program(x), expected), "bit for bit what PyTorch computes"
    assert "in PyTorch: the whole network (" in str(program.explain())
    assert "the whole network" not in str(program.explain(1))
    with pytest.raises(ValueError, match="must have the shape"):
        program(torch.zeros(16, 2, 8, 9))
    for parameter in model.parameters():
        parameter.data.zero_()
    assert torch.equal(program(x), expected), "the module is a copy"


@pytest.mark.usefixtures("slower")
def test_a_native_network_can_still_be_saved(tmp_path: Path) -> None:
    model = native().eval()
    compile(model, torch.zeros(1, 2, 8, 8), threads=1).save(tmp_path / "model.rvsm")
    x = torch.randn(5, 2, 8, 8)
    with torch.inference_mode():
        expected = model(x)
    torch.testing.assert_close(rvsm.runtime.load(tmp_path / "model.rvsm", threads=1)(x), expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match=r"cannot be saved, because it needs PyTorch for .*sin"):
        compile(partly().eval(), torch.zeros(1, 2, 8, 8), threads=1).save(tmp_path / "other.rvsm")


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
    with pytest.raises(ValueError, match=r"must have the same batch size but have \[3, 1\]"):
        program(torch.zeros(3, 3), torch.zeros(1, 3))


class OneImage(nn.Module):
    """Works for a batch of one only."""

    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(1, 6).relu()


@pytest.mark.usefixtures("slower")
def test_a_model_for_one_image_is_called_for_each() -> None:
    program = compile(OneImage().eval(), torch.zeros(1, 2, 3, 1), threads=1)
    x = torch.randn(3, 2, 3, 1)
    assert torch.equal(program(x), x.reshape(3, 6).relu())


def test_pytorch_has_the_threads_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    monkeypatch.setattr(fallback, "_is_slower", lambda *given: (measured(*given), True)[1])
    model = Pieces().eval()
    program = compile(model, torch.zeros(2, 3), threads=before + 1)
    assert set(model.seen) == {before + 1}, "when it is timed"
    model.seen.clear()
    program(torch.zeros(4, 3))
    assert model.seen == [before + 1], "and when it takes over"
    assert torch.get_num_threads() == before


def test_operations_in_pytorch_have_the_threads_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    program = compile(Pieces().eval(), torch.zeros(2, 3), threads=torch.get_num_threads() + 1)
    assert isinstance(program, MixedProgram)
    real = program._run
    monkeypatch.setattr(program, "_run", lambda inputs: (seen.append(torch.get_num_threads()), real(inputs))[1])
    program(torch.zeros(4, 3))
    assert seen == [torch.get_num_threads() + 1]
    with pytest.raises(ValueError, match="threads must be at least 1 but is 0"):
        compile(Pieces().eval(), torch.zeros(2, 3), threads=0)


def test_which_one_is_slower_is_measured() -> None:
    def slow(x: Tensor) -> Tensor:
        time.sleep(0.05)
        return x

    class Slow(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return slow(x)

    program = compile(native().eval(), torch.zeros(1, 2, 8, 8), threads=1)
    assert isinstance(program, Program)
    assert not measured(program, Slow(), (torch.zeros(1, 2, 8, 8),), 1, 16)
    assert measured(slow, nn.Identity(), (torch.zeros(1, 2, 8, 8),), 1, 16)
