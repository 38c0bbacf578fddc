"""Select the parameters to sparsify."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from inspect import getattr_static

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from rvsm.metrics import is_transposed_linear
from rvsm.splitting.layers import Layer, Layers
from rvsm.splitting.notices import warn
from rvsm.splitting.shards import drop_gathered, is_distributed, require_known_layout
from rvsm.splitting.weights import (
    computes_weights,
    require_no_directions,
    require_values,
    unwrap,
    warn_of_computed,
    weight_names,
)

Named = Iterable[tuple[str, Tensor]]
"""Pairs of a name and a parameter."""


def parameters_of(model: nn.Module | Named) -> dict[str, Tensor]:
    """Return all parameters by name, tied ones under each of their names; raise if one is divided in an unknown way."""
    if isinstance(model, nn.Module):
        drop_gathered(model)
        parameters: dict[str, Tensor] = dict(unwrap(model).named_parameters(remove_duplicate=False))
    else:
        parameters = _checked_pairs(model)
    for name, w in parameters.items():
        require_known_layout(name, w)
        if is_distributed(w) and not isinstance(model, nn.Module):
            raise ValueError(
                f"{name!r} is a DTensor: pass the module, not pairs of name and parameter. After a forward pass, FSDP2"
                " keeps whole copies of parameters, and these can be dropped only through the module"
            )
    return parameters


def select(model: nn.Module | Named, include: Iterable[str] | None, exclude: Iterable[str] | None) -> Layers:
    """Return the tensors to sparsify.

    From a module, these are the weights of convolutions, linear and recurrent layers and attention projections, never
    biases and norms. A tied weight counts once; a weight that is tied to an embedding is left alone. ``include`` and
    ``exclude`` are shell patterns on parameter names. A pattern without wildcards is the name of a parameter and
    selects it whatever its type. From pairs of name and parameter, all are selected.
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
        # By tensor, not by name: a tied weight is excluded if one of its names is.
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
            f"found no weights to sparsify: expected {_KINDS} among {_sample(parameters)};"
            " name the parameters with include=[...]"
        )
    return Layers(layers.values())


def look_up(model: nn.Module | Named, layers: Sequence[Layer]) -> dict[str, Tensor]:
    """Return the current tensors of layers by name: a wrapper or a loaded checkpoint may have replaced them."""
    if not isinstance(model, nn.Module):
        return {layer.name: layer.parameter for layer in layers}
    parameters = parameters_of(model)
    for layer in layers:
        if layer.name not in parameters:
            raise ValueError(f"{layer.name!r} is no longer a parameter of the model; construct a new method")
        if (shape := parameters[layer.name].shape) != layer.parameter.shape:
            raise ValueError(
                f"{layer.name!r} had shape {list(layer.parameter.shape)} but now has {list(shape)}; release() this"
                " method and construct a new one for the changed model"
            )
    return {layer.name: parameters[layer.name] for layer in layers}


def warn_of_untouched(model: nn.Module, layers: Sequence[Layer], exclude: Iterable[str]) -> None:
    """Warn if the selected layers hold less than half of the weights in a model's matrices, and name the other types.

    A matrix is a parameter with two or more dimensions. Excluded parameters do not count, nor do the parts of computed
    weights, which have their own warning.
    """
    unwanted = list(exclude)
    selected = {id(layer.parameter) for layer in layers}
    seen: set[int] = set()
    touched, others = 0, Counter[str]()
    for prefix, module in model.named_modules():
        for name, w in module.named_parameters(prefix, recurse=False):
            if w.dim() < 2 or id(w) in seen or any(fnmatchcase(name, pattern) for pattern in unwanted):
                continue
            seen.add(id(w))
            if id(w) in selected:
                touched += w.numel()
            elif not computes_weights(module):
                others[type(module).__name__] += w.numel()
    if others.total() > touched:
        listed = ", ".join(f"{kind} ({count:,})" for kind, count in others.most_common(5))
        warn(
            f"only {touched / (touched + others.total()):.0%} of the model's {touched + others.total():,} weights in"
            f" matrices are sparsified; the others stay dense because they belong to modules of the types {listed}."
            " Name them in include=[...], or in exclude=[...] if they should stay dense"
        )


def matches(patterns: Iterable[str], names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield (name, pattern) for each pattern, in order, and each name it matches; raise if it matches none."""
    known = list(names)
    for pattern in patterns:
        matched = [name for name in known if fnmatchcase(name, pattern)]
        if not matched:
            raise ValueError(f"overrides: {pattern!r} matches no sparsified weight; choose from {_sample(known)}")
        yield from ((name, pattern) for name in matched)


_KINDS = "convolutions, linear or recurrent layers or attention projections"


def _eligible(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the names of the weights that are selected by module type, with their modules."""
    for prefix, module in model.named_modules(remove_duplicate=False):
        for weight in weight_names(module):
            name = f"{prefix}.{weight}" if prefix else weight
            if module._parameters.get(weight) is not None:
                yield name, module
            elif getattr_static(module, weight, None) is not None:  # not getattr: spectral_norm would update its state
                warn_of_computed(name)


def _embedded(model: nn.Module | Named) -> set[int]:
    """Return the identities of embedding weights: each row is a word, and few rows have a gradient."""
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
            raise TypeError(f"{expected} but the iterable contains {type(pair).__name__}; pass the module itself")
    named = dict(listed)
    if len(named) < len(listed):
        raise ValueError("two parameters have the same name; give each a unique name")
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
        if any(name.startswith(f"{pattern}.") for name in names):
            raise ValueError(f"{argument}: {pattern!r} is a module; for all weights in it, write {f'{pattern}.*'!r}")
        if others := [name for name in parameters if fnmatchcase(name, pattern)]:
            raise ValueError(
                f"{argument}: {pattern!r} matches no weight of {_KINDS}, and patterns select only these;"
                f" to select other parameters, write their full names: {_sample(others)}"
            )
        raise ValueError(f"{argument}: {pattern!r} matches no weight; the parameters are {_sample(parameters)}")


def _sample(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:8]) + (f", … ({len(listed)} in all)" if len(listed) > 8 else "") or "(none)"
