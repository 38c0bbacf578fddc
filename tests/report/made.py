"""Results and timings made by hand."""

from typing import Any


def result(u: float, **other: Any) -> dict[str, Any]:
    """Return the result of a run whose sparse network has a given accuracy."""
    return {
        "epochs": 2,
        "steps": 20,
        "seconds": 90,
        "test": {"w": {"accuracy": 0.95, "loss": 0.2}, "u": {"accuracy": u, "loss": 0.3}},
        "sparsity": 0.8,
        "sparsity_of_all": 0.75,
        "weights": 5000,
        "parameters": 5100,
        "nonzeros": 1250,
        **other,
    }


def timed(speedup: float, *, batch: int = 64, threads: int | None = 1) -> dict[str, Any]:
    """Return what was measured of a packed network that is so many times faster than another engine."""
    engines = [
        {"engine": engine, "precision": "float32", "batch": batch, "milliseconds": milliseconds}
        for engine, milliseconds in (("PyTorch", speedup), ("rvsm", 1.0))
    ]
    return {"file_bytes": 22180, "threads": threads, "engines": engines}
