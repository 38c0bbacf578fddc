"""Libraries that are not installed: each is named, with the command that installs it."""

import subprocess
import sys
import tomllib
from pathlib import Path

import rvsm
from rvsm.cli import COMMANDS

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))["project"]
WITHOUT = "import sys; sys.modules[{library!r}] = None\n"  # as Python marks what cannot be imported
LOOK = """
import rvsm
for name in {names!r}:
    try:
        eval(name)
    except ImportError as problem:
        print(problem)
"""


# Each piece of code runs in a process of its own, and only the first of them has to import torch.
FORK = """
import os
import torch
for code in {codes!r}:
    if not (child := os.fork()):
        exec(code, dict())
        print(flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""


def run(code: str) -> list[str]:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.splitlines()


def run_after_torch(*codes: str) -> list[list[str]]:
    """Return the lines that each piece of code prints, where torch has been imported and nothing else."""
    told = "\n".join(run(FORK.format(codes=codes))).removesuffix("\n")
    return [lines.splitlines() for lines in told.split("\n\n")]


def looking(library: str, *names: str) -> str:
    return WITHOUT.format(library=library) + LOOK.format(names=names)


def sentences(library: str, *names: str) -> list[str]:
    """Return what importing each name says where there is no such library."""
    return run(looking(library, *names))


def test_every_public_name_without_torch() -> None:
    names = [f"rvsm.{name}" for name in rvsm.__all__ if name != "Profile"]  # a file of numbers
    expected = [f"{name} needs torch, which is not installed: pip install 'rvsm[torch]'" for name in names]
    assert sentences("torch", *names) == expected


def test_every_module_without_torch() -> None:
    names = [f"rvsm.{name}" for name in rvsm._MODULES if name not in ("runtime", "integrations")]
    told = sentences("torch", *names, "rvsm.runtime.load", "rvsm.integrations")
    assert [line.split(", which")[0] for line in told] == [f"{name} needs torch" for name in names]


OTHERS = {
    "torch": ["rich", "yaml", "docstring_parser", "PIL", "matplotlib", "jinja2", "sklearn", "tomli_w", "filelock"],
    "train": ["onnx", "onnxruntime", "onnxscript", "openvino", "lightning", "transformers", "tensorboard", "optuna"],
}


def test_a_module_needs_no_more_than_its_extra() -> None:
    """A library that is not in the extra, here one of all other extras, is not imported."""
    names = {extra: [name for name, needed in rvsm._MODULES.items() if needed in (None, extra)] for extra in OTHERS}
    codes = [
        "".join(WITHOUT.format(library=library) for library in others)
        + f"import rvsm; print(*(getattr(rvsm, name).__name__ for name in {names[extra]!r}))"
        for extra, others in OTHERS.items()
    ]
    assert run_after_torch(*codes) == [[" ".join(f"rvsm.{name}" for name in names[extra])] for extra in OTHERS]


NEEDED = [
    ("rvsm.integrations.LightningCallback", "lightning", "lightning"),
    ("rvsm.integrations.LightningCallback", "torch", "lightning"),
    ("rvsm.integrations.TransformersCallback", "transformers", "transformers"),
    ("rvsm.integrations.save_pretrained", "torch", "torch"),
    ("rvsm.train", "rich", "train"),
    ("rvsm.sweep", "optuna", "sweep"),
]


def test_the_command_installs_all_that_a_name_needs() -> None:
    told = run_after_torch(*(looking(library, name) for name, library, _ in NEEDED))
    assert told == [
        [f"{name} needs {library}, which is not installed: pip install 'rvsm[{extra}]'"]
        for name, library, extra in NEEDED
    ]
    assert {extra for *_, extra in NEEDED} <= set(PROJECT["optional-dependencies"])


def test_a_library_of_every_installation() -> None:
    assert sentences("numpy", "rvsm.runtime") == ["rvsm.runtime needs numpy, which is not installed: pip install rvsm"]


def test_the_command_line_without_torch() -> None:
    """Each command but ``info``, which tests/test_wheel.py runs, says so and returns 1."""
    words = {"compare": ["x.toml"], "predict": ["a", "x.png"], "collect": ["a", "--into", "x"], "results": ["x.jsonl"]}
    commands = [name for name in COMMANDS if name != "info"]
    none = ("demo", "train", "theory")
    calls = [[name, *words.get(name, [] if name in none else ["a"])] for name in commands]
    code = f"import rvsm.cli; sys.stderr = sys.stdout; print(*(rvsm.cli.main(call) for call in {calls!r}))"
    *told, codes = run(WITHOUT.format(library="torch") + code)
    sentence = "rvsm: {} needs torch, which is not installed: pip install 'rvsm[{}]'"
    assert told == [sentence.format(name, "sweep" if name == "sweep" else "train") for name in commands]
    assert codes == " ".join("1" for _ in commands)
