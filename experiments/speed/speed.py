"""Accuracy at equal time: which zeros to train for a speed, and whether narrower dense networks would do as well.

    python experiments/speed/speed.py profile                              # while nothing else runs: a few minutes
    python experiments/speed/speed.py train --data cifar10.tar.xz --jobs 2 # stop and start it at any time
    python experiments/speed/speed.py time                                 # while nothing else runs
    python experiments/speed/speed.py table

`train` trains to several speeds with single weights, blocks of 2, 4 and 8 output channels, and whole filters; and dense
networks of several widths. `time` measures all finished networks at batch 1 and 64: the sparse ones in the runtime, the
dense ones in OpenVINO and ONNX Runtime, in float32, in bfloat16 if the processor multiplies it, and in int8, calibrated
with training images. Its lines are in speed.jsonl here. `table` writes the tables into docs/results.md and README.md,
and a picture for each width into results/pictures. Other options, such as --training.epochs 20, are those of each
training.

The sparse networks have a quarter of the width, so that many can be compared. The first three commands with

    --width 1 --seeds 1 --kinds dense element --speeds 6 4 10 --runs runs/flagship

are about the full width, and share its networks with experiments/flagship.
"""

import argparse
import json
import math
import os
import statistics
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator
from rich.console import Console
from torch import Tensor, nn

import rvsm
from rvsm.bench import ENGINES, OURS
from rvsm.bench.engines import Engine, called
from rvsm.config import Config, build, read_config
from rvsm.data import Dataset
from rvsm.export import onnx_feed, onnx_session, to_onnx
from rvsm.files import write_text
from rvsm.lowering.variants import Variants
from rvsm.markdown import between_marks, pipe_table
from rvsm.models import fastnet
from rvsm.records import folder_of
from rvsm.runtime.execute.program import Program
from rvsm.runtime.kernels.jit import machine
from rvsm.train import load_network, run_all
from rvsm.train.recorder import StoppedError

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
DOCUMENT, README = ROOT / "docs/results.md", ROOT / "README.md"
PICTURES = ROOT / "results/pictures"
BATCHES = (1, 64)
PATTERNS = {
    "element": ("single weights", ["--groups.name", "element"]),
    "block-2": ("blocks of 2", ["--groups.name", "block", "--groups.size", "2"]),
    "block-4": ("blocks of 4", ["--groups.name", "block", "--groups.size", "4"]),
    "block-8": ("blocks of 8", ["--groups.name", "block", "--groups.size", "8"]),
    "filter": ("whole filters", ["--groups.name", "filter"]),
}
FULL, SHARED_SPEED = 1.0, 6.0  # the width and the speed of the network in experiments/flagship
PRECISIONS = ("float32", "bfloat16", "int8")  # of the dense networks
NARROWER = (1.0, 0.75, 0.5, 0.375, 0.25)  # widths of the dense networks, as fractions of the sparse ones'


@dataclass(frozen=True)
class Point:
    """A network of the comparison: the file and the flags with which it is trained."""

    name: str
    title: str
    kind: str  # a pattern, or "dense"
    file: Path
    flags: tuple[str, ...]

    def config(self, options: argparse.Namespace) -> Config:
        """Return its training."""
        data = [] if options.data is None else ["--data.path", str(options.data)]
        flags = [*self.flags, *data, "--training.threads", "1", *options.flags]
        return read_config(self.file, ["--name", self.name, *flags])


def points(options: argparse.Namespace) -> Iterator[Point]:
    """Yield the dense networks, then the sparse ones, the middle speed first."""
    full = options.width == FULL
    dense = HERE.parent / ("flagship" if full else "frontier") / "fastnet-dense.toml"
    sparse = HERE.parent / "flagship/fastnet-rvsm-l0-speed-6.toml" if full else HERE / "fastnet-rvsm.toml"
    for factor in NARROWER if "dense" in options.kinds else ():
        width = repr(options.width * factor)
        name = dense.stem if full and factor == 1 else f"speed-{options.width}-dense-{width}"
        yield Point(name, f"dense, width {float(width):g}", "dense", dense, ("--model.width", width))
    for speed in options.speeds:
        for pattern, (title, groups) in PATTERNS.items():
            if pattern in options.kinds:
                target = ["--budget.speedup", repr(speed), "--budget.profile", str(profile_file(pattern, options))]
                flags = ("--model.width", repr(options.width), *groups, *target)
                same = full and pattern == "element" and speed == SHARED_SPEED
                name = sparse.stem if same else f"speed-{options.width}-{pattern}-{speed:g}"
                yield Point(name, f"{title}, {speed:g} ×", pattern, sparse, flags)


