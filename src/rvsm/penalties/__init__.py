"""Sparsity penalties, one file each: the cost, its proximal operator, its threshold and the threshold's inverse.

To add a penalty, write a file with a frozen dataclass like those here and add a line to `PENALTIES`.
"""

from rvsm.penalties.base import Penalty
from rvsm.penalties.grouped import Grouped
from rvsm.penalties.l0 import L0
from rvsm.penalties.l1 import L1
from rvsm.penalties.lhalf import LHalf
from rvsm.penalties.logsum import LogSum
from rvsm.penalties.mcp import MCP
from rvsm.penalties.scad import SCAD
from rvsm.penalties.tl1 import TransformedL1

PENALTIES: dict[str, type[Penalty]] = {
    "l0": L0,
    "l1": L1,
    "tl1": TransformedL1,
    "mcp": MCP,
    "scad": SCAD,
    "lhalf": LHalf,
    "logsum": LogSum,
}

__all__ = [
    "L0",
    "L1",
    "MCP",
    "PENALTIES",
    "SCAD",
    "Grouped",
    "LHalf",
    "LogSum",
    "Penalty",
    "TransformedL1",
]
