"""Run a packed network without PyTorch: python run_without_torch.py digits.rvsm digits.npz (from train_plain.py)."""

import sys

import numpy as np

import rvsm

program = rvsm.runtime.load(sys.argv[1])
digits = np.load(sys.argv[2])
scores = program(digits["images"])
print(program.explain())
print(f"accuracy: {(scores.argmax(1) == digits['labels']).mean():.1%}; torch is loaded: {'torch' in sys.modules}")
