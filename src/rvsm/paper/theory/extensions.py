"""Beyond the paper: data instead of expectations, and a second layer, for ℓ1 with k = 4 patches and d = 6.

Each function runs for a few seconds and returns plain tensors for the pictures.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import pi, sqrt
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import SGD

from rvsm.paper.theory.bounds import beta_bound
from rvsm.paper.theory.network import Evaluation, angle, cross_moment, size, unit
from rvsm.paper.theory.penalty_formulas import penalty_values
from rvsm.paper.theory.problems import standard, starts
from rvsm.paper.theory.sample import Empirical, inputs
from rvsm.paper.theory.simulate import simulate
from rvsm.paper.theory.trajectory import Setting
from rvsm.splitting import RVSM

_K, _D = 4, 6


class SampleStudy(NamedTuple):
    """The effect of a finite sample on the limit."""

    sizes: tuple[int, ...]  # the numbers N of inputs
    distance: Tensor  # ‖w̄_N − w̄‖, to the population's limit, [sizes, seeds]
    rise: Tensor  # the largest rise of ℒ in one step, [sizes, seeds]; the empirical loss is not smooth


def finite_sample(sizes: Sequence[int] = (100, 400, 1600, 6400), *, seeds: int = 6, steps: int = 250) -> SampleStudy:
    """Run the same simulation on the loss of N inputs, for several samples of each size."""
    setting, truth, start = _problem()
    limit = simulate(setting, truth, start, steps=steps, every=steps)
    found: list[list[tuple[float, float]]] = []
    for count in sizes:
        row = []
        for seed in range(seeds):
            data = Empirical(inputs(count, k=_K, d=_D, generator=torch.Generator().manual_seed(seed)), truth)
            path = simulate(setting, truth, start, steps=steps, loss=data)
            distance = size(path.w[-1, 0, 0] - limit.w[-1, 0, 0])
            row.append((float(distance), float(path.lagrangian.diff(dim=0).max())))
        found.append(row)
    distances, rises = torch.tensor(found, dtype=torch.float64).unbind(dim=-1)
    return SampleStudy(tuple(sizes), distances, rises)


class BatchStudy(NamedTuple):
    """The effect of mini-batches of fresh data."""

    batches: tuple[int, ...]  # the batch sizes
    steps: Tensor  # the recorded steps, [T]
    distance: Tensor  # ‖wᵗ − w̄‖, to the population's limit, [batches, T, seeds]
    floor: Tensor  # the mean distance over the last quarter of the steps, [batches]


def mini_batches(batches: Sequence[int] = (4, 16, 64, 256), *, seeds: int = 8, steps: int = 600) -> BatchStudy:
    """Run the same simulation on fresh data with noisy labels at every step and in every run."""
    setting, truth, start = _problem(step=0.3)
    limit = simulate(setting, truth, start, steps=2000, every=2000, tolerance=1e-13).w[-1, 0, 0]
    distances = []
    for batch in batches:
        data = _Fresh(truth, _K, batch, 0.1, torch.Generator().manual_seed(batch))
        path = simulate(setting, truth, start.expand(seeds, -1), steps=steps, every=5, loss=data)
        distances.append(size(path.w[:, 0] - limit))
    distance = torch.stack(distances)
    floor = distance[:, -distance.shape[1] // 4 :].mean(dim=(1, 2))
    return BatchStudy(tuple(batches), path.steps, distance, floor)


@dataclass(frozen=True)
class _Fresh:
    """The squared error on fresh data at every call, different for every row."""

    truth: Tensor
    k: int
    batch: int
    noise: float
    generator: torch.Generator

    def evaluate(self, w: Tensor) -> Evaluation:
        shape = (len(w), self.batch * self.k, w.shape[-1])
        x = torch.randn(shape, generator=self.generator, dtype=torch.float64)
        activity = (x @ w.unsqueeze(-1)).view(len(w), self.batch, self.k)
        label = (x @ self.truth).relu().view(len(w), self.batch, self.k).mean(dim=-1)
        label = label + self.noise * torch.randn(label.shape, generator=self.generator, dtype=torch.float64)
        error = activity.relu().mean(dim=-1) - label
        weight = (2 / (self.batch * self.k)) * error.unsqueeze(-1) * (activity > 0)
        slope = (weight.view(len(w), 1, -1) @ x).squeeze(1)
        return Evaluation(error.square().mean(dim=-1), slope, angle(w, self.truth), w.norm(dim=-1))


class TwoLayerStudy(NamedTuple):
    """A hidden layer and an output layer trained together, with RVSM on the hidden layer; T steps."""

    truth_support: int  # non-zeros of w*
    steps: Tensor  # the recorded steps, [T]
    lagrangian: Tensor  # ℒ, [T, seeds]
    theta: Tensor  # the angle of w to w*, [T, seeds]
    output_theta: Tensor  # the angle of the output weights v to v*, [T, seeds]
    norm: Tensor  # ‖w‖, [T, seeds]
    scale: Tensor  # ‖w‖‖v‖/(‖w*‖‖v*‖), [T, seeds]
    support: Tensor  # non-zeros of u, [T, seeds]


def two_layers(*, seeds: int = 24, steps: int = 600) -> TwoLayerStudy:
    """Train L(x; w, v) = Σ_i v_i relu(w·x_i): the paper's network with trainable output weights v in place of 1/k.

    This is the simplest network with a second layer for which the population loss has a closed form: by Lemma 1 for a
    patch with itself, by E[relu] = ‖w‖/√(2π) for two different ones. RVSM, the shipped class, acts on w only.
    """
    generator = torch.Generator().manual_seed(11)
    setting, truth, _ = _problem()
    v_truth = torch.full((_K,), 1 / _K, dtype=torch.float64)
    truths = truth.expand(seeds, -1)
    w = nn.Parameter(starts(truths, 2.1 * torch.rand(seeds, generator=generator, dtype=torch.float64), generator))
    v = nn.Parameter(torch.rand(seeds, _K, generator=generator, dtype=torch.float64) / _K)
    optimizer = SGD([w, v], lr=0.5)
    RVSM([("w", w)], setting.penalty, beta=setting.beta).attach(optimizer)
    recorded = []
    for step in range(steps + 1):
        optimizer.zero_grad()
        f = _two_layer_loss(w, v, truths, v_truth)
        f.sum().backward()  # type: ignore[no-untyped-call]
        if step % 5 == 0:
            hidden, outputs = w.detach(), v.detach()
            u = setting.penalty.prox(hidden, 1 / setting.beta)
            gap = (hidden - u).square().sum(dim=-1)
            moment = (
                torch.tensor(step),
                f.detach() + penalty_values([setting.penalty], u) + setting.beta / 2 * gap,
                angle(hidden, truths),
                angle(outputs, v_truth.expand_as(v)),
                size(hidden),
                size(hidden) * size(outputs) / (size(truths) * size(v_truth)),
                u.count_nonzero(dim=-1),
            )
            recorded.append(moment)
        if step < steps:
            optimizer.step()
    columns = [torch.stack(column) for column in zip(*recorded, strict=True)]
    return TwoLayerStudy(int(truth.count_nonzero()), *columns)


def _two_layer_loss(w: Tensor, v: Tensor, truth: Tensor, v_truth: Tensor) -> Tensor:
    """Return E[(Σ_i v_i relu(w·x_i) − Σ_i v*_i relu(w*·x_i))²] for each row."""

    def moment(a: Tensor, p: Tensor, b: Tensor, q: Tensor, same: Tensor) -> Tensor:
        apart = size(a) * size(b) / (2 * pi)
        return p.sum(dim=-1) * q.sum(dim=-1) * apart + (p * q).sum(dim=-1) * (same - apart)

    ww, tt = w.square().sum(dim=-1) / 2, truth.square().sum(dim=-1) / 2
    crossed = moment(w, v, truth, v_truth, cross_moment(w, truth))
    return moment(w, v, w, v, ww) - 2 * crossed + moment(truth, v_truth, truth, v_truth, tt)


def _problem(*, step: float = 1.0) -> tuple[Setting, Tensor, Tensor]:
    """Return one setting inside the hypotheses for δ = 1, a truth half of whose entries are zero, and a start."""
    generator = torch.Generator().manual_seed(7)
    truth = torch.randn(_D, generator=generator, dtype=torch.float64)
    truth[(_D + 1) // 2 :] = 0
    truth = unit(truth)
    setting = standard("l1", k=_K, beta=0.5 * beta_bound(k=_K, delta=1.0), mu=0.3 / sqrt(_D), step=step)
    return setting, truth, starts(truth.unsqueeze(0), 2.0, generator)[0]
