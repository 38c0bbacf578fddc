"""Train a network: one loop with callbacks, in a folder from which a run can be resumed."""

from rvsm.train.divergence import DivergenceError
from rvsm.train.many import run_all
from rvsm.train.ranks import current_ranks
from rvsm.train.recorder import StoppedError, quoted
from rvsm.train.result import load_network, selection_of
from rvsm.train.session import resume, start, start_or_resume, summary
from rvsm.train.trainer import Callback, Trainer

__all__ = [
    "Callback",
    "DivergenceError",
    "StoppedError",
    "Trainer",
    "current_ranks",
    "load_network",
    "quoted",
    "resume",
    "run_all",
    "selection_of",
    "start",
    "start_or_resume",
    "summary",
]
