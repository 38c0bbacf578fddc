"""Channels that disappear: RVSM on coupled groups and `rvsm.shrink`, beside Torch-Pruning's group-norm pruner.

ResNet-18 and VGG-16 at a quarter of their width, on CIFAR-10 halved to 16×16 pixels. Both methods train from scratch
for the same epochs, with the same optimizer, learning rates and batches; the last 30 % of the steps are for healing, or
for fine-tuning what is left. Torch-Pruning prunes until its network has no more multiplications than RVSM's. Both rank
the channels within each layer, or over all of them; nothing else is tried, and all rows are shown.

    python benchmarks/shrink.py run --data cifar10.tar      trains what is missing in benchmarks/shrink.jsonl
    python benchmarks/shrink.py table                       writes the table into benchmarks/README.md
"""

import argparse
import copy
import json
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from math import sqrt
from pathlib import Path
from typing import Any

import torch
import torch_pruning
from torch import Tensor, nn
from torch.nn import functional

import rvsm
from rvsm.data import CIFAR10
from rvsm.metrics import multiplications
from rvsm.models import MODELS

RESULTS, PAGE = Path(__file__).with_suffix(".jsonl"), Path(__file__).with_name("README.md")
BATCH, WIDTH, PIXELS, HEAL = 64, 0.25, 16, 0.3
NETWORKS = {"resnet18": 0.1, "vgg16": 0.05}  # with the largest learning rate of each


@dataclass(frozen=True)
class Data:
    """Images and labels, for training, validation and test."""

    train: tuple[Tensor, Tensor]
    validation: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Course:
    """How a network is trained: on which images, for how many epochs, up to which learning rate."""

    data: Data
    epochs: int
    lr: float

    @property
    def steps(self) -> int:
        """The number of optimizer steps."""
        return self.epochs * (len(self.data.train[0]) // BATCH)


def read(path: str, images: int) -> Data:
    dataset = CIFAR10(path).load()
    train, validation = dataset.hold_out(0.1, seed=0)
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(0))[:images]

    def halved(pixels: Tensor) -> Tensor:
        return functional.avg_pool2d(pixels.float().div(255), 2).sub(0.47).div(0.24)

    return Data(
        (halved(train.images[order]), train.labels[order]),
        (halved(validation.images[:2000]), validation.labels[:2000]),
        (halved(dataset.test.images[:5000]), dataset.test.labels[:5000]),
    )


def rate(step: int, steps: int) -> float:
    """Return the learning rate as a fraction of the largest: it rises for 15 % of the steps and then falls to 0."""
    progress = (step + 0.5) / steps
    return min(progress / 0.15, (1 - progress) / 0.85)


