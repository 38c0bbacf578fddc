"""Error messages about a configuration."""

from collections.abc import Collection
from difflib import get_close_matches

from rvsm.config.sections import CHOICES, PLAIN, takes

NO_TARGET = (
    "the method needs to know how many zeros you want: give a target sparsity, --budget.sparsity 0.9 (rvsm,"
    " magnitude, acdc), or a penalty's weight, --penalty.lam 1e-6, with rvsm also --method.beta 0.08"
)


def unknown_key(key: str, known: Collection[str]) -> str:
    """Return the message about an unknown key."""
    section, _, option = key.partition(".")
    near = [name for name in known if name.startswith(f"{section}.")]
    if key == "base":
        return "base is the first line of a TOML file that builds on another file; it cannot be used here"
    if not option:
        if section in (*CHOICES, *PLAIN):
            return f"[{section}] is a section: write [{section}] and its options below, or --{section}.option"
        return f"unknown key {key!r}; {_nearest(key, [name for name in known if '.' not in name])} and the sections"
    if section not in (*CHOICES, *PLAIN):
        return f"unknown section {section!r}; {_nearest(section, [*CHOICES, *PLAIN])}"
    if not near:
        with_it = " or ".join(name for name, maker in CHOICES["method"].entries.items() if takes(maker, section))
        return f"{key}: the chosen method has no {section}; leave the section out, or choose {with_it}"
    return _misplaced(key, known) or f"unknown key {key!r}; {_nearest(key, near)}"


def _misplaced(key: str, known: Collection[str]) -> str | None:
    """Return why a key of a known name cannot be used here."""
    section, _, option = key.partition(".")
    if key == "penalty.lam" and "budget.sparsity" in known:
        return "penalty.lam and a budget exclude each other: budget.sparsity sets λ; leave one of them out"
    if key == "method.sparsity":
        return "unknown key 'method.sparsity'; with rvsm and magnitude the target is budget.sparsity"
    if section in CHOICES and option in CHOICES[section].given:
        return f"{key} is decided by the rest of the training; leave it out"
    entries = CHOICES[section].entries if section in CHOICES else {}
    if owners := [name for name, maker in entries.items() if takes(maker, option)]:
        return f"{key} is an option of {section}.name = {' or '.join(map(repr, owners))}, which is not chosen"
    return None


def _nearest(word: str, known: Collection[str]) -> str:
    near = get_close_matches(word, known, 1, cutoff=0.5)
    return f"{f'did you mean {near[0]!r}? ' if near else ''}there are {', '.join(known)}"
