import io
import json
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from rvsm.config import Choice, Config, build, read_config
from rvsm.data import Dataset
from rvsm.records import Run, locked
from rvsm.train import Callback, StoppedError, Trainer, load_network, resume, session, start, start_or_resume
from rvsm.train.recorder import Recorder
from rvsm.train.restoring import seed_all
from rvsm.train.result import finish

TIMINGS = ("images_per_second", "seconds", "time_left", "times", "memory")


class StopAt(Recorder):
    """Asks itself to stop after a step, as Ctrl-C does."""

    step = 0

    def on_step(self, trainer: Trainer) -> None:
        if trainer.step == self.step:
            self._ask(2, None)
        super().on_step(trainer)


def stop(config: Config, folder: Path, step: int, data: Dataset) -> str:
    """Train up to a step in a new folder, and return the sentence at the end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StopAt, "step", step)
        patch.setattr(session, "Recorder", StopAt)
        with pytest.raises(StoppedError) as error:
            start(config, folder, Console(file=io.StringIO()), data)
    return str(error.value)


@pytest.fixture
def stopped(tmp_path: Path, digits: Dataset) -> Callable[[Config, int], tuple[Path, str]]:
    """Train up to a step in a new folder, and return it with the sentence at the end."""

    def go(config: Config, step: int) -> tuple[Path, str]:
        folder = tmp_path / f"stopped-{step}"
        return folder, stop(config, folder, step, digits)

    return go


@pytest.fixture
def half(small: Any, once: Any, digits: Dataset, tmp_path: Path) -> Callable[..., Path]:
    """Return what gives the folder of the small run, stopped at a step of twelve; the test may change it."""

    def copied(step: int = 5) -> Path:
        kept = once(f"small-stopped-{step}", lambda at: stop(small(), at / "run", step, digits))
        return Path(shutil.copytree(kept / "run", tmp_path / f"half-{step}"))

    return copied


def go_on(folder: Path, data: Dataset, **options: Any) -> str:
    text = io.StringIO()
    resume(folder, Console(file=text, width=80), data, **options)
    return text.getvalue()


def same_ending(one: Run, other: Run) -> None:
    for name, w in one.weights().items():
        assert torch.equal(w, other.weights()[name]), name
    metrics = [[{k: v for k, v in r.items() if k not in TIMINGS} for r in run.metrics()] for run in (one, other)]
    assert metrics[0] == metrics[1]
    results = [{k: v for k, v in (run.result() or {}).items() if k != "seconds"} for run in (one, other)]
    assert results[0] == results[1]


STOPS = {  # there are four steps in an epoch, or five without validation
    "": (4, 6, 12),  # at the end of an epoch, within one, and at the very end
    "--optimizer.name adamw --training.accumulate 2 --training.evaluate_every 2 --training.checkpoint_every 2": (4, 6),
    "--training.precision bfloat16 --augment.crop 1 --augment.cutout 2 --training.channels_last false": (6,),
    '--groups.name filter --method.exclude ["11.*"] --penalty.name tl1 --training.validation 0': (5, 6),
    "--budget.ramp 1 --budget.heal 0 --schedule.name onecycle --training.clip 0.5": (6, 12),
}


@pytest.mark.parametrize("flags", STOPS)
def test_bit_for_bit_from_any_step(flags: str, small: Any, train: Any, stopped: Any, digits: Dataset) -> None:
    config = small(*flags.split())
    whole = train(config)
    for step in STOPS[flags]:
        folder, message = stopped(config, step)
        steps = 12 if config.training.validation else 15
        assert message == f"stopped at step {step} of {steps}; continue with: rvsm resume {folder}"
        assert f"{folder}: continuing from step {step} of {steps}\n" in go_on(folder, digits)
        same_ending(Run(folder), whole)


METHODS = {
    "dense": ["--method.name", "dense"],
    "paper": ["--penalty.lam", "1e-4", "--method.beta", "0.1"],
    "printed": ["--penalty.lam", "1e-4", "--method.beta", "0.1", "--method.order", "printed"],
    "coupled": ["--penalty.lam", "1e-4", "--method.beta", "0.1", "--method.decoupled", "false"],
    "admm": ["--method.name", "admm", "--method.rho", "0.01", "--method.sparsity", "0.4", "--method.interval", "3"],
    "proxsgd": ["--method.name", "proxsgd", "--penalty.name", "l1", "--penalty.lam", "1e-3"],
    "magnitude": ["--method.name", "magnitude", "--budget.sparsity", "0.4"],
}


@pytest.mark.parametrize("method", METHODS)
def test_every_method(method: str, small: Any, train: Any, stopped: Any, digits: Dataset) -> None:
    config = small(*METHODS[method], target=False)
    whole = train(config)
    folder, _ = stopped(config, 5)
    go_on(folder, digits)
    same_ending(Run(folder), whole)


MODEL = """
import random
import numpy as np
import torch
from torch import nn

