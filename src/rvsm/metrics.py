"""Pure functions of weights w and their sparse copy u: sparsity, distance and cost.

Sparsity has two denominators, the sparsified weights and all parameters. A figure without its denominator means little,
so the names here always say which one is used.
"""

import reprlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import prod, sqrt
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.nn.utils.rnn import PackedSequence

from rvsm.modes import modes_kept


@dataclass(frozen=True)
class LayerStatistics:
    """One sparsified tensor: its zeros, its distance ‖w − u‖ from the sparse copy, and the λ and β that act on it.

    If weights are grouped, ``groups`` is the number of groups and ``zero_groups`` the number of zero groups.
    """

    name: str
    shape: tuple[int, ...]
    zeros: int
    gap: float
    threshold: float
    lam: float | None
    beta: float | None
    groups: int | None = None
    zero_groups: int = 0

    @property
    def weights(self) -> int:
        """The number of weights in the tensor."""
        return prod(self.shape)

    @property
    def sparsity(self) -> float:
        """The fraction of zeros."""
        return self.zeros / self.weights


@dataclass(frozen=True)
class Statistics:
    """All sparsified tensors of a model at one step; u is the sparse copy that would be written now."""

    layers: tuple[LayerStatistics, ...]  # one entry for each sparsified tensor
    parameters: int  # the total number of parameters of the model
    parameter_zeros: int  # the number of parameters that would be zero, sparsified or not
    penalty: float  # ΣλP(u)
    coupling: float  # Σ(β/2)‖w − u‖²
    speedup: float | None = None  # the predicted speed of u in the runtime, relative to the dense network, if known
    multiplications_saved: float | None = None  # the fraction of the multiplications of these layers, if they count

    @property
    def sparsity(self) -> float:
        """The fraction of zeros among the sparsified weights."""
        return sum(layer.zeros for layer in self.layers) / sum(layer.weights for layer in self.layers)

    @property
    def sparsity_of_all(self) -> float:
        """The fraction of zeros among all parameters of the model."""
        return self.parameter_zeros / self.parameters

    @property
    def group_sparsity(self) -> float | None:
        """The fraction of zero groups in the layers whose weights are grouped; None if there are none."""
        groups = sum(layer.groups or 0 for layer in self.layers)
        return sum(layer.zero_groups for layer in self.layers) / groups if groups else None

    @property
    def gap(self) -> float:
        """‖w − u‖ over all sparsified weights."""
        return sqrt(sum(layer.gap**2 for layer in self.layers))

    def lagrangian(self, loss: float) -> float:
        """Return ℒ(w, u) = f(w) + λP(u) + (β/2)‖w − u‖² for the loss f(w).

        With a budget, it is comparable between steps only while λ is fixed.
        """
        return loss + self.penalty + self.coupling

    def __str__(self) -> str:
        width = max(len("layer"), *(len(layer.name) for layer in self.layers))
        grouped = [layer for layer in self.layers if layer.groups is not None]
        head = f"{'layer':{width}}  {'shape':>18}  {'zeros':>8}"
        head += f"  {'zero groups':>15}" * bool(grouped) + f"  {'threshold':>10}  {'λ':>10}"
        rows = [
            f"{layer.name:{width}}  {'×'.join(map(str, layer.shape)):>18}  {layer.sparsity:8.2%}"
            + (f"  {_of(layer.zero_groups, layer.groups):>15}" if grouped else "")
            + f"  {layer.threshold:10.3g}  {'-' if layer.lam is None else format(layer.lam, '10.3g'):>10}"
            for layer in self.layers
        ]
        others = self.parameters - sum(layer.weights for layer in self.layers)
        of_all = f", {self.sparsity_of_all:.2%} of all {self.parameters:,} parameters" if others else ""
        fraction = "" if self.group_sparsity is None else f", {self.group_sparsity:.2%} of the groups"
        total = f"{self.sparsity:.2%} of the sparsified weights are zero{fraction}{of_all}; ‖w − u‖ = {self.gap:.4g}"
        if self.multiplications_saved is not None:
            total += f"; {self.multiplications_saved:.2%} of their multiplications are saved"
        if self.speedup is not None:
            total += f"; {self.speedup:.2f} × as fast as dense, as predicted"
        return "\n".join([head, *rows, total])


def _of(part: int, whole: int | None) -> str:
    return "-" if whole is None else f"{part:,} of {whole:,}"


