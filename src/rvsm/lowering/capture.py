"""Capture: a module as a graph of aten operations, with a batch of any size, and with sequences of any length."""

import io
import logging
import operator
import warnings
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn
from torch._ops import OpOverload
from torch.export import Dim, ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils._pytree import TreeSpec, tree_unflatten

from rvsm.example_inputs import repeated
from rvsm.lowering.functional import make_functional


class Symbols(NamedTuple):
    """The sizes of a graph that are symbols: the number of images, or 1 if the model only works for one at a time.

    The length of sequences may be a symbol in the graph, but one that stands for a number now.
    """

    batch: int | torch.SymInt
    length: torch.SymInt | None = None
    positions: int = 0

    def expression(self, number: torch.SymInt | torch.SymFloat) -> Any:
        """Return a symbolic number as an expression of the number of images alone."""
        expression = number.node.expr
        return expression if self.length is None else expression.subs(self.length.node.expr, self.positions)


@dataclass(frozen=True, eq=False)
class Captured:
    """A functional graph: the nodes in order, its inputs and its results.

    ``tensors`` are its parameters and constants, what is computed from these alone, and the graphs of its branches,
    which PyTorch runs as they are. ``structure`` is how the model returns its results: in a tuple, a dict or an object
    that torch's pytrees know. ``any_batch`` is False if the model only works for one image at a time. In a graph with
    a free ``length``, which is a symbol, sequences have a number of ``positions``.
    """

    nodes: tuple[fx.Node, ...]
    tensors: dict[fx.Node, Any]
    inputs: tuple[fx.Node, ...]
    outputs: tuple[fx.Node, ...]
    structure: TreeSpec
    any_batch: bool
    length: torch.SymInt | None = None
    positions: int = 0

    @property
    def symbols(self) -> Symbols:
        """The sizes that are symbols."""
        return Symbols(self.inputs[0].meta["val"].shape[0], self.length, self.positions)

    def at(self, positions: int) -> "Captured":
        """Return the same graph for sequences of one length."""
        return replace(self, positions=positions)

    @property
    def several(self) -> bool:
        """Whether the results are a flat tuple or list, which a program returns as a tuple."""
        return self.structure.type in (tuple, list) and self._flat

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the results, if they are entries of a dict, or of an object that is one, as Transformers'."""
        spec = self.structure
        is_dict = isinstance(spec.type, type) and issubclass(spec.type, dict) and self._flat
        return tuple(spec.context) if is_dict and all(isinstance(key, str) and key for key in spec.context) else ()

    @property
    def _flat(self) -> bool:
        """Whether the results are not in structures inside of others."""
        return all(child.is_leaf() for child in self.structure.children())

    def packed(self, results: Sequence[Any]) -> Any:
        """Return results as the model does."""
        return tuple(results) if self.several else tree_unflatten(results, self.structure)


def capture(
    model: nn.Module, examples: tuple[Tensor, ...], known: Container[Any] = (), *, longest: int | None = None
) -> Captured:
    """Return the graph of ``model``; an example of one image is repeated, since torch.export would fix a size of 1.

    A graph that consists of ``known`` operations stays as it is; in others, torch.export decomposes what it can. If a
    ``longest`` sequence is given, the length of sequences is free (see ``length_dims``).
    """
    several = repeated(examples, max(2, len(examples[0])))
    batch = Dim("batch")
    dynamic: tuple[dict[int, Any], ...] = tuple({0: batch} for _ in several)
    if longest is not None:
        # The longest sequence itself may be a case of its own, such as a slice of a table that takes all of it.
        length = Dim("length", max=longest - 1)
        dynamic = tuple({0: batch, **dict.fromkeys(dims, length)} for dims in length_dims(several))
    with _quiet(), torch.no_grad():
        try:
            exported, any_batch = torch.export.export(model, several, dynamic_shapes=dynamic), True
        except Exception as problem:  # torch.export has no common base for what it cannot do
            try:
                if longest is not None:
                    raise
                exported, any_batch = torch.export.export(model, tuple(x[:1] for x in examples)), False
            except Exception:
                what = "" if longest is None else f" for sequences of up to {longest} positions"
                raise ValueError(
                    f"torch.export cannot capture {type(model).__name__}{what}: {_reason(problem)}"
                ) from problem
        if not make_functional(exported.graph, known, exported.graph_signature.user_inputs):
            exported = exported.run_decompositions({})
        captured = _captured(exported, any_batch)
        return captured if longest is None else replace(captured, length=captured.inputs[0].meta["val"].shape[1])


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence torch's warnings about its own pieces, and the pages it logs and prints before an error."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _reason(problem: Exception) -> str:
    """Return why torch.export failed in one sentence: the frequent reasons in plain words, else torch's first line."""
    text = str(problem).strip()
    if "data-dependent" in text:
        return (
            "what it computes depends on the values of a tensor, as in `if x.sum() > 0`; decide outside of the model,"
            " or use torch.where"
        )
    if text.startswith("Constraints violated"):
        return (
            "it works for one batch size or length only; take sizes from x.shape instead of numbers or len(x), and"
            " never mix the batch with other dimensions"
        )
    return (text.splitlines() or [type(problem).__name__])[0][:200]


