"""Compare the sparse runtime with other engines."""

from rvsm.bench.commands import bench, measure, pack, profile
from rvsm.bench.comparison import Comparison, Measurement, compare
from rvsm.bench.engines import ENGINES, OURS

__all__ = ["ENGINES", "OURS", "Comparison", "Measurement", "bench", "compare", "measure", "pack", "profile"]
