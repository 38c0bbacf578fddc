"""What a program takes and gives: NumPy arrays, or torch tensors, without importing torch."""

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rvsm.runtime.forms import sizes_of
from rvsm.runtime.operations import Shape


def is_tensor(x: object) -> bool:
    """Say whether ``x`` is a torch tensor."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def checked(x: Any, shape: Shape, form: str) -> NDArray[np.float32]:
    """Return a batch as float32 in one piece, after checking its sizes."""
    array = np.asarray(x.detach().cpu().float().numpy() if is_tensor(x) else x)
    expected = sizes_of(form, shape)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"the input must hold numbers but has dtype {array.dtype}")
    if array.ndim != len(expected) + 1 or array.shape[1:] != expected:
        sizes = ", ".join(["batch", *map(str, expected)])
        raise ValueError(f"the input must have the shape ({sizes}) but has {array.shape}")
    return np.ascontiguousarray(array, dtype=np.float32)


def batch_of(inputs: Sequence[Any]) -> int:
    """Return the number of images, after checking that it is the same for all inputs."""
    sizes = [len(x) for x in inputs]
    if len(set(sizes)) > 1:
        raise ValueError(f"all inputs must have the same batch size but have {sizes}")
    return sizes[0]


def like(array: NDArray[np.float32], example: Any) -> Any:
    """Return ``array`` as a torch tensor if ``example`` is one."""
    return sys.modules["torch"].from_numpy(array) if is_tensor(example) else array
