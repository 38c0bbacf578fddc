"""Small files that describe large computations: bounded before anything is built, refused with a sentence."""

import os
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import rvsm.runtime
from rvsm.runtime import file
from rvsm.runtime.execute.program import Program
from rvsm.runtime.kernels import jit
from rvsm.runtime.plan.operation import Operation, Shape
from rvsm.runtime.plan.operations import (
    AdaptivePooling,
    Concatenation,
    Convolution,
    Flattening,
    Pointwise,
    Pooling,
    Softmax,
)
from rvsm.runtime.plan.plan import Output, Plan, Weights
from rvsm.runtime.plan.tensors import Constant, Contraction, Embedding, Normalization, Rearrangement
from rvsm.runtime.schedule.layout import TooLargeError
from rvsm.runtime.schedule.limits import Limit, check
from rvsm.runtime.schedule.scheduler import costs, schedule
from rvsm.runtime.schedule.step import Cost

SEVERAL_GB = 4 << 30


def convolution(
    source: Shape, kernel: tuple[int, int], *, density: float = 0.5, channels: int = 1,
    padding: tuple[int, int] = (0, 0), stride: tuple[int, int] = (1, 1),
) -> Plan:  # fmt: skip
    shape = (channels, source[0], *kernel)
    weights = Weights.of((np.random.default_rng(0).random(shape) < density).astype(np.float32))
    operation = Convolution(name="layer", source=0, channels=channels, kernel=kernel, padding=padding, stride=stride)
    return Plan((source,), (operation,), (Output(1),), {0: weights}, {0: np.zeros(channels, dtype=np.float32)})


def plain(source: Shape, operations: list[Operation], outputs: int = 1) -> Plan:
    return Plan((source,), tuple(operations), tuple(Output(len(operations)) for _ in range(outputs)), {}, {})


def pooling(kernel: int, source: int = 0, padding: int = 0) -> Pooling:
    return Pooling(
        name="pool", source=source, mode="max", kernel=(kernel, kernel), stride=(1, 1), padding=(padding, padding)
    )


HOSTILE: dict[str, Callable[[], Plan]] = {
    "one kernel of 256 × 256": lambda: convolution((1, 257, 257), (256, 256)),
    "Conv2d(1, 1, 128) on 129²": lambda: convolution((1, 129, 129), (128, 128), density=1.0),
    "1 × 511 on 1024²": lambda: convolution((1, 1024, 1024), (1, 511)),
    "1 × 511 on 1024², padded": lambda: convolution((1, 1024, 1024), (1, 511), padding=(0, 255), density=0.01),
    "1024 × 1024 windows": lambda: plain((1, 2048, 2048), [pooling(1024)]),
    "64 outputs of one value": lambda: plain((1, 2048, 2048), [pooling(3, padding=1)], 64),
    "20 poolings": lambda: plain((1, 2048, 2048), [pooling(3, k, padding=1) for k in range(20)]),
    "concatenations of many rows": lambda: plain(
        (1, 1 << 22, 1), [Concatenation(name="both", parts=(0,)) for _ in range(20)]
    ),
}

