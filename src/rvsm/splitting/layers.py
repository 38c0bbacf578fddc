"""Which weights are sparsified, and what is known of each."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from rvsm.groups import Element, Grouping
from rvsm.penalties import Grouped, Penalty

Named = Iterable[tuple[str, Tensor]]
"""Pairs of a name and a parameter."""

# Elementwise work goes through the weights in blocks that stay in the cache between two kernels.
_BLOCK = 1 << 18


@dataclass
class Layer:
    """One sparsified tensor.

    Attributes:
        name: the parameter's name in the model.
        w: the parameter; looked up again at each attach, since wrappers may replace it.
        groups: how its weights are grouped.
        penalty: the penalty with its present λ; None means that nothing is penalised now.
        template: the penalty as the user gave it, from which a budget makes the present one.
        beta: the relaxation β (ρ for ADMM); None until it is known.
        sparsity: a target of its own, if it has one.
        multiplications: how often each weight is multiplied per example.
        param_group: the index of the optimizer's parameter group; None if the optimizer does not train it.
        transposed: 0, or the number of groups of a transposed convolution, whose weight is [in, out, *kernel].

    """

    name: str
    w: Tensor
    groups: Grouping = field(default_factory=Element)
    penalty: Penalty | None = None
    template: Penalty | None = None
    beta: float | None = None
    sparsity: float | None = None
    multiplications: float = 1.0
    param_group: int | None = None
    transposed: int = 0

    def at(self, w: Tensor) -> "Layer":
        """Return this layer with another tensor in the place of its parameter."""
        return replace(self, w=w)

    @property
    def elementwise(self) -> bool:
        """Whether each weight stands for itself."""
        return isinstance(self.groups, Element)

    def prox(self, w: Tensor, step: float) -> Tensor:
        """Return the proximal operator of this layer's penalty and groups at ``w``."""
        if self.penalty is None:
            return w.clone()
        if self.elementwise:
            return self.penalty.prox(w, step)
        return self._swapped(Grouped(self.penalty, self.groups).prox(self._swapped(w), step))

    def blocks(self) -> Iterator[Tensor]:
        """Yield views that cover w, small enough to stay in the cache; w as a whole if its weights are grouped."""
        flat = _flat(self.w) if self.elementwise else None
        if flat is None:
            yield self.w
        else:
            yield from torch.split(flat, _BLOCK)

    def penalty_value(self, u: Tensor) -> float:
        """Return λP(u)."""
        if self.penalty is None:
            return 0.0
        if self.elementwise:
            return float(self.penalty.value(u))
        return float(Grouped(self.penalty, self.groups).value(self._swapped(u)))

    def magnitudes(self, w: Tensor) -> Tensor:
        """Return the magnitude of each group of ``w``."""
        return self.groups.magnitudes(self._swapped(w))

    def group_sizes(self) -> Tensor:
        """Return the number of weights of each group, broadcastable to the shape of the magnitudes."""
        return self.groups.sizes(self._swapped(self.w))

    def spread(self, values: Tensor) -> Tensor:
        """Give each weight the value of its group, in the memory order of w."""
        spread = self.groups.spread(values, self._swapped(self.w))
        return torch.empty_like(self.w, dtype=values.dtype).copy_(self._swapped(spread))

    def _swapped(self, w: Tensor) -> Tensor:
        """Change a transposed convolution's [in, out/g, *kernel] into a convolution's [out, in/g, *kernel], or back."""
        if not self.transposed or self.elementwise:
            return w
        return w.reshape(self.transposed, -1, *w.shape[1:]).transpose(1, 2).flatten(0, 1)


def _flat(w: Tensor) -> Tensor | None:
    """View a dense tensor as one dimension in the order of its memory, whatever its layout; None if it has gaps."""
    order = sorted(range(w.dim()), key=w.stride, reverse=True)
    ordered = w.permute(order)
    return ordered.view(-1) if ordered.is_contiguous() else None


def require_finite(layer: Layer) -> None:
    """Raise if a layer holds NaN or infinity."""
    if not torch.isfinite(layer.w.detach().abs().max()):
        raise RuntimeError(
            f"the weights of {layer.name!r} are not finite: the training has diverged; go back to the last good"
            " checkpoint and lower the learning rate"
        )


def require_trainable_dtype(name: str, w: Tensor) -> None:
    """Raise for types too short to be pulled by small steps."""
    if w.dtype not in (torch.float32, torch.float64):
        raise ValueError(
            f"{name!r} is {str(w.dtype).removeprefix('torch.')}, in which a pull of less than one part in 128 is"
            " rounded away and the weight never moves; keep the weights in float32 and use torch.autocast for speed"
        )