def sparse_kinds(options: argparse.Namespace) -> list[str]:
    """Return the patterns of zeros among the kinds."""
    return [kind for kind in options.kinds if kind != "dense"]


def profile_file(pattern: str, options: argparse.Namespace) -> Path:
    """Return where the times of a pattern are."""
    return Path(options.runs) / f"profile-{options.width}-{pattern}.json"


def profile(options: argparse.Namespace) -> None:
    """Measure the profile of each pattern."""
    image = torch.zeros(1, 3, options.size, options.size)
    for pattern in sparse_kinds(options):
        groups = build.grouping(read_config(HERE / "fastnet-rvsm.toml", PATTERNS[pattern][1])) or "element"
        model = fastnet(width=options.width, size=options.size)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the outputs of the network cannot be removed as filters
            found = rvsm.profile(model, image, groups=groups, batch=max(BATCHES), threads=options.threads)
        found.save(profile_file(pattern, options))
        print(PATTERNS[pattern][0], found, "", sep="\n", flush=True)


def train(options: argparse.Namespace) -> None:
    """Train what is missing, one seed after another."""
    if missing := [p for p in sparse_kinds(options) if not profile_file(p, options).exists()]:
        raise SystemExit(f"there is no profile for {missing[0]}; run first: speed.py profile")
    warnings.simplefilter("ignore", UserWarning)  # the whitening layer is frozen in all of them
    configs = [point.config(options) for point in points(options)]
    for seed in range(options.seeds):
        run_all(configs, seeds=[seed], runs=options.runs, console=Console(), jobs=options.jobs)


def measure(options: argparse.Namespace) -> None:
    """Time all finished networks among the points, and write a line for each; the lines of others are kept.

    What was measured before on the same kind of machine counts, too: the least is kept.
    """
    before = read(options)
    lines = {identity(line): line for line in before}
    for point in points(options):
        for seed in range(options.seeds):
            folder = folder_of(options.runs, point.name, seed)
            if (folder / "result.json").exists():
                for line in timed(point, folder, seed, options):
                    lines[identity(line)] = least(line, before)
                    print(json.dumps(lines[identity(line)], ensure_ascii=False), flush=True)
    written = sorted(lines.values(), key=lambda line: -line["width"])
    write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in written), options.lines)


def identity(line: dict[str, Any]) -> tuple[Any, ...]:
    """Return what identifies a line: the run and the precision."""
    return line["width"], line["name"], line["seed"], line["precision"]


