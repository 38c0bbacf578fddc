"""Several real processes train one network through the command line, as torchrun starts them."""

import os
import re
import shutil
import signal
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import rvsm.__main__
from commands import run_module, script
from processes import Process, run_together
from rvsm.records import Run
from rvsm.train.ranks import ALONE, Ranks, join_ranks, read_environment

# Smooth, because a sign or a maximum that depends on the last bit would magnify it a thousandfold.
SMOOTH = """
from torch import nn

def make(channels: int, classes: int):
    first = nn.Sequential(nn.Conv2d(channels, 6, 3, padding=1), nn.BatchNorm2d(6), nn.Tanh(), nn.AvgPool2d(2))
    second = nn.Sequential(nn.Conv2d(6, 6, 3, padding=1), nn.BatchNorm2d(6), nn.Tanh(), nn.AvgPool2d(4))
    return nn.Sequential(first, second, nn.Flatten(), nn.Linear(6, classes))
"""
FAILING = """
import os
from itertools import count

def fail(module, inputs, number=count()):
    if next(number) == 8 and os.environ["RANK"] == "1":
        raise ValueError("out of luck")

whole = make

def make(channels: int, classes: int):
    model = whole(channels, classes)
    model.register_forward_pre_hook(fail)
    return model
"""
# Three batches of 353 images and one of 154, each in two parts: 177, 176 and 77 images, of which two processes get
# different numbers. Batch norm and everything that is random, except dropout. No filter becomes zero, so finishing is
# fast: nothing has to be captured to count channels.
WORDS = ["--model.name", "smooth:make", "--training.epochs", "2", "--training.batch", "353"]
WORDS += ["--training.accumulate", "2", "--training.precision", "float32"]
WORDS += ["--budget.sparsity", "0.3", "--augment.crop", "1", "--augment.flip", "true", "--augment.cutout", "2"]
WORDS += ["--training.label_smoothing", "0.1", "--training.clip", "5"]
TOLERANCE = {"rtol": 0.0, "atol": 2e-6}  # sums have another order
ALLOWED = "--allow-import smooth:make"
TIMES = re.compile(r"[\d,]+ images/s|\d+:\d\d( left)?")


def train(folder: Path, *more: str) -> list[str]:
    return ["train", "--run", str(folder), *WORDS, *more]


def resume(folder: Path) -> list[str]:
    return ["resume", str(folder), *ALLOWED.split()]


@pytest.fixture(scope="session")
def together(forks: Any, once: Callable[..., Path]) -> Callable[..., Any]:
    """Return what trains in forked processes that find the network."""
    folder = once("ranks-model", lambda folder: (folder / "smooth.py").write_text(SMOOTH))
    return lambda **order: forks(**{"folder": str(folder), **order})


@pytest.fixture(scope="session")
def whole(together: Any, once: Callable[..., Path]) -> Callable[[int], tuple[Run, str]]:
    """Return what gives a run that one or two processes trained without a stop, and what it printed."""

    def made(ranks: int) -> tuple[Run, str]:
        def fill(folder: Path) -> None:
            answer = together(words=train(folder / "run"), **({"ranks": 2} if ranks == 2 else {}))
            if ranks == 2:
                assert answer["status"] == [0, 0], answer
                assert answer["printed"][1] == ""  # only one process prints
                answer["printed"] = answer["printed"][0]
            else:
                assert answer["status"] == 0, answer
            (folder / "printed").write_text(answer["printed"])

        folder = once(f"ranks-{ranks}", fill)
        return Run(folder / "run"), (folder / "printed").read_text()

    return made


def assert_close(run: Run, other: Run, **tolerance: float) -> None:
    """Compare weights, statistics of batch norm and metrics."""
    ours, theirs = run.weights(), other.weights()
    for name, w in ours.items():
        torch.testing.assert_close(w, theirs[name], **(tolerance or TOLERANCE), msg=lambda why, name=name: name + why)
        assert torch.equal(w == 0, theirs[name] == 0), name
    assert len(run.metrics()) == len(other.metrics())
    for one, two in zip(run.metrics(), other.metrics(), strict=True):
        assert one["step"] == two["step"]
        assert one["loss"] == pytest.approx(two["loss"], rel=tolerance.get("rtol", 1e-4))
        for copy in "wu":
            assert one[copy]["accuracy"] == pytest.approx(two[copy]["accuracy"], abs=tolerance.get("atol", 0.01))


