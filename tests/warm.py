"""Imported by the server that processes.py forks from: all that a training imports, and what it computes once."""

import torch

import rvsm.cli
import rvsm.compare
import rvsm.config
import rvsm.lowering
import rvsm.sweep
import rvsm.train
from rvsm.data import Digits

torch.set_num_threads(1)
torch.optim.SGD([torch.zeros(1, requires_grad=True)])  # imports torch._dynamo
Digits().load()
rvsm.config.read_config(flags=["--budget.sparsity", "0.5"])
