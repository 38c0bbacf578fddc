"""What RVSM adds to a training step on many processes: by formula, by counters, and measured on this machine.

The three commands write the tables of docs/scale.md:

    python benchmarks/scale.py count      # operations of a step; messages of a look on 1, 2 and 4 processes
    python benchmarks/scale.py sheet      # from the formulas: 7 B, 70 B and 1 T weights on 8 to 4,096 ranks
    python benchmarks/scale.py fsdp       # steps of FSDP2 with and without RVSM: messages, and times on 2 processes
"""

import argparse
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, log2
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.multiprocessing.spawn import spawn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import rvsm
from core import interleaved, machine, median_ratio
from rvsm.markdown import pipe_table
from rvsm.splitting.magnitudes import Magnitudes, survey
from rvsm.splitting.quantiles import parts_at_once
from rvsm.splitting.ranks import Ranks
from rvsm.splitting.selection import candidates, cutoffs, together

PAGE = Path(__file__).parents[1] / "docs" / "scale.md"
STEPS = 10_000


# A look at the weights, in messages


def rounds(keys: int, terms: int) -> int:
    """Return how often a search divides so many floating-point numbers until one is left."""
    return ceil(log2(keys) / log2(parts_at_once(terms)))


def look(tensors: int, capped: int = 0, largest: float = 8.0) -> tuple[int, int]:
    """Return how many messages each rank sends at most for one look at so many divided tensors, and their bytes.

    Args:
        tensors: the number of tensors.
        capped: how many of them are at their floor; for these, another search finds the group at which it lies.
        largest: the largest magnitude, which bounds the floating-point numbers among which the thresholds are.

    """
    keys = int(np.float32(largest).view(np.int32)) + 1
    messages, size = 2, tensors * 8 * (4 + 3)  # sizes, samples and costs; extremes
    for terms in (tensors, capped) if capped else (tensors,):
        estimated, exact = rounds(keys, 2 * terms), rounds(keys, terms)
        messages += estimated + 1 + exact + 2
        size += 2 * terms * 4 * (parts_at_once(2 * terms) - 1) * estimated  # two ends of an interval, in float32
        size += terms * 8 * 2  # whether it contains the threshold
        size += terms * 8 * (parts_at_once(terms) - 1) * exact
        size += terms * 8 * (4 + 1)  # what is there, and what follows
    return messages, size