def length_dims(examples: Sequence[Tensor]) -> list[list[int]]:
    """Return which dimensions are lengths of sequences: the second of the first input, and all of the same size.

    >>> length_dims([torch.zeros(2, 9, 4), torch.zeros(2, 9, 9), torch.zeros(2, 3)])
    [[1], [1, 2], []]
    """
    return [[d for d in range(1, x.ndim) if x.shape[d] == examples[0].shape[1]] for x in examples]


def _captured(exported: ExportedProgram, any_batch: bool) -> Captured:
    signature = exported.graph_signature
    tensors: dict[fx.Node, Any] = {}
    inputs = []
    placeholders = [node for node in exported.graph.nodes if node.op == "placeholder"]
    for node, spec in zip(placeholders, signature.input_specs, strict=True):
        if spec.kind == InputKind.USER_INPUT:
            inputs.append(node)
        elif spec.target in exported.state_dict:
            tensors[node] = exported.state_dict[spec.target].detach()
        elif spec.target in exported.constants:
            tensors[node] = exported.constants[spec.target]
        else:
            raise ValueError(
                f"the model has an input of kind {spec.kind.name}, which cannot be compiled; use tensors as inputs"
            )
    for node in exported.graph.find_nodes(op="get_attr"):
        tensors[node] = attrgetter(node.target)(exported.graph_module)
    end = next(node for node in exported.graph.nodes if node.op == "output")
    outputs = []
    for node, result in zip(end.args[0], signature.output_specs, strict=True):
        if result.kind == OutputKind.BUFFER_MUTATION:
            raise ValueError(
                f"the model changes its buffer {result.target!r} when it is called, so it cannot be compiled; make it"
                " constant in eval mode"
            )
        if result.kind == OutputKind.USER_OUTPUT:
            if not isinstance(node, fx.Node):
                raise ValueError(f"the model must return tensors, in any structure, but one result is {node!r}")
            outputs.append(node)
    structure = exported.call_spec.out_spec
    calls = [node for node in exported.graph.nodes if node.op not in ("placeholder", "get_attr", "output")]
    return Captured(_without_constants(calls, tensors), tensors, tuple(inputs), tuple(outputs), structure, any_batch)


def _without_constants(calls: Sequence[fx.Node], tensors: dict[fx.Node, Any]) -> tuple[fx.Node, ...]:
    """Compute what follows from parameters and constants alone, add it to ``tensors``, and return the other calls."""
    rest = []
    for node in calls:
        known = isinstance(node.target, OpOverload) or node.target is operator.getitem
        random = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
        if known and not random and all(source in tensors for source in node.all_input_nodes):
            arguments, options = fx.node.map_arg((node.args, node.kwargs), tensors.__getitem__)
            function: Callable[..., Any] = node.target  # type: ignore[assignment]
            tensors[node] = function(*arguments, **options)
        else:
            rest.append(node)
    return tuple(rest)


def module_name(node: fx.Node) -> str:
    """Return the path of the module that an operation belongs to, or the operation's own name."""
    stack = node.meta.get("nn_module_stack") or {}
    path = [entry[0] for entry in stack.values() if entry[0] and not entry[0].startswith("_empty_nn_module")]
    return str(path[-1]) if path else node.name
