"""Denormal numbers are zeros while a program runs, and only then."""

import llvmlite.binding as llvm
import numpy as np
import pytest
import torch

from rvsm.runtime import Plan, Program
from rvsm.runtime.kernels.player import Arm64, Mode, Player, mode
from rvsm.runtime.plan.operations import Convolution
from rvsm.runtime.plan.plan import Output, Weights

known = pytest.mark.skipif(type(mode()) is Mode, reason="this CPU's mode is not known")


def program(threads: int) -> Program:
    """Return one that multiplies by a small number."""
    layer = Convolution(name="small", source=0, channels=1, kernel=(1, 1))
    weights, bias = Weights.of(np.full((1, 1, 1, 1), 1e-20, dtype=np.float32)), np.zeros(1, dtype=np.float32)
    return Program(Plan(((1, 8, 8),), (layer,), (Output(1),), {0: weights}, {0: bias}), threads=threads)


def are_kept() -> bool:
    """Return whether arithmetic in this thread gives denormal numbers."""
    return bool((np.full(64, 1e-38, dtype=np.float32) * np.float32(1e-2)).all())


@known
@pytest.mark.parametrize("threads", [1, 2])
def test_they_are_zeros_inside(threads: int) -> None:
    small, x = program(threads), torch.full((64, 1, 8, 8), 1e-20)
    assert float((1e-20 * x).min()) > 0
    assert not small(x).any()
    assert float(small(1e10 * x).min()) > 0


@known
def test_the_caller_keeps_its_own_mode() -> None:
    small, x = program(1), torch.full((64, 1, 8, 8), 1e-20)
    assert are_kept()
    small(x)
    assert are_kept()
    assert torch.set_flush_denormal(True)
    try:
        assert not are_kept()
        small(x)
        assert not are_kept()
    finally:
        torch.set_flush_denormal(False)


def test_the_text_for_arm64_is_code() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    triple = "aarch64-unknown-linux-gnu"
    module = llvm.parse_assembly(Player(Arm64()).code())
    module.triple = triple
    machine = llvm.Target.from_triple(triple).create_target_machine()
    code = machine.emit_assembly(module).lower()
    assert code.count("msr\tfpcr") == 2  # flushed at the start, restored at the end
    assert "mrs\tx" in code


def test_the_text_for_an_unknown_cpu_is_code() -> None:
    assert "play" in str(llvm.parse_assembly(Player(Mode()).code()))
