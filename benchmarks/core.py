"""What the sparsifier costs: the whole training step, the hook alone, a look of the budget, the import.

Everything is measured as ratios within one run, medians of interleaved repeats, because a shared machine is noisy.
Writes the table into benchmarks/README.md.
"""

import argparse
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

import rvsm
from rvsm.models import resnet18
from rvsm.splitting import Method

README = Path(__file__).parent / "README.md"
BATCH = 128
STEPS = 391 * 12  # twelve epochs of CIFAR-10, for the share of the steps in which a budget looks at the weights


def interleaved(actions: dict[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """Time all actions in turn, again and again, so that a slow moment of the machine falls on all of them."""
    times: dict[str, list[float]] = {name: [] for name in actions}
    for action in actions.values():
        action()
    for _ in range(repeats):
        for name, action in actions.items():
            start = time.perf_counter()
            action()
            times[name].append(time.perf_counter() - start)
    return times


def median_ratio(times: list[float], base: list[float]) -> float:
    """Return the median over the rounds of the ratio within a round."""
    return statistics.median(t / b for t, b in zip(times, base, strict=True))


def methods() -> dict[str, Callable[[nn.Module], Method | None]]:
    """Return what is attached to the optimizer, by the name of its row."""
    lam, beta = 1e-6, 8e-2
    target = rvsm.Budget(0.937, STEPS, every=STEPS)  # evaluations of the threshold are timed on their own
    return {
        "plain SGD with momentum": lambda model: None,
        "RVSM ℓ0": lambda model: rvsm.RVSM(model, rvsm.L0(lam=lam), beta=beta),
        "RVSM ℓ1": lambda model: rvsm.RVSM(model, rvsm.L1(lam=lam), beta=beta),
        "RVSM Tℓ1": lambda model: rvsm.RVSM(model, rvsm.TransformedL1(lam=lam), beta=beta),
        "RVSM ℓ0, target 93.7 %, gradient at w": lambda model: rvsm.RVSM(model, "l0", budget=target, gradient="w"),
        "RVSM ℓ0, target 93.7 %": lambda model: rvsm.RVSM(model, "l0", budget=target),
    }


def on_the_ramp(method: Method) -> None:
    """Let a method with a target be in the middle of its ramp, between two evaluations of the threshold."""
    if method.budget is not None:
        method.step = round(0.25 * STEPS) + 1
        method.budget.set_thresholds(method.layers, method.budget.target(method.step))


def whole_steps(repeats: int) -> tuple[dict[str, float], float]:
    """Return the ratio of each method's whole training step to plain SGD's, and the plain step's seconds."""
    x, y = torch.randn(BATCH, 3, 32, 32), torch.randint(10, (BATCH,))
    actions: dict[str, Callable[[], object]] = {}
    for name, make in methods().items():
        torch.manual_seed(0)
        model = resnet18()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
        method = make(model)
        if method is not None:
            method.attach(optimizer)
            on_the_ramp(method)

        def step(model: nn.Module = model, optimizer: torch.optim.Optimizer = optimizer) -> None:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
            optimizer.step()

        actions[name] = step
    times = interleaved(actions, repeats)
    base = times["plain SGD with momentum"]
    return {name: median_ratio(t, base) for name, t in times.items()}, statistics.median(base)


def hooks(repeats: int) -> dict[str, float]:
    """Return the seconds of torch's own optimizer steps, of each method's hook, and of a budget's look."""
    actions: dict[str, Callable[[], object]] = {}
    for name, options in {"SGD fused": {"fused": True}, "SGD default": {}, "SGD foreach": {"foreach": True}}.items():
        model = _with_gradients()
        actions[name] = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, **options).step
    for name, make in methods().items():
        model = _with_gradients()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        method = make(model)
        if method is None:
            continue
        method.attach(optimizer)
        on_the_ramp(method)
        optimizer.step()

        def hook(m: Method = method, o: torch.optim.Optimizer = optimizer) -> None:
            m.before(o)
            m.after(o)

        actions[f"hook of {name}"] = hook
        if method.budget is not None:
            actions["look of the budget"] = lambda m=method: m.budget.cutoffs(m.layers, 0.9)  # type: ignore[misc]
    with torch.no_grad():
        times = interleaved(actions, repeats)
    return {name: statistics.median(t) for name, t in times.items()}


def import_seconds(module: str, repeats: int) -> float:
    """Return the median time that an import adds to the start of Python."""

    def start(code: str) -> Callable[[], object]:
        return lambda: subprocess.run([sys.executable, "-c", code], check=True)

    times = interleaved({"with": start(f"import {module}"), "without": start("pass")}, repeats)
    return statistics.median(a - b for a, b in zip(times["with"], times["without"], strict=True))


def machine() -> str:
    """Return the machine in one line."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        cpu = next((line.split(":")[1].strip() for line in info.open() if line.startswith("model name")), cpu)
    capability = torch.backends.cpu.get_cpu_capability()
    return (
        f"{cpu}, {os.cpu_count()} cores, {capability}, threads: {torch.get_num_threads()},"
        f" Python {platform.python_version()}, PyTorch {torch.__version__}"
    )


def report(repeats: int) -> str:
    """Run everything and return the table as Markdown."""
    ratios, seconds = whole_steps(repeats)
    alone = hooks(4 * repeats)
    look = alone.pop("look of the budget")
    every = max(1, round(0.5 * STEPS) // 100)
    lines = [
        f"Machine: {machine()}. Batch {BATCH}, float32, {repeats} interleaved repeats.",
        "",
        f"| whole training step, ResNet-18 (plain: {seconds:.2f} s) | × plain | of which the hook alone |",
        "| --- | --- | --- |",
    ]
    for name, ratio in ratios.items():
        hook = alone.get(f"hook of {name}")
        lines.append(f"| {name} | {ratio:.3f} | {'' if hook is None else f'{hook / seconds:.4f}'} |")
    lines += ["", "| on the same 11.2 M parameters | ms | × fused SGD | × default SGD |", "| --- | --- | --- | --- |"]
    for name, t in alone.items():
        lines.append(f"| {name} | {1e3 * t:.2f} | {t / alone['SGD fused']:.2f} | {t / alone['SGD default']:.2f} |")
    lines += [
        "",
        f"A budget reads all weights in {1e3 * look:.0f} ms, once every {every} steps in a ramp of half of"
        f" {STEPS} steps: {look / every / seconds:.4f} of a training step.",
        "",
        f"`import rvsm` adds {1e3 * import_seconds('rvsm', 9):.0f} ms to the start of Python;"
        f" `import torch` adds {1e3 * import_seconds('torch', 3):.0f} ms.",
    ]
    return "\n".join(lines)


def _with_gradients() -> nn.Module:
    torch.manual_seed(0)
    model = resnet18()
    for p in model.parameters():
        p.grad = torch.randn_like(p) * 1e-4
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    table = report(options.repeats)
    print(table)
    begin, end = "<!-- core: written by core.py -->", "<!-- /core -->"
    text = README.read_text()
    head, rest = text.split(begin)
    README.write_text(head + begin + "\n\n" + table + "\n\n" + end + rest.split(end)[1])


if __name__ == "__main__":
    main()
