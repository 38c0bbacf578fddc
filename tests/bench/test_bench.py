"""The comparison of engines, and the commands: real engines on a small network."""

import io
import json
import shutil
from collections.abc import Callable
from math import nan
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file, save_file
from torch import nn

import rvsm.lowering
from rvsm.bench import ENGINES, Comparison, Measurement, bench, commands, compare, measure, pack
from rvsm.bench.commands import model_of
from rvsm.bench.comparison import peak_memory
from rvsm.bench.engines import Engine, Kind
from rvsm.config import read_config
from rvsm.lowering import fallback
from rvsm.models import convnet
from rvsm.records import Record, Run
from rvsm.runtime import Program
from rvsm.train import start

SOURCE = "rvsm.models:convnet"


def sparse_weights() -> dict[str, torch.Tensor]:
    model = convnet()
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            module.weight.data *= torch.rand_like(module.weight) > 0.9
    return model.state_dict()


def test_engines_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(model: nn.Module, example: torch.Tensor, threads: int) -> Engine:
        raise ImportError("No module named 'dream'")

    monkeypatch.setitem(ENGINES, "Dream", Kind(broken))
    model = convnet().eval()
    result = compare(
        model,
        torch.zeros(1, 1, 8, 8),
        title="digits",
        batches=(2, 16),
        engines=["PyTorch", "Dream", "rvsm"],
        threads=1,
        rounds=1,
    )
    assert [(m.engine, m.batch) for m in result.measurements] == [
        ("PyTorch", 2), ("PyTorch", 16), ("Dream", 2), ("Dream", 16), ("rvsm", 2), ("rvsm", 16)
    ]  # fmt: skip
    first, *_, last = found = [m for m in result.measurements if m.engine != "Dream"]
    for m in found:
        assert m.seconds is not None
        assert m.difference is not None
        assert 0 < m.seconds < 1
        assert m.difference < 1e-4
    assert result.speedup(2) == first.seconds / found[2].seconds  # type: ignore[operator]
    assert result.speedup(16) == found[1].seconds / last.seconds  # type: ignore[operator]
    json.dumps(result.records())
    assert "digits, 1 thread\nengine" in str(result)
    assert "| PyTorch |" in result.markdown()
    assert "not available: No module named 'dream'" in str(result), "the reason, where an engine fails"


