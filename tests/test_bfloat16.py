import os
import subprocess
import sys

import pytest
import torch

from rvsm import bfloat16
from rvsm.bench import compare
from rvsm.config import Training
from rvsm.train.hardware import place


def test_here_products_of_bfloat16_do_not_crash() -> None:
    # conftest.py sets the variable where they would.
    assert not bfloat16.crashes()
    assert (torch.ones(8, 8, dtype=torch.bfloat16) @ torch.ones(8, 8, dtype=torch.bfloat16))[0, 0] == 8


@pytest.fixture
def crashing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that announces AMX, on which the product ends its process as an illegal instruction does."""
    monkeypatch.setattr(bfloat16, "_announces_amx", lambda: True)
    monkeypatch.setattr(bfloat16, "_PRODUCT", "import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    monkeypatch.setattr(bfloat16, "crashes", bfloat16.crashes.__wrapped__)


@pytest.mark.usefixtures("crashing")
def test_a_machine_on_which_they_do() -> None:
    assert bfloat16.crashes()
    assert place(Training(precision="auto", device="cpu")).precision == "float32"
    with pytest.raises(ValueError, match=r"announces AMX .* choose float32, or set .* ONEDNN_MAX_CPU_ISA"):
        place(Training(precision="bfloat16", device="cpu"))
    compared = compare(
        torch.nn.Linear(4, 4).eval(), torch.randn(1, 4), batches=[1], engines=["PyTorch", "PyTorch, bfloat16"], rounds=1
    )
    assert [m.problem for m in compared.measurements] == [None, "products of bfloat16 crash on this machine"]


def test_without_amx_the_variable_is_enough() -> None:
    variable, value = bfloat16.WITHOUT_AMX
    found = subprocess.run(
        [sys.executable, "-c", "from rvsm import bfloat16; print(bfloat16.crashes())"],
        env={**os.environ, variable: value}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert found.stdout == "False\n"
