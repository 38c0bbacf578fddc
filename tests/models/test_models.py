"""Every network of the registry, on images of several sizes."""

import inspect
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import nn

from rvsm.models import MODELS, resnet18, resnet20, vgg16

NARROW = {"convnet": {"width": 4}, "lenet5": {"width": 1.0}}


def _made(name: str, *, size: int, **options: int) -> nn.Module:
    """Return a narrow network, with its size if it has to know it."""
    maker = MODELS[name]
    sized = {"size": size} if "size" in inspect.signature(maker).parameters else {}
    return maker(**{**NARROW.get(name, {"width": 0.125}), **sized, **options})


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [8, 16, 28, 32])
def test_logits_and_gradients(name: str, channels: int, size: int) -> None:
    model = _made(name, size=size, channels=channels, classes=7)
    logits = model(torch.randn(4, channels, size, size))
    assert logits.shape == (4, 7)
    nn.functional.cross_entropy(logits, torch.arange(4)).backward()
    trained = [p for p in model.parameters() if p.requires_grad]
    assert all(p.grad is not None and p.grad.isfinite().all() and p.grad.any() for p in trained)


@pytest.mark.parametrize("name", MODELS)
def test_defaults_fit_each_other(name: str) -> None:
    parameters = inspect.signature(MODELS[name]).parameters
    assert all(p.kind is p.KEYWORD_ONLY and p.default is not p.empty for p in parameters.values())
    shape = (parameters["channels"].default, *(2 * [parameters["size"].default if "size" in parameters else 32]))
    assert MODELS[name]().eval()(torch.randn(1, *shape)).shape == (1, 10)


@pytest.mark.parametrize("model", [resnet18, resnet20, vgg16])
def test_width_scales_every_convolution(model: Callable[..., nn.Module]) -> None:
    whole, half = model(), model(width=0.5)
    pairs = zip(whole.modules(), half.modules(), strict=True)
    channels = [(a.out_channels, b.out_channels) for a, b in pairs if isinstance(a, nn.Conv2d)]
    assert len(channels) > 10
    assert all(a == 2 * b for a, b in channels)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 0}, "width .*must be >.* 0|width .*must be >= 1 but is 0"),
        ({"width": -1}, "but is -1"),
        ({"classes": 0}, "classes must be >= 1 but is 0"),
        ({"channels": -3}, "channels must be >= 1 but is -3"),
    ],
)
def test_impossible_networks_are_refused(name: str, options: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MODELS[name](**options)


@pytest.mark.parametrize(("name", "smallest"), [("convnet", 2), ("lenet5", 4), ("vgg16", 1), ("fastnet", 2)])
def test_the_smallest_image_works_and_a_smaller_one_is_refused(name: str, smallest: int) -> None:
    model = _made(name, size=smallest, channels=1).eval()
    assert model(torch.randn(2, 1, smallest, smallest)).shape == (2, 10)
    with pytest.raises(ValueError, match=f"at least {smallest}×{smallest} pixels but size is {smallest - 1}"):
        _made(name, size=smallest - 1, channels=1)


@pytest.mark.parametrize("name", MODELS)
def test_a_width_near_zero_leaves_one_channel(name: str) -> None:
    model = MODELS[name](width=1 if name == "convnet" else 1e-3)
    layers = [m for m in model.modules() if isinstance(m, nn.Conv2d) and m.weight.requires_grad]
    assert min(layer.out_channels for layer in layers) == 1


@pytest.mark.parametrize("name", MODELS)
def test_exports_and_gives_the_same(name: str) -> None:
    size = 28 if name == "lenet5" else 32
    model = _made(name, size=size, channels=3).eval()
    x = torch.randn(2, 3, size, size)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.export's own
        exported = torch.export.export(model, (x,)).module()
    torch.testing.assert_close(exported(x), model(x))
