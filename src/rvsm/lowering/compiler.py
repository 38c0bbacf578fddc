"""``rvsm.compile``: from a torch module to a program of the sparse runtime."""

from collections.abc import Sequence

from torch import Tensor, nn

from rvsm.example_inputs import example_tuple
from rvsm.lowering.capture import Captured, capture
from rvsm.lowering.division import TorchPart, divide
from rvsm.lowering.draft import Draft
from rvsm.lowering.fallback import MixedProgram, Step, guard
from rvsm.lowering.lengths import any_length
from rvsm.lowering.translate import TRANSLATIONS
from rvsm.lowering.whole import in_order, shrink, unusual
from rvsm.provisional import warn_if_provisional
from rvsm.runtime.execute.program import Program
from rvsm.runtime.execute.sequences import SequenceProgram
from rvsm.runtime.schedule.layout import TooLargeError


def compile(
    model: nn.Module,
    example_input: Tensor | Sequence[Tensor],
    *,
    threads: int | None = None,
    lengths: int | None = None,
) -> Program | MixedProgram | SequenceProgram:
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
        lengths: the positions of the longest sequence, if their length is free; it is the second size of the first
            input. All of the network must be native then. By default, the length is that of the example.

    >>> import torch, rvsm.lowering
    >>> model = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU()).eval()
    >>> program = rvsm.lowering.compile(model, torch.zeros(1, 1, 8, 8))
    >>> program(torch.zeros(5, 1, 8, 8)).shape
    torch.Size([5, 4, 6, 6])

    """
    examples = _checked(model, example_input)
    warn_if_provisional(model.parameters(), stacklevel=2)
    if lengths is not None:
        return any_length(model, examples, lengths, threads)
    captured = capture(model, examples, TRANSLATIONS)
    try:
        return _assembled(captured, model, examples, threads)
    except TooLargeError:
        return MixedProgram(captured, [TorchPart(list(captured.nodes))], examples, threads=threads)


def _assembled(
    captured: Captured, model: nn.Module, examples: tuple[Tensor, ...], threads: int | None
) -> Program | MixedProgram:
    """Return the program, with as much as possible in the runtime, and no slower than the module."""
    parts, strange = divide(captured), unusual(captured)
    pure = len(parts) == 1 and not strange  # the runtime has everything that the network needs
    steps: list[Step] = []
    for part in parts:
        if isinstance(part, TorchPart):
            steps.append(part)
            continue
        draft = in_order(part, captured) if pure else part
        shrink(draft)
        steps.append((Program(draft.plan(), threads=threads).prepare(), draft.takes, draft.gives))
    mixed = MixedProgram(captured, steps, examples, threads=threads, unusual=strange)
    # Objects other than dicts are made of the results by the program around the native one.
    program = mixed if captured.names and captured.structure.type is not dict else mixed.native or mixed
    mixed.guard = guard(program, model, examples, program.threads)
    return program if mixed.guard is None else mixed


def removed_channels(model: nn.Module, example_input: Tensor | Sequence[Tensor]) -> tuple[int, int]:
    """Return how many output channels ``compile`` leaves out of a network, and how many there are.

    >>> import torch, rvsm.lowering
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2)).eval()
    >>> _ = torch.nn.init.zeros_(model[2].weight[:, 1:].detach())
    >>> rvsm.lowering.removed_channels(model, torch.zeros(1, 3))
    (3, 6)
    """
    parts = divide(capture(model, _checked(model, example_input), TRANSLATIONS))
    counts = [shrink(part) for part in parts if isinstance(part, Draft)]
    return sum(removed for removed, _ in counts), sum(total for _, total in counts)


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
