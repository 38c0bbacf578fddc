"""A network as one draft, if the runtime has everything that it needs."""

from rvsm.lowering.capture import Captured
from rvsm.lowering.division import TorchPart, divide, entry
from rvsm.lowering.draft import Draft, Key
from rvsm.lowering.fallback import counted
from rvsm.lowering.prune import remove_dead_channels
from rvsm.lowering.simplify import simplify
from rvsm.lowering.translate import value_sizes


def whole_draft(captured: Captured) -> Draft:
    """Return a network as one draft, or raise a ValueError that names what the runtime does not have."""
    parts, strange = divide(captured), unusual(captured)
    names = [name for part in parts if isinstance(part, TorchPart) for name in part.names]
    if len(parts) == 1 and isinstance(parts[0], Draft) and not strange:
        return in_order(parts[0], captured)
    raise ValueError(f"the runtime needs PyTorch for {', '.join(counted(names) or strange)}")


def in_order(draft: Draft, captured: Captured) -> Draft:
    """Return a draft that takes and gives what the whole network does, in its order, needed or not."""
    known = dict(zip(draft.takes, draft.inputs, strict=True))
    inputs = [known.get(node) or entry(node, captured.symbols) for node in captured.inputs]
    results = dict(zip(draft.gives, zip(draft.outputs, draft.leaving, strict=True), strict=True))
    outputs, leaving = zip(*(results[node] for node in captured.outputs), strict=True)
    present = [node for node in inputs if node is not None]
    if len(present) > 1:
        for node, given in zip(present, captured.inputs, strict=True):
            node.name = given.name
    takes, gives = list[Key](captured.inputs), list[Key](captured.outputs)
    return Draft(present, draft.nodes, list(outputs), takes, gives, list(leaving), captured.names)


def unusual(captured: Captured) -> list[str]:
    """Return what a plan does not support in the inputs and outputs of the network."""
    found = []
    if captured.several and len(captured.outputs) == 1:
        found.append("a tuple of one result")
    if not (captured.several or captured.names or captured.structure.is_leaf()):
        found.append(f"results in a {captured.structure.type.__name__}")
    if any(node in captured.inputs or node in captured.tensors for node in captured.outputs):
        found.append("a result that is one of its inputs or weights")
    strange = [node for node in captured.inputs if value_sizes(node, captured.symbols) is None]
    return found + [f"the input {node.name!r}, which is not a batch of float32 numbers or integers" for node in strange]


def shrink(draft: Draft) -> tuple[int, int]:
    """Simplify a draft and remove its dead channels; return how many were removed, and how many there were."""
    simplify(draft)
    total = sum(node.shape[0] for node in draft.nodes if node.convolution is not None)
    return remove_dead_channels(draft), total
