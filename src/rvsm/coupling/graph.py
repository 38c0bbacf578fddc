"""Torch-Pruning's dependency graph of a network, read as pairs of places that are one channel.

The graph comes from the autograd graph of one forward pass, so it sees what ``forward`` does. It takes an operation that
it does not know for one that leaves the channels as they are; here such operations are told apart by name, and a channel
that meets one is lost: nobody may remove it.
"""

import copy
import warnings
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.utils._pytree import tree_leaves

from rvsm.modes import modes_kept

Side = Literal["in", "out", "both"]

# Operations that treat each channel by itself, as autograd calls them, without their ending "Backward0".
_CHANNELWISE = frozenset(
    """
    Abs Add Alias Celu Clamp ClampMax ClampMin Clone ConstantPadNd Cos Div Dropout Elu Erf Exp Gelu Hardsigmoid Hardswish
    Hardtanh LeakyRelu Log Log1P LogSigmoid Mish Mul NativeDropout Neg Pow PreluKernel Reciprocal Relu Round Rsqrt Selu
    Sigmoid Silu Sin Softplus Softshrink Hardshrink Sqrt Squeeze Sub Tanh Threshold ToCopy Unsqueeze Contiguous Detach
    AvgPool1D AvgPool2D AvgPool3D AdaptiveAvgPool2D AdaptiveAvgPool3D AdaptiveMaxPool2D AdaptiveMaxPool3D
    MaxPool2DWithIndices MaxPool3DWithIndices MkldnnMaxPool2D
    ReflectionPad1D ReflectionPad2D ReflectionPad3D ReplicationPad1D ReplicationPad2D ReplicationPad3D
    UpsampleNearest1D UpsampleNearest2D UpsampleNearest3D UpsampleNearestExact2D UpsampleLinear1D UpsampleBilinear2D
    UpsampleBicubic2D UpsampleTrilinear3D
    """.split()
)
_REDUCTIONS = frozenset({"Mean", "Sum", "Amax", "Amin", "Max", "Min", "Std", "Var", "LinalgVectorNorm"})
_MIXING = frozenset({"Softmax", "LogSoftmax"})
_OF_LINEAR = frozenset({"Addmm", "Mm", "T"})  # what a linear layer is made of, if its input has more than two dimensions


class Place(NamedTuple):
    """A channel of a node of the graph: the index of an input, of an output, or of both where they are the same."""

    node: int
    side: Side
    index: int


@dataclass
class Graph:
    """What the dependency graph says.

    Attributes:
        nodes: the node of each module, by its name.
        sides: of each node, whether its inputs and outputs are the same channels.
        joined: pairs of places that are one channel.
        kept: why channels at a node must stay, by node.
        lost: the name of the operation at a node that could not be followed, by node.

    """

    nodes: dict[str, int] = field(default_factory=dict)
    sides: dict[int, bool] = field(default_factory=dict)
    joined: list[tuple[Place, Place]] = field(default_factory=list)
    kept: dict[int, str] = field(default_factory=dict)
    lost: dict[int, str] = field(default_factory=dict)

    def place(self, node: int, side: Side, index: int) -> Place:
        """Return a place, in the way in which it is written."""
        return Place(node, "both" if self.sides[node] else side, index)


class _Index(NamedTuple):
    """An index as Torch-Pruning's index mappings take it: where it is now, and where it came from."""

    idx: int
    root_idx: int


def trace(model: nn.Module, example_input: Tensor | tuple[Any, ...]) -> Graph:
    """Return what the dependency graph of a network says; the network stays as it is."""
    pruning = _torch_pruning()
    model = copy.deepcopy(model).requires_grad_(True)
    sources: set[Any] = set()
    built = pruning.DependencyGraph()
    with warnings.catch_warnings(), torch.enable_grad(), modes_kept(model):
        warnings.simplefilter("ignore")
        try:
            built.build_dependency(
                model, _as_sources(example_input, sources), forward_fn=_forward, output_transform=_ends, verbose=False
            )
        except Exception as problem:  # whatever a network may raise, and what Torch-Pruning makes of it
            raise ValueError(
                f"cannot follow the channels of {type(model).__name__}: {type(problem).__name__}: {problem}"
            ) from problem
    graph = Graph()
    names = {module: name for name, module in model.named_modules()}
    numbers = {node: number for number, node in enumerate(built.module2node.values())}
    uses = Counter(id(w) for module in model.modules() for w in module.parameters(recurse=False))
    for node, number in numbers.items():
        pruner = built.get_pruner_of_module(node.module)
        graph.sides[number] = pruner.prune_in_channels == pruner.prune_out_channels
        if node.module in names:
            graph.nodes[names[node.module]] = number
        if node.grad_fn in sources:
            graph.kept[number] = "it is an input of the network"
        elif reason := _reason_to_stay(pruning.ops.OPTYPE(node.type).name, node, uses):
            graph.kept[number] = reason
        elif operation := _unknown(pruning.ops.OPTYPE(node.type).name, node):
            graph.lost[number] = operation
    graph.joined += _joined(built, numbers, graph)
    return graph


def _torch_pruning() -> Any:
    try:
        import torch_pruning
    except ModuleNotFoundError as missing:
        if missing.name != "torch_pruning":
            raise
        raise ImportError(
            "channels that span layers are found with torch-pruning, which is not installed: pip install 'rvsm[shrink]'",
            name="torch_pruning",
        ) from missing
    return torch_pruning


