"""The global random number generators of torch, Python and NumPy."""

import random
from typing import Any

import numpy as np
import torch

from rvsm.train.restoring import check_numpy_state


def seed_all(seed: int) -> None:
    """Seed the generators of torch, Python and NumPy, which a user's model may use."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)


def random_state(device: str) -> dict[str, Any]:
    """Return the states of all generators."""
    kind, keys, *rest = np.random.get_state()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state(device) if torch.device(device).type == "cuda" else None,
        "python": random.getstate(),
        "numpy": (kind, torch.from_numpy(np.array(keys, dtype=np.int64)), *rest),
    }


def set_random_state(state: dict[str, Any], device: str) -> None:
    """Restore the states of all generators; an invalid state is an error."""
    check_numpy_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    if state["cuda"] is not None:
        torch.cuda.set_rng_state(state["cuda"], device)
    random.setstate(state["python"])
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))
