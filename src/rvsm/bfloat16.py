"""Whether bfloat16 can be used for products on this machine."""

import functools
import subprocess
import sys
from pathlib import Path

WITHOUT_AMX = ("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
"""The environment variable, and its value, with which oneDNN multiplies bfloat16 by other instructions than AMX."""

_PRODUCT = "import torch; x = torch.ones(64, 64, dtype=torch.bfloat16); x @ x"


@functools.cache
def crashes() -> bool:
    """Return whether a product of bfloat16 matrices ends the process.

    Some virtual machines announce AMX although its instructions are illegal there. oneDNN relies on the announcement,
    and the process is killed by SIGILL. Only another process can find out. It takes a second, so it is started only
    where AMX is announced.
    """
    return _announces_amx() and subprocess.run([sys.executable, "-P", "-c", _PRODUCT], check=False).returncode != 0


def _announces_amx() -> bool:
    try:
        return "amx_tile" in Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return False