def batches(data: tuple[Tensor, Tensor], epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the shuffled batches of an epoch, half of the images mirrored; they depend on its number alone."""
    generator = torch.Generator().manual_seed(epoch)
    images, labels = data
    order = torch.randperm(len(images), generator=generator)
    for chunk in order[: len(order) // BATCH * BATCH].view(-1, BATCH):
        x = images[chunk]
        mirrored = torch.rand(len(x), generator=generator) < 0.5
        yield torch.where(mirrored[:, None, None, None], x.flip(3), x), labels[chunk]


def optimizer_for(model: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9, nesterov=True, weight_decay=5e-4)


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    course: Course,
    *,
    regularize: Callable[[], None] | None = None,
    first: int = 0,
    last: int | None = None,
) -> None:
    """Make the steps of a training, from the first to the last of them."""
    step = 0
    model.train()
    for epoch in range(course.epochs):
        for x, y in batches(course.data.train, epoch):
            if first <= step < (course.steps if last is None else last):
                for group in optimizer.param_groups:
                    group["lr"] = course.lr * rate(step, course.steps)
                optimizer.zero_grad()
                loss: Any = functional.cross_entropy(model(x), y)
                loss.backward()
                if regularize is not None:
                    regularize()
                optimizer.step()
            step += 1


def train_rvsm(model: nn.Module, course: Course, *, ratio: float, scope: Any) -> nn.Module:
    """Train with RVSM on coupled groups, and shrink."""
    optimizer = optimizer_for(model)
    for group in optimizer.param_groups:
        group["lr"] = course.lr
    # A network with a fraction d of its channels has about d² of its multiplications.
    budget = rvsm.Budget(1 - 1 / sqrt(ratio), course.steps, heal=HEAL, by="flops", scope=scope)
    last = [name for name, w in model.named_parameters() if w.dim() == 2][-1]
    example = course.data.test[0][:1]
    sparsifier = rvsm.RVSM(model, "l0", budget=budget, groups="coupled", exclude=[last], example_input=example)
    sparsifier.attach(optimizer)
    train(model, optimizer, course)
    sparsifier.finalize(recalibrate=(course.data.train[0][i : i + 500] for i in range(0, 2000, 500)))
    return rvsm.shrink(model, example)


def train_torch_pruning(model: nn.Module, course: Course, *, most: float, scope: str) -> nn.Module:
    """Train with the group-norm regularization, prune to a number of multiplications, and fine-tune."""
    last = [module for module in model.modules() if isinstance(module, nn.Linear)][-1]
    pruner = torch_pruning.pruner.GroupNormPruner(
        model,
        course.data.test[0][:1],
        importance=torch_pruning.importance.GroupMagnitudeImportance(p=2),
        reg=5e-4,
        global_pruning=scope == "global",
        pruning_ratio=1.0,
        iterative_steps=400,
        ignored_layers=[last],
    )
    begins = course.steps - round(HEAL * course.steps)
    train(model, optimizer_for(model), course, regularize=lambda: pruner.regularize(model), last=begins)
    for _ in range(400):
        if cost(model) <= most:
            break
        pruner.step()
    train(model, optimizer_for(model), course, first=begins)
    return model


def cost(model: nn.Module) -> float:
    """Return the multiplications for an image."""
    counts = multiplications(model, torch.zeros(1, 3, PIXELS, PIXELS))
    return sum(count * model.get_parameter(name).numel() for name, count in counts.items())


@torch.no_grad()
def accuracy(model: nn.Module, data: tuple[Tensor, Tensor]) -> float:
    model.eval()
    images, labels = data
    right = [model(images[i : i + 500]).argmax(1) == labels[i : i + 500] for i in range(0, len(images), 500)]
    return 100 * int(torch.cat(right).sum()) / len(images)


@torch.no_grad()
def times(dense: nn.Module, model: nn.Module, rounds: int = 60) -> dict[str, float]:
    """Return the milliseconds for an image, alone in its batch, of both networks in both engines, in turns."""
    x = torch.randn(1, 3, PIXELS, PIXELS)
    runs: dict[str, Callable[[], Any]] = {}
    for name, network in (("dense", dense.eval()), ("small", model.eval())):
        program = rvsm.compile(network, x)
        runs[f"{name}_eager_ms"] = partial(network, x)
        runs[f"{name}_runtime_ms"] = partial(program, x)
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            began = time.perf_counter()
            run()
            taken[name].append(1000 * (time.perf_counter() - began))
    return {name: statistics.median(found) for name, found in taken.items()}


def lines() -> list[dict[str, Any]]:
    if not RESULTS.exists():
        return []
    return [json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines()]


def run(path: str, images: int, epochs: int) -> None:
    torch.set_num_threads(1)
    data = read(path, images)
    wanted = [(network, "dense", 1, "") for network in NETWORKS]
    wanted += [
        (network, method, ratio, scope)
        for scope in ("layer", "global")
        for ratio in (2, 4)
        for network in NETWORKS
        for method in ("rvsm", "torch-pruning")
    ]
    for network, method, ratio, scope in wanted:
        key = {"network": network, "method": method, "ratio": ratio, "scope": scope, "images": images, "epochs": epochs}
        if not any(key.items() <= line.items() for line in lines()):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                line = measured(key, Course(data, epochs, NETWORKS[network]))
            with RESULTS.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            print(json.dumps(line), flush=True)


def measured(key: dict[str, Any], course: Course) -> dict[str, Any]:
    """Train what a key says, and return it with all that is measured."""
    torch.manual_seed(0)
    size = {"size": PIXELS} if key["network"] == "vgg16" else {}
    model: nn.Module = MODELS[key["network"]](width=WIDTH, **size)
    dense = copy.deepcopy(model)
    began = time.perf_counter()
    if key["method"] == "dense":
        train(model, optimizer_for(model), course)
    elif key["method"] == "rvsm":
        model = train_rvsm(model, course, ratio=key["ratio"], scope=key["scope"])
    else:
        pair = {**key, "method": "rvsm"}
        most = next(line["multiplications"] for line in lines() if pair.items() <= line.items())
        model = train_torch_pruning(model, course, most=most, scope=key["scope"])
    seconds = time.perf_counter() - began
    return {
        **key,
        "seed": 0,
        "multiplications": cost(model),
        "dense_multiplications": cost(dense),
        "parameters": sum(w.numel() for w in model.parameters()),
        "validation": accuracy(model, course.data.validation),
        "test": accuracy(model, course.data.test),
        "seconds": seconds,
        "torch": torch.__version__,
        "torch_pruning": version("torch-pruning"),
        **times(dense, model),
    }


def table() -> str:
    """Return a row for each line of the results."""
    order = ("images", "network", "scope", "ratio", "method")
    rows = [
        "| images | network | method | ranked | multiplications | fewer | accuracy % |"
        " PyTorch, ms (dense) | rvsm, ms (dense) |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for line in sorted(lines(), key=lambda line: [line[name] for name in order]):
        ranked = {"layer": "in each layer", "global": "over all layers", "": "-"}[line["scope"]]
        cells = [
            f"{line['images']:,}",
            line["network"],
            line["method"],
            ranked,
            f"{line['multiplications'] / 1e6:.2f} M",
            f"{line['dense_multiplications'] / line['multiplications']:.2f} ×",
            f"{line['test']:.1f}",
            *(
                f"{line[f'small_{engine}_ms']:.2f} ({line[f'dense_{engine}_ms']:.2f})"
                for engine in ("eager", "runtime")
            ),
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def write_table() -> None:
    begin, end = "<!-- shrink -->", "<!-- /shrink -->"
    page = PAGE.read_text(encoding="utf-8")
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise SystemExit(f"{PAGE} must have the comments {begin} and {end}, between which the table goes")
    PAGE.write_text(f"{before}{begin}\n\n{table()}\n\n{end}{after}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("command", choices=["run", "table"])
    parser.add_argument("--data", help="CIFAR-10: its binary archive, or a folder or archive of image files")
    parser.add_argument("--images", type=int, default=3000, help="training images")
    parser.add_argument("--epochs", type=int, default=6, help="passes over the training images")
    options = parser.parse_args()
    if options.command == "table":
        write_table()
    elif options.data is None:
        parser.error("run needs --data, the path of CIFAR-10")
    else:
        run(options.data, options.images, options.epochs)


if __name__ == "__main__":
    main()