def zeros(w: Tensor) -> int:
    """Return the number of exact zeros.

    >>> zeros(torch.tensor([0.0, -0.0, 1e-30]))
    2
    """
    return w.numel() - int(w.count_nonzero())


def sparsity(tensors: Iterable[Tensor]) -> float:
    """Return the fraction of exact zeros among all entries of the tensors.

    >>> sparsity([torch.zeros(3), torch.ones(1)])
    0.75
    """
    listed = list(tensors)
    return sum(map(zeros, listed)) / max(sum(w.numel() for w in listed), 1)


def multiplications(model: nn.Module, example_input: Tensor | tuple[Any, ...]) -> dict[str, float]:
    """Return, for each weight tensor, how often each of its weights is multiplied per example.

    A weight of a convolution is used at every output position, one of a linear layer for every row, one of a recurrent
    layer at every time step. A tied weight is used in several places, and all its names get the sum. The counts come
    from one forward pass over ``example_input``, whose first dimension is the batch.

    >>> model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(32, 10))
    >>> multiplications(model, torch.zeros(5, 1, 6, 6))
    {'0.weight': 16.0, '2.weight': 1.0}
    """
    inputs = example_input if isinstance(example_input, tuple) else (example_input,)
    if not torch.is_tensor(inputs[0]):
        raise TypeError(
            "example_input must be a batch of inputs, as a tensor or a tuple of tensors, but is"
            f" {reprlib.repr(example_input)}"
        )
    batch = inputs[0].shape[0]
    counts: dict[str, float] = {}

    def watch(name: str, module: nn.Module) -> Callable[..., None]:
        def count(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            for weight, uses in _uses(module, args, kwargs, output):
                key = f"{name}.{weight}" if name else weight
                counts[key] = counts.get(key, 0.0) + uses / batch

        return count

    handles = [
        module.register_forward_hook(watch(name, module), with_kwargs=True) for name, module in model.named_modules()
    ]
    try:
        with torch.no_grad(), modes_kept(model):
            model.eval()(*inputs)
    except RuntimeError as error:
        shapes = ", ".join(str(list(x.shape)) if torch.is_tensor(x) else type(x).__name__ for x in inputs)
        reason = (str(error).splitlines() or [""])[0]
        raise ValueError(
            f"the model cannot compute example_input of shape {shapes}: {reason}; give it a batch as in training"
        ) from error
    finally:
        for handle in handles:
            handle.remove()
    tensors = dict(model.named_parameters(remove_duplicate=False))
    totals: dict[int, float] = {}
    for name, uses in counts.items():
        if name in tensors:
            totals[id(tensors[name])] = totals.get(id(tensors[name]), 0.0) + uses
    return {name: totals[id(w)] for name, w in tensors.items() if id(w) in totals}


def is_transposed_linear(module: object) -> bool:
    """Return whether a module is the ``Conv1D`` of Transformers (GPT-2): a linear layer whose weight is [in, out].

    It is recognised by its name, so Transformers need not be installed.
    """
    kinds = type(module).__mro__
    return any(kind.__name__ == "Conv1D" and kind.__module__.startswith("transformers.") for kind in kinds)


def _uses(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> list[tuple[str, float]]:
    """Return (name of the weight, multiplications per weight) for one call of a module."""
    if isinstance(module, _ConvTransposeNd):
        return [("weight", (args[0] if args else kwargs["input"]).numel() / module.in_channels)]
    if isinstance(module, _ConvNd):
        return [("weight", output.numel() / module.out_channels)]
    if isinstance(module, nn.Linear) or is_transposed_linear(module):
        return [("weight", output.numel() / output.shape[-1])]
    if isinstance(module, nn.RNNBase | nn.RNNCellBase):
        x = args[0] if args else kwargs["input"]
        steps = (x.data if isinstance(x, PackedSequence) else x).numel() / module.input_size
        return [(name, steps) for name, _ in module.named_parameters(recurse=False) if name.startswith("weight")]
    if isinstance(module, nn.MultiheadAttention):
        given = {**dict(zip(("query", "key", "value"), args, strict=False)), **kwargs}
        q, k, v = (given[name].numel() / given[name].shape[-1] for name in ("query", "key", "value"))
        rows = {"q_proj_weight": q, "k_proj_weight": k, "v_proj_weight": v, "out_proj.weight": q}
        return [*rows.items(), ("in_proj_weight", (q + k + v) / 3)]
    return []
