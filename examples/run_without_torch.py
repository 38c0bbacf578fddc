"""Run a packed network where there is no PyTorch: python run_without_torch.py digits.rvsm (from train_plain.py)."""

import sys

import numpy as np
from sklearn.datasets import load_digits

import rvsm

program = rvsm.runtime.load(sys.argv[1])
digits = load_digits()
images = (digits.images[1400:, None] / 16).astype(np.float32)
scores = program(images)
print(program.explain())
print(f"accuracy: {(scores.argmax(1) == digits.target[1400:]).mean():.1%}; torch is loaded: {'torch' in sys.modules}")