def least(line: dict[str, Any], before: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return a line with the least times of it and of earlier lines that differ in nothing else."""
    line = json.loads(json.dumps(line))  # as it is in the file: batch sizes are strings
    for other in before:
        if {**other, "ms": None} == {**line, "ms": None}:
            for engine, times in line["ms"].items():
                known = other["ms"].get(engine, {})
                line["ms"][engine] = {batch: min(t, known.get(batch, t)) for batch, t in times.items()}
    return line


def timed(point: Point, folder: Path, seed: int, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the lines of a run: one for float32; for a dense network, also for the precisions of faster engines."""
    model, result = load_network(folder)
    image = torch.zeros(1, *result["input"])
    about = {"width": options.width, "name": point.name, "title": point.title, "kind": point.kind, "seed": seed}
    about |= {"epochs": result["epochs"], "zeros": result["sparsity"], "speed": result.get("speed")}
    about |= {"machine": machine().name, "threads": options.threads}
    accuracy = result["test"]["u"]["accuracy"]
    if point.kind != "dense":  # not what rvsm.compile may leave to PyTorch
        program = Program(Variants(model, (image,)).plan({}), threads=options.threads).prepare()
        yield {
            **about,
            "precision": "float32",
            "accuracy": accuracy,
            "ms": times({OURS: called(program)}, image, options),
        }
        return
    engines = {name: ENGINES[name].build(model, (image,), options.threads) for name in options.engines}
    yield {**about, "precision": "float32", "accuracy": accuracy, "ms": times(engines, image, options)}
    if not options.float32:
        images = Images(build.dataset(point.config(options).with_seed(seed)), result)
        with tempfile.TemporaryDirectory() as scratch:
            for precision, engines in reduced(model, images, Path(scratch), options):
                accuracy = images.accuracy(next(iter(engines.values())))
                yield {**about, "precision": precision, "accuracy": accuracy, "ms": times(engines, image, options)}


def times(engines: dict[str, Engine], image: Tensor, options: argparse.Namespace) -> dict[str, dict[int, float]]:
    """Return the median milliseconds of each engine at each batch size; they take turns."""
    found: dict[str, dict[int, float]] = {name: {} for name in engines}
    for batch in BATCHES:
        inputs = {name: engine.prepare((torch.randn(batch, *image.shape[1:]),)) for name, engine in engines.items()}
        taken: dict[str, list[float]] = defaultdict(list)
        for _ in range(options.rounds):
            for name, engine in engines.items():
                engine.run(inputs[name])
                for _ in range(3):
                    begin = time.perf_counter()
                    engine.run(inputs[name])
                    taken[name].append(time.perf_counter() - begin)
        for name, each in taken.items():
            found[name][batch] = 1e3 * statistics.median(each)
    return found


class Images:
    """The images of a run, normalised as in its training."""

    def __init__(self, data: Dataset, result: dict[str, Any]) -> None:
        self._data = data
        self._mean, self._std = (torch.tensor(result[key]).view(-1, 1, 1) for key in ("mean", "std"))
        self.shape = (1, *result["input"])

    def calibration(self) -> Iterator[Tensor]:
        """Yield some training images, in batches."""
        some = self._data.train[torch.arange(min(512, len(self._data.train)))].images
        yield from self._normalised(some).split(64)

    def accuracy(self, engine: Engine) -> float:
        """Return an engine's accuracy on the test images."""
        correct = 0
        for start in range(0, len(self._data.test), 500):
            some = self._data.test[torch.arange(start, min(start + 500, len(self._data.test)))]
            scores = engine.run(engine.prepare((self._normalised(some.images),)))[0]
            correct += int((torch.as_tensor(scores).argmax(1) == some.labels).sum())
        return correct / len(self._data.test)

    def _normalised(self, images: Tensor) -> Tensor:
        return (images / 255 - self._mean) / self._std


def reduced(
    model: nn.Module, images: Images, folder: Path, options: argparse.Namespace
) -> Iterator[tuple[str, dict[str, Engine]]]:
    """Yield the engines of a dense network in bfloat16, if the processor multiplies it, and in int8."""
    from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static  # noqa: PLC0415
    from onnxruntime.quantization.shape_inference import quant_pre_process  # noqa: PLC0415

    example = torch.zeros(images.shape)
    with_openvino = "OpenVINO" in options.engines
    if with_openvino:
        import openvino  # noqa: PLC0415

        core = openvino.Core()
        if "BF16" in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
            yield "bfloat16", {"OpenVINO": ENGINES["OpenVINO, bfloat16"].build(model, (example,), options.threads)}

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._batches = images.calibration()

        def get_next(self) -> dict[str, Any] | None:
            batch = next(self._batches, None)
            return None if batch is None else onnx_feed((batch,))

    to_onnx(model, example.expand(2, -1, -1, -1), folder / "float.onnx", verify=False)
    quant_pre_process(folder / "float.onnx", folder / "folded.onnx", skip_symbolic_shape=True)
    quantize_static(  # only what multiplies: of several choices the fastest in both engines, or equal
        folder / "folded.onnx", folder / "int8.onnx", Reader(), op_types_to_quantize=["Conv", "Gemm", "MatMul"],
        per_channel=True, activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8,
    )  # fmt: skip
    session = onnx_session(folder / "int8.onnx", threads=options.threads)
    engines = {"ONNX Runtime": Engine(onnx_feed, lambda feed: session.run(None, feed))}
    if with_openvino:
        settings = {"INFERENCE_NUM_THREADS": options.threads, "PERFORMANCE_HINT": "LATENCY"}
        compiled = core.compile_model(core.read_model(folder / "int8.onnx"), "CPU", settings)
        engines["OpenVINO"] = Engine(onnx_feed, lambda feed: list(compiled(feed).values()))
    yield "int8", engines


def table(options: argparse.Namespace) -> None:
    """Write the tables into docs/results.md and that of the full width into README.md, and draw the pictures."""
    lines = read(options)
    if not lines:
        raise SystemExit(f"{options.lines} has no networks; run first: speed.py time")
    text = []
    for width in dict.fromkeys(line["width"] for line in lines):
        own = [line for line in lines if line["width"] == width]
        picture = PICTURES / f"speed-{width}.png"
        _draw(own, picture)
        epochs = " or ".join(str(n) for n in dict.fromkeys(line["epochs"] for line in own))
        title = f"{'full width' if width == FULL else f'{width:g} of the width'}, {epochs} epochs"
        machines = " and ".join(dict.fromkeys(f"{line['machine']}, {line['threads']} threads" for line in own))
        text += [f"### The fast network, {title}", f"Times on {machines}.", _image(picture, DOCUMENT)]
        text += [*_patterns(own), *_against_dense(own), _all(own)]
        if width == FULL:
            _write(README, [*_against_dense(own, BATCHES[-1:]), _image(picture, README)])
    _write(DOCUMENT, text)


def _write(document: Path, parts: Sequence[str]) -> None:
    text = "\n\n".join(part.rstrip() for part in parts)
    write_text(between_marks(document.read_text(encoding="utf-8"), "speed", text), document)


def _image(picture: Path, document: Path) -> str:
    return f"![Accuracy against time]({Path(os.path.relpath(picture, document.parent)).as_posix()})"


def read(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the measured networks."""
    if not options.lines.exists():
        return []
    return [json.loads(line) for line in options.lines.read_text(encoding="utf-8").splitlines()]


def curve(lines: Iterable[dict[str, Any]], batch: int) -> list[tuple[float, float, float]]:
    """Return the milliseconds in the fastest engine, the accuracy and its deviation of each network, by time."""
    networks: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for line in lines:
        fastest = min(each[str(batch)] for each in line["ms"].values())
        networks[line["name"]].append((fastest, 100 * line["accuracy"]))
    found = []
    for seeds in networks.values():
        milliseconds, accuracies = zip(*seeds, strict=True)
        deviation = statistics.stdev(accuracies) if len(seeds) > 1 else 0.0
        found.append((statistics.mean(milliseconds), statistics.mean(accuracies), deviation))
    return sorted(found)


def at_time(found: Sequence[tuple[float, float, float]], milliseconds: float) -> str:
    """Return the accuracy at a time between two networks, on the line between them over the logarithm of the time."""
    times = [math.log(t) for t, _, _ in found]
    if len(found) < 2 or not times[0] <= math.log(milliseconds) <= times[-1]:
        return "–"
    return f"{np.interp(math.log(milliseconds), times, [a for _, a, _ in found]):.2f}"


def _patterns(lines: Sequence[dict[str, Any]]) -> list[str]:
    """Compare the patterns at times that all of them reach: the shortest, the longest, and one between the two."""
    text = []
    for batch in BATCHES:
        curves = {p: curve([line for line in lines if line["kind"] == p], batch) for p in PATTERNS}
        several = {p: found for p, found in curves.items() if len(found) > 1}
        shortest = max((found[0][0] for found in several.values()), default=0.0)
        longest = min((found[-1][0] for found in several.values()), default=0.0)
        if len(several) > 1 and shortest < longest:
            at = (shortest, math.sqrt(shortest * longest), longest)
            head = [f"batch {batch}: test accuracy, %, at", *(f"{t:.3g} ms" for t in at)]
            text.append(pipe_table(head, [[PATTERNS[p][0], *(at_time(c, t) for t in at)] for p, c in several.items()]))
    return text


def _against_dense(lines: Sequence[dict[str, Any]], batches: Sequence[int] = BATCHES) -> list[str]:
    """Compare each sparse network with dense networks that take as long."""
    text = []
    dense = {p: [line for line in lines if line["kind"] == "dense" and line["precision"] == p] for p in PRECISIONS}
    sparse = {t: own for t, own in by_title(lines).items() if own[0]["kind"] != "dense"}
    for batch in batches if dense["float32"] else ():
        curves = {f"dense {p}": curve(own, batch) for p, own in dense.items() if own}
        widest = curves["dense float32"][-1][0]
        rows = []
        for title, own in sorted(sparse.items(), key=lambda item: curve(item[1], batch)):
            milliseconds, accuracy, _ = curve(own, batch)[0]
            cells = [f"{milliseconds:.3g}", f"{widest / milliseconds:.1f} ×", f"{accuracy:.2f}"]
            rows.append([title, *cells, *(at_time(found, milliseconds) for found in curves.values())])
        head = [f"batch {batch}", "ms", "speed", "accuracy, %", *(f"{p}, %" for p in curves)]
        text.append(pipe_table(head, rows))
    return text


def by_title(lines: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return the seeds of each network."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        found[line["title"]].append(line)
    return found


def _all(lines: Sequence[dict[str, Any]]) -> str:
    """List all networks."""
    head = ["network", "precision", "zeros", "test accuracy, %", *(f"ms, batch {batch}" for batch in BATCHES), "engine"]
    rows = []
    for title, precision in dict.fromkeys((line["title"], line["precision"]) for line in lines):
        own = [line for line in lines if (line["title"], line["precision"]) == (title, precision)]
        accuracies = [100 * line["accuracy"] for line in own]
        spread = f" ± {statistics.stdev(accuracies):.2f}" if len(own) > 1 else " (one seed)"
        cells = [f"{curve(own, batch)[0][0]:.3g}" for batch in BATCHES]
        last = str(BATCHES[-1])
        engine = min(own[0]["ms"], key=lambda key: own[0]["ms"][key][last])
        zeros = f"{100 * statistics.mean(line['zeros'] for line in own):.1f} %"
        rows.append([title, precision, zeros, f"{statistics.mean(accuracies):.2f}{spread}", *cells, engine])
    return pipe_table(head, rows, texts=("precision", "engine"))


def _draw(lines: Sequence[dict[str, Any]], file: Path) -> None:
    figure = Figure(figsize=(9, 4), layout="constrained")
    series = {PATTERNS[p][0]: [line for line in lines if line["kind"] == p] for p in PATTERNS}
    dense = [line for line in lines if line["kind"] == "dense"]
    series |= {f"dense, {p}": [line for line in dense if line["precision"] == p] for p in PRECISIONS}
    panels: Any = figure.subplots(1, len(BATCHES), sharey=True)
    for axes, batch in zip(panels, BATCHES, strict=True):
        for title, own in series.items():
            if found := curve(own, batch):
                x, y, error = zip(*found, strict=True)
                style = "--" if title.startswith("dense") else "-"
                axes.errorbar(x, y, yerr=error, marker="o", markersize=4, capsize=3, linestyle=style, label=title)
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter("")
        axes.set(title=f"batch {batch}", xlabel="ms for a call, in the fastest engine")
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("test accuracy, %")
    panels[-1].legend(fontsize=8)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=110)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=list(COMMANDS))
    parser.add_argument("--data", type=Path, help="an archive or a folder of CIFAR-10")
    parser.add_argument("--runs", type=Path, default=Path("runs/speed"), help="where the runs and the profiles are")
    parser.add_argument("--width", type=float, default=0.25, help="of the sparse networks (default: %(default)s)")
    parser.add_argument("--speeds", nargs="*", type=float, default=[3.0, 6.0], help="times as fast as dense")
    kinds = ["dense", *PATTERNS]
    parser.add_argument("--kinds", nargs="*", default=kinds, choices=kinds, metavar="KIND", help=", ".join(kinds))
    parser.add_argument("--seeds", type=int, default=3, help="how many seeds")
    parser.add_argument("--jobs", type=int, default=2, help="how many are trained at once, with one thread each")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of the measured networks")
    parser.add_argument("--rounds", type=int, default=15, help="of the measurements")
    parser.add_argument("--size", type=int, default=32, help="height and width of the images")
    parser.add_argument("--engines", nargs="*", default=["OpenVINO", "ONNX Runtime"], help="of the dense networks")
    parser.add_argument("--float32", action="store_true", help="leave out the dense networks in bfloat16 and int8")
    parser.add_argument(
        "--lines", type=Path, default=Path(__file__).with_name("speed.jsonl"), help="the measured networks"
    )
    options, options.flags = parser.parse_known_args(namespace=argparse.Namespace())
    try:
        COMMANDS[options.command](options)
    except (StoppedError, ValueError) as stopped:
        raise SystemExit(str(stopped)) from None


COMMANDS = {"profile": profile, "train": train, "time": measure, "table": table}


if __name__ == "__main__":
    main()
