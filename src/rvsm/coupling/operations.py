"""How operations treat channels: which keep them separate, and which need all of them.

Operations are identified by their autograd names, without the suffix "Backward0".
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

from torch import nn
from torch.nn.modules.conv import _ConvNd

# These treat each channel separately. Pooling in channels-last order ends with AsStrided.
_CHANNELWISE = {
    "Abs", "Add", "Alias", "AsStrided", "Celu", "Clamp", "ClampMax", "ClampMin", "Clone", "ConstantPadNd", "Cos",
    "Div", "Elu", "Erf", "Exp", "Gelu", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "LeakyRelu", "Log",
    "Log1P", "LogSigmoid", "Mish", "Mul", "NativeDropout", "Neg", "Pow", "PreluKernel", "Reciprocal", "Relu", "Rsqrt",
    "Selu", "Sigmoid", "Silu", "Sin", "Softplus", "Softshrink", "Sqrt", "Squeeze", "Sub", "Tanh", "Threshold",
    "ToCopy", "Unsqueeze", "AvgPool2D", "AvgPool3D", "AdaptiveAvgPool2D", "AdaptiveAvgPool3D", "AdaptiveMaxPool2D",
    "AdaptiveMaxPool3D", "MaxPool2DWithIndices", "MaxPool3DWithIndices", "MkldnnMaxPool2D", "ReflectionPad1D",
    "ReflectionPad2D", "ReflectionPad3D", "ReplicationPad1D", "ReplicationPad2D", "ReplicationPad3D",
    "UpsampleNearest1D", "UpsampleNearest2D", "UpsampleNearest3D", "UpsampleNearestExact2D", "UpsampleLinear1D",
    "UpsampleBilinear2D", "UpsampleBicubic2D", "UpsampleTrilinear3D",
}  # fmt: skip
# These reduce some dimensions.
_REDUCTIONS = {"Mean", "Sum", "Amax", "Amin", "Max", "Min", "Std", "Var", "LinalgVectorNorm", "Softmax", "LogSoftmax"}
# A linear layer consists of these if its input has more than two dimensions.
_OF_LINEAR = {"Addmm", "Mm", "T"}

# Torch-Pruning's kinds of nodes.
_MIXING_NORMS = ("LN", "GN")
_FIXED_SIZES = ("MHA", "LSTM", "EMBED", "PARAMETER", "CUSTOMIZED")
_DIVISIONS = ("SPLIT", "SLICE", "UNBIND")


def reason_to_stay(kind: str, node: Any, uses: Counter[int]) -> str | None:
    """Return why the channels at a node of Torch-Pruning's graph must stay; None if they can be removed.

    ``uses`` maps the identity of a parameter to the number of modules that have it.
    """
    module = node.module
    own = list(module.parameters(recurse=False)) if isinstance(module, nn.Module) else []
    computed = isinstance(module, _ConvNd | nn.Linear) and module._parameters.get("weight") is None
    reasons: dict[str, Callable[[], bool]] = {
        "it is an output of the network": lambda: kind == "OUTPUT",
        f"{type(module).__name__} normalises over it": lambda: kind in _MIXING_NORMS,
        f"the size of {type(module).__name__} is fixed": lambda: kind in _FIXED_SIZES,
        f"forward splits the channels at fixed positions, by {kind.lower()}": lambda: kind in _DIVISIONS,
        f"{_operation(node).lower()} runs over it": lambda: kind == "ELEMENTWISE" and _runs_over_channels(node),
        "its weights are tied": lambda: any(uses[id(w)] > 1 for w in own),
        "its weight is computed from others": lambda: computed,
        "the groups of its convolution cannot be made smaller": lambda: _has_fixed_groups(module),
    }
    return next((reason for reason, holds in reasons.items() if holds()), None)


def unknown_operation(kind: str, node: Any) -> str | None:
    """Return the name of an operation that cannot be followed; None if it can."""
    if kind == "CONCAT":
        return None if node.module.offsets else "cat"  # without offsets, it is not along the channels
    if kind == "EXPAND":
        return "expand"
    name = _operation(node)
    known = kind != "ELEMENTWISE" or name in _CHANNELWISE or name in _REDUCTIONS or _is_in_linear(node)
    return None if known else name.lower()


def _operation(node: Any) -> str:
    name = node.grad_fn.name() if hasattr(node.grad_fn, "name") else "unknown"
    return str(name).rpartition("::")[2].rstrip("0123456789").removesuffix("Backward")


def _is_in_linear(node: Any) -> bool:
    if _operation(node) not in _OF_LINEAR or len(node.outputs) != 1:
        return False
    return isinstance(node.outputs[0].module, nn.Linear) or _is_in_linear(node.outputs[0])


def _runs_over_channels(node: Any) -> bool:
    """Return whether a reduction runs over the channels.

    Channels are the second dimension. For tokens, which have three dimensions, this is not known; a wrong guess is
    detected when the smaller network is compared with the original.
    """
    if _operation(node) not in _REDUCTIONS:
        return False
    function = node.grad_fn
    reduced = getattr(function, "_saved_self", getattr(function, "_saved_result", None))
    sizes = getattr(function, "_saved_self_sym_sizes", None if reduced is None else reduced.shape)
    dims = getattr(function, "_saved_dim", None)
    if dims is None or sizes is None:  # it runs over all dimensions, or they are unknown
        return True
    # Autograd stores a negative dimension as an unsigned integer.
    signed = [d - 2**64 if d >= 2**63 else d for d in (dims if isinstance(dims, tuple | list) else (dims,))]
    return len(sizes) != 3 and 1 in {d % len(sizes) for d in signed}


def _has_fixed_groups(module: Any) -> bool:
    if not isinstance(module, _ConvNd) or module.groups == 1:
        return False
    depthwise = module.groups == module.in_channels == module.out_channels
    return not depthwise and (module.transposed or module.groups == module.out_channels)
