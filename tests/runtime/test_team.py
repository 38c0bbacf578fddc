"""Helpers: awake or asleep they play every call, whatever happens to the caller, and they end with the process."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from rvsm.runtime.execute.program import Program
from rvsm.runtime.execute.team import Team, team
from rvsm.runtime.plan.operations import Convolution
from rvsm.runtime.plan.plan import Output, Plan, Weights

SHARED = 1e-3  # seconds of a chunk that threads share


def network(threads: int) -> Program:
    """Return a small network."""
    rng = np.random.default_rng(0)
    weights = {k: Weights.of(rng.standard_normal((8, c, 3, 3)).astype(np.float32)) for k, c in enumerate((3, 8))}
    names = ("a", "b")
    operations = tuple(
        Convolution(name=name, source=k, channels=8, kernel=(3, 3), padding=(1, 1)) for k, name in enumerate(names)
    )
    biases = {k: np.zeros(8, np.float32) for k in range(2)}
    return Program(Plan(((3, 12, 12),), operations, (Output(2),), weights, biases), threads=threads).prepare()


def shared(threads: int) -> Program:
    """Return the network, with threads that share every call, however short it is."""
    program = network(threads)
    for stage in (program._batch, program._single):
        stage.chunk_seconds = SHARED
    return program


def images(count: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((count, 3, 12, 12)).astype(np.float32)


def test_helpers_play_calls_that_follow_closely_or_after_a_rest() -> None:
    program, alone = shared(3), network(1)
    x = images(1)
    expected = alone(x)
    for pause in [0.0] * 300 + [1e-5, 3e-5, 1e-4, 3e-4, 0.01] * 6:  # helpers fall asleep after some 30 µs
        time.sleep(pause)
        np.testing.assert_allclose(program(x), expected, rtol=1e-4, atol=1e-4)
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("rvsm-")] >= ["rvsm-1", "rvsm-2"]


def test_a_team_has_one_caller_at_a_time_and_runs_alone_once_dismissed() -> None:
    mine = Team()
    assert mine.acquire()
    assert not mine.acquire()
    mine._hire(2)
    helpers = list(mine._helpers)
    assert all(thread.is_alive() for thread in helpers)
    mine.release()
    mine.dismiss()
    assert not any(thread.is_alive() for thread in helpers)
    assert not mine.acquire()


def call_forever(program: Program, x: np.ndarray) -> None:
    while True:
        program(x)


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs signals to threads")
def test_an_interrupt_is_raised_when_the_helpers_have_ended() -> None:
    program, x = shared(2), images(4000)
    expected = program(x)
    main = threading.main_thread().ident or 0
    interrupts = [threading.Timer(delay, signal.pthread_kill, (main, signal.SIGINT)) for delay in (0.02, 0.05)]
    for interrupt in interrupts:
        interrupt.start()
        with pytest.raises(KeyboardInterrupt):
            call_forever(program, x)
        assert team().acquire(), "the helpers are free again"
        team().release()
    np.testing.assert_array_equal(program(x), expected)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_process_ends_at_once_with_helpers_awake_or_asleep(tmp_path: Path) -> None:
    """Native code that is still running when its memory is given back would end the process by a signal."""
    network(2).save(tmp_path / "network.rvsm")
    code = f"""
import os, sys, time
import numpy as np
from rvsm.runtime import load
program, x = load(sys.argv[1], threads=2), np.zeros((1, 3, 12, 12), np.float32)
for stage in (program._batch, program._single):
    stage.chunk_seconds = {SHARED}
program(x)
children = []
for pause in [0.0] * 20 + [0.001] * 5:
    if (child := os.fork()) == 0:
        program(x)
        time.sleep(pause)
        sys.exit(0)
    children.append(child)
print([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])
"""
    command = [sys.executable, "-c", code, str(tmp_path / "network.rvsm")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout.strip(), done.returncode) == (str([0] * 25), 0), done.stderr
