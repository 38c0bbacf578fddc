"""What a training leaves behind: a folder that survives a kill at any moment, without pickle."""

from rvsm.records.outcome import Histogram, Layer, Outcome, Runtime, Speed, speed_of
from rvsm.records.record import Evaluation, Record
from rvsm.records.run import Run, folder_of, locked
from rvsm.records.states import DamagedError, check_weights, load_weights

__all__ = [
    "DamagedError",
    "Evaluation",
    "Histogram",
    "Layer",
    "Outcome",
    "Record",
    "Run",
    "Runtime",
    "Speed",
    "check_weights",
    "folder_of",
    "load_weights",
    "locked",
    "speed_of",
]
