"""Predicted times against measured ones: ResNet-18, VGG-16 and the fast network, batches of 1 and 64, with blocks.

For each network, batch size and grouping, a profile is measured as `rvsm profile` does. Then the budget chooses the
zeros for several speeds, as at the end of a training, and `rvsm bench` measures that network: its median time, and its
speed relative to the dense network in the runtime. Run it while nothing else runs. Writes its table into README.md.
"""

import argparse
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

import rvsm
from rvsm.bench import OURS, compare
from rvsm.lowering.variants import Variants
from rvsm.markdown import pipe_table
from rvsm.models import MODELS
from rvsm.runtime.execute.program import Program
from rvsm.runtime.kernels.jit import machine
from rvsm.splitting.layers import Layers
from rvsm.splitting.naming import select

README = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- prediction: written by prediction.py -->", "<!-- /prediction -->"
IMAGE = torch.zeros(1, 3, 32, 32)
GROUPS: dict[str, str | rvsm.Block] = {"elements": "element", "blocks of 4": rvsm.Block(size=4)}
TOLERANCE = 0.1


@dataclass(frozen=True)
class Row:
    """One network with zeros: predicted and measured seconds, of it and of the dense network."""

    network: str
    groups: str
    batch: int
    target: float
    zeros: float
    predicted: float
    measured: float
    dense_predicted: float
    dense_measured: float

    @property
    def speed(self) -> float:
        """How many times faster than the dense network it is, as measured."""
        return self.dense_measured / self.measured

    @property
    def error(self) -> float:
        """By how much the predicted time differs from the measured one."""
        return self.predicted / self.measured - 1

    @property
    def speed_error(self) -> float:
        """By how much the predicted speed differs from the measured one; a slow moment of the machine cancels out."""
        return self.dense_predicted / self.predicted / self.speed - 1

    def cells(self) -> list[str]:
        """Return the cells of the table."""
        return [
            self.network,
            self.groups,
            str(self.batch),
            f"{self.target:g} ×",
            f"{100 * self.zeros:.1f} %",
            f"{1e3 * self.predicted:.3g} ms",
            f"{1e3 * self.measured:.3g} ms",
            f"{100 * self.error:+.1f} %",
            f"{self.speed:.2f} ×",
            f"{100 * self.speed_error:+.1f} %",
        ]


HEAD = ["network", "zeros by", "batch", "target", "zeros", "predicted", "measured", "error", "speed", "error of speed"]


def rows(name: str, groups: str, batch: int, options: argparse.Namespace) -> Iterator[Row]:
    """Measure a profile, and then the networks that it is about."""
    torch.manual_seed(0)
    model = _trained_like(MODELS[name]())
    began = time.perf_counter()
    profile = rvsm.profile(model, IMAGE, groups=GROUPS[groups], batch=batch, threads=options.threads)
    print(f"{name}, {groups}, batch {batch}: measured in {time.perf_counter() - began:.1f} s", flush=True)
    variants = Variants(model, (IMAGE,))
    dense = _seconds(model, Program(variants.plan({}), threads=options.threads), batch, options)
    layers = Layers(layer for layer in select(model, None, None) if layer.parameter.requires_grad)
    for layer in layers:
        layer.groups = rvsm.Block(size=4) if groups == "blocks of 4" else layer.groups
    for target in options.speeds:
        budget = rvsm.Budget(speedup=target, steps=1, profile=profile)
        try:
            budget.check(layers)
        except ValueError as error:
            print(error)
            continue
        zeros = budget.zeros(layers, budget.goal)
        weights = {layer.name: layer.parameter.detach().masked_fill(zeros[layer.name], 0.0) for layer in layers}
        seconds = _seconds(model, Program(variants.plan(weights), threads=options.threads), batch, options, weights)
        share = sum(int(mask.sum()) for mask in zeros.values()) / sum(mask.numel() for mask in zeros.values())
        predicted = profile.seconds({name: 1 - float(mask.float().mean()) for name, mask in zeros.items()})
        yield Row(name, groups, batch, target, share, predicted, seconds, profile.dense, dense)


def _seconds(
    model: nn.Module,
    program: Program,
    batch: int,
    options: argparse.Namespace,
    weights: dict[str, Tensor] | None = None,
) -> float:
    """Return the median seconds of a call, as rvsm bench measures them."""
    kept = {name: w.detach().clone() for name, w in model.named_parameters()}
    with torch.no_grad():
        for name, w in (weights or {}).items():
            model.get_parameter(name).copy_(w)
        found = compare(
            model, IMAGE, program=program.prepare(), batches=[batch], engines=[OURS], threads=options.threads,
            rounds=options.rounds,
        )  # fmt: skip
        for name, w in kept.items():
            model.get_parameter(name).copy_(w)
    [measurement] = found.measurements
    assert measurement.seconds is not None
    return measurement.seconds


def _trained_like(model: nn.Module) -> nn.Module:
    """Make weights normally distributed, which trained ones nearly are, and let batch norm see some noise.

    The weights of new layers are uniformly distributed: a threshold would soon empty one layer and leave the next.
    """
    for w in model.parameters():
        if w.dim() > 1:
            nn.init.normal_(w, std=float(w.detach().std()))
    model.train()
    with torch.no_grad():
        for _ in range(3):
            model(torch.randn(32, 3, 32, 32))
    return model.eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", nargs="*", default=["resnet18", "vgg16", "fastnet"], help="names of networks")
    parser.add_argument("--batches", nargs="*", type=int, default=[1, 64])
    parser.add_argument("--groups", nargs="*", default=list(GROUPS), choices=list(GROUPS))
    parser.add_argument("--speeds", nargs="*", type=float, default=[1.5, 3.0, 5.0, 8.0])
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--dry", action="store_true", help="only print the table")
    options = parser.parse_args()
    found = []
    for name in options.networks:
        for batch in options.batches:
            for groups in options.groups:
                for row in rows(name, groups, batch, options):
                    found.append(row)
                    print("  ".join(row.cells()), flush=True)
    off = [row for row in found if abs(row.error) > TOLERANCE]
    text = [
        f"{machine().name}, {options.threads} threads, {options.rounds} rounds, {time.strftime('%Y-%m-%d')}."
        f" {len(found) - len(off)} of {len(found)} predictions are within {100 * TOLERANCE:.0f} % of the measurement.",
        "",
        pipe_table(HEAD, [row.cells() for row in found]),
    ]
    print("\n".join(text))
    if not options.dry:
        before, _, rest = README.read_text(encoding="utf-8").partition(BEGIN)
        _, _, after = rest.partition(END)
        README.write_text("\n".join([before + BEGIN, "", *text, "", END + after]), encoding="utf-8")


if __name__ == "__main__":
    main()
