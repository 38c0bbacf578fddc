"""The file: small, whole or absent, and harmless whatever is in it."""

import json
import random
import struct
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

import rvsm.runtime
from rvsm.runtime import file
from rvsm.runtime.execute.program import Program
from rvsm.runtime.plan.operation import RELU, Activation
from rvsm.runtime.plan.operations import AdaptivePooling, Concatenation, Convolution, Pooling, Softmax
from rvsm.runtime.plan.plan import Output, Plan, Weights


def network(width: int = 8) -> Plan:
    rng = np.random.default_rng(0)
    shapes = [(width, 3, 3, 3), (width, width, 3, 3), (width, width, 1, 1), (10, 2 * width, 1, 1)]
    dense = [(rng.standard_normal(s) * (rng.random(s) < 0.3)).astype(np.float32) for s in shapes]
    same = {"kernel": (3, 3), "padding": (1, 1), "activation": RELU}
    operations = (
        Convolution(name="stem", source=0, channels=width, **same),
        Convolution(name="block.a", source=1, residual=1, channels=width, **same),
        Convolution(name="block.b", source=1, channels=width, kernel=(1, 1), activation=Activation("silu")),
        Concatenation(name="both", parts=(2, 3)),
        Pooling(name="pool", source=4, mode="max", kernel=(2, 2), stride=(2, 2)),
        AdaptivePooling(name="mean", source=5, mode="mean", size=(1, 1)),
        Convolution(name="head", source=6, channels=10, kernel=(1, 1)),
    )
    where = [0, 1, 2, 6]
    biases = {k: rng.standard_normal(len(w)).astype(np.float32) for k, w in zip(where, dense, strict=True)}
    weights = {k: Weights.of(w) for k, w in zip(where, dense, strict=True)}
    return Plan(((3, 8, 8),), operations, (Output(7, "c"),), weights, biases)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("file") / "model.rvsm"
    Program(network(), threads=1).save(path)
    return path.read_bytes()


def test_a_network_survives(tmp_path: Path) -> None:
    program = Program(network(), threads=1)
    program.save(tmp_path / "model.rvsm")
    again = rvsm.runtime.load(tmp_path / "model.rvsm", threads=1)
    x = np.random.default_rng(1).standard_normal((19, 3, 8, 8)).astype(np.float32)
    np.testing.assert_allclose(again(x), program(x), rtol=1e-5, atol=1e-5)
    assert [p.name for p in tmp_path.iterdir()] == ["model.rvsm"]
    again.save(tmp_path / "again.rvsm")
    assert (tmp_path / "again.rvsm").read_bytes() == (tmp_path / "model.rvsm").read_bytes()


def test_a_file_of_version_1_is_read(saved: bytes, tmp_path: Path) -> None:
    def back(metadata: dict[str, str], tensors: dict[str, Any]) -> None:
        graph = json.loads(metadata["rvsm"]) | {"version": 1}
        for item in (*graph["inputs"], *graph["outputs"]):
            item["flat"] = item.pop("form") == "c"
        metadata["rvsm"] = json.dumps(graph)

    (tmp_path / "model.rvsm").write_bytes(changed(saved, back))
    plan = file.read(tmp_path / "model.rvsm")
    assert (plan.axes, plan.outputs) == (("chw",), (Output(7, "c"),))


def test_a_file_has_the_lowest_version_that_its_operations_allow(saved: bytes, tmp_path: Path) -> None:
    """What an older rvsm can play it also reads; for the rest it asks for an upgrade."""

    def version(data: bytes) -> int:
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        return int(json.loads(header["__metadata__"]["rvsm"])["version"])

    plan = Plan(((5, 1, 1),), (Softmax(name="softmax", source=0, log=True),), (Output(1, "c"),), {}, {}, ("c",))
    file.write(plan, tmp_path / "model.rvsm")
    assert (version(saved), version((tmp_path / "model.rvsm").read_bytes())) == (2, 3)
    assert file.read(tmp_path / "model.rvsm").operations == plan.operations
    x = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
    result = rvsm.runtime.load(tmp_path / "model.rvsm", threads=1)(x)
    np.testing.assert_allclose(np.exp(result).sum(1), 1, rtol=1e-6)


