"""Values that do not depend on the network's input: the constants that dead channels leave behind.

The network runs once with NaN as its input. NaN spreads to everything that depends on the input, and values that stay
finite do not depend on it. If a factor is zero, NaN would spread too far, so products are redefined: a result is NaN
only if a NaN meets a non-zero weight.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.utils._python_dispatch import TorchDispatchMode

_aten = torch.ops.aten


def constant_inputs(model: nn.Module, inputs: Sequence[Any]) -> dict[str, Tensor]:
    """Return the constant value of each input channel of each convolution and linear layer; NaN if it is not constant.

    A channel is constant if it is the same for every input, at every position, and at each call of the layer. The
    network must be in evaluation mode.

    >>> model = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 1))
    >>> model[0].weight.data, model[0].bias.data = torch.tensor([[0.0], [1.0]]), torch.tensor([3.0, 3.0])
    >>> constant_inputs(model, [torch.zeros(1, 1)])["2"]
    tensor([3., nan])
    """
    unknown = [torch.full_like(x, torch.nan) if torch.is_tensor(x) and x.is_floating_point() else x for x in inputs]
    with torch.no_grad():
        with _recorded(model) as found, _Spreading():  # type: ignore[no-untyped-call]
            model(*unknown)
        # A real input reveals operations that lose a NaN, such as comparisons.
        with _recorded(model) as real:
            model(*inputs)
    return {name: _common([*found[name], *real.get(name, [])]) for name in found}


@contextmanager
def _recorded(model: nn.Module) -> Iterator[dict[str, list[Tensor]]]:
    """Record the inputs of all convolutions and linear layers, with one row per channel."""
    found: dict[str, list[Tensor]] = {}

    def record(name: str, channel: int, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        x = args[0] if args else kwargs["input"]
        found.setdefault(name, []).append(x.detach().movedim(channel, 0).flatten(1))

    handles = []
    for name, module in model.named_modules():
        if isinstance(module, _ConvNd | nn.Linear):
            channel = -1 - len(module.kernel_size) if isinstance(module, _ConvNd) else -1
            handles.append(module.register_forward_pre_hook(partial(record, name, channel), with_kwargs=True))
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def _common(rows: Sequence[Tensor]) -> Tensor:
    """Return, for each row, the value that all its entries share in all tables; NaN if they differ."""
    values = rows[0][:, 0]
    for table in rows:
        # The order of additions may differ between positions.
        same = torch.isclose(table, values[:, None], rtol=1e-5, atol=0.0).all(dim=1)
        values = torch.where(same, values, torch.nan)
    return values


class _Spreading(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Lets NaN spread to everything that depends on it, and to nothing else."""

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        rule = _RULES.get(func.overloadpacket)
        return func(*args, **(kwargs or {})) if rule is None else rule(func, *args, **(kwargs or {}))


def _product(func: Any, a: Tensor, b: Tensor, bias: Tensor | None = None, *others: Any) -> Any:
    """Return a convolution or matrix product that is NaN only where a NaN meets a non-zero value."""

    def made(a: Tensor, b: Tensor, bias: Tensor | None) -> Any:
        return func(a, b, *([bias] if func is _aten.convolution.default else []), *others)

    meets = made(a.isnan().to(a), (b != 0).to(b), None) + made((a != 0).to(a), b.isnan().to(b), None)
    return made(a.nan_to_num(), b.nan_to_num(), bias).masked_fill(meets > 0.5, torch.nan)


def _sum_and_product(func: Any, bias: Tensor, a: Tensor, b: Tensor, *, alpha: float = 1, beta: float = 1) -> Any:
    return alpha * _product(_aten.mm.default, a, b) + beta * bias


def _times(func: Any, a: Any, b: Any) -> Tensor:
    """Return a product in which zero times anything is zero."""
    product: Tensor = func(a, b)
    zero = torch.as_tensor(a == 0) | torch.as_tensor(b == 0)
    return product.masked_fill(zero, 0.0) if product.is_floating_point() else product


def _batch_norm(func: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, *others: Any) -> Any:
    """Return a batch norm in which a scale of zero yields the shift, whatever the input."""
    result, *rest = func(x, weight, bias, *others)
    if weight is not None and bias is not None:
        shape = (1, -1, *[1] * (x.dim() - 2))
        result = torch.where(weight.view(shape) == 0, bias.view(shape), result)
    return (result, *rest)


def _embedding(func: Any, weight: Tensor, *others: Any, **options: Any) -> Tensor:
    """Return NaN: indices cannot be NaN, but the values that they look up are unknown."""
    return torch.full_like(func(weight, *others, **options), torch.nan)


_RULES: dict[Any, Callable[..., Any]] = {
    _aten.convolution: _product,
    _aten.mm: _product,
    _aten.bmm: _product,
    _aten.addmm: _sum_and_product,
    _aten.mul: _times,
    _aten.mul_: lambda func, a, b: a.copy_(_times(_aten.mul.Tensor, a, torch.as_tensor(b))),
    _aten.native_batch_norm: _batch_norm,
    _aten._native_batch_norm_legit_no_training: _batch_norm,
    _aten.cudnn_batch_norm: _batch_norm,
    _aten.embedding: _embedding,
}
