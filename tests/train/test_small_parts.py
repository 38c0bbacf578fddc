"""Displays, machines and random numbers."""

import io
import mmap
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import nn

from rvsm.config import Training
from rvsm.data import Dataset
from rvsm.records.states import load, save
from rvsm.train import hardware, start, summary
from rvsm.train.display import clock
from rvsm.train.measure import EDGES, channel_norms, histogram
from rvsm.train.restoring import random_state, seed_all, set_random_state


def draw() -> tuple[float, ...]:
    more = (float(np.random.rand()), float(np.random.randn()))
    return (float(torch.rand(())), float(torch.randn(5)[0]), random.random(), random.gauss(0, 1), *more)


class TestRandomness:
    def test_states_come_back_even_through_a_file(self, tmp_path: Path) -> None:
        seed_all(3)
        draw()  # an odd number of gaussians: NumPy and Python keep the second of each pair
        state = random_state("cpu")
        save(state, tmp_path / "x")
        expected = [draw() for _ in range(3)]
        seed_all(4)
        set_random_state(load(tmp_path / "x"), "cpu")
        assert [draw() for _ in range(3)] == expected

    @pytest.mark.parametrize("seed", [0, -1, 2**63, 2**64 - 1, -(2**63)])
    def test_any_seed(self, seed: int) -> None:
        seed_all(seed)
        first = draw()
        seed_all(seed)
        assert draw() == first


class TestHardware:
    def test_auto_depends_on_the_machine_alone(self) -> None:
        assert hardware.place(Training()) == hardware.place(Training())
        assert hardware.place(Training(precision="float32")).precision == "float32"
        assert hardware.place(Training(channels_last="false")).channels_last is False

    def test_a_layout_that_crashes_torch_is_not_chosen(self) -> None:
        place = hardware.Placement("cpu", "float32", channels_last=True)
        crashing, fine = (nn.Sequential(nn.Conv2d(channels, 8, 1, stride=2)) for channels in (4, 8))
        assert hardware.fit(place, fine, Training()) is place
        assert hardware.fit(place, crashing, Training()).channels_last is False
        with pytest.raises(ValueError, match="'true' would crash PyTorch in '0', a 1×1 convolution with a stride"):
            hardware.fit(place, crashing, Training(channels_last="true"))

    def test_described(self) -> None:
        about = hardware.describe(hardware.place(Training(precision="float32", device="cpu")))
        assert about["threads"] == torch.get_num_threads()
        assert (about["device"], about["precision"]) == ("cpu", "float32")
        assert set(about["versions"]) == {"rvsm", "torch", "numpy", "python"}
        assert about["machine"]

    @pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
    def test_memory(self) -> None:
        before = hardware.memory()
        with mmap.mmap(-1, 80_000_000) as block:  # a tensor may get memory that the process has freed and still holds
            block[:: mmap.PAGESIZE] = bytes(len(range(0, len(block), mmap.PAGESIZE)))
            after = hardware.memory()
        assert before is not None
        assert after is not None
        assert 60 < after - before < 120


class TestMeasure:
    def test_histogram_counts_every_weight(self) -> None:
        found = histogram([torch.tensor([0.0, -0.0, 1.0, -1.0, 1e-30, 1e30]), torch.full((3, 3), 0.01)])
        assert found["zeros"] == 2
        assert sum(found["counts"]) == 4 + 9
        assert found["counts"][0] == 1  # too small for the scale, kept in its first bin
        assert found["counts"][-1] == 1
        at = [i for i, count in enumerate(found["counts"]) if count == 9]
        assert EDGES[at[0]] <= -2 <= EDGES[at[0] + 1]

    def test_channel_norms(self) -> None:
        model = nn.Sequential(nn.Linear(2, 2), nn.ConvTranspose2d(1, 3, 1))
        model[0].weight.data = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
        model[1].weight.data = torch.tensor([1.0, -2.0, 0.0]).reshape(1, 3, 1, 1)
        named = [(name, w) for name, w in model.named_parameters() if w.ndim > 1]
        assert channel_norms(model, named) == {"0.weight": [5.0, 0.0], "1.weight": [1.0, 2.0, 0.0]}


class TestDisplay:
    def test_plain_lines_elsewhere(self, small: Callable[..., Any], digits: Dataset, tmp_path: Path) -> None:
        text = io.StringIO()
        result = start(small(), tmp_path / "run", Console(file=text, width=40), digits)
        lines = text.getvalue().splitlines()
        assert lines[0].startswith("12 steps: 3 × 4 batches of 256 images; this is a small number")
        assert [line[:9] for line in lines[1:]] == ["epoch 1/3", "epoch 2/3", "epoch 3/3"]  # on one line each
        for word in ("loss ", "w ", "u ", "zeros ", "gap ", "images/s", "left"):
            assert word in lines[1]
        assert "\x1b" not in text.getvalue()
        assert "test accuracy" in summary(result)
        assert "% zeros of the sparsified weights" in summary(result)

    def test_a_bar_on_a_terminal(self, small: Callable[..., Any], digits: Dataset, tmp_path: Path) -> None:
        text = io.StringIO()
        start(small("--name", "[/b] odd"), tmp_path / "run", Console(file=text, force_terminal=True, width=100), digits)
        assert "100 %" in text.getvalue()
        assert "[/b] odd" in text.getvalue()

    def test_clock(self) -> None:
        assert [clock(s) for s in (0, 59.6, 3599, 3600, 90_000)] == ["0:00", "1:00", "59:59", "1:00:00", "25:00:00"]


def test_tensorboard_or_a_sentence(small: Callable[..., Any], digits: Dataset, tmp_path: Path) -> None:
    config = small("--training.tensorboard", "true", "--training.epochs", "2")
    try:
        import tensorboard  # noqa: F401
    except ImportError:
        with pytest.raises(ImportError, match=r"training\.tensorboard needs tensorboard, .*'rvsm\[tensorboard\]'"):
            start(config, tmp_path / "run", Console(file=io.StringIO()), digits)
        assert not (tmp_path / "run").exists()
    else:
        start(config, tmp_path / "run", Console(file=io.StringIO()), digits)
        assert list((tmp_path / "run" / "tensorboard").glob("events*"))
