"""The two ends of a network: the layers that produce its outputs, and those that read its inputs.

A group that is a whole output of the last layer is a class, a coordinate or a word. Without it, the network could never
predict it again, so such a group is not removed. Neither is an input channel of the first layer. The ends are found

- in the autograd graph of one forward pass, if there is an example input; this is exact, whatever ``forward`` does;
- otherwise in the graph that `torch.fx` traces without an input; this is exact if ``forward`` has no control flow;
- otherwise by the order of registration: the first and the last module that has weights.
"""

import copy
import warnings
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

import torch
from torch import Tensor, fx, nn

from rvsm.modes import modes_kept, random_state_kept
from rvsm.splitting.layers import Layer, Layers
from rvsm.splitting.notices import warn
from rvsm.splitting.shards import gathered
from rvsm.splitting.weights import weight_names

Example = Tensor | tuple[Any, ...]
_Ids = frozenset[int]
_NONE: _Ids = frozenset()


@dataclass(frozen=True)
class Ends:
    """The matrices at the ends of a network, by the identity of their tensors.

    Attributes:
        first: those that read the network's inputs.
        last: those whose results no other matrix reads.
        exact: whether the data flow is known; otherwise they are the first and last modules in registration order.

    """

    first: _Ids
    last: _Ids
    exact: bool


def without_ends(layers: Sequence[Layer], model: nn.Module | None, example_input: Example | None) -> Layers:
    """Return the layers without those whose groups are outputs or inputs of the network, and warn about these.

    A layer stays if it was named: in ``include``, in an override of its groups, or in pairs of name and parameter.
    """
    grouped = [layer for layer in layers if not layer.elementwise and not layer.named]
    if model is None or not grouped:
        return Layers(layers)
    ends = find_ends(model, example_input)
    outputs = [layer.name for layer in grouped if id(layer.parameter) in ends.last and layer.removes_whole("output")]
    inputs = [layer.name for layer in grouped if id(layer.parameter) in ends.first and layer.removes_whole("input")]
    for side, names in (("outputs", outputs), ("inputs", inputs)):
        if names:
            listed = ", ".join(map(repr, names))
            by = "" if ends.exact else ", judging by the order of registration"
            warn(
                f"the groups of {listed} are {side} of the network{by}, and the network needs all of them; the layer"
                f" stays dense and does not count. To make this explicit, write exclude=[{listed}]; to remove the"
                f" groups anyway, name the layer in include=[...] or give overrides={{{names[0]!r}: {{'groups': ...}}}}"
            )
    left = Layers(layer for layer in layers if layer.name not in {*outputs, *inputs})
    if not left:
        raise ValueError(
            "found no groups to remove: all groups are outputs or inputs of the network; name the layers whose groups"
            " can be removed in include=[...], or use groups='element'"
        )
    return left


def find_ends(model: nn.Module, example_input: Example | None = None) -> Ends:
    """Return the matrices at the ends of a network, with the most exact method that works.

    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> ends = find_ends(model)
    >>> ends.first == {id(model[0].weight)}, ends.last == {id(model[4].weight)}
    (True, True)
    """
    flow = _run(model, example_input) if example_input is not None else _traced(model)
    return _registered(model) if flow is None else Ends(flow.first(), flow.last(), exact=True)


@dataclass(frozen=True)
class _Step:
    """One operation: the matrices that its inputs meet first and last within it, and the operations before it."""

    first: _Ids = _NONE
    last: _Ids = _NONE
    before: tuple[Hashable, ...] = ()


@dataclass
class _Flow:
    """How data flows through a network, as operations in the order in which they are executed."""

    steps: dict[Hashable, _Step] = field(default_factory=dict)
    inputs: set[Hashable] = field(default_factory=set)
    outputs: list[Hashable] = field(default_factory=list)
    # Operations on parameters of one module alone: a transposition, a cast, or all of weight_norm.
    _of_parameters: dict[Hashable, tuple[int, _Ids]] = field(default_factory=dict)

    def parameter(self, operation: Hashable, w: Tensor, owner: int) -> None:
        """Note that an operation yields a parameter."""
        self.steps[operation] = _Step()
        self._of_parameters[operation] = owner, frozenset({id(w)}) if w.dim() > 1 else _NONE

    def add(self, operation: Hashable, before: Sequence[Hashable], *, first: _Ids = _NONE, last: _Ids = _NONE) -> None:
        """Note an operation, the operations whose results it uses, and its own matrices."""
        known = [self._of_parameters[b] for b in before if b in self._of_parameters]
        used = frozenset().union(*(ids for _, ids in known))
        if before and len(known) == len(before) and len({owner for owner, _ in known}) == 1:
            self._of_parameters[operation] = known[0][0], used
        data = tuple(b for b in before if b not in self._of_parameters)
        self.steps[operation] = _Step(first | used, last | used, data)

    def last(self) -> _Ids:
        """Return the matrices that are met first on the way back from the outputs."""
        found: set[int] = set()
        seen: set[Hashable] = set()
        ahead = list(self.outputs)
        while ahead:
            operation = ahead.pop()
            if operation not in seen:
                seen.add(operation)
                step = self.steps[operation]
                found |= step.last
                ahead += () if step.last else step.before
        return frozenset(found)

    def first(self) -> _Ids:
        """Return the matrices that are met first on the way from the inputs."""
        raw, found = set(self.inputs), set[int]()
        for operation, step in self.steps.items():
            if not raw.isdisjoint(step.before):
                found |= step.first
                if not step.first:
                    raw.add(operation)
        return frozenset(found)


