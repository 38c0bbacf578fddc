"""Programs in threads and processes: right answers at once, flat memory, no torch."""

import copy
import os
import pickle
import resource
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from rvsm.runtime import file
from rvsm.runtime.execute import program as program_module
from rvsm.runtime.execute.program import Program
from rvsm.runtime.execute.stage import TRIES
from rvsm.runtime.execute.team import cores
from rvsm.runtime.plan.operation import RELU
from rvsm.runtime.plan.operations import Convolution, Pooling
from rvsm.runtime.plan.plan import Output, Plan, Weights
from rvsm.runtime.schedule import layout
from rvsm.runtime.schedule.limits import Limit


def plan(channels: int = 24, size: int = 12, seed: int = 0) -> Plan:
    rng = np.random.default_rng(seed)
    shapes = [(channels, 3, 3, 3), (channels, channels, 3, 3), (channels, channels, 3, 3)]
    weights = {
        k: Weights.of((rng.standard_normal(s) * (rng.random(s) < 0.2)).astype(np.float32)) for k, s in enumerate(shapes)
    }
    operations = (
        Convolution(name="a", source=0, channels=channels, kernel=(3, 3), padding=(1, 1), activation=RELU),
        Convolution(name="b", source=1, channels=channels, kernel=(3, 3), padding=(1, 1), activation=RELU),
        Convolution(name="c", source=2, residual=1, channels=channels, kernel=(3, 3), padding=(1, 1)),
        Pooling(name="d", source=3, mode="max", kernel=(2, 2), stride=(2, 2)),
    )
    biases = {k: rng.standard_normal(channels).astype(np.float32) for k in range(3)}
    return Plan(((3, size, size),), operations, (Output(4),), weights, biases)


def images(count: int, size: int = 12, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, 3, size, size)).astype(np.float32)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("seconds", [1.0, 2e-4])
def test_threads_change_nothing(threads: int, seconds: float) -> None:
    """Threads that share every step, or that take whole chunks, give what one thread gives."""
    alone, many = Program(plan(), threads=1).prepare(), Program(plan(), threads=threads).prepare()
    for stage in (many._batch, many._single):
        stage.chunk_seconds = seconds  # so that helpers are worth waking, and sharing is or is not
    for count in (1, 2, 7, 16, 17, 32, 48, 100):
        x = images(count)
        np.testing.assert_allclose(many(x), alone(x), rtol=1e-4, atol=1e-4, err_msg=f"{count} images")


def test_a_single_image_of_a_small_network_takes_the_short_way() -> None:
    """It gives what the long way gives, in arrays of its own, also from many threads at once."""
    program = Program(plan(), threads=2).prepare()
    x = images(40)
    program._single.chunk_seconds = 1.0
    expected = [program(x[k : k + 1]) for k in range(len(x))]
    program._single.chunk_seconds = 1e-9
    assert program._single.is_quick()
    results: dict[int, np.ndarray] = {}

    def work(first: int) -> None:
        for k in range(first, len(x), 4):
            results[k] = program(x[k : k + 1])

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k, value in enumerate(expected):
        np.testing.assert_array_equal(results[k], value)