class Tokens(nn.Module):
    """Two inputs, of which one has whole numbers, and two results."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(11, 4), nn.Linear(20, 3)

    def forward(self, words: torch.Tensor, offset: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scores = self.head(self.words(words).flatten(1)) + offset
        return scores, scores.argmax(1)


def test_networks_of_several_inputs_that_need_not_be_floats() -> None:
    examples = torch.randint(0, 11, (2, 5)), torch.zeros(2, 3)
    engines = ["PyTorch", "PyTorch, channels last", "PyTorch, bfloat16", "ONNX Runtime", "OpenVINO", "rvsm"]
    result = compare(Tokens().eval(), examples, batches=(1, 3), engines=engines, threads=1, rounds=1)
    for m in result.measurements:
        if m.problem is None or not m.problem.startswith("No module named"):
            assert m.difference is not None, m.problem
            assert m.difference < (1e-4 if m.precision == "float32" else 0.1)


def test_every_batch_size_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        sizes.extend(len(x) for x in inputs if x.shape[1:] == (1, 8, 8))
        return graph.forward

    real = torch.compile
    monkeypatch.setattr(torch, "compile", lambda model, **given: real(model, backend=backend, dynamic=given["dynamic"]))
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).eval()
    engine = ENGINES["torch.compile"].build(model, (torch.zeros(1, 1, 8, 8),), 1)
    most = torch._dynamo.config.recompile_limit + 3  # beyond it, dynamo would run PyTorch
    for batch in range(1, most):
        prepared = engine.prepare((torch.zeros(batch, 1, 8, 8),))
        assert engine.run(prepared).shape == (batch, 10)
    assert sizes == list(range(1, most))


def test_precisions_are_told_apart() -> None:
    rows = (
        Measurement("PyTorch", "float32", 1, 4.0), Measurement("half", "bfloat16", 1, 2.0),
        Measurement("rvsm", "float32", 1, 1.0),
    )  # fmt: skip
    result = Comparison("x", 1, rows)
    assert result.speedup(1, precision="float32") == 4.0
    assert result.speedup(1) == 2.0
    assert result.speedup(16) is None
    assert "4.0 × the fastest dense float32 engine, 2.0 × the fastest of all" in str(result)


@pytest.mark.parametrize("differences", [(nan, 1e-7), (1e-7, nan)])
def test_an_output_that_is_not_a_number_is_shown(differences: tuple[float, float]) -> None:
    rows = [Measurement("rvsm", "float32", b, 1.0, 1.0, d) for b, d in zip((1, 16), differences, strict=True)]
    assert Comparison("x", 1, tuple(rows)).rows()[1][-2] == "nan"


def test_wrong_arguments() -> None:
    model = convnet().eval()
    with pytest.raises(ValueError, match="unknown engine 'Torch'; choose from PyTorch"):
        compare(model, torch.zeros(1, 1, 8, 8), engines=["Torch"])
    with pytest.raises(ValueError, match="batches must be integers ≥ 1"):
        compare(model, torch.zeros(1, 1, 8, 8), batches=())


def test_pack_and_bench_of_a_callable_and_weights(tmp_path: Path) -> None:
    weights, alike = tmp_path / "weights.safetensors", tmp_path / "weights.pt"
    save_file(sparse_weights(), weights)
    torch.save(load_file(weights), alike)
    out = tmp_path / "model.rvsm"
    description = pack(SOURCE, out, weights=weights, shape=(1, 8, 8))
    assert description.nonzero < 0.15 * description.weights
    result = bench(
        str(out), against=SOURCE, weights=alike, batches=(4,), engines=["PyTorch", "rvsm"], threads=1, rounds=1
    )
    assert all(m.difference is not None and m.difference < 1e-4 for m in result.measurements)


@pytest.fixture
def folder(once: Callable[[str, Callable[[Path], object]], Path], tmp_path: Path) -> Path:
    """Return the folder of a finished run, which the test may change."""
    flags = ["--model.width", "4", "--training.epochs", "3", "--training.batch", "256", "--budget.sparsity", "0.8"]
    trained = once("bench-run", lambda at: start(read_config(flags=flags), at / "run", Console(file=io.StringIO())))
    return shutil.copytree(trained / "run", tmp_path / "run")


def test_pack_and_bench_of_a_run(folder: Path, tmp_path: Path) -> None:
    description = pack(str(folder), tmp_path / "model.rvsm")
    assert description.inputs == ((1, 8, 8),)
    assert description.nonzero <= 0.25 * description.weights  # dead channels may have gone
    result = Run(folder).result()
    assert result is not None
    counted = result["channels"]
    assert sum(layer.output[0] for layer in description.layers) == counted["total"] - counted["removed"]
    compared = bench(str(folder), batches=(1,), engines=["PyTorch", "rvsm"], threads=1, rounds=1)
    assert all(m.difference is not None and m.difference < 1e-4 for m in compared.measurements)


def test_the_size_is_compared_with_the_original_network(tmp_path: Path) -> None:
    """Also where whole filters are gone, and with them most of the weights that the file would have to leave out."""
    model = convnet()
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            module.weight.data[1:] = 0
    save_file(model.state_dict(), tmp_path / "weights.safetensors")
    out = tmp_path / "model.rvsm"
    description = pack(SOURCE, out, weights=tmp_path / "weights.safetensors", shape=(1, 8, 8))
    size = 4 * sum(t.numel() for t in [*model.parameters(), *model.buffers()] if t.is_floating_point())
    assert description.original == size > 4 * description.weights
    ratio = f"{size / out.stat().st_size:.1f} times smaller than the original network, {size:,} bytes of float32"
    assert ratio in str(description)


def test_size_and_speeds_are_kept_in_the_runs_folder(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")  # the number asked for counts for our engine, too
    used: list[int] = []
    real = rvsm.lowering.compile
    monkeypatch.setattr(fallback, "_is_slower", lambda *given: True)  # the file is timed, and that has no PyTorch
    timed: list[Program] = []

    def comparing(*given: Any, **named: Any) -> Comparison:
        timed.append(named["program"])
        return compare(*given, **named)

    monkeypatch.setattr(commands, "compare", comparing)
    monkeypatch.setattr(
        rvsm.lowering, "compile", lambda *given, threads: used.append(threads) or real(*given, threads=threads)
    )
    measure(folder, batches=(2, 1), engines=["PyTorch", "rvsm"], threads=1, rounds=1)
    assert used == [1]
    assert [(type(program), program.threads) for program in timed] == [(Program, 1)]
    kept = Run(folder).runtime()
    assert kept is not None
    assert kept["file_bytes"] == (folder / "model.rvsm").stat().st_size
    assert (kept["batch"], kept["threads"]) == (2, 1)
    times = {(e["engine"], e["batch"]): e["milliseconds"] for e in kept["engines"]}
    assert set(times) == {("PyTorch", 1), ("PyTorch", 2), ("rvsm", 1), ("rvsm", 2)}
    assert kept["speedup"] == pytest.approx(times["PyTorch", 2] / times["rvsm", 2])
    outcome = Record.of_run(Run(folder), strict=True).outcome
    assert outcome is not None
    assert outcome.speedup == pytest.approx(kept["speedup"])
    with pytest.raises(ValueError, match="is not the folder of a run"):
        measure(tmp_path / "none")


def test_what_cannot_be_found_is_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the shape of an example is needed"):
        model_of(SOURCE)
    with pytest.raises(ValueError, match="neither the folder of a run nor module:callable"):
        model_of("nothing")
    with pytest.raises(FileNotFoundError, match="there is no file"):
        model_of(SOURCE, weights=tmp_path / "none.pt", shape=(1, 8, 8))
    (tmp_path / "bad.pt").write_bytes(b"not a file of torch")
    with pytest.raises(ValueError, match="cannot be read as a file of tensors"):
        model_of(SOURCE, weights=tmp_path / "bad.pt", shape=(1, 8, 8))
    (tmp_path / "bad.safetensors").write_bytes(b"not safe")
    with pytest.raises(ValueError, match="cannot be read"):
        model_of(SOURCE, weights=tmp_path / "bad.safetensors", shape=(1, 8, 8))
    save_file({"x": torch.zeros(1)}, tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match="are not those of the network"):
        model_of(SOURCE, weights=tmp_path / "other.safetensors", shape=(1, 8, 8))
    with pytest.raises(ValueError, match="--against needs a packed file"):
        bench(SOURCE, against=SOURCE, shape=(1, 8, 8))
    with pytest.raises(ValueError, match="name the network to compare it with"):
        bench(str(tmp_path / "bad.pt"))


def test_peak_memory_sees_what_was_there_for_a_moment() -> None:
    _, grown = peak_memory(lambda: torch.ones(20_000_000).sum())
    if grown is None:
        pytest.skip("not on this system")
    assert 60e6 < grown < 200e6