def test_it_is_small(tmp_path: Path) -> None:
    plan = network(64)
    file.write(plan, tmp_path / "model.rvsm")
    nonzero = sum(len(w.values) for w in plan.weights.values())
    weights = sum(np.prod(w.shape) for w in plan.weights.values())
    assert (tmp_path / "model.rvsm").stat().st_size <= 1.15 * (4 * nonzero + weights / 8)


def refused(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"model\.rvsm") as error:
        file.read(path)
    return str(error.value)


def changed(data: bytes, change: Callable[[dict[str, str], dict[str, Any]], None]) -> bytes:
    """Return a file whose metadata and tensors have been changed, without a checksum, which only shows damage."""
    header = json.loads(data[8 : 8 + struct.unpack("<Q", data[:8])[0]])
    metadata, tensors = header["__metadata__"], load_tensors(data)
    graph = json.loads(metadata["rvsm"])
    assert graph.pop("checksum")
    metadata["rvsm"] = json.dumps(graph)
    change(metadata, tensors)
    return save_tensors(tensors, metadata)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m, t: m.update(rvsm='{"version":6}'), "version 6 and this rvsm reads up to 5: upgrade rvsm"),
        (lambda m, t: m.update(rvsm='{"version":"one"}'), "its version must be an integer"),
        (lambda m, t: m.update(format="onnx"), "not an rvsm file"),
        (lambda m, t: m.update(rvsm="{"), "its graph is not JSON"),
        (lambda m, t: m.update(rvsm="[" * 100_000), "its graph is not JSON"),
        (lambda m, t: m.update(rvsm="[]"), "its graph is not a table"),
        (lambda m, t: m.update(rvsm='{"version":1}'), "the graph must have inputs, operations, outputs"),
        (lambda m, t: t.pop("0.bias"), "lacks 0.bias"),
        (lambda m, t: t.update(other=np.zeros(3)), "no operation needs, such as 'other'"),
        (lambda m, t: t.update({"0.values": t["0.values"][1:]}), "bits set but there are"),
        (lambda m, t: t.update({"0.values": t["0.values"].astype(np.float64)}), "one-dimensional float32 array"),
        (lambda m, t: t.update({"0.bits": t["0.bits"][1:]}), "bytes but has the shape"),
        (lambda m, t: t.update({"0.bias": t["0.bias"][1:]}), "needs a bias of 8 float32"),
    ],
)
def test_what_is_wrong_is_said(saved: bytes, tmp_path: Path, change: Any, message: str) -> None:
    assert message in refused(tmp_path / "model.rvsm", changed(saved, change))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no file .*none\.rvsm"):
        rvsm.runtime.load(tmp_path / "none.rvsm")


def test_a_file_cut_anywhere_is_refused(saved: bytes, tmp_path: Path) -> None:
    header = 8 + struct.unpack("<Q", saved[:8])[0]
    ends = {header + end for item in json.loads(saved[8:header]).values() for end in item.get("data_offsets", [])}
    around = {end + d for end in [*ends, 0, 8, header] for d in (-1, 0, 1)}
    for end in sorted(around | set(range(0, len(saved), 97))):
        if 0 <= end < len(saved):
            refused(tmp_path / "model.rvsm", saved[:end])


def test_thousands_of_mutated_files_give_only_clean_errors(saved: bytes, tmp_path: Path) -> None:
    """Flip, cut, insert, overwrite and change numbers: nothing but ValueError, quickly; what loads must run."""
    generator = random.Random(0)
    path = tmp_path / "model.rvsm"
    saved = changed(saved, lambda metadata, tensors: None)
    header = 8 + struct.unpack("<Q", saved[:8])[0]
    path.write_bytes(saved)
    original = file.graph_of(file.read(path))
    accepted, played, begin = 0, 0, time.monotonic()
    for _ in range(3000):
        path.write_bytes(mutated(saved, header, generator))
        try:
            plan = file.read(path)
        except ValueError:
            continue
        accepted += 1
        if file.graph_of(plan) != original and played < 60 and sum(map(np.prod, plan.shapes)) < 1e6:
            played += 1
            Program(plan, threads=1)(np.zeros((2, *plan.inputs[0]), dtype=np.float32))
    assert accepted > 0  # mutations of values are no damage that anyone could see
    assert played > 0
    assert time.monotonic() - begin < 120


