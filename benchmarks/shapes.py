"""Networks by their shapes alone, at small batches: transformers, ResNet-50 and MobileNetV2 beside dense engines.

The networks are built from the layers of torch, with random weights, of which a given fraction is zero. All engines run
in one process, in turn; figures are medians. Memory is that of fresh processes, which load a file and run a call.
Writes this machine's section of shapes.md beside this file.

    python benchmarks/shapes.py                  # all networks: about half an hour
    python benchmarks/shapes.py --only BERT
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

import rvsm
from runtime import packages, sections
from rvsm.bench.comparison import Comparison, compare
from rvsm.models import MODELS, resnet18
from rvsm.runtime.kernels.jit import machine

HERE = Path(__file__).parent
ENGINES = ("PyTorch", "PyTorch, channels last", "ONNX Runtime", "OpenVINO", "rvsm")


def encoder(width: int, layers: int, heads: int, *, first: bool = False) -> nn.TransformerEncoder:
    """Return the encoder of BERT, or with ``first``, of ViT, where norms come first."""
    options = {"activation": "gelu", "batch_first": True, "norm_first": first}
    layer = nn.TransformerEncoderLayer(width, heads, 4 * width, **options)  # type: ignore[arg-type]
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


class ViT(nn.Module):
    """ViT-S/16."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 384, 16, stride=16)
        self.word = nn.Parameter(torch.randn(1, 1, 384))
        self.places = nn.Parameter(torch.randn(1, 197, 384))
        self.encoder, self.norm, self.head = encoder(384, 12, 6, first=True), nn.LayerNorm(384), nn.Linear(384, 1000)

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores of images."""
        patches = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.word.expand(x.shape[0], -1, -1), patches], 1) + self.places
        scores: Tensor = self.head(self.norm(self.encoder(tokens))[:, 0])
        return scores


def block(
    before: int, after: int, size: int, *, act: type[nn.Module] | None = nn.ReLU, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    """Return a convolution with batch norm and an activation."""
    convolution = nn.Conv2d(before, after, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(after), *([act()] if act else []))


class Bottleneck(nn.Module):
    """The block of ResNet-50."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        after = 4 * width
        self.body = nn.Sequential(
            block(before, width, 1), block(width, width, 3, stride=stride), block(width, after, 1, act=None)
        )
        same = stride == 1 and before == after
        self.short = nn.Identity() if same else block(before, after, 1, act=None, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        """Return the next map."""
        return torch.relu(self.body(x) + self.short(x))


def resnet50() -> nn.Sequential:
    """Return ResNet-50 for 224 × 224 pixels."""
    parts: list[nn.Module] = [block(3, 64, 7, stride=2), nn.MaxPool2d(3, 2, 1)]
    before = 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for number in range(count):
            parts.append(Bottleneck(before, width, 1 if number else stride))
            before = 4 * width
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


class Inverted(nn.Module):
    """The block of MobileNetV2."""

    def __init__(self, before: int, after: int, stride: int, factor: int) -> None:
        super().__init__()
        inside, act = factor * before, nn.ReLU6
        self.body = nn.Sequential(
            *([block(before, inside, 1, act=act)] if factor > 1 else []),
            block(inside, inside, 3, act=act, stride=stride, groups=inside),
            block(inside, after, 1, act=None),
        )
        self.same = stride == 1 and before == after

    def forward(self, x: Tensor) -> Tensor:
        """Return the next map."""
        y: Tensor = self.body(x)
        return x + y if self.same else y


def mobilenet_v2() -> nn.Sequential:
    """Return MobileNetV2 for 224 × 224 pixels."""
    parts: list[nn.Module] = [block(3, 32, 3, act=nn.ReLU6, stride=2)]
    before = 32
    rows = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for factor, after, count, stride in rows:
        for number in range(count):
            parts.append(Inverted(before, after, 1 if number else stride, factor))
            before = after
    head = [block(320, 1280, 1, act=nn.ReLU6), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 1000)]
    return nn.Sequential(*parts, *head)


@dataclass(frozen=True)
class Case:
    """A network, its fraction of zeros, and how much faster than the fastest dense engine it should be at batch sizes.

    ``sparse`` says of a weight's shape whether it gets zeros.
    """

    build: Callable[[], nn.Module]
    example: tuple[int, ...]
    zeros: float
    goals: dict[int, float]
    sparse: Callable[[torch.Size], bool] = lambda shape: len(shape) > 1 and shape[1] > 3