def look_at_shards(rank: int, processes: int, folder: str, sizes: list[int], repeats: int) -> None:
    """Measure looks at tensors of which each process has an equal part."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=processes)
    ranks = Ranks.of(dist.group.WORLD)
    whole = [torch.randn(size, generator=torch.Generator().manual_seed(i)) for i, size in enumerate(sizes)]
    parts = [w.tensor_split(processes)[rank].clone() for w in whole]
    del whole
    times, thresholds = [], []
    for _ in range(repeats + 1):
        dist.barrier()
        ranks.messages = ranks.sent = 0
        began = time.perf_counter()
        populations = survey([Magnitudes([part], costs=np.ones(1), ranks=ranks) for part in parts])
        pool = candidates(populations, [1] * len(parts))
        counts, at = together(pool, 0.9 * sum(sizes))
        thresholds.append(cutoffs(pool, counts, at)[0])
        times.append(time.perf_counter() - began)
    if rank == 0:
        found = [statistics.median(times[1:]), ranks.messages, ranks.sent, thresholds[-1]]
        torch.save(found, f"{folder}/found.pt")
    dist.destroy_process_group()


def spawned(work: Callable[..., None], processes: int, *arguments: object) -> Any:
    """Return what the first of some processes has found."""
    with tempfile.TemporaryDirectory() as folder:
        spawn(work, (processes, folder, *arguments), processes)  # type: ignore[no-untyped-call]
        return torch.load(f"{folder}/found.pt")


def looks(repeats: int) -> str:
    """Return what looks take on 1, 2 and 4 processes, and what the formula says."""
    networks = {"8 tensors, 16 M weights": [2_000_000] * 8, "200 tensors, 20 M weights": [100_000] * 200}
    rows = []
    for name, sizes in networks.items():
        found = {processes: spawned(look_at_shards, processes, sizes, repeats) for processes in (1, 2, 4)}
        assert len({threshold for *_, threshold in found.values()}) == 1, "the threshold depends on the processes"
        for processes, (seconds, messages, sent, _) in found.items():
            at_most = look(len(sizes)) if processes > 1 else (0, 0)
            assert (messages, sent) <= at_most, "the formula is wrong"
            numbers = (1e3 * seconds, messages, at_most[0], sent / 1e3, at_most[1] / 1e3)
            rows.append([name, str(processes), *(f"{number:.0f}" for number in numbers)])
    return pipe_table(["weights", "processes", "look, ms", "messages", "at most", "kB sent by each", "at most"], rows)


# A step, in operations


class Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the operations that torch performs, and the bytes that these read and write; views are free."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts = np.zeros(3)  # operations, bytes, elements computed

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not func.is_view:
            tensors = [each for each in tree_leaves((args, kwargs, result)) if isinstance(each, Tensor)]
            computed = sum(each.numel() for each in tree_leaves(result) if isinstance(each, Tensor))
            self.counts += [1, sum(each.numel() * each.element_size() for each in tensors), computed]
        return result


@dataclass(frozen=True)
class Step:
    """What RVSM adds to a step, for one tensor of 32-bit weights: operations, and for each weight bytes and flops.

    Attributes:
        operations: for a tensor of one block; each operation is a kernel that has to be started.
        per_block: for each further block of 2¹⁸ weights.
        traffic: bytes read and written for each weight.
        flops: numbers computed for each weight.
        memory: bytes kept for each weight between steps.

    """

    operations: int
    per_block: int
    traffic: float
    flops: float
    memory: float


def counted(groups: str, phase: str, gradient: str = "auto") -> Step:
    """Count what a step with RVSM does more than one without it."""
    small, large = (_difference(groups, phase, gradient, columns) for columns in (512, 1024))
    weights = 512 * 512
    per_weight = (large - small) / weights
    blocks = large - small
    return Step(int(small[0]), int(blocks[0]), per_weight[1], per_weight[2], small[3] / weights)


def _difference(groups: str, phase: str, gradient: str, columns: int) -> Any:
    found = []
    for attached in (False, True):
        torch.manual_seed(0)
        model = nn.Linear(columns, 512, bias=False)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        kept = 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that all is thresholded at once
            if attached:
                options: Any = {"gradient": gradient, "overrides": {"*": {"groups": groups}}}
                method = rvsm.RVSM(model, "l0", sparsity=0.9, steps=STEPS, **options).attach(optimizer)
                method.step = {"ramp": STEPS // 4, "heal": STEPS * 3 // 4}[phase]
            for step in range(4):
                counter = Counter()
                with counter:
                    optimizer.zero_grad()
                    model(torch.ones(1, columns)).square().mean().backward()
                    optimizer.step()
                if attached and step == 0:
                    method.step += 1  # to a step without a look
        if attached:
            held = [layer.away for layer in method.layers] + list(method._zeros.masks.values())
            kept = sum(each.numel() * each.element_size() for each in held if each is not None)
        found.append([*counter.counts, kept])
    return np.subtract(found[1], found[0])


def steps() -> str:
    """Return what a step adds, for groups and phases."""
    rows = []
    for name, options in {
        "single weights, ramp and hold": ("element", "ramp"),
        'single weights, `gradient="w"`': ("element", "ramp", "w"),
        "single weights, healing": ("element", "heal"),
        "filters, ramp and hold": ("filter", "ramp"),
        "channels, ramp and hold": ("channel", "ramp"),
        "blocks of 4, ramp and hold": ("block", "ramp"),
    }.items():
        step = counted(*options)
        numbers = (step.operations, step.per_block, round(step.traffic), round(step.flops), round(step.memory, 2))
        rows.append([name, *(f"{number:g}" for number in numbers)])
    head = ["", "operations on a tensor", "on each further 2¹⁸ weights", "bytes moved", "flops", "bytes kept"]
    return pipe_table(head, rows)


# The sheet


@dataclass(frozen=True)
class Machine:
    """What is assumed about each rank, an accelerator of 2023, and about its network."""

    flops: float = 0.4 * 989e12  # 40 % of the peak in bfloat16
    memory: float = 3.35e12  # bytes per second
    capacity: float = 80e9  # bytes
    link: float = 50e9  # bytes per second
    latency: float = 20e-6  # seconds for each of the log₂ ranks stages of a message
    start: float = 5e-6  # seconds to start an operation
    host: float = 4e-6  # seconds of the host for a row of a message


@dataclass(frozen=True)
class Model:
    """A dense transformer, all of whose matrices are sparsified, and the tokens of a step."""

    name: str
    weights: float
    tensors: int
    tokens: float = 4e6


MODELS = [Model("7 B", 7e9, 7 * 32 + 2), Model("70 B", 70e9, 7 * 80 + 2), Model("1 T", 1e12, 7 * 128 + 2)]


def seconds_of_step(model: Model, ranks: int, step: Step, on: Machine) -> tuple[float, float]:
    """Return the time of a step without RVSM, by its flops alone, and what RVSM adds."""
    here = model.weights / ranks
    blocks = ceil(here / model.tensors / 2**18)
    operations = model.tensors * (step.operations + step.per_block * (blocks - 1))
    return 6 * model.weights * model.tokens / ranks / on.flops, here * step.traffic / on.memory + operations * on.start


def seconds_of_look(model: Model, ranks: int, on: Machine) -> float:
    """Return the time of a look at the weights.

    It reads them twice, in about 20 operations that move 40 bytes for each; a row of a message takes the host some time
    to compute, and a message its bytes and its stages.
    """
    here = model.weights / ranks
    blocks = ceil(here / model.tensors / 2**24)
    messages, size = look(model.tensors)
    rows = messages * 2 * model.tensors
    exchange = messages * on.latency * log2(ranks) + 2 * size / on.link
    return 40 * here / on.memory + 20 * model.tensors * blocks * on.start + rows * on.host + exchange


def sheet() -> str:
    """Return the table of models and ranks."""
    on, step = Machine(), counted("element", "ramp")
    rows = []
    for model in MODELS:
        for ranks in (8, 64, 512, 4096):
            state, more = 16 * model.weights / ranks, step.memory * model.weights / ranks
            plain, added = seconds_of_step(model, ranks, step, on)
            seconds, size = seconds_of_look(model, ranks, on), look(model.tensors)[1]
            fits = "" if state + more < on.capacity else " (too large)"
            numbers = (more / 1e9, plain, 1e3 * added, 100 * added / plain, 1e3 * seconds, seconds / plain, size / 1e3)
            rows.append([model.name, f"{ranks:,}", f"{_short(state / 1e9)}{fits}", *map(_short, numbers)])
    head = ["weights", "ranks", "GB of training state on each", "RVSM adds, GB", "step, s", "RVSM adds, ms", "%"]
    return pipe_table([*head, "look, ms", "% of a hundred steps", "kB sent by each rank"], rows)


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 1000 else f"{number:.2g}" if number < 10 else f"{number:.3g}"


def small_batch(share: float = 0.01) -> float:
    """Return the tokens of a step of which the memory traffic of RVSM takes a share."""
    on, step = Machine(), counted("element", "ramp")
    return step.traffic * on.flops / (6 * on.memory * share)


# FSDP2


def train_sharded(rank: int, processes: int, folder: str, tokens: int, repeats: int) -> None:
    """Train one model with FSDP2, with and without RVSM, step by step in turn."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=processes)
    x = torch.randn(tokens, 512, generator=torch.Generator().manual_seed(rank))
    ranks = Ranks.of(dist.group.WORLD)
    steps: dict[str, Callable[[], object]] = {}
    hooks: dict[str, Callable[[], object]] = {}

    def add(name: str, options: dict[str, Any] | None) -> rvsm.RVSM | None:
        torch.manual_seed(0)
        blocks = [nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)) for _ in range(4)]
        model = nn.Sequential(*blocks)
        for block in (*blocks, model):
            fully_shard(block)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        method = None if options is None else rvsm.RVSM(model, "l0", sparsity=0.9, steps=STEPS, **options)
        if method is not None:
            method.attach(optimizer).step = STEPS // 4

        def step() -> None:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            dist.barrier()

        def hook() -> None:
            if method is not None:
                method.before(optimizer)
                method.after(optimizer)

        step()  # with a look
        steps[name], hooks[name] = step, hook
        return method

    add("plain", None)
    add('RVSM, `gradient="w"`', {"gradient": "w"})
    method = add("RVSM", {})
    assert method is not None
    ranks.sent = 0
    whole, alone = interleaved(steps, repeats), interleaved(hooks, repeats)  # fewer than between two looks
    between = ranks.sent
    looks = interleaved({"look": lambda: method.target.cutoffs(method.layers, 0.5)}, repeats)["look"]
    if rank == 0:
        plain = statistics.median(whole["plain"])
        kept = [layer.away for layer in method.layers if layer.away is not None]
        shares = {name: statistics.median(times) / plain for name, times in alone.items()}
        found = {
            "rows": {name: (median_ratio(times, whole["plain"]), shares[name]) for name, times in whole.items()},
            "plain": plain,
            "between": between,
            "look": statistics.median(looks),
            "sent": (ranks.sent - between) / (repeats + 1),
            "kept": sum(w.numel() * w.element_size() for w in kept) / sum(layer.w.numel() for layer in method.layers),
        }
        torch.save(found, f"{folder}/found.pt")
    dist.destroy_process_group()