def unwrap(model: nn.Module) -> nn.Module:
    """Return the module inside torch.compile's or a data-parallel wrapper, whose names a user knows."""
    while True:
        if isinstance(inner := getattr(model, "_orig_mod", None), nn.Module):
            model = inner
        elif isinstance(model, nn.parallel.DistributedDataParallel | nn.DataParallel):
            model = model.module
        else:
            return model


def select(model: nn.Module | Named, include: Iterable[str] | None, exclude: Iterable[str] | None) -> list[Layer]:
    """Return the tensors to sparsify.

    From a module: the weights of convolutions, linear layers and attention projections, never biases and norms. A tied
    weight counts once. ``include`` and ``exclude`` are shell patterns on parameter names; a pattern without wildcards
    is the name of a parameter and selects it whatever its type. From pairs of name and parameter: all of them.
    """
    if isinstance(model, nn.Module):
        parameters: dict[str, Tensor] = dict(unwrap(model).named_parameters(remove_duplicate=False))
        eligible = dict(_eligible(unwrap(model)))
    else:
        parameters = _checked_pairs(model)
        eligible = dict.fromkeys(parameters, 0)
    patterns = None if include is None else _patterns("include", include)
    chosen = list(eligible)
    if patterns is not None:
        chosen = [name for name in eligible if any(fnmatchcase(name, p) for p in patterns)]
        chosen += [p for p in patterns if p in parameters and p not in eligible]
        _require_match("include", patterns, chosen, parameters)
    if exclude is not None:
        unwanted = _patterns("exclude", exclude)
        _require_match("exclude", unwanted, list(parameters), parameters)
        # By tensor, not by name: a tied weight goes if one of its names does.
        gone = {id(w) for name, w in parameters.items() if any(fnmatchcase(name, p) for p in unwanted)}
        chosen = [name for name in chosen if id(parameters[name]) not in gone]
    layers: dict[int, Layer] = {}
    for name in chosen:
        w = parameters[name]
        if isinstance(w, nn.parameter.UninitializedParameter):
            raise ValueError(f"{name!r} has no shape yet; run one batch through the model before sparsifying it")
        if w.numel():
            layers.setdefault(id(w), Layer(name, w, transposed=eligible.get(name, 0)))
    if not layers:
        raise ValueError(
            "found no weights to sparsify: expected convolutions, linear layers or attention projections"
            f" among {_sample(parameters)}; name the parameters with include=[...]"
        )
    return list(layers.values())


def match(patterns: Mapping[str, Any], names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield (name, pattern) for each pattern, in order, and each name that it matches; a pattern must match one."""
    known = list(names)
    for pattern in patterns:
        matched = [name for name in known if fnmatchcase(name, pattern)]
        if not matched:
            raise ValueError(f"overrides: {pattern!r} matches no sparsified weight; they are {_sample(known)}")
        yield from ((name, pattern) for name in matched)


def _eligible(model: nn.Module) -> Iterator[tuple[str, int]]:
    """Yield the names of weights that the type rule selects, with the groups of transposed convolutions (else 0)."""
    for prefix, module in model.named_modules(remove_duplicate=False):
        if isinstance(module, _ConvNd | nn.Linear):
            weights = ["weight"]
        elif isinstance(module, nn.MultiheadAttention):
            weights = ["in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"]
        else:
            continue
        transposed = module.groups if isinstance(module, _ConvTransposeNd) else 0
        for weight in weights:
            if module._parameters.get(weight) is not None:
                yield f"{prefix}.{weight}" if prefix else weight, transposed


def _checked_pairs(pairs: Named) -> dict[str, Tensor]:
    expected = "expected a torch.nn.Module or an iterable of (name, parameter)"
    try:
        listed = list(pairs)
    except TypeError:
        raise TypeError(f"{expected} but got {type(pairs).__name__}") from None
    for pair in listed:
        if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str) and torch.is_tensor(pair[1])):
            raise TypeError(f"{expected} but the iterable holds {type(pair).__name__}; pass model.named_parameters()")
    return dict(listed)


def _patterns(argument: str, patterns: Iterable[str]) -> list[str]:
    if isinstance(patterns, str):
        raise TypeError(f"{argument} must be a list of patterns but is the string {patterns!r}; write [{patterns!r}]")
    return list(patterns)


def _require_match(argument: str, patterns: list[str], names: list[str], parameters: Mapping[str, Tensor]) -> None:
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ValueError(f"{argument}: {pattern!r} matches no weight; the parameters are {_sample(parameters)}")


def _sample(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:8]) + (f", … ({len(listed)} in all)" if len(listed) > 8 else "") or "(none)"