def _as_sources(example_input: Any, sources: set[Any]) -> tuple[Any, ...]:
    """Return the inputs as results of operations, so that the graph has a node for each; ``sources`` are these."""
    inputs = example_input if isinstance(example_input, tuple) else (example_input,)
    found = [x.detach().requires_grad_().clone() if torch.is_tensor(x) and x.is_floating_point() else x for x in inputs]
    sources |= {x.grad_fn for x in found if torch.is_tensor(x) and x.grad_fn is not None}
    return tuple(found)


def _forward(model: nn.Module, inputs: tuple[Any, ...]) -> Any:
    return model(*inputs)


def _ends(outputs: Any) -> list[Tensor]:
    """Return outputs as results of an operation of their own, which Torch-Pruning takes for the end of the network."""
    found = [y * 1 for y in tree_leaves(outputs) if torch.is_tensor(y) and y.grad_fn is not None]
    if not found:
        raise ValueError("its outputs do not depend on its parameters by operations that have a gradient")
    return found


def _reason_to_stay(kind: str, node: Any, uses: Counter[int]) -> str | None:
    """Return why the channels at a node must stay; None if they need not."""
    module = node.module
    if kind == "OUTPUT":
        return "it is an output of the network"
    if kind in ("LN", "GN"):
        return f"{type(module).__name__} normalises over it"
    if kind in ("MHA", "LSTM", "EMBED", "PARAMETER", "CUSTOMIZED"):
        return f"the size of {type(module).__name__} is fixed"
    if kind in ("SPLIT", "SLICE", "UNBIND"):
        return f"forward divides the channels at fixed places ({kind.lower()})"
    if kind == "ELEMENTWISE" and (reason := _reduces(node)):
        return reason
    if isinstance(module, nn.Module) and any(uses[id(w)] > 1 for w in module.parameters(recurse=False)):
        return "its weights are tied"
    if isinstance(module, _ConvNd) and module.groups > 1:
        multiplied = module.groups == module.out_channels != module.in_channels
        if multiplied or (module.transposed and not module.groups == module.in_channels == module.out_channels):
            return "the convolution's groups cannot be made smaller"
    return None


def _reduces(node: Any) -> str | None:
    """Return that an operation runs over the channels, if it is one of those that may, and does."""
    name = _operation(node)
    if name in _MIXING:
        return f"{name.lower()} may run over it"
    if name not in _REDUCTIONS:
        return None
    sizes = getattr(node.grad_fn, "_saved_self_sym_sizes", ())
    dims = getattr(node.grad_fn, "_saved_dim", None)
    if dims is None or not sizes:
        return f"{name.lower()} runs over it"
    # Autograd gives a negative dimension as if it had no sign.
    dims = [d - 2**64 if d >= 2**63 else d for d in (dims if isinstance(dims, tuple | list) else (dims,))]
    over = {d % len(sizes) for d in dims}
    return f"{name.lower()} runs over it" if 1 in over and len(sizes) != 3 else None


def _unknown(kind: str, node: Any) -> str | None:
    """Return the name of an operation that cannot be followed; None for one that can."""
    if kind == "CONCAT":
        return None if node.module.offsets else "cat"
    if kind == "EXPAND":
        return "expand"
    if kind != "ELEMENTWISE":
        return None
    name = _operation(node)
    if name in _OF_LINEAR and [isinstance(after.module, nn.Linear) for after in node.outputs] == [True]:
        return None
    return None if name in _CHANNELWISE or name in _REDUCTIONS else name.lower()


def _operation(node: Any) -> str:
    """Return what autograd calls an operation, without the number of its variant."""
    name = node.grad_fn.name() if hasattr(node.grad_fn, "name") else "unknown"
    return str(name).rpartition("::")[2].rstrip("0123456789").removesuffix("Backward")


def _joined(built: Any, numbers: dict[Any, int], graph: Graph) -> Iterator[tuple[Place, Place]]:
    """Yield the pairs of places that each dependency makes one channel, from all modules whose sizes are known."""
    seen: set[Place] = set()
    ahead: deque[tuple[Any, Any, list[int]]] = deque()
    for node in numbers:
        pruner = built.get_pruner_of_module(node.module)
        for handler, size in (
            (pruner.prune_out_channels, built.get_out_channels(node)),
            (pruner.prune_in_channels, built.get_in_channels(node)),
        ):
            if size is not None:
                ahead.append((node, handler, list(range(size))))
    while ahead:
        node, trigger, indices = ahead.popleft()
        new = [i for i in indices if (at := _place(built, graph, numbers, node, trigger, i)) not in seen and not seen.add(at)]
        for dependency in node.dependencies if new else ():
            if not dependency.is_triggered_by(trigger):
                continue
            mapped: list[Any] = [_Index(i, i) for i in new]
            for mapping in dependency.index_mapping:
                mapped = mapped if mapping is None else mapping(mapped)
            for index in mapped:
                yield (
                    _place(built, graph, numbers, node, trigger, index.root_idx),
                    _place(built, graph, numbers, dependency.target, dependency.handler, index.idx),
                )
            ahead.append((dependency.target, dependency.handler, [index.idx for index in mapped]))


def _place(built: Any, graph: Graph, numbers: dict[Any, int], node: Any, handler: Any, index: int) -> Place:
    out = handler == built.get_pruner_of_module(node.module).prune_out_channels
    return graph.place(numbers[node], "out" if out else "in", index)
