"""Accelerate: the sparsifier works as it is."""

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import rvsm
from networks import perceptron

if find_spec("accelerate") is None:
    pytest.skip("the extra 'accelerate' is not installed", allow_module_level=True)


class Loop:
    """A training loop by Accelerate, with accumulation and mixed precision."""

    def __init__(
        self, points: TensorDataset, *, sparsity: float = 0.9, width: int = 30, registered: bool = True
    ) -> None:
        from accelerate import Accelerator

        torch.manual_seed(0)
        self.accelerator = Accelerator(cpu=True, mixed_precision="bf16", gradient_accumulation_steps=2)
        model = perceptron(20, width, 2)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        prepared = self.accelerator.prepare(model, optimizer, DataLoader(points, batch_size=8))
        self.model, self.optimizer, self.loader = prepared
        self.sparsifier = rvsm.RVSM(self.model, "l0", sparsity=sparsity, steps=5 * 4).attach(self.optimizer)
        if registered:
            self.accelerator.register_for_checkpointing(self.sparsifier)

    def run(self, epochs: int) -> None:
        for _ in range(epochs):
            for x, y in self.loader:
                with self.accelerator.accumulate(self.model):
                    self.accelerator.backward(nn.functional.cross_entropy(self.model(x), y))
                    self.optimizer.step()
                    self.optimizer.zero_grad()


@pytest.mark.parametrize("epochs", [1, 3, 4], ids=["ramp", "hold", "heal"])
def test_a_checkpoint_resumes_bit_for_bit(tmp_path: Path, points: TensorDataset, epochs: int) -> None:
    whole, again = Loop(points), Loop(points)
    whole.run(epochs)
    whole.accelerator.save_state(str(tmp_path))
    whole.run(5 - epochs)
    again.accelerator.load_state(str(tmp_path))
    again.run(5 - epochs)
    for loop in (whole, again):
        assert loop.sparsifier.step == 20
        loop.sparsifier.finalize()
    assert rvsm.metrics.sparsity([whole.model[0].weight, whole.model[2].weight]) == pytest.approx(0.9, abs=1e-3)
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, again.model.state_dict()[name]), name


def test_a_checkpoint_of_something_else_is_refused(tmp_path: Path, points: TensorDataset) -> None:
    loop = Loop(points)
    loop.run(1)
    loop.accelerator.save_state(str(tmp_path / "with"))
    with pytest.raises(
        ValueError, match=r"different budget: Budget\(sparsity=0.9.*but here it is Budget\(sparsity=0.5"
    ):
        Loop(points, sparsity=0.5).accelerator.load_state(str(tmp_path / "with"))
    with pytest.raises(RuntimeError, match=r"size mismatch for 0.weight"):  # torch's own
        Loop(points, width=10).accelerator.load_state(str(tmp_path / "with"))
    loop = Loop(points, registered=False)
    loop.run(1)
    loop.accelerator.save_state(str(tmp_path / "without"))
    with pytest.raises(RuntimeError, match="Number of custom checkpoints"):  # Accelerate's own
        Loop(points).accelerator.load_state(str(tmp_path / "without"))
