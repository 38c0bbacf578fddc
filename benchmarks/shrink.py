"""Channels that disappear: RVSM on coupled groups and `rvsm.shrink`, beside Torch-Pruning's group-norm pruner.

ResNet-18 and VGG-16 at a quarter of their width, on CIFAR-10 halved to 16×16 pixels. Both methods train from scratch
for the same epochs, with the same optimizer, learning rates and batches. Torch-Pruning prunes until its network has no
more multiplications than RVSM's. Each method first tries its SETTINGS on ResNet-18 with fewer images. Torch-Pruning's
regularization acts at every step, so its strength is then chosen again with all images. The setting with the best
validation accuracy is used for every final row. Both methods rank the channels within each layer, so the shape of the
small network depends on the ratio alone, and its time can be measured without training it.

    python benchmarks/shrink.py run --data cifar10.tar      trains what is missing in benchmarks/shrink.jsonl
    python benchmarks/shrink.py time                        measures the times, on an idle machine
    python benchmarks/shrink.py table                       writes the tables into benchmarks/README.md
"""

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
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
BATCH, WIDTH, PIXELS = 128, 0.25, 16
NETWORKS = {"resnet18": 0.1, "vgg16": 0.05}  # with the largest learning rate of each
RATIOS = (2, 4)
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "rvsm": [
        {"ramp": 0.5, "heal": 0.3},
        {"ramp": 0.7, "heal": 0.3},
        {"ramp": 0.3, "heal": 0.5},
        {"ramp": 0.5, "heal": 0.3, "gradient": "w"},
    ],
    "torch-pruning": [
        {"reg": 1e-4, "heal": 0.3},
        {"reg": 5e-4, "heal": 0.3},
        {"reg": 2e-3, "heal": 0.3},
        {"reg": 5e-4, "heal": 0.5},
    ],
}


@dataclass(frozen=True)
class Data:
    """Images and labels, for training, validation and test."""

    train: tuple[Tensor, Tensor]
    validation: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Course:
    """How a network is trained: on which images, for how many epochs, up to which learning rate, with which seed."""

    data: Data
    epochs: int
    lr: float
    seed: int

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


