"""What a checkpoint needs besides the model: the state of the random generators, and checks of all that it holds.

Nothing in a checkpoint is trusted. The checksum detects damage, but does not show who wrote the file. Torch itself
checks some of it, such as the names and shapes of the weights of a model.
"""

import random
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from rvsm.optimizers import OptimizerOptions
from rvsm.records import load_weights

_KINDS: dict[str, tuple[type, ...]] = {
    "step": (int,),
    "config": (Mapping,),
    "images": (str,),
    "seconds": (int, float),
    "running": (Mapping,),
    "model": (Mapping,),
    "optimizer": (Mapping,),
    "method": (Mapping, type(None)),
    "random": (Mapping,),
}


def check_state(state: Any, *, steps: int, running: Mapping[str, Any]) -> None:
    """Raise unless a state is complete, its numbers are within bounds, and its sums are named as the running ones."""
    if not isinstance(state, Mapping):
        raise ValueError(f"expected a table but found a {type(state).__name__}")
    for key, kinds in _KINDS.items():
        if not isinstance(state.get(key), kinds) or isinstance(state[key], bool):
            raise ValueError(f"its {key!r} should be a {kinds[0].__name__} but is a {type(state.get(key)).__name__}")
    if not 0 <= state["step"] <= steps:
        raise ValueError(f"its step should be in [0, {steps}] but is {state['step']}")
    sums = state["running"]
    if sums.keys() != running.keys() or not all(_is_finite(n) and n >= 0 for n in (state["seconds"], *sums.values())):
        raise ValueError(f"its seconds, and the sums {', '.join(running)}, should be finite numbers ≥ 0")


def optimizer_state(saved: Mapping[str, Any], optimizer: Optimizer, options: OptimizerOptions) -> dict[str, Any]:
    """Return the saved state of an optimizer with the options of this one, or raise if it is for other parameters.

    A step with a copy of a parameter shows what torch stores for it. The saved state may differ from this only in its
    values. Options such as the momentum come from the configuration, not from the checkpoint.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    kept = saved.get("state")
    if not isinstance(kept, Mapping):
        raise ValueError("the optimizer's state should be a table")
    for index, found in kept.items():
        if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < len(parameters):
            raise ValueError(f"the optimizer has {len(parameters)} parameters, but its state has one called {index!r}")
        expected = _kept_for(parameters[index], options)
        if not isinstance(found, Mapping) or _form(found) != _form(expected):
            raise ValueError(f"the optimizer's state of parameter {index} should be {_form(expected)}")
    return {"state": dict(kept), "param_groups": optimizer.state_dict()["param_groups"]}


def initial_weights(source: Path) -> dict[str, Any]:
    """Return the weights that a training begins with, from a safetensors file or the folder of a finished run."""
    file = source / "model.safetensors" if source.is_dir() else source
    if not file.exists():
        raise ValueError(f"model.weights: there is no file {file}; give a .safetensors file or a finished run")
    if file.suffix != ".safetensors":
        raise ValueError(
            f"model.weights: {file} is not a .safetensors file; other formats are pickled and can run any program;"
            " convert it with safetensors.torch.save_file(torch.load(FILE, weights_only=True), NAME)"
        )
    return load_weights(file)


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
    _check_numpy_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    if state["cuda"] is not None:
        torch.cuda.set_rng_state(state["cuda"], device)
    random.setstate(state["python"])
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))


def _check_numpy_state(state: Sequence[Any]) -> None:
    """Raise unless this is a state of NumPy's generator, which does not check the position that it reads from."""
    kind, keys, place, has_gauss, gauss = state
    if kind != "MT19937" or not isinstance(keys, Tensor) or keys.dtype != torch.int64 or keys.shape != (624,):
        raise ValueError("the state of NumPy's random generator should be MT19937 with 624 keys")
    whole = isinstance(place, int) and isinstance(has_gauss, int)
    if not whole or not 0 <= place <= 624 or has_gauss not in (0, 1) or not _is_finite(gauss):
        raise ValueError("the state of NumPy's random generator should have a position in [0, 624]")


def _kept_for(parameter: Tensor, options: OptimizerOptions) -> Mapping[str, Any]:
    copy = nn.Parameter(parameter.detach().clone())
    copy.grad = torch.zeros_like(copy)
    trial = options.build([copy])
    trial.step()
    return dict(trial.state[copy])


def _form(kept: Mapping[str, Any]) -> dict[str, str]:
    """Return the type of each value, and for tensors the dtype and shape."""
    return {
        str(name): f"{value.dtype} {list(value.shape)}" if torch.is_tensor(value) else type(value).__name__
        for name, value in kept.items()
    }


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300 and isfinite(value)
