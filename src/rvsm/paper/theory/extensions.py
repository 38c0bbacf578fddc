"""Beyond the paper: data instead of expectations, a second layer, and parameters outside the hypotheses.

Each function runs a few seconds and returns plain tensors, ready to be drawn.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import pi, sqrt

import torch
from torch import Tensor, nn
from torch.optim import SGD

from rvsm.paper.theory.bounds import beta_bound
from rvsm.paper.theory.network import Evaluation, angle, cross_moment, curvature, size
from rvsm.paper.theory.penalty_formulas import penalty_values
from rvsm.paper.theory.problems import named, starts
from rvsm.paper.theory.sample import Empirical, inputs
from rvsm.paper.theory.simulate import simulate
from rvsm.paper.theory.trajectory import Setting
from rvsm.splitting import RVSM


@dataclass(frozen=True)
class SampleStudy:
    """What a finite sample does to the limit.

    Attributes:
        sizes: the numbers N of inputs.
        distance: ‖w̄_N − w̄‖ from the population's limit, [sizes, seeds].
        rise: the largest rise of ℒ in one step, [sizes, seeds]; the empirical loss is not smooth.
        theta: the angle of the limit to the truth, [sizes, seeds].
        population_theta: that of the population's limit.

    """

    sizes: tuple[int, ...]
    distance: Tensor
    rise: Tensor
    theta: Tensor
    population_theta: float


def finite_sample(
    sizes: Sequence[int] = (100, 400, 1600, 6400),
    *,
    seeds: int = 6,
    k: int = 4,
    d: int = 6,
    noise: float = 0.0,
    penalty: str = "l1",
    steps: int = 250,
) -> SampleStudy:
    """Run the same simulation on the loss of N inputs, for several samples of each size.

    Args:
        sizes: the numbers of inputs.
        seeds: how many samples of each size.
        k: the number of patches.
        d: the dimension.
        noise: the standard deviation of noise on the labels.
        penalty: "l1", "l0" or "tl1".
        steps: how many steps.

    """
    setting, truth, start = _standard(penalty, k=k, d=d)
    limit = simulate(setting, truth, start, steps=steps, every=steps)
    found: list[list[tuple[float, float, float]]] = []
    for count in sizes:
        row = []
        for seed in range(seeds):
            generator = torch.Generator().manual_seed(seed)
            data = Empirical(inputs(count, k=k, d=d, generator=generator), truth, noise, generator)
            path = simulate(setting, truth, start, steps=steps, loss=data)
            distance = (path.w[-1, 0, 0] - limit.w[-1, 0, 0]).norm()
            row.append((float(distance), float(path.lagrangian.diff(dim=0).max()), float(path.theta[-1])))
        found.append(row)
    table = torch.tensor(found, dtype=torch.float64)
    return SampleStudy(tuple(sizes), table[..., 0], table[..., 1], table[..., 2], float(limit.theta[-1]))


@dataclass(frozen=True)
class BatchStudy:
    """What mini-batches of fresh data do.

    Attributes:
        batches: the batch sizes.
        steps: the recorded steps, [T].
        distance: ‖wᵗ − w̄‖ from the population's limit, [batches, T, seeds].
        theta: the angle to the truth, [batches, T, seeds].
        floor: the mean distance over the last quarter of the steps, [batches].

    """

    batches: tuple[int, ...]
    steps: Tensor
    distance: Tensor
    theta: Tensor
    floor: Tensor


def mini_batches(
    batches: Sequence[int] = (4, 16, 64, 256),
    *,
    seeds: int = 8,
    k: int = 4,
    d: int = 6,
    noise: float = 0.1,
    penalty: str = "l1",
    steps: int = 600,
) -> BatchStudy:
    """Run the same simulation on fresh data at every step and in every run; arguments as for `finite_sample`."""
    setting, truth, start = _standard(penalty, k=k, d=d, step=0.3)
    limit = simulate(setting, truth, start, steps=2000, every=2000, tolerance=1e-13).w[-1, 0, 0]
    distances, thetas = [], []
    for batch in batches:
        data = _Fresh(truth, k, batch, noise, torch.Generator().manual_seed(batch))
        path = simulate(setting, truth, start.expand(seeds, -1), steps=steps, every=5, loss=data)
        distances.append((path.w[:, 0] - limit).norm(dim=-1))
        thetas.append(path.theta[:, 0])
    distance = torch.stack(distances)
    floor = distance[:, -distance.shape[1] // 4 :].mean(dim=(1, 2))
    return BatchStudy(tuple(batches), path.steps, distance, torch.stack(thetas), floor)


@dataclass(frozen=True)
class _Fresh:
    """The squared error on new data at every call, other data for every row."""

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


@dataclass(frozen=True)
class TwoLayerStudy:
    """A hidden layer and an output layer trained together, with RVSM on the hidden layer.

    Attributes:
        steps: the recorded steps, [T].
        lagrangian: ℒ, [T, seeds].
        theta: the angle of w to w*, [T, seeds].
        output_theta: the angle of the output weights v to v*, [T, seeds].
        norm: ‖w‖, [T, seeds].
        scale: ‖w‖‖v‖/(‖w*‖‖v*‖), [T, seeds].
        support: non-zeros of u, [T, seeds].
        truth_support: non-zeros of w*.

    """

    steps: Tensor
    lagrangian: Tensor
    theta: Tensor
    output_theta: Tensor
    norm: Tensor
    scale: Tensor
    support: Tensor
    truth_support: int


def two_layers(
    *, seeds: int = 24, k: int = 4, d: int = 6, penalty: str = "l1", share: float = 0.5, steps: int = 600
) -> TwoLayerStudy:
    """Train L(x; w, v) = Σ_i v_i relu(w·x_i): the paper's network with trainable output weights v in place of 1/k.

    This is the simplest network with a second layer for which the population loss has a closed form: by Lemma 1 for a
    patch with itself, by E[relu] = ‖w‖/√(2π) for two different ones. RVSM, the shipped class, acts on w only.

    Args:
        seeds: how many starts, of w and of v.
        k: the number of patches.
        d: the dimension.
        penalty: "l1", "l0" or "tl1".
        share: β as a fraction of the one-layer bound for δ = 1.
        steps: how many steps.

    """
    generator = torch.Generator().manual_seed(11)
    setting, truth, _ = _standard(penalty, k=k, d=d, share=share)
    v_truth = torch.full((k,), 1 / k, dtype=torch.float64)
    theta = 2.1 * torch.rand(seeds, generator=generator, dtype=torch.float64)
    truths = truth.expand(seeds, -1)
    w = nn.Parameter(starts(truths, theta, torch.ones(seeds, dtype=torch.float64), generator))
    v = nn.Parameter(torch.rand(seeds, k, generator=generator, dtype=torch.float64) / k)
    optimizer = SGD([w, v], lr=0.5)
    RVSM([("w", w)], setting.penalty, beta=setting.beta).attach(optimizer)
    recorded = []
    for step in range(steps + 1):
        optimizer.zero_grad()
        f = _two_layer_loss(w, v, truths, v_truth)
        f.sum().backward()  # type: ignore[no-untyped-call]
        if step % 5 == 0:
            u = setting.penalty.prox(w.detach(), 1 / setting.beta)
            gap = (w.detach() - u).square().sum(dim=-1)
            recorded.append(
                {
                    "steps": torch.tensor(step),
                    "lagrangian": f.detach() + penalty_values([setting.penalty], u) + setting.beta / 2 * gap,
                    "theta": angle(w.detach(), truths),
                    "output_theta": angle(v.detach(), v_truth.expand_as(v)),
                    "norm": size(w.detach()),
                    "scale": size(w.detach()) * size(v.detach()) / (size(truths) * size(v_truth)),
                    "support": u.count_nonzero(dim=-1),
                }
            )
        if step < steps:
            optimizer.step()
    columns = {name: torch.stack([moment[name] for moment in recorded]) for name in recorded[0]}
    return TwoLayerStudy(**columns, truth_support=int(truth.count_nonzero()))


def _two_layer_loss(w: Tensor, v: Tensor, truth: Tensor, v_truth: Tensor) -> Tensor:
    """Return E[(Σ_i v_i relu(w·x_i) − Σ_i v*_i relu(w*·x_i))²] for each row."""

    def moment(a: Tensor, p: Tensor, b: Tensor, q: Tensor, same: Tensor) -> Tensor:
        apart = size(a) * size(b) / (2 * pi)
        return p.sum(dim=-1) * q.sum(dim=-1) * apart + (p * q).sum(dim=-1) * (same - apart)

    ww, tt = w.square().sum(dim=-1) / 2, truth.square().sum(dim=-1) / 2
    crossed = moment(w, v, truth, v_truth, cross_moment(w, truth))
    return moment(w, v, w, v, ww) - 2 * crossed + moment(truth, v_truth, truth, v_truth, tt)


def _standard(penalty: str, *, k: int, d: int, share: float = 0.5, step: float = 1.0) -> tuple[Setting, Tensor, Tensor]:
    """Return one setting inside the hypotheses for δ = 1, a truth half of whose entries are zero, and a start."""
    generator = torch.Generator().manual_seed(7)
    truth = torch.randn(d, generator=generator, dtype=torch.float64)
    truth[(d + 1) // 2 :] = 0
    truth = truth / truth.norm()
    beta = share * beta_bound(k=k, delta=1.0)
    setting = Setting(named(penalty, 0.3 / sqrt(d) * beta), k=k, beta=beta, eta=step / (beta + float(curvature(k))))
    one = torch.ones(1, dtype=torch.float64)
    return setting, truth, starts(truth.unsqueeze(0), 2.0 * one, one, generator)[0]
