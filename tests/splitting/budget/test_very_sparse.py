"""Networks with one weight in two hundred still learn, and none of their layers dies."""

import pytest
import torch
from torch import Tensor, nn

import rvsm
from rvsm.data import Digits

STEPS = 120


def trained(by: str) -> tuple[rvsm.RVSM, float]:
    """Train on the digits with 99.5 % zeros; return the method, and the accuracy on the test images."""
    torch.manual_seed(0)
    digits = Digits().load()
    x, xt = (part.images.float() / 127.5 - 1 for part in (digits.train, digits.test))
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.Flatten(), nn.Linear(1024, 10),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    budget = rvsm.Budget(0.995, STEPS, by=by)
    method = rvsm.RVSM(model, "l0", budget=budget, example_input=x[:2]).attach(optimizer)
    for _ in range(STEPS):
        chosen = torch.randint(len(x), (64,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[chosen]), digits.train.labels[chosen]).backward()
        optimizer.step()
        schedule.step()
    method.finalize(recalibrate=x[:1000])
    model.eval()
    with torch.no_grad():
        answers: Tensor = model(xt).argmax(1)
    return method, float((answers == digits.test.labels).float().mean())


@pytest.mark.parametrize("by", ["weights", "flops"])
def test_no_layer_dies(by: str) -> None:
    method, accuracy = trained(by)
    kept = {layer.name: layer.weights - layer.zeros for layer in method.statistics().layers}
    assert min(kept.values()) >= 6
    # By weights, 145 are left; by multiplications the convolutions have 24 between them.
    assert accuracy > (0.5 if by == "weights" else 0.1)