def _run(model: nn.Module, example_input: Example) -> _Flow | None:
    """Return the flow of one forward pass, from its autograd graph; None if its outputs have none."""
    given = example_input if isinstance(example_input, tuple) else (example_input,)
    owners = _owners(model)
    with (
        modes_kept(model),
        _all_with_gradient(model),
        random_state_kept(),
        torch.enable_grad(),
        gathered(model) as seen,
    ):
        # Clones, because an in-place operation must not change a leaf.
        inputs = [
            x.detach().requires_grad_().clone() if torch.is_tensor(x) and x.is_floating_point() else x for x in given
        ]
        sources = {x.grad_fn for x in inputs if torch.is_tensor(x) and x.grad_fn is not None}
        outputs = [y.grad_fn for y in _tensors(model.eval()(*inputs)) if y.grad_fn is not None]
    flow = _Flow(inputs=set(sources), outputs=list(outputs))
    for node in _in_order(outputs):
        w = getattr(node, "variable", None)
        w = seen.get(id(w), w)
        if w is not None and id(w) in owners:
            flow.parameter(node, w, owners[id(w)])
        else:
            flow.add(node, [before for before, _ in node.next_functions if before is not None])
    return flow if flow.last() else None


def _in_order(outputs: Iterable[Any]) -> Iterator[Any]:
    """Yield the nodes of an autograd graph, each after those before it."""
    done: set[Any] = set()
    ahead = [(node, False) for node in outputs]
    while ahead:
        node, ready = ahead.pop()
        if node in done:
            continue
        if ready:
            done.add(node)
            yield node
        else:
            ahead += [(node, True), *((before, False) for before, _ in node.next_functions if before is not None)]


def _traced(model: nn.Module) -> _Flow | None:
    """Return the flow that is traced without an input; None if ``forward`` cannot be traced."""
    tensors: list[Tensor] = [*model.parameters(), *model.buffers()]
    try:
        with warnings.catch_warnings(), random_state_kept():
            warnings.simplefilter("ignore")
            # A copy that shares its tensors: forward may store its results, here proxies, in the module.
            copied = copy.deepcopy(model, {id(t): t for t in tensors})
            arguments = signature(copied.forward).parameters.values()
            defaults = {p.name: p.default for p in arguments if p.default is not p.empty}
            graph = _Tracer().trace(copied, concrete_args=defaults or None)
    except Exception:  # user code may raise any exception when it receives a proxy
        return None
    modules, parameters, owners = dict(copied.named_modules()), dict(copied.named_parameters()), _owners(copied)
    flow = _Flow()
    for node in graph.nodes:
        if node.op == "output":
            flow.outputs += node.all_input_nodes
        elif node.op == "get_attr" and node.target in parameters:
            w = parameters[str(node.target)]
            flow.parameter(node, w, owners[id(w)])
        else:
            module = modules[str(node.target)] if node.op == "call_module" else nn.Module()
            own, inner = _matrices(module.parameters(recurse=False)), _matrices(module.parameters())
            flow.add(node, node.all_input_nodes, first=own or inner, last=inner - own or inner)
            flow.inputs |= {node} if node.op == "placeholder" else set()
    return flow if flow.last() else None


class _Tracer(fx.Tracer):
    """Traces into all modules except those that have their own weights or no submodules."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return bool(weight_names(m)) or (not any(m.children()) and super().is_leaf_module(m, module_qualified_name))


def _registered(model: nn.Module) -> Ends:
    """Return the matrices of the first and of the last module that has weights, in the order of registration."""
    weighted = [_matrices(m.parameters()) for m in model.modules() if weight_names(m)]
    return Ends(weighted[0], weighted[-1], exact=False) if weighted else Ends(_NONE, _NONE, exact=False)


def _matrices(parameters: Iterable[Tensor]) -> _Ids:
    return frozenset(id(w) for w in parameters if w.dim() > 1)


def _owners(model: nn.Module) -> dict[int, int]:
    """Return, for the identity of each parameter, that of its module."""
    return {id(w): id(module) for module in model.modules() for w in module.parameters(recurse=False)}


def _tensors(value: Any) -> Iterator[Tensor]:
    """Yield the tensors in a network's output."""
    if torch.is_tensor(value):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _tensors(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _tensors(part)


@contextmanager
def _all_with_gradient(model: nn.Module) -> Iterator[None]:
    """Include all parameters in the autograd graph, also frozen ones."""
    frozen = [w for w in model.parameters() if not w.requires_grad and w.is_floating_point()]
    for w in frozen:
        w.requires_grad_(True)
    try:
        yield
    finally:
        for w in frozen:
            w.requires_grad_(False)