class Net(nn.Module):
    # Draws from all three generators, and in evaluations too.
    def __init__(self, channels, classes):
        super().__init__()
        self.first, self.last = nn.Linear(64 * channels, 16), nn.Linear(16, classes)

    def forward(self, x):
        noise = 1 + 0.01 * random.random() + 0.01 * float(np.random.rand())
        h = torch.relu(self.first(x.flatten(1))) * noise
        return self.last(nn.functional.dropout(h, 0.3, training=True))

def net(channels, classes):
    return Net(channels, classes)
"""


@pytest.fixture
def own_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"own_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return f"{name}:net"


def own(name: str, *flags: str) -> Config:
    words = ["--training.epochs", "3", "--training.batch", "256", "--budget.sparsity", "0.5", "--model.name", name]
    return read_config(flags=[*words, *flags])


def test_a_model_with_dropout_of_its_own(own_model: str, train: Any, stopped: Any, digits: Dataset) -> None:
    config = own(own_model)
    folder, _ = stopped(config, 6)
    torch.manual_seed(999)
    go_on(folder, digits, allow_import=[own_model])
    same_ending(Run(folder), train(config))
    with pytest.raises(ValueError, match="allow it with --allow-import"):
        load_network(folder)
    assert not load_network(folder, allow_import=[own_model])[0].training


def test_trying_a_model_draws_nothing(own_model: str, digits: Dataset) -> None:
    config = own(own_model)
    seed_all(config.seed)
    build.network(config, channels=digits.channels, classes=len(digits.classes), size=digits.size)
    expected = torch.rand(3), random.random(), np.random.rand()
    Trainer(config, digits)
    found = torch.rand(3), random.random(), np.random.rand()
    assert torch.equal(found[0], expected[0])
    assert found[1:] == expected[1:]


def test_a_run_from_before_remainders_were_kept(small: Any, stopped: Any, digits: Dataset) -> None:
    config = small("--training.batch", "512", "--training.epochs", "2")  # 2 whole batches, and 189 images
    folder, _ = stopped(config, 2)
    run = Run(folder)
    for path in run.checkpoints():
        path.unlink()
    old = Trainer(config, digits, remainder=False)
    old.train_step(*next(old.batches.epoch(0)))
    run.save(1, {key: value for key, value in old.state().items() if key != "remainder"})
    go_on(folder, digits)
    assert run.result()["steps"] == 4
    unbroken = Trainer(config, digits, remainder=False)
    unbroken.run()
    weights, _ = finish(unbroken)
    assert all(torch.equal(w, weights[name]) for name, w in run.weights().items())


def test_looking_draws_nothing(own_model: str, train: Any) -> None:
    often, seldom = (train(own(own_model, "--training.evaluate_every", every)) for every in ("1", "3"))
    for name, w in often.weights().items():
        assert torch.equal(w, seldom.weights()[name])


# What is said


def test_a_finished_run_is_left_alone(whole: Run, digits: Dataset) -> None:
    before = {file: file.stat().st_mtime_ns for file in whole.folder.rglob("*") if file.name != "lock"}
    assert resume(whole.folder, Console(file=io.StringIO()), digits) == whole.result()
    assert {file: file.stat().st_mtime_ns for file in whole.folder.rglob("*") if file.name != "lock"} == before


def test_a_result_that_lacks_something(whole: Run, digits: Dataset) -> None:
    folder = whole.folder
    (folder / "result.json").write_text("{}")
    message = r"result\.json is damaged: '{}' is missing; remove the file and resume the run to write it again"
    with pytest.raises(ValueError, match=message.format("test")):
        go_on(folder, digits)
    with pytest.raises(ValueError, match=message.format("input")):
        load_network(folder)


def test_a_damaged_checkpoint(whole: Run, half: Any, digits: Dataset) -> None:
    folder = half(10)
    newest = Run(folder).checkpoints()[-1]
    newest.write_bytes(newest.read_bytes()[:-100])
    text = go_on(folder, digits)
    assert f"{newest} cannot be read: " in text
    assert "the previous checkpoint is used\n" in text
    assert "continuing from step 8 of 12\n" in text
    same_ending(Run(folder), whole)


def test_all_checkpoints_damaged(whole: Run, half: Any, digits: Dataset) -> None:
    folder = half(10)
    for path in Run(folder).checkpoints():
        path.write_bytes(b"")
    text = go_on(folder, digits)
    assert text.count("cannot be read: ") == 2
    assert "no checkpoint is intact: the run starts again\n" in text
    assert "is used" not in text
    assert "continuing from step 0 of 12\n" in text
    same_ending(Run(folder), whole)


def test_another_number_of_threads(half: Any, digits: Dataset) -> None:
    folder = half()
    about = Run(folder).about()
    (folder / "about.json").write_text(json.dumps({**about, "threads": 1000}))
    text = go_on(folder, digits)
    assert (
        "the machine or versions differ from those at the start (threads 1000 → 1): the results will not be"
        " bit-identical" in text
    )


def test_a_run_goes_on_with_as_many_threads_as_it_began_with(
    half: Any, digits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = half()
    about = Run(folder).about()
    (folder / "about.json").write_text(json.dumps({**about, "threads": 2}))
    monkeypatch.setattr(session.os, "cpu_count", lambda: 2)
    seen = []
    step = Trainer.train_step
    monkeypatch.setattr(Trainer, "train_step", lambda *a: (seen.append(torch.get_num_threads()), step(*a))[1])
    assert "differ" not in go_on(folder, digits)
    assert set(seen) == {2}
    assert torch.get_num_threads() == 1


def test_threads_of_one_run_are_not_those_of_the_next(small: Any, train: Any) -> None:
    assert train(small("--training.epochs", "1", "--training.threads", "2")).about()["threads"] == 2
    assert train(small()).about()["threads"] == 1


def test_a_model_that_was_changed_meanwhile(half: Any, digits: Dataset) -> None:
    folder = half()
    file = folder / "config.toml"
    file.write_text(file.read_text().replace("width = 4", "width = 5"))
    with pytest.raises(ValueError, match=r"does not fit what its config\.toml describes; were options") as error:
        go_on(folder, digits)
    assert "\n" not in str(error.value)


def test_folders_with_brackets(small: Any, digits: Dataset, tmp_path: Path) -> None:
    folder = tmp_path / "[/b] [90 %]"
    start(small(), folder, Console(file=io.StringIO()), digits)
    (folder / "result.json").unlink()
    assert f"{folder}: continuing from step 0" in go_on(folder, digits)


def test_conflicts(small: Any, whole: Run, half: Any, digits: Dataset) -> None:
    console = Console(file=io.StringIO())
    with pytest.raises(ValueError, match=r"is finished; see it with: rvsm report .*, or give another folder"):
        start(small(), whole.folder, console, digits)
    with pytest.raises(
        ValueError, match=r"different options \(training\.epochs 3 → 4\); give another folder, or remove"
    ):
        start(small("--training.epochs", "4"), whole.folder, console, digits)
    with pytest.raises(ValueError, match=r"different options \(seed 0 → 1\)"):
        start_or_resume(small("--seed", "1"), whole.folder, console, digits)
    folder = half()
    with pytest.raises(ValueError, match="holds this run, unfinished; continue with: rvsm resume"):
        start(small(), folder, console, digits)
    assert start_or_resume(small(), folder, console, digits)["steps"] == 12
    file = whole.folder / "config.toml"
    with pytest.raises(ValueError, match=r"config\.toml is a file; give a folder for the run"):
        start(small(), file, console, digits)


def test_bad_input_leaves_no_folder(tmp_path: Path, digits: Dataset) -> None:
    config = read_config(flags=["--model.name", "lenet5", "--budget.sparsity", "0.5"])
    broken = replace(config, model=Choice("torch.nn:Linear", {"in_features": 3, "out_features": 3}))
    with pytest.raises(ValueError, match="cannot take images"):
        start(broken, tmp_path / "a", Console(), digits)
    assert not (tmp_path / "a").exists()


def test_a_second_process_is_refused_and_seconds_add_up(half: Any, digits: Dataset) -> None:
    folder = half()
    with locked(folder), pytest.raises(ValueError, match=r"another process is training in .*; wait for it"):
        go_on(folder, digits)
    state, _ = Run(folder).newest()
    assert state is not None
    assert "differ" not in go_on(folder, digits)  # the same machine is not mentioned
    seconds = [record["seconds"] for record in Run(folder).metrics()]
    assert seconds == sorted(seconds)
    assert seconds[-1] > state["seconds"]


def test_a_callback_hears_everything_in_order(small: Any, digits: Dataset) -> None:
    heard: list[str] = []

    class Listener(Callback):
        def on_start(self, trainer: Trainer) -> None:
            heard.append("start")

        def on_step(self, trainer: Trainer) -> None:
            heard.append(f"step {trainer.step}")

        def on_record(self, trainer: Trainer, record: Any) -> None:
            heard.append(f"record {record['step']}")

        def on_epoch(self, trainer: Trainer) -> None:
            heard.append(f"epoch {trainer.epoch:g}")

        def on_end(self, trainer: Trainer) -> None:
            heard.append("end")

    Trainer(small("--training.epochs", "2", "--training.evaluate_every", "2"), digits, [Listener()]).run()
    steps = [f"step {i}" for i in range(1, 9)]
    assert heard == ["start", *steps[:4], "epoch 1", *steps[4:], "record 8", "epoch 2", "end"]


def test_other_images_than_at_the_start_are_refused(half: Any, digits: Dataset) -> None:
    folder = half()
    labels = digits.train.labels.clone()
    labels[0] = (labels[0] + 1) % 10
    other = replace(digits, train=replace(digits.train, labels=labels))
    with pytest.raises(ValueError, match=r"does not fit .*\(the images are not those that the run started with"):
        go_on(folder, other)
    go_on(folder, digits)


def test_what_only_informs_does_not_stop_a_resume(half: Any, digits: Dataset) -> None:
    folder = half()
    (folder / "about.json").write_text("{")
    (folder / "result.json").write_text("{")
    with pytest.raises(ValueError, match="remove the file and resume the run"):
        go_on(folder, digits)
    (folder / "result.json").unlink()
    go_on(folder, digits)


def test_options_that_were_changed_meanwhile_are_named(half: Any, digits: Dataset) -> None:
    folder = half()
    config = folder / "config.toml"
    before = config.read_text()
    config.write_text(before.replace("lr = 0.1", "lr = 0.05"))
    with pytest.raises(ValueError, match=r"different options: optimizer\.lr 0\.1 → 0\.05"):
        go_on(folder, digits)
    config.write_text(before)
    go_on(folder, digits)


def test_a_folder_with_checkpoints_but_no_config_is_refused(small: Any, half: Any, digits: Dataset) -> None:
    folder = half()
    (folder / "config.toml").unlink()
    with pytest.raises(ValueError, match=r"of a run whose config\.toml is missing"):
        start(small(), folder, Console(file=io.StringIO()), digits)


def test_the_network_of_a_run_can_be_used(small: Any, train: Any, digits: Dataset) -> None:
    # In bfloat16, which "auto" may choose, a few images are classified otherwise.
    model, result = load_network(train(small("--training.precision", "float32")).folder)
    mean, std = (torch.tensor(result[key]).view(1, -1, 1, 1) for key in ("mean", "std"))
    x = (digits.test.images.float() / 255 - mean) / std
    right = (model(x).argmax(1) == digits.test.labels).float().mean()
    assert float(right) == pytest.approx(result["test"]["u"]["accuracy"], abs=0.003)
    assert list(x.shape[1:]) == result["input"]


def test_options_of_the_machine_may_change_meanwhile(small: Any, stopped: Any, digits: Dataset) -> None:
    folder, _ = stopped(small("--training.checkpoint_every", "2"), 5)
    config = folder / "config.toml"
    config.write_text(config.read_text().replace("checkpoint_every = 2", "checkpoint_every = 3"))
    go_on(folder, digits)
    assert Run(folder).result() is not None
