"""Engines side by side: the sparse runtime and what a user could run instead."""

from rvsm.bench.commands import bench, measure, pack
from rvsm.bench.comparison import Comparison, Measurement, compare
from rvsm.bench.engines import ENGINES, OURS

__all__ = ["ENGINES", "OURS", "Comparison", "Measurement", "bench", "compare", "measure", "pack"]