def test_two_programs_at_once_and_one_from_many_threads() -> None:
    programs = [Program(plan(seed=k), threads=2).prepare() for k in range(2)]
    for program in programs:
        program._batch.chunk_seconds = program._single.chunk_seconds = 1.0
    inputs = [images(n, seed=n) for n in (1, 5, 16, 40)]
    expected = [[program(x) for x in inputs] for program in programs]
    problems: list[str] = []

    def work(number: int) -> None:
        for round_ in range(25):
            which, k = (number + round_) % 2, (number * 7 + round_) % len(inputs)
            if not np.array_equal(programs[which](inputs[k]), expected[which][k]):
                problems.append(f"thread {number}, round {round_}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert problems == []
    assert not any(thread.is_alive() for thread in threads)


def test_compiling_in_many_threads_at_once() -> None:
    program = Program(plan(seed=5), threads=1)
    x = images(20)
    results: list[np.ndarray] = []
    threads = [threading.Thread(target=lambda: results.append(program(x))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(results) == 6
    assert all(np.array_equal(result, results[0]) for result in results)


def test_memory_does_not_grow() -> None:
    program = Program(plan(channels=4, size=6), threads=2).prepare()
    program._batch.chunk_seconds = 1.0
    x, single = images(16, 6), images(1, 6)
    for _ in range(200):
        program(single)
        program(x)
    before = resident()
    for _ in range(1800):
        program(single)
    for _ in range(200):
        program(x)
    assert resident() - before < 400 << 10, "200 bytes for each call"


def resident() -> int:
    if Path("/proc/self/statm").exists():
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_helpers_of_its_own(tmp_path: Path) -> None:
    code = """
import os, sys
sys.path.insert(0, sys.argv[1])
from test_program import plan, images
from rvsm.runtime.execute.program import Program
import numpy as np
program = Program(plan(), threads=2).prepare()
program._batch.chunk_seconds = 1.0
x = images(16)
expected = program(x)
child = os.fork()
if child == 0:
    os._exit(0 if np.array_equal(program(x), expected) else 3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    folder = str(Path(__file__).parent)
    done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "0"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_loads_while_threads_of_its_parent_are_loading() -> None:
    code = """
import itertools, os, signal, sys, threading, time
sys.path.insert(0, sys.argv[1])
from test_program import plan, images
from rvsm.runtime.kernels import jit
from rvsm.runtime.execute.program import Program
common = Program(plan(seed=1), threads=1)

class Nothing:
    def __init__(self, name):
        self.name = name

    def code(self):
        return f"define void @{self.name}() {{ ret void }}"

def compiling():
    for k in itertools.count():
        jit.compile_functions([Nothing(f"none_{k}")])

def loading():
    for seed in itertools.count():
        Program(plan(seed=seed), threads=1).prepare()

for work in (compiling, loading, common.prepare):
    threading.Thread(target=work, daemon=True).start()
for _ in range(4):
    time.sleep(0.05)
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        jit.compile_functions([Nothing("child")])
        common(images(3))
        Program(plan(seed=9), threads=1).prepare()
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
os._exit(0)
"""
    folder = str(Path(__file__).parent)
    done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == ["0"] * 4


def test_loading_and_running_a_file_does_not_import_torch(tmp_path: Path) -> None:
    Program(plan(), threads=1).save(tmp_path / "model.rvsm")
    np.save(tmp_path / "x.npy", images(5))
    code = """
import sys, numpy as np, rvsm.runtime
program = rvsm.runtime.load(sys.argv[1] + "/model.rvsm")
np.save(sys.argv[1] + "/y.npy", program(np.load(sys.argv[1] + "/x.npy")))
str(program.explain()); str(rvsm.runtime.describe(sys.argv[1] + "/model.rvsm"))
print([name for name in sys.modules if name.split(".")[0] in ("torch", "scipy", "numba")])
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    expected = Program(plan(), threads=1)(images(5))
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda program: pickle.loads(pickle.dumps(program))])
def test_a_program_can_be_copied_and_pickled(copied: Callable[[Program], Program]) -> None:
    program = Program(plan(), threads=2, choose="sparse", limit=Limit(seconds=7.0))
    again = copied(program)
    np.testing.assert_allclose(again(images(19)), program(images(19)), rtol=1e-5, atol=1e-5)
    assert (again.threads, again._choose, again._limit) == (2, "sparse", Limit(seconds=7.0))
    assert file.graph_of(again.plan) == file.graph_of(program.plan)


def test_what_is_unpickled_is_checked_like_a_file() -> None:
    restore, (data, *others) = Program(plan(), threads=1).__reduce__()
    with pytest.raises(ValueError, match=r"the pickled program .*damaged"):
        restore(data[:-1], *others)
    with pytest.raises(ValueError, match=r"would need .* GiB of memory"):
        restore(data, *others[:-1], Limit(memory=1000))


def test_threads_and_choices_are_checked() -> None:
    with pytest.raises(ValueError, match="threads must be at least 1 but is 0"):
        Program(plan(), threads=0)
    with pytest.raises(ValueError, match="choose must be None, 'sparse' or 'dense' but is 'best'"):
        Program(plan(), choose="best")


def test_the_number_of_threads_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert cores() == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "many")
    assert cores() >= 1


@pytest.mark.parametrize("threads", [1, 2])
def test_images_of_which_a_vector_is_too_large_go_one_by_one(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    usual = Program(plan(), threads=threads).prepare()
    monkeypatch.setattr(layout, "MAX_ARENA", usual._single.schedule.arena_bytes)
    program = Program(plan(), threads=threads).prepare()
    for count in (1, 2, 16, 17, 35):
        np.testing.assert_allclose(program(images(count)), usual(images(count)), rtol=1e-4, atol=1e-4)
    assert "1 image on one thread" in str(program.explain())
    monkeypatch.setattr(layout, "MAX_ARENA", 1000)
    with pytest.raises(ValueError, match="GiB for its activations"):
        Program(plan(), threads=1).prepare()


def test_large_maps_go_one_by_one_because_caches_do_not_hold_a_vector_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = Program(plan(), threads=1).prepare()
    monkeypatch.setattr(program_module, "SPILL", usual._single.schedule.arena_bytes)
    small = Program(plan(), threads=1).prepare()
    assert small._batch is small._single
    assert small.memory < usual.memory
    np.testing.assert_allclose(small(images(35)), usual(images(35)), rtol=1e-4, atol=1e-4)


def test_threads_try_to_share_images_and_to_have_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_module, "SPILL", 0)
    alone, program = (Program(plan(), threads=threads).prepare() for threads in (1, 2))
    stage = program._batch
    stage.chunk_seconds = 0.1  # of long steps
    x = images(8)
    for _ in range(2 * TRIES):
        np.testing.assert_allclose(program(x), alone(x), rtol=1e-4, atol=1e-4)
    assert {way: len(times) for way, times in stage._tried.items()} == {True: TRIES, False: TRIES}
    for faster in (True, False):
        stage._tried = {faster: [0.1] * TRIES, not faster: [0.2] * TRIES}
        assert stage._sharing_is_faster() is faster
        np.testing.assert_allclose(program(x), alone(x), rtol=1e-4, atol=1e-4)


def test_the_explanation_is_a_table() -> None:
    program = Program(plan(), threads=1)
    for batch, count in ((1, "1 image on one thread"), (None, "images on one thread")):
        table = program.explain(batch)
        text = str(table)
        assert count in text
        assert [row.name for row in table.rows] == ["a", "b", "c", "d", "input and output", "call"]
        assert "3×3 convolution + add" in text
        assert table.rows[0].sparsity == pytest.approx(0.8, abs=0.1)
        assert sum(row.seconds for row in table.rows) == table.seconds > 0
