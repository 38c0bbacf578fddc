"""Example inputs: checking, repeating to any batch, random variants; and the difference of two engines' results."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves


def example_tuple(example_input: Tensor | Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return one or several inputs as a tuple of tensors on the CPU, after checking that they are batches."""
    examples = (example_input,) if isinstance(example_input, Tensor) else tuple(example_input)
    if not examples or not all(isinstance(x, Tensor) and x.ndim > 0 for x in examples):
        raise TypeError("example_input must be a tensor, or a tuple of tensors, with the batch first")
    sizes = {len(x) for x in examples}
    if len(sizes) != 1 or 0 in sizes:
        raise ValueError(f"the example inputs must have the same batch size, at least 1, but have {sorted(sizes)}")
    return tuple(x.detach().to("cpu") for x in examples)


def repeated(examples: Sequence[Tensor], batch: int) -> tuple[Tensor, ...]:
    """Return ``batch`` rows of each example; the rows repeat from the first if there are fewer.

    >>> repeated([torch.tensor([1, 2])], 5)
    (tensor([1, 2, 1, 2, 1]),)
    """
    return tuple(torch.cat([x] * -(-batch // len(x)))[:batch] for x in examples)


def trial_inputs(examples: Sequence[Tensor], batch: int) -> tuple[Tensor, ...]:
    """Return a batch like the examples: random numbers for floats, their own rows for other types.

    Integers are usually indices, and only those of the example are known to be valid.
    """
    generator = torch.Generator().manual_seed(0)
    return tuple(
        torch.randn(x.shape, generator=generator, dtype=x.dtype) if x.is_floating_point() else x
        for x in repeated(examples, batch)
    )


def difference(results: Any, expected: Any) -> float:
    """Return the largest difference of two engines' results, each relative to the largest expected value.

    Results are tensors, arrays or numbers in tuples, lists or dicts of any depth. None is ignored. The difference is
    NaN if any value is NaN.

    >>> difference([torch.tensor([True, False])], torch.tensor([1.0, 0.5]))
    0.5
    """
    found, wanted = ([x for x in tree_leaves(given) if x is not None] for given in (results, expected))
    differences = [_relative(*pair) for pair in zip(found, wanted, strict=True)]
    return float(torch.tensor(differences, dtype=torch.float64).max())


def _relative(result: Any, expected: Any) -> float:
    found, wanted = (torch.as_tensor(x).to(torch.float64) for x in (result, expected))
    return float((found - wanted).abs().max()) / max(float(wanted.abs().max()), 1e-12)
