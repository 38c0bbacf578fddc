"""The whitening of the fast network, and that it learns."""

import pytest
import torch
from torch import Tensor, nn

from rvsm.data import Batches, Digits, moments
from rvsm.models import MODELS, Prepared, convnet, fastnet


def _images(n: int = 300, channels: int = 3) -> Tensor:
    """Return images whose neighbouring pixels and channels are correlated."""
    noise = torch.randn(n, channels, 14, 14)
    mixed = torch.einsum("nchw,dc->ndhw", noise, torch.randn(channels, channels) + 1)
    return nn.functional.avg_pool2d(mixed, 3, stride=1) * 3 + 0.5


@pytest.mark.parametrize("channels", [1, 3])
def test_responses_are_uncorrelated_and_of_variance_1(channels: int) -> None:
    images = _images(channels=channels)
    model = fastnet(width=0.25, channels=channels, size=12).double()
    model.prepare(images)
    responses = model.whiten(images.double()).transpose(0, 1).flatten(1)
    half = 4 * channels
    torch.testing.assert_close(model.whiten.weight[half:], -model.whiten.weight[:half])
    covariance = torch.cov(responses[:half])
    # Filters v/√(λ + ε) give the variance λ/(λ + ε), which is 1 but for the weakest directions.
    variances = 1 - 5e-4 * model.whiten.weight[:half].flatten(1).square().sum(1)
    assert float(variances.max()) > 0.999
    torch.testing.assert_close(covariance, torch.diag(variances), atol=1e-4, rtol=0)


def test_filters_are_the_eigenvectors_the_strongest_first() -> None:
    images = _images(50)
    model = fastnet(width=0.25, size=12)
    model.prepare(images)
    patches = torch.cat([images[:, :, y : y + 11, x : x + 11].unsqueeze(-1) for y in (0, 1) for x in (0, 1)], -1)
    patches = patches.permute(0, 2, 3, 1, 4).reshape(-1, 12).double()
    covariance = torch.cov(patches.T, correction=0)
    filters = model.whiten.weight.detach().double().flatten(1)[:12]
    scales = filters.norm(dim=1)
    directions = filters / scales[:, None]
    values = 1 / scales**2 - 5e-4
    assert (values.diff() < 0).all()
    torch.testing.assert_close(directions @ covariance, values[:, None] * directions, atol=1e-4, rtol=1e-4)
    assert (directions.gather(1, directions.abs().argmax(1, keepdim=True)) > 0).all()


def test_prepare_is_repeatable_draws_nothing_and_may_be_given_any_layout() -> None:
    images = _images(600)  # more than one chunk
    first, second = fastnet(width=0.25, size=12), fastnet(width=0.25, size=12)
    state = torch.get_rng_state()
    first.prepare(images)
    assert torch.get_rng_state().equal(state)
    second.prepare(images.contiguous(memory_format=torch.channels_last))
    torch.testing.assert_close(first.whiten.weight, second.whiten.weight)
    before = first.whiten.weight.clone()
    first.prepare(images)
    assert first.whiten.weight.equal(before)
    first.prepare(images[:100])
    assert not first.whiten.weight.equal(before)


def test_flat_images_give_finite_filters() -> None:
    model = fastnet(width=0.25)
    model.prepare(torch.ones(4, 3, 32, 32))
    assert model.whiten.weight.isfinite().all()
    assert float(model.whiten.weight.abs().max()) <= 1 / 5e-4**0.5 + 1e-3


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.zeros(4, 1, 8, 8), r"shape \[n, 3, height, width\] but they are \[4, 1, 8, 8\]"),
        (torch.zeros(3, 8, 8), r"but they are \[3, 8, 8\]"),
        (torch.zeros(0, 3, 8, 8), r"but they are \[0, 3, 8, 8\]"),
        (torch.zeros(4, 3, 1, 8), r"but they are \[4, 3, 1, 8\]"),
        (torch.full((4, 3, 8, 8), float("nan")), "finite images"),
    ],
)
def test_images_that_are_refused(images: Tensor, message: str) -> None:
    model = fastnet(width=0.25)
    before = model.whiten.weight.clone()
    with pytest.raises(ValueError, match=message):
        model.prepare(images)
    assert model.whiten.weight.equal(before)


def test_the_protocol_tells_who_wants_to_be_prepared() -> None:
    assert isinstance(fastnet(width=0.25), Prepared)
    assert not isinstance(convnet(), Prepared)
    assert MODELS["fastnet"] is fastnet


def test_whitening_is_saved_and_not_trained() -> None:
    model = fastnet(width=0.25)
    model.prepare(_images())
    other = fastnet(width=0.25)
    other.load_state_dict(model.state_dict())
    assert other.whiten.weight.equal(model.whiten.weight)
    model(torch.randn(8, 3, 32, 32)).square().sum().backward()
    assert model.whiten.weight.grad is None
    assert model.whiten.bias.grad is not None


def test_autocast_and_channels_last_give_the_same_but_for_rounding() -> None:
    model = fastnet(width=0.25).eval()
    x = torch.randn(4, 3, 32, 32)
    model.prepare(x)
    plain = model(x)
    model = model.to(memory_format=torch.channels_last)
    x = x.contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(model(x), plain, atol=1e-5, rtol=1e-4)
    with torch.autocast("cpu", torch.bfloat16):
        short = model(x)
    assert short.dtype == torch.bfloat16
    torch.testing.assert_close(short.float(), plain, atol=0.05, rtol=0.05)


def test_it_learns_the_digits() -> None:
    data = Digits().load()
    mean, std = moments(data.train)
    batches = Batches(data.train, 128, seed=0, mean=mean, std=std)
    model = fastnet(width=0.25, channels=1, size=8)
    model.prepare(next(batches.epoch(0))[0])
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.2, momentum=0.9, nesterov=True)
    for epoch in range(8):
        for x, y in batches.epoch(epoch):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    model.eval()
    x, y = next(Batches(data.test, len(data.test), seed=0, mean=mean, std=std).epoch(0))
    assert float((model(x).argmax(1) == y).float().mean()) > 0.9
