"""Sequences of any length: a network is lowered for a few lengths, and what depends on the length is generalised.

The lengths are unlike all other sizes of the network, so that all plans have the same operations, and only integers
differ. Laws through these integers hold for all lengths. For the shortest sequences, the longest ones, and the example,
the results are compared with the model's.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, product
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rvsm.example_inputs import difference
from rvsm.lowering.capture import Captured, capture, length_dims
from rvsm.lowering.translate import TRANSLATIONS
from rvsm.lowering.whole import shrink, whole_draft
from rvsm.runtime.execute.sequences import SequenceProgram
from rvsm.runtime.family import Family, bare_plan, corner, factors
from rvsm.runtime.graph import graph_of
from rvsm.runtime.laws import SAMPLES, at, fitted
from rvsm.runtime.plan.plan import Plan, Weights

LEAST = 16  # the smallest limit: there must be a few lengths that are unlike other sizes
TOLERANCE = 1e-3  # of the largest result
SHORT = 64  # windows of sequences may need so many positions

Lower = Callable[[int], Plan]


def any_length(model: nn.Module, examples: tuple[Tensor, ...], longest: int, threads: int | None) -> SequenceProgram:
    """Return a program for sequences of up to ``longest`` positions; raise ValueError if there can be none."""
    if not isinstance(longest, int) or isinstance(longest, bool) or longest < LEAST:
        raise ValueError(f"lengths must be the length of the longest sequence, at least {LEAST}, but is {longest!r}")
    if examples[0].ndim < 2 or not 2 <= examples[0].shape[1] <= longest:
        raise ValueError(
            f"the second size of the first example must be a length from 2 to {longest}, as in (batch, length, …), but"
            f" its shape is {tuple(examples[0].shape)}"
        )
    try:
        with torch.inference_mode():
            model(*resized(examples, longest))
    except Exception as error:
        raise ValueError(f"the model cannot take sequences of {longest} positions: {str(error)[:200]}") from error
    captured, lower, samples = _captured(model, examples, longest)
    objects = captured.names and captured.structure.type is not dict
    family = family_of(lower, samples, longest)
    program = SequenceProgram(family, threads=threads, pack=captured.packed if objects else None)
    for length in {program.shortest, examples[0].shape[1], longest}:
        _compare(model, program, resized(examples, length))
    return program


def _captured(model: nn.Module, examples: tuple[Tensor, ...], longest: int) -> tuple[Captured, Lower, Iterator[int]]:
    """Return a graph, how it is lowered for a length, and lengths to do so.

    One graph serves all lengths, if torch.export can make it. Otherwise, as with recurrent layers, which it unrolls,
    each length has its own graph.
    """
    try:
        captured = capture(model, examples, TRANSLATIONS, longest=longest)
    except ValueError:
        captured = capture(model, examples, TRANSLATIONS)
        samples = _samples(captured, range(5, longest))
        return captured, lambda n: _plan(capture(model, resized(examples, n), TRANSLATIONS)), samples
    return captured, lambda n: _plan(captured.at(n)), _samples(captured, range(longest - 1, 1, -1))


def resized(examples: Sequence[Tensor], length: int) -> tuple[Tensor, ...]:
    """Return examples with sequences of another length; positions repeat from the first if there are fewer.

    >>> resized([torch.tensor([[1, 2, 3]])], 5)
    (tensor([[1, 2, 3, 1, 2]]),)
    """
    found = []
    for x, dims in zip(examples, length_dims(examples), strict=True):
        for d in dims:
            x = x.index_select(d, torch.arange(length) % x.shape[d])  # noqa: PLW2901
        found.append(x)
    return tuple(found)


def family_of(lower: Lower, samples: Iterator[int], longest: int) -> Family:
    """Return the plans for all lengths, of which a few are made."""
    plans = {length: lower(length) for length in islice(samples, SAMPLES)}
    graph = fitted({length: graph_of(plan) for length, plan in plans.items()})
    weights, biases, axes = dict[int, Weights](), dict[int, Any](), dict[int, Any]()
    full: Plan | None = None
    for k in next(iter(plans.values())).weights:
        alike = {plan.weights[k].shape for plan in plans.values()}
        if len(alike) == 1:
            weights[k], biases[k] = _same(plans, k)
        else:
            full = full or lower(longest)
            weights[k], biases[k], axes[k] = _longest(plans, k, full, longest)
    return Family(graph, _shortest(graph), longest, weights, biases, axes)


def _plan(captured: Captured) -> Plan:
    draft = whole_draft(captured)
    shrink(draft)
    return draft.plan()


def _samples(captured: Captured, lengths: Sequence[int]) -> Iterator[int]:
    """Return the lengths in their order, but first those that share no divisor with a size of the network."""
    shapes = [value.shape for node in captured.nodes if isinstance(value := node.meta.get("val"), Tensor)]
    shapes += [tensor.shape for tensor in captured.tensors.values() if isinstance(tensor, Tensor)]
    sizes = {size for shape in shapes for size in shape if isinstance(size, int) and size > 1}
    unlike = [n for n in lengths if not any(n % size == 0 or size % n == 0 for size in sizes)]
    yield from unlike
    yield from (n for n in lengths if n not in unlike)


def _same(plans: Mapping[int, Plan], k: int) -> tuple[Weights, Any]:
    """Return the weights of an operation, if they are the same for all lengths."""
    first, *others = plans.values()
    a, bias = first.weights[k], first.biases[k]
    for plan in others:
        b = plan.weights[k]
        if not (np.array_equal(a.bits, b.bits) and np.array_equal(a.values, b.values, equal_nan=True)):
            raise ValueError(f"the weights of {first.operations[k].name} depend on the length of the sequences")
        if not np.array_equal(bias, plan.biases[k], equal_nan=True):
            raise ValueError(f"the bias of {first.operations[k].name} depends on the length of the sequences")
    return a, bias


def _longest(plans: Mapping[int, Plan], k: int, full: Plan, longest: int) -> tuple[Weights, Any, Any]:
    """Return weights and biases of an operation for the longest sequences, and the axes of which others have a part.

    The plan of the longest sequences may have other operations, if their length is a size that occurs elsewhere. Its
    weights are recognised by their corners.
    """
    laws = fitted({length: list(plan.weights[k].shape) for length, plan in plans.items()})
    candidates = [k, *(other for other in full.weights if other != k)]
    for axes in map(list, product(*map(factors, laws))):
        for other in candidates:
            if other not in full.weights:
                continue
            found = _corners(plans, k, full.weights[other].dense(), axes, longest)
            if found is not None:
                bias = full.biases[other]
                return Weights.of(found), bias, axes
    name = next(iter(plans.values())).operations[k].name
    raise ValueError(f"the weights of {name} depend on the length of the sequences in a way that no program can follow")


def _corners(plans: Mapping[int, Plan], k: int, numbers: Any, axes: Any, longest: int) -> Any:
    """Return weights for the longest sequences in the shape of the operation, if those of all plans are corners."""
    try:
        sizes = [prod(dim) for dim in at(axes, longest)]
        if prod(sizes) != numbers.size:
            return None
        shaped = numbers.reshape(sizes)
        for length in plans:
            if not np.array_equal(corner(shaped, axes, longest, length), plans[length].weights[k].dense()):
                return None
    except ValueError:
        return None
    return shaped


def _shortest(graph: Any) -> int:
    """Return the smallest length that has a plan."""
    for length in range(1, SHORT):
        try:
            bare_plan(graph, length)
        except ValueError:
            continue
        return length
    raise ValueError(f"sequences of up to {SHORT} positions are too short for the network")


def _compare(model: nn.Module, program: SequenceProgram, inputs: tuple[Tensor, ...]) -> None:
    """Raise ValueError if the program does not compute what the model does for sequences of this length."""
    with torch.inference_mode():
        try:
            expected = model(*(x.clone() for x in inputs))
        except Exception:  # the model has no result for this length, so there is none to compare
            return
        found = difference(program(*inputs), expected)
    if not found <= TOLERANCE:
        raise ValueError(
            f"the length of the sequences cannot vary: for {inputs[0].shape[1]} positions, the model does not compute"
            f" the same as for other lengths (a difference of {found:.1g})"
        )
