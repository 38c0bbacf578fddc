"""Operations in place become functional, one by one where nothing else reads what they change."""

import pytest
import torch
from torch import Tensor, nn

import rvsm


class Net(nn.Module):
    """A convolution, a batch norm, and a given function of their result and of the input."""

    def __init__(self, function) -> None:
        super().__init__()
        self.conv, self.norm, self.function = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.norm(self.conv(x)), x)


def shared(y, x):
    z = y.flatten(1)
    y.relu_()
    return z  # is changed, too


def twice(y, x):
    before = y * 2
    return y.add_(x).relu_() + before


def view(y, x):
    return y[:, :2].relu_() if y.shape[0] else y


def an_input(y, x):
    return y + x.relu_()


def wider(y, x):
    return (y > 0).long().mul_(torch.ones(1, dtype=torch.long)).float() + y


NEED_DECOMPOSITIONS = [shared, twice, view, an_input, wider]
FUNCTIONS = [*NEED_DECOMPOSITIONS]
FUNCTIONS += [lambda y, x: y.relu_(), lambda y, x: y.add_(x).relu_(), lambda y, x: nn.functional.relu6(y.mul_(x), True)]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_the_result_is_that_of_the_model(function, decompositions: list[object]) -> None:
    model = Net(function).eval()
    x = torch.randn(3, 3, 5, 5)
    expected = model(x.clone())
    torch.testing.assert_close(rvsm.compile(model, x[:1].clone())(x.clone()), expected, rtol=1e-5, atol=1e-5)
    assert len(decompositions) == (function in NEED_DECOMPOSITIONS)


def test_a_batch_norm_that_updates_its_statistics_is_refused() -> None:
    class Training(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm2d(3)

        def forward(self, x: Tensor) -> Tensor:
            norm = self.norm
            return nn.functional.batch_norm(x, norm.running_mean, norm.running_var, training=True)

    with pytest.raises(ValueError, match=r"changes its buffer 'norm\.running_mean'"):
        rvsm.compile(Training().eval(), torch.zeros(2, 3, 4, 4))
