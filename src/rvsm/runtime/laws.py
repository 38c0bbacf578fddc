"""Laws: graphs that depend on the length of sequences, as one graph in which numbers are functions of the length.

An integer of a graph that depends on the length n is a + b·n + c·n²: sizes and offsets are sums and products of at most
two lengths. Such a law is written as ``{"length": [a, b, c]}`` in the place of the integer. Three graphs of different
lengths determine all laws; integers that follow no law with integer coefficients are an error.
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

KEY = "length"
MAX_COEFFICIENT = 1 << 40
SAMPLES = 3


def fitted(graphs: Mapping[int, Any], where: str = "the graph") -> Any:
    """Return the common form of graphs for several lengths.

    >>> law = fitted({3: ["a", 7, 9], 5: ["a", 7, 25], 7: ["a", 7, 49]})
    >>> law, at(law, 4)
    (['a', 7, {'length': [0, 0, 1]}], ['a', 7, 16])
    """
    first, *others = graphs.values()
    if isinstance(first, dict) and all(isinstance(g, dict) and set(g) == set(first) for g in others):
        named = f"{where}, {first['name']}" if isinstance(first.get("name"), str) else where
        return {key: fitted({n: graph[key] for n, graph in graphs.items()}, f"{named}, {key}") for key in first}
    if isinstance(first, list) and all(isinstance(g, list) and len(g) == len(first) for g in others):
        return [fitted({n: graph[k] for n, graph in graphs.items()}, where) for k in range(len(first))]
    if all(type(g) is type(first) and g == first for g in others):
        return first
    numbers = {n: graph for n, graph in graphs.items() if isinstance(graph, int) and not isinstance(graph, bool)}
    law = _law(numbers) if len(numbers) == len(graphs) else None
    if law is None:
        raise ValueError(f"{where} depends on the length of the sequences in a way that no program can follow")
    return {KEY: law}


def _law(numbers: Mapping[int, int]) -> list[int] | None:
    """Return integers a, b and c, such that all numbers are a + b·n + c·n²; None if there are none."""
    (p, x), (q, y), (r, z), *others = numbers.items()
    slope = Fraction(y - x, q - p)
    c = (Fraction(z - x, r - p) - slope) / (r - q)
    b = slope - c * (p + q)
    a = x - b * p - c * p * p
    if any(each.denominator != 1 for each in (a, b, c)):
        return None
    law = [int(a), int(b), int(c)]
    return law if all(_value(law, n) == number for n, number in others) else None


def at(graph: Any, length: int) -> Any:
    """Return a graph for one length; laws that are none raise a ValueError."""
    if isinstance(graph, list):
        return [at(item, length) for item in graph]
    if not isinstance(graph, dict):
        return graph
    if set(graph) != {KEY}:
        return {key: at(item, length) for key, item in graph.items()}
    law = graph[KEY]
    whole = isinstance(law, list) and len(law) == 3 and all(type(item) is int for item in law)
    if not whole or max(map(abs, law)) > MAX_COEFFICIENT:
        raise ValueError(f"a law must be three integers but is {law!r:.80}")
    return _value(law, length)


def _value(law: list[int], n: int) -> int:
    a, b, c = law
    return a + b * n + c * n * n