def batches(data: tuple[Tensor, Tensor], epoch: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the shuffled batches of an epoch, half of the images mirrored; they depend on seed and epoch alone."""
    generator = torch.Generator().manual_seed(1000 * seed + epoch)
    images, labels = data
    order = torch.randperm(len(images), generator=generator)
    for chunk in order[: len(order) // BATCH * BATCH].view(-1, BATCH):
        x = images[chunk]
        mirrored = torch.rand(len(x), generator=generator) < 0.5
        x = torch.where(mirrored[:, None, None, None], x.flip(3), x)
        yield x.contiguous(memory_format=torch.channels_last), labels[chunk]


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
        for x, y in batches(course.data.train, epoch, course.seed):
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


def shrinkable(model: nn.Module, ratio: float, steps: int, **setting: Any) -> rvsm.RVSM:
    """Return RVSM on coupled groups, for a ratio of multiplications."""
    gradient = setting.pop("gradient", "auto")
    # A network with a fraction d of its channels has about d² of its multiplications.
    budget = rvsm.Budget(1 - 1 / sqrt(ratio), steps, by="flops", scope="layer", **setting)
    last = [name for name, w in model.named_parameters() if w.dim() == 2][-1]
    example = torch.zeros(1, 3, PIXELS, PIXELS)
    return rvsm.RVSM(
        model, "l0", budget=budget, groups="coupled", exclude=[last], example_input=example, gradient=gradient
    )


def train_rvsm(model: nn.Module, course: Course, *, ratio: float, **setting: Any) -> nn.Module:
    """Train with RVSM on coupled groups, and shrink."""
    optimizer = optimizer_for(model)
    for group in optimizer.param_groups:
        group["lr"] = course.lr
    sparsifier = shrinkable(model, ratio, course.steps, **setting).attach(optimizer)
    train(model, optimizer, course)
    sparsifier.finalize(recalibrate=(course.data.train[0][i : i + 500] for i in range(0, 5000, 500)))
    return rvsm.shrink(model, course.data.test[0][:1])


def train_torch_pruning(model: nn.Module, course: Course, *, most: float, reg: float, heal: float) -> nn.Module:
    """Train with the group-norm regularization, prune to a number of multiplications, and fine-tune."""
    last = [module for module in model.modules() if isinstance(module, nn.Linear)][-1]
    pruner = torch_pruning.pruner.GroupNormPruner(
        model,
        course.data.test[0][:1],
        importance=torch_pruning.importance.GroupMagnitudeImportance(p=2),
        reg=reg,
        pruning_ratio=1.0,
        iterative_steps=400,
        ignored_layers=[last],
    )
    begins = course.steps - round(heal * course.steps)
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


def lines(**wanted: Any) -> list[dict[str, Any]]:
    """Return the lines of the results that have these values."""
    if not RESULTS.exists():
        return []
    found = [json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines()]
    return [line for line in found if wanted.items() <= line.items()]


def add(line: dict[str, Any]) -> None:
    with RESULTS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    print(json.dumps(line), flush=True)


def run(path: str, images: int, tuning: int, epochs: int, seeds: int) -> None:
    """Train what is missing: first the settings on fewer images, then the rows with the best of them."""
    torch.set_num_threads(1)
    data = read(path, images)
    few = replace(data, train=(data.train[0][:tuning], data.train[1][:tuning]))
    for ratio in RATIOS:
        for method, settings in SETTINGS.items():
            for setting in settings:
                key = {"kind": "tuning", "network": "resnet18", "method": method, "ratio": ratio, "setting": setting}
                make({**key, "images": tuning, "epochs": epochs, "seed": 0}, few)
    for setting in SETTINGS["torch-pruning"]:
        if setting["heal"] == best("torch-pruning", tuning)["heal"]:
            key = {"kind": "tuning", "network": "resnet18", "method": "torch-pruning", "ratio": 2, "setting": setting}
            make({**key, "images": images, "epochs": epochs, "seed": 0}, data)
    for seed in range(seeds):
        for network in NETWORKS:
            rows = [("dense", 1), *((method, ratio) for ratio in RATIOS for method in SETTINGS)]
            for method, ratio in rows:
                setting = best(method, images if method == "torch-pruning" else tuning) if method in SETTINGS else {}
                key = {"kind": "final", "network": network, "method": method, "ratio": ratio, "setting": setting}
                make({**key, "images": images, "epochs": epochs, "seed": seed}, data)


def best(method: str, images: int) -> dict[str, Any]:
    """Return the setting with the best mean validation accuracy of those tried with so many images."""
    tried = lines(kind="tuning", method=method, images=images)
    found: dict[str, list[float]] = {}
    for line in tried:
        found.setdefault(json.dumps(line["setting"]), []).append(line["validation"])
    setting: dict[str, Any] = json.loads(max(found, key=lambda key: statistics.mean(found[key])))
    return setting


def make(key: dict[str, Any], data: Data) -> None:
    """Train the network of a key, unless it has a line."""
    if lines(**key):
        return
    torch.manual_seed(key["seed"])
    network, method = key["network"], key["method"]
    course = Course(data, key["epochs"], NETWORKS[network], key["seed"])
    model = small_network(network)
    dense = cost(model)
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if method == "dense":
            train(model, optimizer_for(model), course)
        elif method == "rvsm":
            model = train_rvsm(model, course, ratio=key["ratio"], **key["setting"])
        else:
            most = cost(untrained(network, key["ratio"]))
            model = train_torch_pruning(model, course, most=most, **key["setting"])
    add(
        {
            **key,
            "multiplications": cost(model),
            "dense_multiplications": dense,
            "parameters": sum(w.numel() for w in model.parameters()),
            "validation": accuracy(model, data.validation),
            **({"test": accuracy(model, data.test)} if key["kind"] == "final" else {}),
            "seconds": time.perf_counter() - began,
            "torch": torch.__version__,
            "torch_pruning": version("torch-pruning"),
        }
    )


def small_network(network: str, width: float = WIDTH) -> nn.Module:
    size = {"size": PIXELS} if network == "vgg16" else {}
    made: nn.Module = MODELS[network](width=width, **size)
    made.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return made


def untrained(network: str, ratio: float, width: float = WIDTH) -> nn.Module:
    """Return a network with the shape that RVSM leaves for a ratio."""
    model = small_network(network, width)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shrinkable(model, ratio, 1, ramp=0.0, heal=0.0).attach(optimizer_for(model)).finalize()
        return rvsm.shrink(model, torch.zeros(1, 3, PIXELS, PIXELS))


@torch.no_grad()
def measure_times(rounds: int = 40) -> None:
    """Measure the milliseconds for a batch at full width, dense and small, in both engines, in turns."""
    torch.set_num_threads(2)
    for network in NETWORKS:
        with torch.enable_grad():
            models = {1: small_network(network, 1.0), **{r: untrained(network, r, 1.0) for r in RATIOS}}
        for batch in (1, 64):
            x = torch.randn(batch, 3, PIXELS, PIXELS)
            engines: dict[tuple[int, str], Callable[[], Any]] = {}
            for ratio, model in models.items():
                engines[ratio, "pytorch"] = partial(model.eval(), x.contiguous(memory_format=torch.channels_last))
                engines[ratio, "rvsm"] = partial(rvsm.compile(model.eval(), x, threads=2), x)
            taken: dict[tuple[int, str], list[float]] = {key: [] for key in engines}
            for _ in range(rounds):
                for which, call in engines.items():
                    began = time.perf_counter()
                    call()
                    taken[which].append(1000 * (time.perf_counter() - began))
            for (ratio, engine), found in taken.items():
                key = {"kind": "time", "network": network, "ratio": ratio, "engine": engine, "batch": batch}
                add({**key, "threads": 2, "ms": statistics.median(found)})


def tables() -> str:
    """Return the tables of accuracy and of time."""
    rows = [
        "| network | method | multiplications | fewer | seeds | validation % | test % |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for network in NETWORKS:
        for ratio in (1, *RATIOS):
            for method in ("dense", *SETTINGS):
                found = lines(kind="final", network=network, ratio=ratio, method=method)
                if not found:
                    continue
                one = found[0]
                cells = [
                    network,
                    method,
                    f"{one['multiplications'] / 1e6:.2f} M",
                    f"{one['dense_multiplications'] / one['multiplications']:.2f} ×",
                    str(len(found)),
                    *(f"{statistics.mean(line[name] for line in found):.1f}" for name in ("validation", "test")),
                ]
                rows.append(f"| {' | '.join(cells)} |")
    rows += [
        "",
        "| network, full width, 16 × 16 pixels, 2 threads | batch"
        " | PyTorch: dense, 2 ×, 4 × fewer (ms) | rvsm: dense, 2 ×, 4 × fewer (ms) |",
        "| --- | --- | --- | --- |",
    ]
    for network in NETWORKS:
        for batch in (1, 64):
            cells = []
            for engine in ("pytorch", "rvsm"):
                times = [lines(kind="time", network=network, engine=engine, batch=batch, ratio=r) for r in (1, *RATIOS)]
                cells.append(", ".join(f"{one[-1]['ms']:.2f}" if one else "–" for one in times))
            rows.append(f"| {network} | {batch} | {' | '.join(cells)} |")
    return "\n".join(rows)


def write_table() -> None:
    begin, end = "<!-- shrink -->", "<!-- /shrink -->"
    page = PAGE.read_text(encoding="utf-8")
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise SystemExit(f"{PAGE} must have the comments {begin} and {end}, between which the table goes")
    PAGE.write_text(f"{before}{begin}\n\n{tables()}\n\n{end}{after}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("command", choices=["run", "time", "table"])
    parser.add_argument("--data", help="CIFAR-10: its binary archive, or a folder or archive of image files")
    parser.add_argument("--images", type=int, default=45_000, help="training images of the final rows")
    parser.add_argument("--tuning", type=int, default=9_000, help="training images with which settings are tried")
    parser.add_argument("--epochs", type=int, default=6, help="passes over the training images")
    parser.add_argument("--seeds", type=int, default=2, help="seeds of the final rows")
    options = parser.parse_args()
    if options.command == "table":
        write_table()
    elif options.command == "time":
        measure_times()
    elif options.data is None:
        parser.error("run needs --data, the path of CIFAR-10")
    else:
        run(options.data, options.images, options.tuning, options.epochs, options.seeds)


if __name__ == "__main__":
    main()
