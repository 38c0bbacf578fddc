"""Pulls that do not follow the learning rate, beside the default's, in the frontier's training.

    python experiments/frontier/pulls.py --data cifar10.tar.xz --sparsity 0.98

The default pulls by ηβ, which falls with the learning rate. A *constant* pull is the same in every step; a *rising* one
grows geometrically, by a factor of a hundred, as the weight of a quadratic penalty does in continuation. Both end when
healing begins, and have the total that is given. A run that is stopped begins again; a finished one has a line in
pulls.jsonl, with the accuracies on validation and on test images.
"""

import argparse
import json
from collections.abc import Callable, Mapping
from math import log
from pathlib import Path
from typing import Any

import torch

import rvsm
from rvsm.config import read_config
from rvsm.files import write_text
from rvsm.splitting.layers import Layer
from rvsm.train.trainer import Callback, Trainer

HERE = Path(__file__).parent
LINES = HERE / "pulls.jsonl"
RISE = 100.0
COURSES: dict[str, Callable[[float], float]] = {
    "constant": lambda t: 1.0,
    "rising": lambda t: RISE**t * log(RISE) / (RISE - 1),  # its mean is 1
}
"""The pull over the time until healing begins, from 0 to 1."""


class Pulled(rvsm.RVSM):
    """RVSM with a pull that is a function of the step alone."""

    course: str = "constant"
    total: float = 100.0

    def before_step(self, layer: Layer, lr: float) -> None:
        """Pull w towards u."""
        target = self.target
        last = (1 - target.heal) * target.steps
        if layer.penalty is not None:
            rate = self.total / last * COURSES[self.course](min(self.step / last, 1.0))
            for (w,) in layer.blocks(layer.w):
                w.lerp_(layer.prox(w), min(rate, 1.0))


class Validation(Callback):
    """Keeps the last accuracy of u on the validation images."""

    accuracy = 0.0

    def on_record(self, trainer: Trainer, record: Mapping[str, Any]) -> None:
        """Keep and print it."""
        self.accuracy = record["u"]["accuracy"]
        print(f"epoch {record['epoch']}: {100 * self.accuracy:.2f} %", flush=True)


def run(course: str, total: float, sparsity: float, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Train once, and return the line."""
    flags = ["--data.path", str(options.data), "--training.threads", "1", "--budget.sparsity", repr(sparsity)]
    validation = Validation()
    config = read_config(HERE / "fastnet-rvsm.toml", [*flags, *options.flags]).with_seed(seed)
    trainer = Trainer(config, callbacks=[validation])
    if course != "default":
        assert trainer.method is not None
        trainer.method.detach()
        trainer.method = Pulled(trainer.model, "l0", sparsity=sparsity, steps=trainer.steps, course=course, total=total)
        trainer.method.attach(trainer.optimizer)
    trainer.run()
    assert trainer.method is not None
    trainer.method.finalize(recalibrate=trainer.calibration())
    test = trainer.evaluate(trainer.quiet(trainer.data.test))
    about = {"course": course, "total": total, "sparsity": sparsity, "seed": seed}
    return {**about, "validation": validation.accuracy, "test": test["accuracy"]}


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="an archive or a folder of CIFAR-10")
    parser.add_argument("--sparsity", type=float, default=0.98)
    parser.add_argument("--courses", nargs="*", default=list(COURSES), choices=["default", *COURSES])
    parser.add_argument("--totals", type=float, nargs="*", default=[30.0, 100.0], help="total pulls")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds")
    options, options.flags = parser.parse_known_args(namespace=argparse.Namespace())
    torch.set_num_threads(1)
    for seed in range(options.seeds):
        for course in options.courses:
            for total in options.totals:
                lines = LINES.read_text(encoding="utf-8").splitlines() if LINES.exists() else []
                known = [json.loads(line) for line in lines]
                point = (course, total, options.sparsity, seed)
                if not any((r["course"], r["total"], r["sparsity"], r["seed"]) == point for r in known):
                    lines.append(json.dumps(run(*point, options)))
                    write_text("".join(f"{line}\n" for line in lines), LINES)


if __name__ == "__main__":
    main()
