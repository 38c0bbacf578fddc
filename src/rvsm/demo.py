"""Train one small network on the digits by several methods, and compare them in the form of the paper's Table 1."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from torch import Tensor, nn
from torch.optim import SGD
from torch.optim.lr_scheduler import CosineAnnealingLR

from rvsm.data import Split, digits
from rvsm.metrics import sparsity
from rvsm.models import convnet
from rvsm.penalties import L0, L1, TransformedL1
from rvsm.splitting import ADMM, RVSM, Magnitude, Method

EPOCHS = 30
BATCH = 64
LEARNING_RATE = 0.1

# As in the paper's Table 1, one λ and one β serve all three penalties: what differs is the threshold that they imply.
# The total pull Σηβ is the paper's 33.
BETA = 1.0
LAM = 1e-3 * BETA

Recipe = Callable[[nn.Module, int], Method | None]


@dataclass(frozen=True)
class Row:
    """What came of one method: accuracies in per cent, sparsities as shares."""

    method: str
    dense_accuracy: float
    accuracy: float
    sparsity: float
    sparsity_of_all: float


def recipes() -> dict[str, Recipe]:
    """Return the methods to compare, by the name of their row; each takes the model and the number of steps."""
    return {
        "SGD": lambda model, steps: None,
        "RVSM ℓ1": lambda model, steps: RVSM(model, L1(lam=LAM), beta=BETA),
        "RVSM Tℓ1": lambda model, steps: RVSM(model, TransformedL1(lam=LAM, a=1.0), beta=BETA),
        "RVSM ℓ0": lambda model, steps: RVSM(model, L0(lam=LAM), beta=BETA),
        "RVSM ℓ0, 90 % asked": lambda model, steps: RVSM(model, "l0", sparsity=0.9, steps=steps),
        "Magnitude, 90 % asked": lambda model, steps: Magnitude(model, sparsity=0.9, steps=steps),
        "ADMM, 60 % asked": lambda model, steps: ADMM(model, sparsity=0.6, rho=1e-2, interval=steps // EPOCHS),
    }


def run(recipe: Recipe, data: Split, *, seed: int, tick: Callable[[], None]) -> tuple[float, float, float, float]:
    """Train one network; return the accuracy of w and of u, the sparsity of what was sparsified and that of all."""
    torch.manual_seed(seed)
    model = convnet()
    steps = EPOCHS * len(list(_batches(data, seed)))
    optimizer = SGD(model.parameters(), lr=LEARNING_RATE, momentum=0.9, nesterov=True, weight_decay=5e-4)
    schedule = CosineAnnealingLR(optimizer, steps)
    method = recipe(model, steps)
    if method is not None:
        method.attach(optimizer)
    for epoch in range(EPOCHS):
        for images, labels in _batches(data, seed + epoch):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
        tick()
    dense = _accuracy(model, data)
    if method is None:
        return dense, dense, 0.0, 0.0
    method.finalize(recalibrate=data.train_images)
    weights = [layer.w for layer in method.held]
    return dense, _accuracy(model, data), sparsity(weights), sparsity(model.parameters())


def demo(console: Console, *, seed: int = 0) -> list[Row]:
    """Run all methods with a progress bar, print the table and return its rows."""
    # A network this small gains nothing from a second thread, and waits for it whenever the machine is busy.
    torch.set_num_threads(1)
    data = digits(seed=seed)
    rows = []
    columns = (TextColumn("{task.description:24}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=EPOCHS * len(recipes()))
        for name, recipe in recipes().items():
            progress.update(task, description=name)
            rows.append(Row(name, *run(recipe, data, seed=seed, tick=lambda: progress.advance(task))))
    console.print(table(rows))
    console.print(
        f"All in per cent; {len(data.test_labels)} test images and one run with seed {seed}, so differences of half a"
        " point are chance. w are the weights at the end of training, u is the sparse network; zeros are counted over"
        " the weights of convolutions and linear layers, and over all parameters."
    )
    return rows


def table(rows: list[Row]) -> Table:
    """Return the rows as a table for the terminal."""
    shown = Table(title="A small convolutional network on the digits")
    shown.add_column("method", no_wrap=True)
    for head in ("accuracy of w", "accuracy of u", "zeros", "of all"):
        shown.add_column(head, justify="right", no_wrap=True)
    for row in rows:
        shown.add_row(
            row.method,
            f"{row.dense_accuracy:.2f}",
            f"{row.accuracy:.2f}",
            f"{100 * row.sparsity:.2f}",
            f"{100 * row.sparsity_of_all:.2f}",
        )
    return shown


def _batches(data: Split, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    order = torch.randperm(len(data.train_labels), generator=torch.Generator().manual_seed(seed))
    for chosen in torch.split(order, BATCH):
        yield data.train_images[chosen], data.train_labels[chosen]


@torch.no_grad()
def _accuracy(model: nn.Module, data: Split) -> float:
    model.eval()
    correct = float((model(data.test_images).argmax(1) == data.test_labels).float().mean())
    model.train()
    return 100 * correct
