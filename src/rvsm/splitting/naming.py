"""Which parameters a user means."""

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from inspect import getattr_static

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.optim.swa_utils import AveragedModel

from rvsm.metrics import is_transposed_linear
from rvsm.splitting.computed import require_no_directions, warn_of_computed
from rvsm.splitting.layers import Layer, require_values, require_whole

Named = Iterable[tuple[str, Tensor]]
"""Pairs of a name and a parameter."""


def unwrap(model: nn.Module) -> nn.Module:
    """Return the module inside a wrapper that compiles, parallelizes or averages it, whose names a user knows."""
    *_, innermost = inside(model)
    return innermost


def inside(model: nn.Module) -> Iterator[nn.Module]:
    """Yield a module, and what is inside it as long as it is such a wrapper."""
    yield model
    if isinstance(inner := getattr(model, "_orig_mod", None), nn.Module):
        yield from inside(inner)
    elif isinstance(model, nn.parallel.DistributedDataParallel | nn.DataParallel | AveragedModel):
        yield from inside(model.module)


def parameters_of(model: nn.Module | Named) -> dict[str, Tensor]:
    """Return all parameters by name, tied ones by each of theirs; raise if there are shards among them."""
    if isinstance(model, nn.Module):
        parameters: dict[str, Tensor] = dict(unwrap(model).named_parameters(remove_duplicate=False))
    else:
        parameters = _checked_pairs(model)
    for name, w in parameters.items():
        require_whole(name, w)
    return parameters


def select(model: nn.Module | Named, include: Iterable[str] | None, exclude: Iterable[str] | None) -> list[Layer]:
    """Return the tensors to sparsify.

    From a module: the weights of convolutions, linear and recurrent layers and attention projections, never biases
    and norms. A tied weight counts once; one that is tied to an embedding is left alone. ``include`` and ``exclude``
    are shell patterns on parameter names; a pattern without wildcards is the name of a parameter and selects it
    whatever its type. From pairs of name and parameter: all of them.
    """
    parameters = parameters_of(model)
    eligible: dict[str, nn.Module | None] = dict.fromkeys(parameters)
    if isinstance(model, nn.Module):
        eligible = dict(_eligible(unwrap(model)))
    patterns = None if include is None else _patterns("include", include)
    embedded = _embedded(model)
    chosen = [name for name in eligible if id(parameters[name]) not in embedded]
    if patterns is not None:
        chosen = [name for name in eligible if any(fnmatchcase(name, p) for p in patterns)]
        chosen = [name for name in chosen if id(parameters[name]) not in embedded or name in patterns]
        chosen += [p for p in patterns if p in parameters and p not in eligible]
        _require_match("include", patterns, chosen, parameters)
    if exclude is not None:
        unwanted = _patterns("exclude", exclude)
        _require_match("exclude", unwanted, list(parameters), parameters)
        # By tensor, not by name: a tied weight goes if one of its names does.
        gone = {id(w) for name, w in parameters.items() if any(fnmatchcase(name, p) for p in unwanted)}
        chosen = [name for name in chosen if id(parameters[name]) not in gone]
    if isinstance(model, nn.Module):
        require_no_directions(unwrap(model), chosen)
    layers: dict[int, Layer] = {}
    for name in chosen:
        w = parameters[name]
        if isinstance(w, nn.parameter.UninitializedParameter):
            raise ValueError(f"{name!r} has no shape yet; run one batch through the model before sparsifying it")
        require_values(name, w)
        if w.numel():
            module = eligible.get(name)
            layers.setdefault(
                id(w),
                Layer(
                    name,
                    w,
                    convolution_groups=module.groups if isinstance(module, _ConvNd) else 1,
                    transposed=isinstance(module, _ConvTransposeNd) or is_transposed_linear(module),
                    named=not isinstance(model, nn.Module) or name in (patterns or ()),
                ),
            )
    if not layers:
        raise ValueError(
            f"found no weights to sparsify: expected some of {_KINDS} among {_sample(parameters)};"
            " name the parameters with include=[...]"
        )
    return list(layers.values())


def match(patterns: Iterable[str], names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield (name, pattern) for each pattern, in order, and each name that it matches; a pattern must match one."""
    known = list(names)
    for pattern in patterns:
        matched = [name for name in known if fnmatchcase(name, pattern)]
        if not matched:
            raise ValueError(f"overrides: {pattern!r} matches no sparsified weight; they are {_sample(known)}")
        yield from ((name, pattern) for name in matched)


_KINDS = "convolutions, linear or recurrent layers or attention projections"


def weight_names(module: nn.Module) -> list[str]:
    """Return the names of a module's weights by the rule of types, whether they are parameters or computed."""
    if isinstance(module, _ConvNd | nn.Linear) or is_transposed_linear(module):
        return ["weight"]
    if isinstance(module, nn.MultiheadAttention):
        return ["in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"]
    if isinstance(module, nn.RNNBase):  # from input and hidden, and the projection; of each layer and direction
        return [name for name in module._flat_weights_names if name.startswith("weight")]
    if isinstance(module, nn.RNNCellBase):
        return ["weight_ih", "weight_hh"]
    return []


def _eligible(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the names of the weights that the rule of types selects, with their modules."""
    for prefix, module in model.named_modules(remove_duplicate=False):
        for weight in weight_names(module):
            name = f"{prefix}.{weight}" if prefix else weight
            if module._parameters.get(weight) is not None:
                yield name, module
            elif getattr_static(module, weight, None) is not None:  # not getattr: spectral_norm would move on
                warn_of_computed(name)


def _embedded(model: nn.Module | Named) -> set[int]:
    """Return the identities of the weights that look up words: each row is one, and few of them have a gradient."""
    modules = unwrap(model).modules() if isinstance(model, nn.Module) else ()
    return {id(m._parameters.get("weight")) for m in modules if isinstance(m, nn.Embedding | nn.EmbeddingBag)}


def _checked_pairs(pairs: Named) -> dict[str, Tensor]:
    expected = "expected a torch.nn.Module or an iterable of (name, parameter)"
    try:
        listed = list(pairs)
    except TypeError:
        raise TypeError(f"{expected} but got {type(pairs).__name__}") from None
    for pair in listed:
        if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str) and torch.is_tensor(pair[1])):
            raise TypeError(f"{expected} but the iterable holds {type(pair).__name__}; pass the module itself")
    named = dict(listed)
    if len(named) < len(listed):
        raise ValueError("two of the parameters have the same name; give each its own")
    return named


def _patterns(argument: str, patterns: Iterable[str]) -> list[str]:
    if isinstance(patterns, str):
        raise TypeError(f"{argument} must be a list of patterns but is the string {patterns!r}; write [{patterns!r}]")
    listed = list(patterns)
    if not all(isinstance(pattern, str) for pattern in listed):
        raise TypeError(f"{argument} must be a list of patterns on parameter names but is {listed!r}")
    return listed


def _require_match(argument: str, patterns: list[str], names: list[str], parameters: Mapping[str, Tensor]) -> None:
    for pattern in patterns:
        if any(fnmatchcase(name, pattern) for name in names):
            continue
        if others := [name for name in parameters if fnmatchcase(name, pattern)]:
            raise ValueError(
                f"{argument}: {pattern!r} matches no weight of {_KINDS}, and a pattern selects no others;"
                f" write the full names: {_sample(others)}"
            )
        raise ValueError(f"{argument}: {pattern!r} matches no weight; the parameters are {_sample(parameters)}")


def _sample(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:8]) + (f", … ({len(listed)} in all)" if len(listed) > 8 else "") or "(none)"
