"""Several trainings, one after another or at once: real processes on the digits."""

import io
import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from PIL import Image
from rich.console import Console

import commands
from processes import Process
from rvsm.config import Config, read_config
from rvsm.records import Run, folder_of
from rvsm.train import run_all

QUICK = ["--model.width", "4", "--training.epochs", "2", "--training.batch", "256", "--training.threads", "1"]


def config(name: str, *flags: str) -> Config:
    return read_config(flags=[*QUICK, "--budget.sparsity", "0.3", "--name", name, *flags])


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
    assert told.count("started") == 4
    assert len(re.findall(r"\d/4 .*, seed \d: test accuracy of u", told)) == 4
    assert "4/4 ℓ0 [b], seed 1: test accuracy" in told
    _, again = run(configs, tmp_path / "two", jobs=2, seeds=2)
    assert again.count("already finished: test accuracy") == 4
    assert "started" not in again


def test_what_is_finished_needs_no_images(tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    for name in ("a", "b"):
        for number in range(9):
            (photos / name).mkdir(parents=True, exist_ok=True)
            Image.new("L", (8, 8), 20 * number).save(photos / name / f"{number}.png")
    configs = [config("one", "--data.name", "folder", "--data.path", str(photos), "--data.size", "8")]
    run(configs, tmp_path / "runs", jobs=1)
    photos.rename(tmp_path / "elsewhere")
    _, told = run(configs, tmp_path / "runs", jobs=1)
    assert "1/1 one, seed 0, already finished" in told


def test_one_that_diverges_does_not_stop_the_others(tmp_path: Path) -> None:
    wild = config("wild", "--optimizer.lr", "1e20", "--optimizer.momentum", "0", "--optimizer.nesterov", "false")
    runs, told = run([wild, config("tame")], tmp_path, jobs=2)
    assert [r.status for r in runs] == ["unfinished", "finished"]
    assert re.search(r"1/2 wild, seed 0: the loss became nan", told)


NETS = """
import time, warnings
from pathlib import Path
from rvsm.models import convnet

def wary(width: int):
    warnings.warn("three layers are few")
    return convnet(width=width)

def late(width: int):
    while not Path({waits_for!r}).exists():
        time.sleep(0.02)
    raise ValueError("too late")
"""


def test_one_that_cannot_be_made_stops_the_others_which_can_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_of(tmp_path, "good", 0)
    module = f"nets_{tmp_path.name}"
    (tmp_path / f"{module}.py").write_text(NETS.format(waits_for=str(folder / "metrics.jsonl")))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    configs = [
        config("bad", "--model.name", f"{module}:late"),
        config("good", "--model.name", f"{module}:wary", "--training.epochs", "40"),
    ]
    with pytest.raises(ValueError, match=r"1/2 bad, seed 0: the model .* cannot be created: .* too late"):
        run(configs, tmp_path, jobs=2)
    good = Run(folder)
    assert good.checkpoints()
    assert good.status == "unfinished"
    about = json.loads((folder / "about.json").read_text())
    (folder / "about.json").write_text(json.dumps({**about, "machine": "an abacus"}))
    _, told = run(configs[1:], tmp_path, jobs=2)
    assert good.status == "finished"
    assert len(good.metrics()) == 40
    # What is said in the process of a training is printed under its title.
    lines = told.splitlines()
    assert lines[0] == "1/1 good, seed 0: started"
    assert lines[1].startswith("1/1 good, seed 0: test accuracy of u")
    assert lines[2] == "    rvsm: three layers are few"
    assert lines[3].startswith("    the machine or versions differ from those at the start (machine an abacus → ")
    assert re.fullmatch(r"    .*good-s0: continuing from step [1-9]\d* of \d+", lines[4])
    assert len(lines) == 5


linux = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are found in /proc")


@linux
def test_a_worker_that_is_killed(tmp_path: Path) -> None:
    with comparison(tmp_path) as compare:
        os.kill(compare.workers()[0], signal.SIGKILL)
        text = compare.ending()
    assert re.search(r"its process ended with code -9, perhaps because memory ran out", text)
    assert "Traceback" not in text


@linux
def test_ctrl_c_stops_all_after_a_checkpoint(tmp_path: Path) -> None:
    with comparison(tmp_path) as compare:
        os.killpg(compare.pid, signal.SIGINT)
        text = compare.ending()
    assert "stopped; run the same command again to continue" in text
    assert "Traceback" not in text
    assert compare.checkpoints()


@linux
def test_a_termination_and_a_closed_terminal_stop_all_after_a_checkpoint(tmp_path: Path) -> None:
    # At the end of a session both may come. Either would end the command at once if it were not handled.
    with comparison(tmp_path) as compare:
        os.kill(compare.pid, signal.SIGTERM)
        os.kill(compare.pid, signal.SIGHUP)
        text = compare.ending()
    assert "stopped; run the same command again to continue" in text
    assert "Traceback" not in text
    assert compare.checkpoints()


@linux
def test_ctrl_c_while_the_processes_begin(tmp_path: Path) -> None:
    with comparison(tmp_path, trained=False) as compare:
        os.killpg(compare.pid, signal.SIGINT)
        text = compare.ending()
    assert "stopped; run the same command again to continue" in text
    assert "Traceback" not in text


@linux
def test_without_their_parent_they_stop_after_a_checkpoint(tmp_path: Path) -> None:
    with comparison(tmp_path) as compare:
        os.kill(compare.pid, signal.SIGKILL)
        text = compare.ending()
    assert "Traceback" not in text
    assert compare.checkpoints()


class Comparison:
    """A comparison of two long trainings, which save only when they are stopped, in processes of its own."""

    def __init__(self, folder: Path) -> None:
        names = ("a", "b")
        for name in names:
            (folder / f"{name}.toml").write_text(
                "[model]\nwidth = 4\n[budget]\nsparsity = 0.3\n[training]\nepochs=9999\ncheckpoint_every=9999\n"
            )
        self.folders = [folder_of(folder / "runs", name, 0) for name in names]
        words = [*(f"{name}.toml" for name in names), "--jobs", "2", "--runs", "runs"]
        self._process = Process(commands.compare, words, folder=folder)
        self.pid = self._process.pid
        self._known: list[int] = []

    def workers(self) -> list[int]:
        """Return the processes that train: the children of the fork server, a child of the command."""
        parents = {pid: _parent(pid) for pid in map(int, (f.name for f in Path("/proc").glob("[0-9]*")))}
        servers = {pid for pid, parent in parents.items() if parent == self.pid}
        self._known = sorted({*self._known, *(pid for pid, parent in parents.items() if parent in servers)})
        return self._known

    def wait(self, *, trained: bool) -> None:
        """Wait until both processes are there, or until both have trained a little."""
        files = [folder / "metrics.jsonl" for folder in self.folders]
        until(lambda: len(self.workers()) == 2 or not self._process.running)
        if trained:
            until(lambda: all(file.exists() and file.stat().st_size for file in files))
        assert self._process.running

    def ending(self) -> str:
        """Wait for the end of all processes, and return what was printed."""
        ended = self._process.ended(timeout=120)
        assert ended.status != 0
        until(lambda: all(_parent(worker) is None for worker in self._known))
        return ended.printed

    def checkpoints(self) -> bool:
        return all(Run(folder).checkpoints() for folder in self.folders)

    def kill(self) -> None:
        """End what is left where a test has failed."""
        for pid in (self.pid, *self._known):
            if _parent(pid) is not None:
                os.kill(pid, signal.SIGKILL)


@contextmanager
def comparison(folder: Path, *, trained: bool = True) -> Iterator[Comparison]:
    compare = Comparison(folder)
    try:
        compare.wait(trained=trained)
        yield compare
    finally:
        compare.kill()


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _parent(pid: int) -> int | None:
    """Return the parent of a process, or none if the process has ended, whether or not somebody has taken note."""
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return None
    return None if state in "ZX" else int(parent)
