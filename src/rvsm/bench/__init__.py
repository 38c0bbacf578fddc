"""Engines side by side: the sparse runtime and what a user could run instead."""

from rvsm.bench.commands import bench, pack
from rvsm.bench.comparison import Comparison, Measurement, compare
from rvsm.bench.engines import ENGINES

__all__ = ["ENGINES", "Comparison", "Measurement", "bench", "compare", "pack"]
