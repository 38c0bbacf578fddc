"""The closest rival, torchao's pruning-aware training (torchao.prototype.pat), in the frontier's training.

    pip install --no-deps torchao
    python experiments/frontier/pat.py --data cifar10.tar.xz --sparsity 0.95 0.98

Its optimizer keeps the dense weights, thresholds them to a global sparsity that rises as a cubic, takes the gradient at
the thresholded weights, and freezes the zeros when healing begins. Data, schedule, network, evaluation and seeds are
those of fastnet-dense.toml. A run that is stopped begins again; a finished one has a line in pat.jsonl.
"""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torchao.prototype.pat.optim import PruneOptimizer

from rvsm.config import read_config
from rvsm.files import write_text
from rvsm.splitting.naming import select
from rvsm.splitting.recalibrate import recalibrate
from rvsm.train.trainer import Callback, Trainer

HERE = Path(__file__).parent
LINES = HERE / "pat.jsonl"


class Progress(Callback):
    """Prints the accuracy on the validation images."""

    def on_record(self, trainer: Trainer, record: Mapping[str, Any]) -> None:
        """Print it."""
        print(f"epoch {record['epoch']}: {100 * record['w']['accuracy']:.2f} %", flush=True)


def run(sparsity: float, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Train once, and return the line."""
    flags = ["--data.path", str(options.data), "--training.threads", "1", *options.flags]
    trainer = Trainer(read_config(HERE / "fastnet-dense.toml", flags).with_seed(seed), callbacks=[Progress()])
    pruned = [layer.parameter for layer in select(trainer.model, None, None) if layer.parameter.requires_grad]
    healing = round((1 - options.heal) * trainer.steps)
    trainer.optimizer = with_pruning(trainer.optimizer, pruned, sparsity, healing)
    trainer.run()
    zeros = sum(int((w == 0).sum()) for w in pruned) / sum(w.numel() for w in pruned)
    recalibrate(trainer.model, trainer.calibration())
    test = trainer.evaluate(trainer.quiet(trainer.data.test))
    return {"sparsity": sparsity, "seed": seed, "heal": options.heal, "zeros": zeros, "test": test}


def with_pruning(optimizer: torch.optim.Optimizer, pruned: list[Tensor], sparsity: float, healing: int) -> Any:
    """Return PAT's optimizer around ours, whose one group of parameters is divided in two."""
    [group] = optimizer.param_groups
    chosen = {id(w) for w in pruned}
    others = {**group, "params": [w for w in group["params"] if id(w) not in chosen]}
    group["params"] = pruned
    group |= {
        "group_type": "KElementGrouper",
        "k": 1,
        "prox_type": "GlobalMinSparsityConstraint",
        "min_sparsity": sparsity,
        "min_sparsity_schedule": True,
    }
    optimizer.param_groups.append(others)
    return PruneOptimizer(optimizer, warmup_steps=0, healing_start_step=healing)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="an archive or a folder of CIFAR-10")
    parser.add_argument("--sparsity", type=float, nargs="*", default=[0.9, 0.95, 0.98, 0.99])
    parser.add_argument("--seeds", type=int, default=3, help="how many seeds")
    parser.add_argument("--heal", type=float, default=0.3, help="the fraction of the steps in which zeros are frozen")
    options, options.flags = parser.parse_known_args(namespace=argparse.Namespace())
    torch.set_num_threads(1)
    for seed in range(options.seeds):
        for sparsity in options.sparsity:
            lines = LINES.read_text(encoding="utf-8").splitlines() if LINES.exists() else []
            known = [json.loads(line) for line in lines]
            if not any((r["sparsity"], r["seed"], r["heal"]) == (sparsity, seed, options.heal) for r in known):
                lines.append(json.dumps(run(sparsity, seed, options)))
                write_text("".join(f"{line}\n" for line in lines), LINES)


if __name__ == "__main__":
    main()
