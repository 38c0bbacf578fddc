"""Lines made by hand, for what real runs do not show."""

from collections.abc import Callable
from typing import Any

import pytest

from rvsm.paper.results.collections import grouped
from rvsm.records import Record
from rvsm.report import Configuration


@pytest.fixture(scope="session")
def line() -> Callable[..., dict[str, Any]]:
    """Return what makes a line of results by hand."""

    def made(
        name: str, accuracy: float = 0.9, sparsity: float = 0.0, *, seed: int = 0, budget: Any = None, **other: Any
    ) -> dict[str, Any]:
        network, _, rest = name.partition("-")
        words = rest.split("-")
        method = next(
            (m for m in ("admm", "magnitude", "rvsm") if m in words), "rvsm" if "vgg16-l" in name else "dense"
        )
        method = "rvsm" if "tl1" in words else method
        w = {"accuracy": accuracy, "loss": 0.4}
        return {
            "format": 1,
            "name": name,
            "config": "0123abcd",
            "seed": seed,
            "options": {
                "data": {"name": "cifar10"},
                "model": {"name": network, "width": 0.25},
                "training": {"epochs": 2, "batch": 128},
                "method": {"name": f"{method}{'-published' * ('published' in words)}"},
                **({} if budget is None else {"budget": budget}),
            },
            "epochs": 2,
            "steps": 10,
            "minutes": 30.0,
            "images_per_second": 500.0,
            "test": {"w": w, "u": dict(w)},
            "sparsity": sparsity,
            "sparsity_of_all": sparsity,
            "multiplications_saved": sparsity,
            "weights": 1000,
            "parameters": 1100,
            "nonzeros": round(1100 * (1 - sparsity)),
            "layers": {"0.weight": {"shape": [4, 3, 3, 3], "density": 1 - sparsity}},
            "channel_norms": {"w": {"0.weight": [1.0, 0.5, 0.001, 0.2]}},
            "curve": {"epoch": [1, 2], "w_loss": [1.0, 0.5], "u_loss": [1.5, 0.5]},
            "about": {
                "machine": "a processor",
                "threads": 1,
                "precision": "float32",
                "versions": {"torch": "2.13"},
            },
            **other,
        }

    return made


@pytest.fixture(scope="session")
def experiments(line: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Configuration]]:
    """Return what makes experiments of names, each with arguments of `line`, or with a list of lines."""

    def made(**named: dict[str, Any] | list[dict[str, Any]]) -> dict[str, Configuration]:
        lines = []
        for key, given in named.items():
            name = key.replace("_", "-")
            lines += [line(name, **one) for one in ([given] if isinstance(given, dict) else given)]
        return grouped(map(Record.of_line, lines))

    return made
