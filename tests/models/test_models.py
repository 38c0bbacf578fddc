"""Every network of the registry, on an image of its size."""

import pytest
import torch

from rvsm.models import MODELS, resnet18, resnet20, vgg16

SHAPES = {"convnet": (1, 8, 8), "lenet5": (1, 28, 28)}


@pytest.mark.parametrize("name", MODELS)
def test_logits_and_gradients(name: str) -> None:
    model = MODELS[name](classes=7)
    logits = model(torch.randn(2, *SHAPES.get(name, (3, 32, 32))))
    assert logits.shape == (2, 7)
    logits.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters() if p.requires_grad)


@pytest.mark.parametrize("model", [resnet18, resnet20, vgg16])
def test_width_scales_every_convolution(model) -> None:
    whole, half = model(), model(width=0.5)
    pairs = zip(whole.modules(), half.modules(), strict=True)
    channels = [(a.out_channels, b.out_channels) for a, b in pairs if isinstance(a, torch.nn.Conv2d)]
    assert len(channels) > 10
    assert all(a == 2 * b for a, b in channels)
