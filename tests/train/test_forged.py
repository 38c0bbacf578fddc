"""Checkpoints that somebody has written: whole, with the right checksum, and wrong."""

import io
import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from rvsm.config import read_config
from rvsm.data import Dataset
from rvsm.records import Run
from rvsm.train import StoppedError, Trainer, resume, start

FLAGS = ["--model.width", "2", "--training.epochs", "2", "--training.batch", "512"]
METHODS = {
    "rvsm": ["--budget.sparsity", "0.5"],
    "admm": ["--method.name", "admm", "--method.rho", "0.1", "--method.sparsity", "0.5", "--optimizer.name", "adamw"],
}
VALUES = [None, "x", -1, 0.5, float("nan"), 10**30, True, [], {}, {"a": 1}, torch.zeros(3), torch.zeros(2, 2).long()]
PARTS = ["step", "config", "images", "seconds", "running", "model", "optimizer", "method", "random"]
GONE = object()


@pytest.fixture(scope="module", params=METHODS)
def whole(request: pytest.FixtureRequest, once: Callable[..., Path]) -> tuple[Path, dict[str, Any]]:
    """Return the folder of a training that is killed after its first epoch, and the state it left."""
    saved = Run.save

    def killed(run: Run, step: int, state: Any) -> Path:
        saved(run, step, state)
        raise KeyboardInterrupt

    def fill(folder: Path) -> None:
        config = read_config(flags=[*FLAGS, *METHODS[request.param]])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Run, "save", killed)
            with pytest.raises(StoppedError):
                start(config, folder / "run", Console(file=io.StringIO()))

    folder = once(f"forged-{request.param}", fill) / "run"
    state, _ = Run(folder).newest()
    assert state is not None
    return folder, state


def places(node: Any, at: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Iterate over the paths to all parts of a tree."""
    yield at
    inner = node.items() if isinstance(node, dict) else enumerate(node[:4]) if isinstance(node, list | tuple) else ()
    for key, part in inner:
        yield from places(part, (*at, key))


def changed(node: Any, at: tuple[Any, ...], value: Any) -> Any:
    """Return a tree with another value at a path, or without what is there."""
    if not at:
        return value
    pairs = list(node.items()) if isinstance(node, dict) else list(enumerate(node))
    kept = [(k, changed(v, at[1:], value) if k == at[0] else v) for k, v in pairs]
    kept = [(k, v) for k, v in kept if v is not GONE]
    return dict(kept) if isinstance(node, dict) else type(node)(v for _, v in kept)


@pytest.mark.parametrize("part", PARTS)
def test_a_forged_state_is_a_sentence_or_does_no_harm(
    part: str, whole: tuple[Path, dict[str, Any]], tmp_path: Path, digits: Dataset
) -> None:
    draw = random.Random(f"forged {part}")
    ways = list(places(whole[1][part], (part,)))
    sentences = []
    for at in [(part,), *draw.sample(ways, min(3, len(ways)))]:
        folder = tmp_path / "run"
        shutil.copytree(whole[0], folder)
        Run(folder).save(whole[1]["step"], changed(whole[1], at, draw.choice([GONE, *VALUES])))
        try:
            resume(folder, Console(file=io.StringIO()), digits)
        except ValueError as error:
            sentences.append(str(error))
        shutil.rmtree(folder)
    assert sentences
    assert all("does not fit what its config.toml describes" in text and "\n" not in text for text in sentences)


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (("step",), 10**9, r"its step should be in \[0, 6\] but is 1000000000"),
        (("step",), True, "its 'step' should be a int but is a bool"),
        (("seconds",), float("inf"), "finite numbers ≥ 0"),
        (("running", "seen"), -1, "finite numbers ≥ 0"),
        (("optimizer", "state", 99), {}, "parameters, but its state has one called 99"),
        (("method", "layers", "0.weight", "beta"), "x", "beta for '0.weight' must be > 0 and finite but is 'x'"),
        (("random", "numpy", 2), 10**6, r"a position in \[0, 624\]"),  # NumPy would read beyond its keys
    ],
)
def test_what_is_wrong(
    at: tuple[Any, ...], value: Any, message: str, whole: tuple[Path, dict[str, Any]], digits: Dataset
) -> None:
    state = changed(whole[1], at, value)
    if at[:2] == ("optimizer", "state"):
        state["optimizer"]["state"] = {**state["optimizer"]["state"], at[2]: value}
    trainer = Trainer(read_config(whole[0] / "config.toml"), digits)
    with pytest.raises(ValueError, match=message):
        trainer.load_state(state)


def test_the_options_of_an_optimizer_are_those_of_the_configuration(
    whole: tuple[Path, dict[str, Any]], digits: Dataset
) -> None:
    trainer = Trainer(read_config(whole[0] / "config.toml"), digits)
    expected = trainer.optimizer.param_groups[0]["weight_decay"]
    trainer.load_state(changed(whole[1], ("optimizer", "param_groups", 0, "weight_decay"), "x"))
    assert trainer.optimizer.param_groups[0]["weight_decay"] == expected


def test_damaged_results(small: Callable[..., Any], train: Any, digits: Dataset) -> None:
    run = train(small())
    whole = run.result()
    for key, value in [("seconds", "x"), ("test", {"w": 1}), ("sparsity", 7), ("multiplications_saved", [])]:
        (run.folder / "result.json").write_text(json.dumps({**whole, key: value}))
        with pytest.raises(ValueError, match=rf"result\.json is damaged: '{key}' should be .* resume the run"):
            resume(run.folder, Console(file=io.StringIO()), digits)
