"""``rvsm.compile``: from a torch module to a program of the sparse runtime."""

from collections.abc import Sequence

from torch import Tensor, nn

from rvsm.example_inputs import example_tuple
from rvsm.lowering.capture import Captured, capture
from rvsm.lowering.division import TorchPart, divide, entry
from rvsm.lowering.draft import Draft, Key
from rvsm.lowering.fallback import MixedProgram, Step, counted, guard
from rvsm.lowering.prune import remove_dead_channels
from rvsm.lowering.simplify import simplify
from rvsm.lowering.translate import TRANSLATIONS, value_sizes
from rvsm.runtime.execute.program import Program
from rvsm.runtime.schedule.layout import TooLargeError


def compile(
    model: nn.Module, example_input: Tensor | Sequence[Tensor], *, threads: int | None = None
) -> Program | MixedProgram:
    """Return a program that computes what ``model`` does, faster where its weights are zero.

    Batch norm is folded, activations and sums are fused into the convolutions, channels that cannot matter are
    removed, and each layer runs by the sparse or the dense kernel, whichever is faster. Operations that the runtime
    does not have run in PyTorch, and ``explain()`` lists them. A network that is faster in PyTorch as a whole, or too
    large for the runtime, runs there.

    Args:
        model: a module in eval mode, on the CPU. Later changes to its weights do not affect the program.
        example_input: a batch, or a tuple of several inputs. The program takes any batch size, and returns tensors as
            the model does: alone, in a tuple, a dict, or an object such as those of Transformers.
        threads: by default ``OMP_NUM_THREADS`` if it is set, else all cores that the process may use.

    >>> import torch, rvsm.lowering
    >>> model = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU()).eval()
    >>> program = rvsm.lowering.compile(model, torch.zeros(1, 1, 8, 8))
    >>> program(torch.zeros(5, 1, 8, 8)).shape
    torch.Size([5, 4, 6, 6])

    """
    examples = _checked(model, example_input)
    captured = capture(model, examples, TRANSLATIONS)
    try:
        return _assembled(captured, model, examples, threads)
    except TooLargeError:
        return MixedProgram(captured, [TorchPart(list(captured.nodes))], examples, threads=threads)


def _assembled(
    captured: Captured, model: nn.Module, examples: tuple[Tensor, ...], threads: int | None
) -> Program | MixedProgram:
    """Return the program, with as much as possible in the runtime, and no slower than the module."""
    parts, unusual = divide(captured), _unusual(captured)
    pure = len(parts) == 1 and not unusual  # the runtime has everything that the network needs
    steps: list[Step] = []
    for part in parts:
        if isinstance(part, TorchPart):
            steps.append(part)
            continue
        draft = _in_order(part, captured) if pure else part
        _shrink(draft)
        steps.append((Program(draft.plan(), threads=threads).prepare(), draft.takes, draft.gives))
    mixed = MixedProgram(captured, steps, examples, threads=threads, unusual=unusual)
    # Objects other than dicts are made of the results by the program around the native one.
    program = mixed if captured.names and captured.structure.type is not dict else mixed.native or mixed
    mixed.guard = guard(program, model, examples, program.threads)
    return program if mixed.guard is None else mixed


def _unusual(captured: Captured) -> list[str]:
    """Return what a plan does not support in the inputs and outputs of the network."""
    found = []
    if captured.several and len(captured.outputs) == 1:
        found.append("a tuple of one result")
    if not (captured.several or captured.names or captured.structure.is_leaf()):
        found.append(f"results in a {captured.structure.type.__name__}")
    if any(node in captured.inputs or node in captured.tensors for node in captured.outputs):
        found.append("a result that is one of its inputs or weights")
    strange = [node for node in captured.inputs if value_sizes(node, captured.batch) is None]
    return found + [f"the input {node.name!r}, which is not a batch of float32 numbers or integers" for node in strange]


def removed_channels(model: nn.Module, example_input: Tensor | Sequence[Tensor]) -> tuple[int, int]:
    """Return how many output channels ``compile`` leaves out of a network, and how many there are.

    >>> import torch, rvsm.lowering
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2)).eval()
    >>> _ = torch.nn.init.zeros_(model[2].weight[:, 1:].detach())
    >>> rvsm.lowering.removed_channels(model, torch.zeros(1, 3))
    (3, 6)
    """
    parts = divide(capture(model, _checked(model, example_input), TRANSLATIONS))
    counts = [_shrink(part) for part in parts if isinstance(part, Draft)]
    return sum(removed for removed, _ in counts), sum(total for _, total in counts)


def _shrink(draft: Draft) -> tuple[int, int]:
    """Simplify a draft and remove its dead channels; return how many were removed, and how many there were."""
    simplify(draft)
    total = sum(node.shape[0] for node in draft.nodes if node.convolution is not None)
    return remove_dead_channels(draft), total


def _in_order(draft: Draft, captured: Captured) -> Draft:
    """Return a draft that takes and gives what the whole network does, in its order, needed or not."""
    known = dict(zip(draft.takes, draft.inputs, strict=True))
    inputs = [known.get(node) or entry(node, captured.batch) for node in captured.inputs]
    results = dict(zip(draft.gives, zip(draft.outputs, draft.leaving, strict=True), strict=True))
    outputs, leaving = zip(*(results[node] for node in captured.outputs), strict=True)
    present = [node for node in inputs if node is not None]
    if len(present) > 1:
        for node, given in zip(present, captured.inputs, strict=True):
            node.name = given.name
    takes, gives = list[Key](captured.inputs), list[Key](captured.outputs)
    return Draft(present, draft.nodes, list(outputs), takes, gives, list(leaving), captured.names)


def whole_draft(captured: Captured) -> Draft:
    """Return a network as one draft, or raise a ValueError that names what the runtime does not have."""
    parts, unusual = divide(captured), _unusual(captured)
    names = [name for part in parts if isinstance(part, TorchPart) for name in part.names]
    if len(parts) == 1 and isinstance(parts[0], Draft) and not unusual:
        return _in_order(parts[0], captured)
    raise ValueError(f"the runtime needs PyTorch for {', '.join(counted(names) or unusual)}")


def _checked(model: nn.Module, example_input: Tensor | Sequence[Tensor]) -> tuple[Tensor, ...]:
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module but is a {type(model).__name__}")
    training = [name or "the model itself" for name, module in model.named_modules() if module.training]
    if training:
        raise ValueError(f"the model is in train mode ({training[0]}); call model.eval() first")
    tensors = [*model.parameters(), *model.buffers()]
    if any(tensor.device.type != "cpu" for tensor in tensors):
        raise ValueError("the model must be on the CPU; call model.cpu() first")
    return example_tuple(example_input)