GRAY = {"convnet": (1, 8, 8), "lenet5": (1, 28, 28)}
CASES = {
    "BERT-base shape, 128 tokens, 90 % zeros": Case(lambda: encoder(768, 12, 12), (128, 768), 0.9, {1: 3.0}),
    "BERT-base shape, 128 tokens, 95 % zeros": Case(lambda: encoder(768, 12, 12), (128, 768), 0.95, {8: 5.0}),
    "ViT-S/16, 224 pixels, 90 % zeros": Case(ViT, (3, 224, 224), 0.9, {1: 2.5}),
    "ResNet-18 (CIFAR), 93.7 % zeros": Case(resnet18, (3, 32, 32), 0.937, {1: 5.0}),
    "ResNet-50, 224 pixels, 90 % zeros": Case(resnet50, (3, 224, 224), 0.9, {1: 3.0, 16: 3.0}),
    "MobileNetV2, 224 pixels, 90 % zeros in 1 × 1 convolutions": Case(
        mobilenet_v2, (3, 224, 224), 0.9, {1: 1.5}, lambda shape: len(shape) == 4 and shape[2:] == (1, 1)
    ),
    **{
        f"rvsm.models.{name}, 80 % zeros": Case(build, GRAY.get(name, (3, 32, 32)), 0.8, {1: 1.0})
        for name, build in MODELS.items()
    },
}


def made(case: Case) -> nn.Module:
    """Return the network, with zeros at random places."""
    torch.manual_seed(0)
    model = case.build().eval()
    with torch.no_grad():
        for w in model.parameters():
            if case.sparse(w.shape):
                w.masked_fill_(torch.rand_like(w) < case.zeros, 0)
    return model


LOAD = {
    "rvsm": "import rvsm.runtime; run = rvsm.runtime.load(path, threads=threads)",
    "ONNX Runtime": """
import onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = threads
session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
run = lambda x: session.run(None, {session.get_inputs()[0].name: x})
""",
}
RUN = """
import sys
import numpy
path, threads, shape = sys.argv[1], int(sys.argv[2]), tuple(map(int, sys.argv[3].split(",")))
{load}
for _ in range(3):
    run(numpy.zeros(shape, numpy.float32))
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
"""


def peaks(case: Case, threads: int) -> dict[str, int]:
    """Return the largest size, in megabytes, of a process that loads the network and runs the largest batch."""
    model, example = made(case), torch.zeros(1, *case.example)
    shape = ",".join(map(str, (max(case.goals), *case.example)))
    with tempfile.TemporaryDirectory() as folder:
        rvsm.compile(model, example, threads=1).save(f"{folder}/rvsm")
        rvsm.export.to_onnx(model, example, f"{folder}/onnx", verify=False)
        files = {"rvsm": f"{folder}/rvsm", "ONNX Runtime": f"{folder}/onnx"}
        command = {name: [sys.executable, "-c", RUN.format(load=load)] for name, load in LOAD.items()}
        return {
            name: int(subprocess.check_output([*command[name], file, str(threads), shape])) // 1024
            for name, file in files.items()
        }


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="only networks whose title has this in it")
    options = parser.parse_args()
    found: dict[str, Comparison] = {}
    memory: dict[str, dict[str, int]] = {}
    for title, case in CASES.items():
        if options.only in title:
            how = {
                "batches": tuple(case.goals),
                "engines": ENGINES,
                "threads": options.threads,
                "rounds": options.rounds,
            }
            found[title] = compare(made(case), torch.zeros(1, *case.example), title=title, **how)
            memory[title] = peaks(case, options.threads)
            print(found[title], f"Megabytes of a process: {memory[title]}", sep="\n", end="\n\n", flush=True)
    if not options.only:
        write(found, memory, options.threads, options.rounds)


def write(found: dict[str, Comparison], memory: dict[str, dict[str, int]], threads: int, rounds: int) -> None:
    """Replace the section of this machine in shapes.md."""
    goals = [
        f"| {title} | {batch} | {goal:g} × | {reached:.1f} × | {'met' if reached >= goal else 'missed'} |"
        f" {memory[title]['rvsm']} | {memory[title]['ONNX Runtime']} |"
        for title, comparison in found.items()
        for batch, goal in CASES[title].goals.items()
        for reached in [comparison.speedup(batch, precision="float32") or 0.0]
    ]
    section = [
        f"{os.cpu_count()} cores, {threads} threads for every engine; {packages()}. Medians of {rounds} rounds.", "",
        "| network | batch | goal against the fastest float32 engine | reached | | MB, rvsm | MB, ONNX Runtime |",
        "| --- | ---: | ---: | ---: | --- | ---: | ---: |", *goals, "",
        *[part for comparison in found.values() for part in (comparison.markdown(), "")],
    ]  # fmt: skip
    document = HERE / "shapes.md"
    known = sections(document.read_text(encoding="utf-8")) if document.exists() else {}
    known[machine().name] = "\n".join(section).strip()
    head = (
        "# Networks by their shapes\n\nWritten by `benchmarks/shapes.py`; each kind of machine has its section. MB is"
        " the largest size of a process\nthat loads a file and runs the largest batch."
    )
    text = "\n\n".join([head, *(f"## {name}\n\n{body}" for name, body in sorted(known.items()))])
    document.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