def test_damage_anywhere_is_noticed(saved: bytes, tmp_path: Path) -> None:
    generator, path = random.Random(0), tmp_path / "model.rvsm"
    for _ in range(300):
        damaged = bytearray(saved)
        damaged[generator.randrange(len(saved))] ^= 1 << generator.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"model\.rvsm (cannot be read|is not an rvsm file)"):
            file.read(path)
    tensors = load_tensors(saved)
    tensors["0.values"][0] += 1
    header = json.loads(saved[8 : 8 + struct.unpack("<Q", saved[:8])[0]])
    path.write_bytes(save_tensors(tensors, header["__metadata__"]))
    with pytest.raises(ValueError, match="it is damaged: its checksum is wrong; restore an intact copy"):
        file.read(path)


def mutated(data: bytes, header: int, generator: random.Random) -> bytes:
    result = bytearray(data)
    kind = generator.randrange(6)
    for _ in range(generator.randrange(1, 4)):
        limit = header if generator.random() < 0.8 else len(result)
        place = generator.randrange(max(1, min(limit, len(result))))
        if kind == 0:
            result[place] ^= 1 << generator.randrange(8)
        elif kind == 1:
            result[place] = generator.randrange(256)
        elif kind == 2:
            del result[place : place + generator.randrange(1, 9)]
        elif kind == 3:
            result[place:place] = generator.randbytes(generator.randrange(1, 9))
        else:  # a number in the header becomes another, of as many digits or of more
            digits = [k for k in range(8, min(header, len(result))) if chr(result[k]).isdigit()]
            k = generator.choice(digits)
            if kind == 4:
                result[k] = ord(str(generator.randrange(10)))
            else:
                result[k : k + 1] = str(generator.randrange(1 << 40)).encode()
                size = struct.unpack("<Q", data[:8])[0] + len(result) - len(data)
                result[:8] = struct.pack("<Q", size)  # the container stays sound: the graph itself must be checked
    return bytes(result)


def test_memory_is_bounded_before_it_is_allocated(tmp_path: Path) -> None:
    """A graph may ask for enormous maps with few weights; that is refused when it is read or scheduled."""
    path = tmp_path / "model.rvsm"
    Program(network(width=33), threads=1).save(path)

    def huge(metadata: dict[str, str], tensors: dict[str, Any]) -> None:
        graph = json.loads(metadata["rvsm"])
        graph["inputs"][0]["shape"] = [3, 2000, 2000]
        metadata["rvsm"] = json.dumps(graph)

    path.write_bytes(changed(path.read_bytes(), huge))
    with pytest.raises(ValueError, match="needs more than 4 GiB for its activations"):
        rvsm.runtime.load(path)


def test_description(saved: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.rvsm"
    path.write_bytes(saved)
    description = rvsm.runtime.describe(path)
    assert description.size == len(saved)
    assert [layer.name for layer in description.layers] == ["stem", "block.a", "block.b", "head"]
    assert description.weights == sum(np.prod(layer.weights) for layer in description.layers)
    text = str(description)
    assert "takes 3×8×8, gives 10; 7 operations" in text
    assert "times smaller than its layers as dense float32" in text


def test_names_in_a_file_do_not_reach_the_terminal_as_they_are(tmp_path: Path) -> None:
    """A name may have sequences that move the cursor; whoever reads a description must see what is there."""
    plan, path = network(), tmp_path / "model.rvsm"
    named = tuple(replace(operation, name="\x1b[2J\x1b]0;owned\x07é") for operation in plan.operations)
    Program(Plan(plan.inputs, named, plan.outputs, plan.weights, plan.biases), threads=1).save(path)
    for text in (str(rvsm.runtime.describe(path)), str(rvsm.runtime.load(path, threads=1).explain())):
        assert "\x1b" not in text
        assert "\\x1b[2J\\x1b]0;owned\\x07é" in text

    def strange(metadata: dict[str, str], tensors: dict[str, Any]) -> None:
        graph = json.loads(metadata["rvsm"])
        graph["operations"][0]["\x1b[2J"] = 1
        metadata["rvsm"] = json.dumps(graph)

    assert "\\x1b[2J" in refused(path, changed(path.read_bytes(), strange))
