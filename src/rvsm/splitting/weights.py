"""The weights of torch's modules: their names, how they are computed, and which cannot be sparsified."""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.nn.utils.parametrizations import _WeightNorm
from torch.nn.utils.parametrize import ParametrizationList
from torch.nn.utils.weight_norm import WeightNorm
from torch.optim.swa_utils import AveragedModel

from rvsm.metrics import is_transposed_linear
from rvsm.splitting.notices import warn

_REMOVE = (
    "remove the computation first (torch.nn.utils.parametrize.remove_parametrizations, remove_weight_norm,"
    " remove_spectral_norm or prune.remove), so that the weight is a parameter again"
)


def unwrap(model: nn.Module) -> nn.Module:
    """Return the module inside a wrapper that compiles, parallelizes or averages it; its names are the user's."""
    *_, innermost = inside(model)
    return innermost


def inside(model: nn.Module) -> Iterator[nn.Module]:
    """Yield a module and, as long as it is such a wrapper, the module inside it."""
    yield model
    if isinstance(inner := getattr(model, "_orig_mod", None), nn.Module):
        yield from inside(inner)
    elif isinstance(model, nn.parallel.DistributedDataParallel | nn.DataParallel | AveragedModel):
        yield from inside(model.module)


def weight_names(module: nn.Module) -> list[str]:
    """Return the names of a module's weights, by its type, whether they are parameters or computed."""
    if isinstance(module, _ConvNd | nn.Linear) or is_transposed_linear(module):
        return ["weight"]
    if isinstance(module, nn.MultiheadAttention):
        return ["in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"]
    if isinstance(module, nn.RNNBase):  # input, hidden and projection weights of each layer and direction
        return [name for name in module._flat_weights_names if name.startswith("weight")]
    if isinstance(module, nn.RNNCellBase):
        return ["weight_ih", "weight_hh"]
    return []


def warn_of_computed(name: str) -> None:
    """Warn that a weight of a selected type is not sparsified, since it is not a parameter."""
    warn(
        f"{name!r} is computed from other parameters (weight_norm, spectral_norm, prune, …) and is not sparsified;"
        f" {_REMOVE}"
    )


def computes_weights(module: nn.Module) -> bool:
    """Return whether a module's parameters are parts from which a weight is computed."""
    return isinstance(module, ParametrizationList) or any(w not in module._parameters for w in weight_names(module))


def require_no_directions(model: nn.Module, names: Iterable[str]) -> None:
    """Raise if one of the named parameters is the direction v of a weight norm w = g·v/‖v‖, whose rows must not be 0.

    g can be sparsified: its zeros are zero rows of w.
    """
    if found := sorted(set(names) & set(_directions(model))):
        raise ValueError(
            f"{found[0]!r} is the direction v of a weight norm w = g·v/‖v‖, and a zero row of v makes w NaN; {_REMOVE}"
        )


def _directions(model: nn.Module) -> Iterator[str]:
    """Yield the names of the directions, for both kinds of weight norm in torch."""
    for prefix, module in model.named_modules(remove_duplicate=False):
        before = f"{prefix}." if prefix else ""
        yield from (f"{before}{hook.name}_v" for hook in module._forward_pre_hooks.values() if type(hook) is WeightNorm)
        if isinstance(module, ParametrizationList) and any(isinstance(part, _WeightNorm) for part in module):
            yield f"{before}original1"


def require_values(name: str, w: Tensor) -> None:
    """Raise for a tensor that has a shape but no values."""
    if w.is_meta:
        raise ValueError(
            f"{name!r} is on the device 'meta' and has no values; move the model to a device with"
            " model.to_empty(device='cpu') and load its weights before sparsifying it"
        )


def require_dense_gradient(name: str, gradient: Tensor | None) -> None:
    """Raise if the gradient is sparse, because the pull acts on all weights and cannot be added to it."""
    if gradient is not None and gradient.layout != torch.strided:
        raise ValueError(
            f"{name!r} has a sparse gradient, but decoupled=False must add the pull of all its weights to it; leave"
            " the pull decoupled, or construct the embedding with sparse=False"
        )


def require_trainable(name: str, w: Tensor) -> None:
    """Raise for tensors that cannot be pulled: those without values, and types with too little precision."""
    require_values(name, w)
    if w.is_complex():
        raise ValueError(f"{name!r} is complex, but penalties need real weights; leave it out with exclude=[...]")
    if w.dtype not in (torch.float32, torch.float64):
        raise ValueError(
            f"{name!r} is {str(w.dtype).removeprefix('torch.')}, in which a pull of less than one part in 128 is"
            " rounded away and the weight never moves; keep the weights in float32 and use torch.autocast for speed"
        )
