"""Every method, with its options and penalties."""

from typing import Any

import rvsm
from rvsm.penalties import PENALTIES
from splitting.sharded.comparing import compare, equal, weights
from splitting.sharded.models import SCHEDULE, STEPS, perceptron, shard, train
from splitting.sharded.runs import on


@on("two")
def every_option_of_rvsm_works() -> None:
    for options in ({"gradient": "u"}, {"order": "printed"}, {"decoupled": False, "gradient": "w"}):
        compare(lambda m, o=options: rvsm.RVSM(m, "l0", **o, **SCHEDULE), perceptron)  # type: ignore[misc]
    compare(lambda m: rvsm.RVSM(m, rvsm.L0(lam=2e-3), beta=0.1), perceptron)
    by_channel: dict[str, Any] = {"groups": "channel", "overrides": {"0.weight": {"groups": "filter"}}}
    compare(lambda m: rvsm.RVSM(m, rvsm.L1(lam=2e-2), beta=0.1, gradient="u", **by_channel), perceptron, exact=False)


@on("two")
def every_penalty_works_on_channels() -> None:
    for kind in PENALTIES.values():
        copies = []
        for model in (perceptron(), shard(perceptron())):
            penalty = kind(lam=1.0).with_threshold(0.15, 10.0)
            method = train(model, rvsm.RVSM(model, penalty, beta=0.1, groups="channel", include=["2.weight"]), 2)
            with method.sparse_weights():
                copies.append(weights(model)["2.weight"])
            method.detach()
        equal(copies[1], copies[0], kind.__name__, exact=False)
        assert 0 < int((copies[0] == 0).sum()) < copies[0].numel(), kind.__name__


@on("two")
def every_method_works() -> None:
    named = {"include": ["0.weight", "2.weight"]}
    compare(lambda m: rvsm.ProxSGD(m, rvsm.L1(lam=0.1)), perceptron)
    compare(lambda m: rvsm.ProxSGD(m, rvsm.L1(lam=0.6), groups="channel", **named), perceptron, exact=False)
    compare(lambda m: rvsm.ADMM(m, sparsity=0.6, steps=STEPS, retrain=0.3, interval=2), perceptron)
    compare(
        lambda m: rvsm.ADMM(m, sparsity=0.6, rho=0.1, interval=2, groups="channel", **named), perceptron, exact=False
    )
    compare(lambda m: rvsm.ADMM(m, rvsm.L0(lam=4e-3), rho=0.1, groups="channel", **named), perceptron, exact=False)
    compare(lambda m: rvsm.Magnitude(m, **SCHEDULE), perceptron)
    compare(lambda m: rvsm.Magnitude(m, groups=rvsm.Block(size=2), **named, **SCHEDULE), perceptron, exact=False)
    compare(lambda m: rvsm.ACDC(m, cycles=2, sparsity=0.7, steps=8), perceptron)  # dense, sparse, dense
