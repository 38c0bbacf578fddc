"""The sparse runtime against dense engines: ResNet-18 and VGG-16 for CIFAR, batches of 1, 16 and 64.

Masks are uniform and random on every convolution but the first; with --densities FILE (a run's model.safetensors, or
any state dict of the same layers) a further table has the densities of that network, layer by layer. All engines are
measured in one run, interleaved; figures are medians. Writes this machine's section of runtime.md, and its lines of
runtime.jsonl, beside this file.
"""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from rvsm.bench import Comparison, compare
from rvsm.lowering import compile
from rvsm.models import resnet18, vgg16
from rvsm.runtime import describe
from rvsm.runtime.kernels.jit import machine

HERE = Path(__file__).parent
GOALS = {  # network → batch → what is asked against float32, and against all
    "ResNet-18, 93.7 % zeros": {1: (3.0, 2.0), 16: (5.0, 2.5), 64: (5.0, 2.5)},
    "VGG-16, 86.9 % zeros": {16: (2.5, 1.3), 64: (2.5, 1.3)},
    "ResNet-18, 97 % zeros": {64: (9.0, 4.5)},
    "ResNet-18, 93.7 % zeros in blocks of 4 output channels": {64: (8.0, 4.0)},
}


def sparse(build: Callable[[], nn.Module], sparsity: float, *, block: int = 1) -> nn.Module:
    """Return the network with random zeros in every convolution but the first, in blocks of output channels."""
    torch.manual_seed(0)
    model = build()
    for weight in convolutions(model)[1:]:
        shape = (len(weight) // block, *weight.shape[1:])
        weight.data *= (torch.rand(shape) >= sparsity).repeat_interleave(block, 0)
    return with_statistics(model)


def with_densities(build: Callable[[], nn.Module], file: Path) -> nn.Module:
    """Return the network with random zeros, in each layer as many as in the trained network of ``file``."""
    torch.manual_seed(0)
    model = build()
    trained = load_file(file)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 4:
            density = float((trained[name] != 0).float().mean())
            parameter.data *= torch.rand_like(parameter) < density
    return with_statistics(model)


def convolutions(model: nn.Module) -> list[Tensor]:
    return [module.weight for module in model.modules() if isinstance(module, nn.Conv2d)]


def with_statistics(model: nn.Module) -> nn.Module:
    """Let batch norm see some noise, so that activations are neither dead nor huge."""
    model.train()
    with torch.no_grad():
        for _ in range(3):
            model(torch.randn(32, 3, 32, 32))
    return model.eval()


def loading(model: nn.Module) -> dict[str, float]:
    """Return size and loading times of the file, each in a fresh process."""
    program = compile(model, torch.zeros(1, 3, 32, 32))
    code = (
        "import sys, time; t = time.perf_counter(); import rvsm.runtime; u = time.perf_counter();"
        "rvsm.runtime.load(sys.argv[1]); print(u - t, time.perf_counter() - u)"
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.rvsm"
        program.save(path)
        times = [
            [float(x) for x in subprocess.check_output([sys.executable, "-c", code, str(path)], text=True).split()]
            for _ in range(3)
        ]
        size, content = path.stat().st_size, describe(path)
    return {
        "bytes": size,
        "of the least possible": size / (4 * content.nonzero + content.weights / 8),
        "of dense float32": size / (4 * content.weights),
        "import, s": min(t[0] for t in times),
        "load and compile, s": min(t[1] for t in times),
    }


def packages() -> str:
    names = ["torch", "numpy", "llvmlite", "onnxruntime", "openvino"]
    found = []
    for name in names:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"no {name}")
    return ", ".join(found)


def verdict(comparison: Comparison) -> list[str]:
    lines = []
    for batch, goals in GOALS.get(comparison.title, {}).items():
        for goal, precision, name in zip(goals, ("float32", None), ("float32", "any"), strict=True):
            reached = comparison.speedup(batch, precision=precision)
            if reached is not None:
                met = "met" if reached >= goal else "not met"
                lines.append(f"| {comparison.title} | {batch} | {name} | {goal:g} × | {reached:.1f} × | {met} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--engines", nargs="*", help="names of engines; all by default")
    parser.add_argument("--batches", nargs="*", type=int, default=[1, 16, 64])
    parser.add_argument("--only", help="only networks whose title has this in it")
    parser.add_argument("--densities", type=Path, help="safetensors of a trained sparse ResNet-18 of any width")
    parser.add_argument("--out", type=Path, default=HERE, help="the folder to write to (default: %(default)s)")
    options = parser.parse_args()
    cases: dict[str, Callable[[], nn.Module]] = {
        "ResNet-18, 93.7 % zeros": lambda: sparse(resnet18, 0.937),
        "VGG-16, 86.9 % zeros": lambda: sparse(vgg16, 0.869),
        "ResNet-18, 97 % zeros": lambda: sparse(resnet18, 0.97),
        "ResNet-18, 93.7 % zeros in blocks of 4 output channels": lambda: sparse(resnet18, 0.937, block=4),
    }
    if options.densities:
        cases["ResNet-18, densities of a trained network"] = lambda: with_densities(resnet18, options.densities)
    comparisons = []
    for title, build in cases.items():
        if options.only and options.only not in title:
            continue
        comparisons.append(
            compare(
                build(), torch.zeros(1, 3, 32, 32), title=title, batches=options.batches, engines=options.engines,
                threads=options.threads, rounds=options.rounds,
            )
        )  # fmt: skip
        print(comparisons[-1], end="\n\n", flush=True)
    file = loading(sparse(resnet18, 0.937))
    write(comparisons, file, options.threads, options.rounds, options.out)


INTRODUCTION = """# The sparse runtime

Written by `benchmarks/runtime.py` (`make bench-runtime`): each kind of machine has its section, and a run replaces
that of its own. × ours is an engine's time divided by ours. MB is by how much the process grew, at the peak, while the
engine was built and ran the largest batch; what several engines share counts for the first of them.
"""


def write(comparisons: list[Comparison], file: dict[str, float], threads: int, rounds: int, out: Path) -> None:
    """Replace the section of this machine in runtime.md, and its lines in runtime.jsonl."""
    about = (
        f"{os.cpu_count()} cores, {threads} threads for every engine; Python {platform.python_version()}, {packages()}."
        f" Medians of {rounds} interleaved rounds, {time.strftime('%Y-%m-%d')}."
    )
    goals = [line for comparison in comparisons for line in verdict(comparison)]
    section = [
        about, "",
        "| network | batch | against the fastest dense | asked | reached | |", "| --- | --- | --- | --- | --- | --- |",
        *goals, "",
        f"The file of ResNet-18 with 93.7 % zeros has {file['bytes']:,.0f} bytes:"
        f" {file['of the least possible']:.3f} × (non-zeros × 4 bytes + one bit for each weight),"
        f" {100 * file['of dense float32']:.1f} % of dense float32."
        f" `import rvsm.runtime` takes {file['import, s']:.2f} s,"
        f" and loading and compiling the file {file['load and compile, s']:.2f} s.", "",
        *[part for comparison in comparisons for part in (comparison.markdown(), "")],
    ]  # fmt: skip
    document, records = out / "runtime.md", out / "runtime.jsonl"
    known = sections(document.read_text(encoding="utf-8")) if document.exists() else {}
    known[machine().name] = "\n".join(section).strip()
    text = "\n\n".join([INTRODUCTION.strip(), *(f"## {name}\n\n{body}" for name, body in sorted(known.items()))])
    document.write_text(text + "\n", encoding="utf-8")
    lines = records.read_text(encoding="utf-8").splitlines() if records.exists() else []
    others = [line for line in lines if json.loads(line)["machine"] != machine().name]
    found = [*(record for comparison in comparisons for record in comparison.records()), {"title": "file", **file}]
    own = [json.dumps({"machine": machine().name, **record}, ensure_ascii=False) for record in found]
    records.write_text("\n".join([*others, *own]) + "\n", encoding="utf-8")
    print(f"written to {document}")


def sections(text: str) -> dict[str, str]:
    """Return what stands under each heading of the second level."""
    parts = re.split(r"^## (.*)$", text, flags=re.MULTILINE)
    return {name.strip(): body.strip() for name, body in zip(parts[1::2], parts[2::2], strict=True)}


if __name__ == "__main__":
    main()