def fsdp(tokens: int, repeats: int) -> str:
    """Return what RVSM adds to steps of FSDP2 on two processes."""
    found = spawned(train_sharded, 2, tokens, repeats)
    plain, one = found["plain"], found["look"]
    head = [f"step of 8.4 M weights, {tokens:,} tokens on each of 2 processes ({plain:.2f} s)", "× plain", "hook alone"]
    rows = [[name, f"{ratio:.3f}", f"{hook:.4f}"] for name, (ratio, hook) in found["rows"].items()]
    return (
        f"{pipe_table(head, rows)}\nRVSM keeps {found['kept']:g} bytes for each weight, and sends {found['between']}"
        f" bytes between two looks. A look takes {1e3 * one:.0f} ms, {one / plain:.3f} of a step, and sends"
        f" {found['sent'] / 1e3:.1f} kB.\n"
    )


def count_messages(rank: int, processes: int, folder: str) -> None:
    """Count what a step of FSDP2 with RVSM sends between two looks, for each kind of groups."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=processes)
    ranks = Ranks.of(dist.group.WORLD)
    found = {}
    for groups in ("element", "filter", "channel", "block"):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(256, 1000, bias=False), nn.GELU(), nn.Linear(1000, 256, bias=False))
        fully_shard(model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        overrides = {"*": {"groups": groups}}
        method = rvsm.RVSM(model, "l0", sparsity=0.5, steps=STEPS, overrides=overrides).attach(optimizer)
        method.step = STEPS // 4
        for _ in range(3):
            ranks.messages = ranks.sent = 0
            optimizer.zero_grad()
            model(torch.ones(1, 256)).square().mean().backward()
            optimizer.step()
        found[groups] = (ranks.messages, ranks.sent)
    if rank == 0:
        torch.save(found, f"{folder}/found.pt")
    dist.destroy_process_group()


def step_messages(processes: int = 3) -> str:
    """Return what steps send on processes whose rows are no multiple of four."""
    rows = []
    for groups, (messages, sent) in spawned(count_messages, processes).items():
        rows.append([groups, str(messages), f"{sent:,}"])
    return pipe_table(["groups", f"messages of a step, on {processes} processes", "bytes sent by each"], rows)


def write(name: str, text: str) -> None:
    """Replace a section of the page."""
    print(text)
    begin, end = f"<!-- {name}: written by scale.py -->", f"<!-- /{name} -->"
    head, rest = PAGE.read_text(encoding="utf-8").split(begin)
    PAGE.write_text(f"{head}{begin}\n\n{text.strip()}\n\n{end}{rest.split(end)[1]}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["count", "sheet", "fsdp"])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--tokens", type=int, default=4096)
    options = parser.parse_args()
    if options.command == "count":
        write("steps", steps())
        write("looks", f"{looks(options.repeats)}\nMachine: {machine()}.")
    elif options.command == "sheet":
        tokens = f"{small_batch() / 1e3:,.0f} thousand tokens"
        write("sheet", f"{sheet()}\nThe memory traffic alone takes one per cent of a step of {tokens}.")
    else:
        write("messages", step_messages())
        write("fsdp", f"{fsdp(options.tokens, options.repeats)}\nMachine: {machine()}.")


if __name__ == "__main__":
    main()
