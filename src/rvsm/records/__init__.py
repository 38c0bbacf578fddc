"""What a training leaves behind: a folder that survives a kill at any moment, without pickle."""

from rvsm.records.checkpoint import DamagedError
from rvsm.records.run import Run, folder_of, locked
from rvsm.records.weights import check_weights, load_weights

__all__ = ["DamagedError", "Run", "check_weights", "folder_of", "load_weights", "locked"]
