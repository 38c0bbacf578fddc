"""What a batch may be from which the statistics are estimated."""

from collections import UserDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

import rvsm


class OfOne(nn.Module):
    """One input, and labels that it can do without."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)

    def forward(self, pixels: Tensor, labels: Tensor | None = None) -> Tensor:
        assert labels is None or len(labels) == len(pixels)
        return self.norm(3 * pixels)


class OfTwo(OfOne):
    """Two inputs, and options that no batch has."""

    def forward(self, left: Tensor, right: Tensor, scale: float = 1.0, *, verbose: bool = False) -> Tensor:
        return self.norm(scale * (left + right))


class OfAnything(OfOne):
    def forward(self, **inputs: Tensor) -> Tensor:
        assert "labels" in inputs
        return self.norm(inputs["left"] + inputs["right"])


FORMS: dict[str, tuple[type[OfOne], Callable[[Tensor], Any]]] = {
    "tensor": (OfOne, lambda x: x),
    "tuple": (OfOne, lambda x: (x, torch.zeros(len(x)))),
    "list": (OfOne, lambda x: [x, torch.zeros(len(x)), "name"]),
    "dict": (OfOne, lambda x: {"pixels": x, "labels": torch.zeros(len(x))}),
    "dict with more": (OfOne, lambda x: {"name": "a", "pixels": x}),
    "inputs alone": (OfTwo, lambda x: (x, 2 * x)),
    "inputs, then labels": (OfTwo, lambda x: [x, 2 * x, torch.zeros(len(x))]),
    "dict of inputs": (OfTwo, lambda x: {"right": 2 * x, "left": x}),
    "dict of inputs and labels": (OfTwo, lambda x: {"labels": torch.zeros(len(x)), "right": 2 * x, "left": x}),
    "a mapping that is no dict": (OfTwo, lambda x: UserDict(left=x, right=2 * x)),
    "dict for anything": (OfAnything, lambda x: {"labels": torch.zeros(len(x)), "right": 2 * x, "left": x}),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("wrap", [nn.Module.train, nn.DataParallel, AveragedModel])
def test_the_network_gets_its_inputs_and_no_more(form: str, wrap: Callable[[nn.Module], nn.Module]) -> None:
    kind, of = FORMS[form]
    model = wrap(kind())
    inputs = [torch.randn(10, 3), torch.randn(6, 3)]
    rvsm.recalibrate(model, [of(x) for x in inputs])
    norm = getattr(model, "module", model).norm
    torch.testing.assert_close(norm.running_mean, sum(3 * x.mean(dim=0) for x in inputs) / 2)


@pytest.mark.parametrize("form", [lambda x: x, lambda x: (x,), lambda x: {"left": x, "labels": x}])
def test_a_batch_without_an_input_is_told_what_is_missing(form: Callable[[Tensor], Any]) -> None:
    said = r"expects batches that begin with the inputs of forward\(left.*missing a required argument: 'right'"
    with pytest.raises(TypeError, match=said):
        rvsm.recalibrate(OfTwo(), [form(torch.ones(4, 3))])


def test_a_batch_without_a_tensor_is_refused() -> None:
    with pytest.raises(TypeError, match=r"expects batches of tensors, \(input, …\) or dicts but got str"):
        rvsm.recalibrate(nn.BatchNorm1d(3), ["image.png"])


def test_an_error_of_the_network_itself_is_passed_on() -> None:
    class Faulty(OfTwo):
        def forward(self, left: Tensor, right: Tensor) -> Tensor:  # type: ignore[override]
            raise TypeError("an error of its own")

    with pytest.raises(TypeError, match=r"^an error of its own$"):
        rvsm.recalibrate(Faulty(), [(torch.ones(4, 3), torch.ones(4, 3))])