LOAD = """
import resource, sys
limit = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
import rvsm.runtime
for path in sys.argv[2:]:
    try:
        rvsm.runtime.load(path, threads=1)
        print("loaded", flush=True)
    except ValueError as error:
        print(error, flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit of memory")
def test_small_files_neither_hang_the_loader_nor_fill_the_memory(tmp_path: Path) -> None:
    paths = [str(tmp_path / f"{number}.rvsm") for number in range(len(HOSTILE))]
    for path, made in zip(paths, HOSTILE.values(), strict=True):
        file.write(made(), Path(path))
    command = [sys.executable, "-c", LOAD, str(SEVERAL_GB), *paths]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    told = dict(zip(HOSTILE, done.stdout.splitlines(), strict=False))
    assert list(told) == list(HOSTILE), f"the next one ended the process: {done.stderr}"
    refused = told.pop("1024 × 1024 windows")
    assert "'pool' would take about 1,102 seconds for one image at a time, and the limit is 60" in refused
    assert set(told.values()) == {"loaded"}, told


def test_what_is_too_large_says_what_it_would_need(tmp_path: Path) -> None:
    path = tmp_path / "model.rvsm"
    file.write(convolution((3, 64, 64), (3, 3), channels=8), path)
    with pytest.raises(ValueError, match=r"model.rvsm is too large: the network would need 0\.\d GiB .* limit is 0\.0"):
        rvsm.runtime.load(path, limit=Limit(memory=1000))
    with pytest.raises(ValueError, match=r"'layer' would take about 0 seconds for one image .* limit is 1e-09"):
        rvsm.runtime.load(path, limit=Limit(seconds=1e-9))
    with pytest.raises(ValueError, match="a limit must be larger than 0"):
        Limit(memory=0)


def test_loading_is_work_as_well() -> None:
    plan = plain((1, 4, 4), [pooling(1, k) for k in range(3)])
    with pytest.raises(TooLargeError, match="would take about 120 seconds to load, and the limit is 60"):
        check(plan, [Cost(10**9, 39 * 10**9, 0.0)] * 3, Limit(), unit=1, activations=0)


def test_many_small_layers_cost_little() -> None:
    count = 3000
    layers = [
        Convolution(name="layer", source=k, channels=1, kernel=(2, 2), padding=(1 - k % 2, 1 - k % 2))
        for k in range(count)
    ]
    weights = Weights.of(np.ones((1, 1, 2, 2), dtype=np.float32))
    plan = Plan(
        ((1, 9, 9),), tuple(layers), (Output(count),), dict.fromkeys(range(count), weights),
        dict.fromkeys(range(count), np.zeros(1, dtype=np.float32)),
    )  # fmt: skip
    for unit in (1, jit.machine().lanes):
        limit = Limit(memory=1 << 28, seconds=2.0)
        assert check(plan, costs(plan, unit, jit.machine()), limit, unit=unit, activations=0) < 1 << 28


def test_too_little_memory_for_vectors_of_images_is_enough_for_single_ones() -> None:
    plan = convolution((3, 512, 512), (1, 1), density=0.05, channels=4)
    usual = Program(plan, threads=1).prepare()
    spent = usual._single.schedule.memory
    limited = Program(plan, threads=1, limit=Limit(memory=spent + 40_000_000)).prepare()
    assert limited._batch is limited._single
    x = np.random.default_rng(0).standard_normal((2, 3, 512, 512)).astype(np.float32)
    np.testing.assert_allclose(limited(x), usual(x), rtol=1e-5, atol=1e-5)


def test_kernels_are_counted(tmp_path: Path) -> None:
    """Each stride has a kernel of its own, which takes time to compile."""
    operations, weights, biases = [], {}, {}
    for k in range(600):
        operations.append(
            Convolution(name="layer", source=0, channels=1, kernel=(2, 2), padding=(1, 1), stride=(1, k + 1))
        )
        weights[k] = Weights.of(np.eye(2, dtype=np.float32)[None, None] * np.float32(0.0))
        biases[k] = np.zeros(1, dtype=np.float32)
    plan = Plan(((1, 2, 2000),), tuple(operations), (Output(600),), weights, biases)
    with pytest.raises(TooLargeError, match="more than 500 different kernels"):
        Program(plan, threads=1).prepare()


def tensors() -> Plan:
    operations = (
        Embedding(name="table", source=0, rows=5000, features=64),
        Rearrangement(name="turned", source=1, sizes=(100, 64), strides=(1, 100), result=(100, 1, 64)),
        Contraction(
            name="product", a=1, b=2, sizes=(1, 1, 64, 64, 100), a_strides=(0, 0, 100, 1), b_strides=(0, 0, 64)
        ),
        Normalization(name="norm", source=3, epsilon=1e-5),
        Constant(name="constant", result=(64, 1, 64)),
        Concatenation(name="both", parts=(4, 5), groups=4),
        Convolution(name="border", source=6, channels=1, kernel=(1, 3), padding=(0, 1)),
    )  # fmt: skip
    shapes = {0: (5000, 64), 3: (64,), 4: (64, 1, 64), 6: (1, 128, 1, 3)}
    weights = {k: Weights.of(np.ones(shape, dtype=np.float32)) for k, shape in shapes.items()}
    biases = {k: np.zeros({3: 64, 6: 1}.get(k, 0), dtype=np.float32) for k in shapes}
    return Plan(((1, 10, 10),), operations, (Output(7),), weights, biases)


PLANS = {
    "tensors": tensors,
    "sparse": lambda: convolution((32, 40, 40), (3, 3), density=0.05, channels=64, padding=(1, 1)),
    "half": lambda: convolution((32, 17, 23), (3, 3), density=0.5, channels=30, padding=(1, 1)),
    "hardly sparse": lambda: convolution((64, 9, 9), (3, 3), density=0.85, channels=64),
    "dense": lambda: convolution((64, 9, 9), (3, 3), density=1.0, channels=64),
    "linear": lambda: convolution((2048, 1, 1), (1, 1), density=0.5, channels=512),
    "stride": lambda: convolution((8, 200, 200), (7, 7), density=0.5, channels=8, padding=(3, 3), stride=(3, 3)),
    "wide": lambda: convolution((1, 256, 256), (1, 127), padding=(0, 63)),
    "large kernel": lambda: convolution((1, 129, 129), (128, 128)),
    "narrow": lambda: convolution((2, 64, 3), (65, 65), padding=(32, 32)),
    "pooling": lambda: plain((4, 300, 300), [pooling(3, k, padding=1) for k in range(4)]),
    "flattening": lambda: plain((2, 300, 300), [Flattening(name="flat", source=0)]),
    "others": lambda: plain(
        (2, 300, 300),
        [
            Pointwise(name="add", operation="add", a=0, b=0),
            Concatenation(name="both", parts=(0, 1, 1)),
            AdaptivePooling(name="mean", source=2, mode="mean", size=(7, 7)),
            Softmax(name="softmax", source=2),
        ],
    ),
}


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("images", [False, True])
@pytest.mark.parametrize("choose", ["sparse", "dense"])
def test_the_bytes_are_an_upper_bound(name: str, images: bool, choose: str) -> None:
    plan, machine = PLANS[name](), jit.machine()
    found = costs(plan, machine.lanes if images else 1, machine)
    zeros = plan.weights[0].sparsity if plan.weights else 0.5
    if (choose == "dense" and zeros > 0.9) or (choose == "sparse" and zeros < 0.1):
        pytest.skip("is never chosen")
    schedule(plan, images=images, threads=2, choose=choose)  # what is kept by the process, such as kernels
    tracemalloc.start()
    made = schedule(plan, images=images, threads=2, choose=choose)
    kept, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert made.steps
    assert kept <= sum(cost.kept for cost in found) + 20_000
    assert most <= sum(cost.kept for cost in found) + max(cost.passing for cost in found) + 20_000


def test_a_long_call_answers_an_interrupt() -> None:
    program = Program(plain((64, 64, 64), [pooling(15, k, padding=7) for k in range(200)]), threads=1).prepare()
    x = np.ones((1, 64, 64, 64), dtype=np.float32)
    program._single.chunk_seconds = 10.0  # so that it is played step by step
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    begin = time.process_time()
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        program(x)
    assert time.process_time() - begin < 10
    short = Program(plain((1, 8, 8), [pooling(3)]), threads=1)
    for seconds in (0.0, 1e-3, 10.0):
        short._single.chunk_seconds = short._batch.chunk_seconds = seconds
        assert short(np.ones((37, 1, 8, 8), dtype=np.float32)).sum() == 37 * 36


def test_long_calls_are_right_with_several_threads() -> None:
    plan = convolution((3, 20, 20), (3, 3), channels=8, padding=(1, 1))
    x = np.random.default_rng(0).standard_normal((37, 3, 20, 20)).astype(np.float32)
    usual, long = Program(plan, threads=1)(x), Program(plan, threads=2)
    long._single.chunk_seconds = long._batch.chunk_seconds = 10.0
    np.testing.assert_allclose(long(x), usual, rtol=1e-5, atol=1e-5)
