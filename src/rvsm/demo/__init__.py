"""Train one small network on the digits by several methods, and compare them in the form of the paper's Table 1."""

import shutil
from importlib.resources import as_file, files
from pathlib import Path

from rich.console import Console

from rvsm.compare import compare
from rvsm.config import Config, config_of, differences, read_config
from rvsm.records import Run, folder_of


def configs(*, epochs: int | None = None) -> list[Config]:
    """Return the rows of the table: the files in this folder."""
    flags = [] if epochs is None else ["--training.epochs", str(epochs)]
    with as_file(files("rvsm.demo") / "rows") as folder:
        return [read_config(file, flags) for file in sorted(folder.glob("*.toml"))]


def demo(console: Console, *, seed: int = 0, out: Path, epochs: int | None = None) -> Path:
    """Run all methods, print the table, write the page and return its path.

    Args:
        console: where to print.
        seed: of the weights, the batches and the validation images.
        out: the folder to write to; runs that it holds already are not run again.
        epochs: a shorter training, to try it.

    """
    rows = configs(epochs=epochs)
    for config in rows:
        _forget_older(config.with_seed(seed), out)
    page = compare(rows, seeds=[seed], runs=out, out=out, console=console, brief=True)
    console.print(
        f"One run each with seed {seed} and a few hundred test images: differences of half a point are chance."
        " w are the weights at the end of training, u is the sparse network; zeros are counted over the weights of"
        " convolutions and linear layers, and over all parameters."
    )
    return page


def _forget_older(config: Config, out: Path) -> None:
    """Remove the demo's own run of another version, whose options were different."""
    folder = folder_of(out, config.name, config.seed)
    if (folder / "config.toml").is_file() and differences(config_of(Run(folder).config()), config):
        shutil.rmtree(folder)
