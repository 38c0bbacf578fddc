"""How long a budget takes to find its thresholds, beside a sort of the same weights.

Medians of interleaved repeats in one process, because a shared machine is noisy. Writes the table into
benchmarks/README.md. Run it with: python benchmarks/selection.py
"""

import argparse
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

import rvsm
from core import interleaved, machine, median_ratio
from rvsm.models import resnet18
from rvsm.splitting.layers import Layer

README = Path(__file__).parent / "README.md"
BEGIN, END = "<!-- selection: written by selection.py -->", "<!-- /selection -->"


def networks() -> dict[str, list[Layer]]:
    """Return the weights of some networks, by their number."""
    torch.manual_seed(0)
    weights = [(name, w.detach()) for name, w in resnet18().named_parameters() if w.dim() > 1]
    return {
        "1 M, one layer": [Layer("w", torch.randn(1000, 1000))],
        "11.2 M, the 21 layers of ResNet-18": [Layer(name, w) for name, w in weights],
        "100 M, ten layers": [Layer(str(i), (1 + i / 10) * torch.randn(2500, 4000)) for i in range(10)],
    }


def actions(layers: list[Layer]) -> dict[str, Callable[[], object]]:
    """Return the ways to the thresholds, by the name of their column."""
    everything = np.concatenate([layer.w.flatten().numpy() for layer in layers])
    return {
        "one sort": lambda: np.sort(everything),
        "a sort of each layer's magnitudes": lambda: [np.sort(layer.w.abs().flatten().numpy()) for layer in layers],
        "a common threshold": partial(rvsm.Budget(0.9, 100).cutoffs, layers, 0.8),
        "a threshold for each layer": partial(rvsm.Budget(0.9, 100, scope="layer").cutoffs, layers, 0.8),
    }


def report(repeats: int) -> str:
    """Run everything and return the table as Markdown."""
    lines = [f"Machine: {machine()}, NumPy {np.__version__}. {repeats} interleaved repeats.", ""]
    for number, layers in networks().items():
        times = interleaved(actions(layers), repeats)
        if len(lines) == 2:
            lines += [f"| weights | {', ms | '.join(times)}, ms | one sort ÷ a common threshold |", "| --- " * 6 + "|"]
        ratio = median_ratio(times["one sort"], times["a common threshold"])
        cells = [f"{1e3 * statistics.median(each):.1f}" for each in times.values()]
        lines.append(f"| {number} | {' | '.join(cells)} | {ratio:.1f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=9)
    table = report(parser.parse_args().repeats)
    print(table)
    head, rest = README.read_text().split(BEGIN)
    README.write_text(f"{head}{BEGIN}\n\n{table}\n\n{END}{rest.split(END)[1]}")


if __name__ == "__main__":
    main()
