"""Values in fewer bits: as near as they can be, and harmless whatever is in the file."""

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

import rvsm.runtime
from rvsm.bench import pack
from rvsm.cli import main
from rvsm.runtime.execute.program import Program
from rvsm.runtime.file import decode, encode
from rvsm.runtime.plan.operations import Convolution
from rvsm.runtime.plan.plan import Output, Plan, Weights
from rvsm.runtime.values import restored, stored

FLOATS = st.one_of(st.just(0.0), st.floats(-(2.0**100), 2.0**100, width=32))
SHAPES = st.tuples(st.integers(1, 4), st.integers(1, 9))
DENSE = SHAPES.flatmap(lambda shape: arrays(np.float32, shape, elements=FLOATS))


@settings(max_examples=50)
@given(DENSE)
def test_float32_is_exact(dense: Any) -> None:
    weights = Weights.of(dense)
    assert np.array_equal(restored(dense.shape, stored(weights, "float32")).dense(), dense)


@given(DENSE)
def test_bfloat16_is_that_of_torch(dense: Any) -> None:
    again = restored(dense.shape, stored(Weights.of(dense), "bfloat16")).dense()
    assert np.array_equal(again, torch.from_numpy(dense).bfloat16().float().numpy())


@given(DENSE)
def test_integers_are_the_nearest(dense: Any) -> None:
    arrays = stored(Weights.of(dense), "int8")
    again = restored(dense.shape, arrays).dense()
    largest = np.abs(dense).max(axis=1, keepdims=True).astype(np.float64)
    # Half a step, and the rounding of the division and the product; magnitudes below the normal numbers become zero.
    assert (np.abs(again - dense.astype(np.float64)) <= largest * (0.5 / 127 + 1e-6) + 1e-37).all()
    assert not np.any(again[dense == 0])
    assert np.all(arrays["values"] != 0)  # a value that became zero is no longer stored
    assert np.array_equal(restored(dense.shape, stored(Weights.of(again), "int8")).dense() != 0, again != 0)


def network() -> Plan:
    rng = np.random.default_rng(0)
    dense = (rng.standard_normal((10, 64, 1, 1)) * (rng.random((10, 64, 1, 1)) < 0.9)).astype(np.float32)
    layer = Convolution(name="head", source=0, channels=10, kernel=(1, 1))
    return Plan(((64, 1, 1),), (layer,), (Output(1, "c"),), {0: Weights.of(dense)}, {0: np.ones(10, np.float32)})


@pytest.mark.parametrize(("values", "smaller", "change"), [("bfloat16", 0.65, 4e-3), ("int8", 0.5, 1e-2)])
def test_a_smaller_file(tmp_path: Path, values: Any, smaller: float, change: float) -> None:
    program = Program(network(), threads=1)
    program.save(tmp_path / "exact.rvsm")
    program.save(tmp_path / "small.rvsm", values=values)
    sizes = [(tmp_path / f"{name}.rvsm").stat().st_size for name in ("small", "exact")]
    assert sizes[0] < smaller * sizes[1]
    x = np.random.default_rng(1).standard_normal((9, 64, 1, 1)).astype(np.float32)
    exact, small = program(x), rvsm.runtime.load(tmp_path / "small.rvsm", threads=1)(x)
    assert 0 < np.linalg.norm(small - exact) < change * np.linalg.norm(exact)
    assert f"stored as {values}" in str(rvsm.runtime.describe(tmp_path / "small.rvsm"))
    assert "stored as float32" in str(rvsm.runtime.describe(tmp_path / "exact.rvsm"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("0.scales"), "int8 do not fit no scales"),
        (lambda t: t.update({"0.values": t["0.values"].astype(np.uint16)}), "uint16 do not fit their scales"),
        (lambda t: t.update({"0.values": t["0.values"].astype(np.int16)}), "int16 do not fit their scales"),
        (lambda t: t.update({"0.scales": t["0.scales"][1:]}), r"10 positive float32 scales but .* float32 \(9,\)"),
        (lambda t: t["0.scales"].fill(np.nan), "10 positive float32 scales"),
        (lambda t: t["0.scales"].fill(-1), "10 positive float32 scales"),
        (lambda t: t["0.bits"].fill(0), "0 bits set but there are"),
        (lambda t: t.update({"0.bits": t["0.bits"][1:]}), "must have 80 bytes"),
        (lambda t: t.update({"0.values": t["0.values"][None]}), "int8 do not fit their scales"),
    ],
)
def test_what_is_wrong_is_said(change: Any, message: str) -> None:
    data = encode(network(), "int8")
    tensors = load_tensors(data)
    change(tensors)
    graph = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
    with pytest.raises(ValueError, match=message):
        decode(save_tensors(tensors, graph), "it")


@settings(max_examples=100)
@given(st.data())
def test_mutated_files_give_only_clean_errors(data: Any) -> None:
    for values in ("bfloat16", "int8"):
        whole = bytearray(encode(network(), values))  # type: ignore[arg-type]
        for _ in range(data.draw(st.integers(1, 3))):
            whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
        with suppress(ValueError):
            decode(bytes(whole), "it")


def test_unknown_and_infinite_values() -> None:
    with pytest.raises(ValueError, match="values must be one of float32, bfloat16, int8 but is 'int4'"):
        encode(network(), "int4")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not finite can be stored as float32 only, not as int8"):
        stored(Weights.of(np.array([[np.inf]], dtype=np.float32)), "int8")


MODEL = """
import torch
from torch import nn

def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).eval()
"""


def test_pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "packed_values.py").write_text(MODEL)
    out, words = tmp_path / "model.rvsm", ["pack", "packed_values:make", "--input", "1,8,8", "--values", "int8"]
    assert main([*words, "--out", str(out), "--limit", "1e-5"]) == 1
    sentence = r"rvsm: values stored as int8 change the outputs by 0\.0\d+ .* more than the limit of 1e-05; choose"
    assert re.match(sentence, capsys.readouterr().err)
    assert list(tmp_path.glob("*.rvsm")) == []
    described = pack("packed_values:make", out, shape=(1, 8, 8), values="int8", limit=0.05)
    assert described.change is not None
    assert 0.001 < described.change < 0.05
    assert "stored as int8\nthis changes the outputs by 0." in str(described)
    with pytest.raises(ValueError, match="the limit must be a fraction ≥ 0 but is -1"):
        pack("packed_values:make", out, shape=(1, 8, 8), limit=-1)