SAME = {"rtol": 0.0, "atol": 0.0}


def test_two_processes_train_as_one_does(whole: Any) -> None:
    (one, printed), (two, also_printed) = whole(1), whole(2)
    assert_close(two, one)
    assert [run.about()["processes"] for run in (one, two)] == [1, 2]
    assert (one.result() or {})["test"]["u"] == pytest.approx((two.result() or {})["test"]["u"], abs=0.01)
    # The same lines, apart from times; losses have other last digits than those that are shown.
    assert TIMES.sub("", also_printed) == TIMES.sub("", printed).replace(str(one.folder), str(two.folder))


def test_a_killed_process_ends_the_other_and_the_run_resumes_on_any_number(
    together: Any, whole: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    answer = together(words=train(folder), ranks=2, rank=1, minutes=0, within="_evaluate", kill_at=0)
    assert answer["status"] == [1, -signal.SIGKILL], answer
    sentence = "rvsm: another process of this training has ended, .* continue with: rvsm resume (.*)\n"
    found = re.findall(sentence, answer["printed"][0])
    assert found == [f"{folder} {ALLOWED}"]
    assert "Traceback" not in answer["printed"][0]
    for ranks in (1, 2):
        shutil.copytree(folder, tmp_path / f"on-{ranks}")
    again = together(words=resume(tmp_path / "on-2"), ranks=2)
    assert again["status"] == [0, 0], again
    assert "continuing from step 3 of 8\n" in again["printed"][0]
    assert "differ" not in again["printed"][0]
    assert_close(Run(tmp_path / "on-2"), whole(2)[0], **SAME)
    alone = together(words=resume(tmp_path / "on-1"))
    assert alone["status"] == 0, alone
    assert "differ from those at the start (processes 2 → 1)" in alone["printed"]
    assert_close(Run(tmp_path / "on-1"), whole(1)[0])


def test_the_first_process_killed(together: Any, tmp_path: Path) -> None:
    answer = together(words=train(tmp_path / "run"), ranks=2, rank=0, within="_evaluate", kill_at=0)
    assert answer["status"] == [-signal.SIGKILL, 1], answer
    assert re.match("rvsm: another process of this training has ended, .*: rvsm resume", answer["printed"][1])


def test_one_asked_to_stop_stops_all_after_a_checkpoint(together: Any, whole: Any, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    order = {"within": "train_step", "kill_at": 1, "number": signal.SIGTERM}
    answer = together(words=train(folder), ranks=2, rank=1, **order)
    assert answer["status"] == [130, 130], answer
    assert answer["printed"][0].endswith(
        f"rvsm: stopped at step 1 of 8; continue with: rvsm resume {folder} {ALLOWED}\n"
    )
    assert answer["printed"][1] == ""
    assert len(Run(folder).checkpoints()) == 1


def test_begun_on_one_and_resumed_on_two(together: Any, whole: Any, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert together(words=train(folder), within="_evaluate", kill_at=0, minutes=0)["killed"]
    answer = together(words=resume(folder), ranks=2)
    assert answer["status"] == [0, 0], answer
    assert_close(Run(folder), whole(1)[0])
    done = together(words=resume(folder), ranks=2)  # a finished run
    assert done["status"] == [0, 0]
    assert "test accuracy of u" in done["printed"][0]


def test_errors_are_said_once(together: Any, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    both = together(words=train(folder, "--optimizer.name", "sdg"), ranks=2)
    assert both["status"] == [1, 1]
    assert both["printed"][0].startswith("rvsm: unknown optimizer.name 'sdg'")
    assert both["printed"][1] == ""
    diverged = together(words=train(folder, "--optimizer.lr", "1e30"), ranks=2)
    assert diverged["status"] == [1, 1]
    assert re.search("\nrvsm: the loss became nan at step \\d .*There is no checkpoint yet", diverged["printed"][0])
    assert diverged["printed"][1] == ""
    taken = together(words=train(folder), ranks=2)  # an error of the first process alone
    assert taken["status"] == [1, 1]
    assert re.fullmatch("rvsm: .* holds a run with different options .*\n", taken["printed"][0])
    assert taken["printed"][1] == ""
    alone = together(words=train(tmp_path / "other"), ranks=2, rank=1, more=["--seed", "1"])
    assert alone["status"] == [1, 1]
    expected = "rvsm: process 1 of 2: the options of process 1 are not those of process 0; .*"
    assert re.fullmatch(f"{expected}\nanother process has ended, perhaps because it was killed\n", alone["printed"][0])
    assert alone["printed"][1] == ""
    assert not (tmp_path / "other").exists()


def test_a_network_that_fails_on_one_process(together: Any, tmp_path: Path) -> None:
    (tmp_path / "smooth.py").write_text(SMOOTH + FAILING)
    answer = together(words=train(tmp_path / "run"), ranks=2, folder=str(tmp_path))
    assert answer["status"] == [1, 1]
    cause = "the model 'smooth:make' failed in step 4: ValueError: out of luck"
    hint = "another process of this training has ended, .*; continue with: rvsm resume .*"
    assert re.search(f"\nrvsm: process 1 of 2: {cause} .*\n{hint}\n$", answer["printed"][0])
    assert answer["printed"][1] == ""


def test_compare(together: Any, tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("[model]\nwidth = 2\n[training]\nepochs = 1\nbatch_norm = 'local'\n")
    words = ["compare", "a.toml", "--method.name", "dense", "--seeds", "2"]
    refused = together(words=[*words, "--jobs", "2"], ranks=2, folder=str(tmp_path))
    assert refused["status"] == [1, 1]
    assert refused["printed"] == [
        "rvsm: --jobs 2 trains several runs at once, but these 2 processes train one run together; leave out --jobs, or"
        " start without torchrun\n",
        "",
    ]
    # Ended before it draws the pictures, which would take seconds; the other one has no report to write.
    answer = together(words=words, ranks=2, folder=str(tmp_path), rank=0, within="report", kill_at=0)
    assert answer["status"] == [-signal.SIGKILL, 0], answer
    assert all(title in answer["printed"][0] for title in ("1/2 a, seed 0", "2/2 a, seed 1"))
    assert answer["printed"][1] == ""
    assert [Run(tmp_path / f"runs/a-s{seed}").status for seed in range(2)] == ["finished", "finished"]
    few = together(words=[*words, "--training.batch", "3", "--runs", "few"], ranks=2, folder=str(tmp_path))
    assert "'local' needs at least 2 images on each process, but 3 images are computed" in few["printed"][0]
    other = together(words=["report", "runs/a-s0"], ranks=2, folder=str(tmp_path))
    assert all("report runs on one process" in text for text in other["printed"])


SCRIPT = """
import copy, torch
from torch import nn
from rvsm.config import Training
from rvsm.train.batch_norm import synchronized
from rvsm.train.parallel import Parallel
from rvsm.train.ranks import join_ranks

ranks = join_ranks()
torch.manual_seed(0)
tree = {"step": 3, "kept": {0: torch.arange(3)}, "pair": (1.5, None), "nothing": torch.zeros(0)}
found = ranks.share(lambda: tree if ranks.first else 1 / 0)
assert repr(found) == repr(tree), found

for shape, kind in (((7, 3, 4, 4), nn.BatchNorm2d), ((7, 3), nn.BatchNorm1d), ((1, 3, 5), nn.BatchNorm1d)):
    for affine, momentum in ((True, 0.1), (False, None)):
        x, g = 5 + 2 * torch.randn(shape, dtype=torch.float64), torch.randn(shape, dtype=torch.float64)
        norm = kind(3, affine=affine, momentum=momentum).double()
        if affine:
            nn.init.normal_(norm.weight)
        other, alone, own = copy.deepcopy(norm), x.clone().requires_grad_(), x.clone().requires_grad_()
        y = norm(alone)
        y.backward(g)
        share = ranks.shares(len(x))[0]  # of one image: none for the first process
        with synchronized(other, ranks):
            z = other(own[share])
        z.backward(g[share])
        torch.testing.assert_close(z, y[share])
        torch.testing.assert_close(own.grad[share], alone.grad[share])
        for name, buffer in norm.named_buffers():
            torch.testing.assert_close(dict(other.named_buffers())[name], buffer)
        for name, p in norm.named_parameters():
            torch.testing.assert_close(ranks.total(dict(other.named_parameters())[name].grad.clone()), p.grad)
        assert "forward" not in vars(other)

# Local batch norm: the statistics are averaged. Other buffers are those of the first process. Unused parameters stay.
model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
model.register_parameter("unused", nn.Parameter(torch.ones(1)))
model.register_buffer("counter", torch.tensor(float(ranks.rank)))
x = torch.randn(6, 4)
parallel = Parallel(model, ranks, x, Training(batch_norm="local"))
for _ in range(2):
    share = ranks.shares(len(x))[0]
    with parallel.computing(last=True):
        parallel.forward(x[share]).square().sum().backward()
    model.counter += ranks.rank + 1
    parallel.agree_on_buffers((share.stop - share.start) / len(x))
assert model.unused.grad is None
for tensor in (*model.buffers(), model[0].weight.grad):
    assert torch.equal(*ranks.gather(tensor.float()))
assert model.counter == 2
torch.testing.assert_close(model[1].running_mean, 0.19 * model[0](x).mean(0))
draws = []
for step in (0, 1, 0):
    parallel.reseed(5, step)
    draws.append(ranks.gather(torch.rand(4)))
assert not torch.equal(*draws[0])
assert torch.equal(draws[0][1], draws[2][1]) and not torch.equal(draws[0][1], draws[1][1])
"""


def test_batch_norm_buffers_and_random_numbers(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    ended = run_together([partial(script, str(tmp_path / "script.py"))] * 2)
    assert [one.status for one in ended] == [0, 0], ended


def test_shares_are_a_partition_of_the_same_parts() -> None:
    for images in (1, 2, 7, 64):
        for parts in (1, 2, 5):
            whole = ALONE.shares(images, parts)
            assert [part.stop - part.start for part in whole] == [len(t) for t in torch.arange(images).chunk(parts)]
            shares = [Ranks(rank, 3).shares(images, parts) for rank in range(3)]
            for part, *own in zip(whole, *shares, strict=True):
                assert [i for one in own for i in range(images)[one]] == list(range(images)[part])


GOOD = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"RANK": None}, "WORLD_SIZE is set, .* but RANK is missing; start with torchrun"),
        ({"MASTER_PORT": None}, "but MASTER_PORT is missing"),
        ({"RANK": "2"}, r"RANK should be in \[0, 2\), since WORLD_SIZE is 2, but is 2"),
        ({"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "1"}, r"LOCAL_RANK should be in \[0, 1\)"),
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE should be an integer ≥ 0 but is 'two'"),
    ],
)
def test_an_environment_that_cannot_be(change: dict[str, str | None], message: str) -> None:
    wrong = {name: text for name, text in {**GOOD, **change}.items() if text is not None}
    with pytest.raises(ValueError, match=message):
        read_environment(wrong)


def test_nobody_there(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {**GOOD, "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, text)
    with pytest.raises(RuntimeError, match=r"process 1 of 2 cannot reach the others .*MASTER_PORT=1 .*; check"):
        join_ranks(patience=timedelta(seconds=0.2))


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are found in /proc")
def test_torchrun_and_a_killed_process(tmp_path: Path) -> None:
    words = ["--model.width", "4", "--training.epochs", "9999", "--budget.sparsity", "0.5", "--run", "run"]
    # torchrun forks the processes, which otherwise import torch for seconds, and they run what -m rvsm would run.
    launch = ["--nproc-per-node", "2", "--start-method", "fork", "--run-path", "--", rvsm.__main__.__file__]
    torchrun = Process(run_module, "torch.distributed.run", *launch, "train", *words, folder=tmp_path)
    try:
        checkpoints = tmp_path / "run/checkpoints"
        deadline = time.monotonic() + 120
        while not any(checkpoints.glob("step-*.safetensors")):
            assert time.monotonic() < deadline
            assert torchrun.running
            time.sleep(0.02)
        _, second = Path(f"/proc/{torchrun.pid}/task/{torchrun.pid}/children").read_text().split()
        os.kill(int(second), signal.SIGKILL)
        printed = torchrun.ended(timeout=100).printed
    finally:
        torchrun.kill()
    assert re.search("\nrvsm: another process of this training has ended, .*: rvsm resume run\n", printed)
    assert printed.count("steps: 9999 × ") == 1
    assert Run(tmp_path / "run").checkpoints()
