"""Several trainings, one after another or at once: real processes on the digits."""

import io
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from rich.console import Console

from rvsm.config import Config, read_config
from rvsm.records import Run, folder_of
from rvsm.train import run_all

QUICK = ["--model.width", "4", "--training.epochs", "2", "--training.batch", "256", "--training.threads", "1"]


def config(name: str, *flags: str) -> Config:
    return read_config(flags=[*QUICK, "--budget.sparsity", "0.5", "--name", name, *flags])


def run(configs: list[Config], folder: Path, *, jobs: int, seeds: int = 1) -> tuple[list[Run], str]:
    text = io.StringIO()
    console = Console(file=text, width=300)
    return run_all(configs, seeds=range(seeds), runs=folder, console=console, jobs=jobs), text.getvalue()


def test_at_once_gives_what_one_after_another_gives(tmp_path: Path) -> None:
    configs = [config("a"), config("ℓ0 [b]", "--penalty.name", "l1")]
    one, _ = run(configs, tmp_path / "one", jobs=1, seeds=2)
    two, told = run(configs, tmp_path / "two", jobs=2, seeds=2)
    assert [r.folder.name for r in one] == [r.folder.name for r in two]
    for before, after in zip(one, two, strict=True):
        assert all(torch.equal(w, after.weights()[name]) for name, w in before.weights().items())
    assert told.count("begun") == 4
    assert len(re.findall(r"\d/4 .*, seed \d: test accuracy of u", told)) == 4
    assert "4/4 ℓ0 [b], seed 1: test accuracy" in told
    _, again = run(configs, tmp_path / "two", jobs=2, seeds=2)
    assert again.count("finished already: test accuracy") == 4
    assert "begun" not in again


def test_one_that_diverges_does_not_stop_the_others(tmp_path: Path) -> None:
    wild = config("wild", "--optimizer.lr", "1e20", "--optimizer.momentum", "0", "--optimizer.nesterov", "false")
    runs, told = run([wild, config("tame")], tmp_path, jobs=2)
    assert [r.status for r in runs] == ["unfinished", "finished"]
    assert re.search(r"1/2 wild, seed 0: the loss became nan", told)


def test_one_that_cannot_be_made_stops_the_others_which_can_go_on(tmp_path: Path) -> None:
    bad = config("bad", "--model.name", "rvsm.models:convnet", "--model.width", "-1")
    with pytest.raises(ValueError, match=r"1/2 bad, seed 0: the model .* cannot be made"):
        run([bad, config("good", "--training.epochs", "400")], tmp_path, jobs=2)
    good = folder_of(tmp_path, "good", 0)
    assert not (good / "result.json").exists()


def test_a_worker_that_is_killed(tmp_path: Path) -> None:
    text = command(tmp_path, kill=signal.SIGKILL, children=True)
    assert re.search(r"its process ended with code -9, perhaps for want of memory", text)
    assert "Traceback" not in text


def test_a_termination_stops_all_after_a_checkpoint(tmp_path: Path) -> None:
    text = command(tmp_path, kill=signal.SIGTERM, children=False)
    assert "stopped; the same command goes on from here" in text
    assert "Traceback" not in text
    for name in ("a", "b"):
        assert Run(folder_of(tmp_path / "runs", name, 0)).checkpoints()


def command(folder: Path, *, kill: signal.Signals, children: bool) -> str:
    """Start a long comparison, send a signal to it or to one of its workers once both train, and return its output."""
    for name in ("a", "b"):
        (folder / f"{name}.toml").write_text(
            "[model]\nwidth = 4\n[budget]\nsparsity = 0.5\n[training]\nepochs = 2000\n"
        )
    words = ["compare", "a.toml", "b.toml", "--jobs", "2", "--runs", "runs"]
    process = subprocess.Popen(
        [sys.executable, "-m", "rvsm.cli", *words], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True,
    )  # fmt: skip
    try:
        metrics = [folder_of(folder / "runs", name, 0) / "metrics.jsonl" for name in ("a", "b")]
        deadline = time.monotonic() + 120
        while not all(file.exists() and file.stat().st_size for file in metrics):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.2)
        target = _children(process.pid)[0] if children else process.pid
        os.kill(target, kill)
        text, _ = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode not in (0, None)
    assert _children(process.pid) == []
    return text


def _children(pid: int) -> list[int]:
    """Return the processes that train for a parent; the tracker of resources is not one of them."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            line = (folder / "cmdline").read_bytes()
        except (OSError, IndexError, ValueError):
            continue
        if parent == pid and b"spawn_main" in line:
            found.append(int(folder.name))
    return found
