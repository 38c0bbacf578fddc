"""The page of a sweep: the front with its knee, the importance of the parameters, slices, and all trials."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import optuna

from rvsm import __version__
from rvsm.files import printable
from rvsm.pages import Cell, Details, Figure, Page, Section
from rvsm.pages.page import write
from rvsm.records.values import clean
from rvsm.report.table import number
from rvsm.sweep.goals import GOALS, described
from rvsm.sweep.pictures import fronts, importances, slices
from rvsm.sweep.results import Results, Trial
from rvsm.sweep.worker import MEASURES, shown

PAGE = "sweep.html"
_FEWEST = 10
"""With fewer finished trials, the best tenth is a single one, and an importance means nothing."""
_TONES = {"finished": "good", "pruned": "plain", "failed": "bad", "running": "warn", "waiting": "warn"}


def write_page(study: optuna.Study, results: Results, folder: Path, best: str) -> Path:
    """Write the page into the folder of the sweep and return its path; ``best`` is the contents of best.toml."""
    target = folder / PAGE
    write(page(results, importance(study, results), best), target)
    return target


def importance(study: optuna.Study, results: Results) -> dict[str, dict[str, float]]:
    """Return the share of each parameter in the importance, by goal; empty if there are too few trials."""
    if len(results.finished) < _FEWEST or len(results.definition.space) < 2:
        return {}
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances  # seconds if scikit-learn is there

    found = {}
    for goal in results.definition.goals:

        def target(trial: optuna.trial.FrozenTrial, goal: str = goal) -> float:
            kept = trial.user_attrs.get(MEASURES)
            value = GOALS[goal].kind.at(kept, goal)
            return -1.0 if value is None else value  # a forged storage

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about parameters without influence
            try:
                found[goal] = get_param_importances(study, evaluator=PedAnovaImportanceEvaluator(), target=target)
            except (ValueError, RuntimeError):  # all values are equal
                continue
    return found


def page(results: Results, shares: Mapping[str, Mapping[str, float]], best: str) -> Page:
    """Return the page; empty sections are left out."""
    goals = results.definition.goals
    best_ones = results.front(goals if len(goals) > 1 else ("accuracy", "sparsity"))
    front = fronts(results)
    parts = [
        Section("The front", head=_head(results), rows=_rows(results, best_ones), figures=_there(front)),
        Section("Which parameters matter", figures=_there(importances(shares))),
        Section("Slices", figures=_there(*(slices(results, goal) for goal in goals))),
        Section("All trials", head=_head(results), rows=_rows(results, results.trials)),
    ]
    return Page(
        title=f"Sweep {clean(results.definition.name)}",
        lead=_lead(results),
        sections=[*(part for part in parts if part.figures or part.rows), _what(results, best)],
        footer=f"Written by rvsm {__version__} from the storage of the sweep.",
    )


def _lead(results: Results) -> str:
    done, several = results.finished, len(results.definition.goals) > 1
    said = [f"{len(done)} of {results.wanted} trials are finished"]
    said += [f"{n} {word}" for word in ("pruned", "failed", "running") if (n := results.count(word))]
    lead = ", ".join(said) + "."
    if (best := results.knee()) is None:
        return lead
    numbers = described(best.measures).replace(" %", "\u00a0%").replace(" ×", "\u00a0×")  # on one line
    role = "The knee of the front" if several else "The best"
    return (
        f"{lead} {role} is trial {best.number}: {numbers}, with {shown(best.values)}. All accuracies are those on the"
        " validation images, and the best of many trials is partly chance: its accuracy on other images is likely to be"
        " lower. The test images play no part in a sweep; rvsm report shows them for each run."
    )


def _head(results: Results) -> list[str]:
    titles = [f"{goal.title}, {goal.unit}" for goal in _measured(results).values()]
    return ["trial", "state", *titles, *results.definition.space.names, "minutes"]


def _rows(results: Results, trials: Sequence[Trial]) -> list[list[Cell]]:
    best = results.knee()
    return [
        [
            Cell(str(t.number) + "\u00a0★" * (t is best)),
            Cell(_state(t), tone=_TONES[t.state]),
            *(number(t.measures.get(name), goal.factor, 2) for name, goal in _measured(results).items()),
            *(_value(t.values.get(name)) for name in results.definition.space.names),
            number(t.minutes, digits=2),
        ]
        for t in trials
    ]


def _measured(results: Results) -> dict[str, Any]:
    return {name: goal for name, goal in GOALS.items() if any(name in t.measures for t in results.trials)}


def _state(trial: Trial) -> str:
    if trial.state == "pruned" and trial.epochs:
        return f"pruned after epoch {trial.epochs}"
    return f"failed: {printable(trial.error)[:120]}" if trial.error else trial.state


def _value(value: Any) -> Cell:
    if value is None:
        return Cell("")
    text = f"{value:.5g}" if isinstance(value, float) else clean(value)
    return Cell(text, numeric=not isinstance(value, str))


def _what(results: Results, best: str) -> Section:
    definition = results.definition
    pruned = definition.pruning and len(definition.goals) == 1
    facts = [
        ("goals", ", ".join(f"more {GOALS[goal].title}" for goal in definition.goals)),
        ("parameters", "; ".join(map(str, definition.space))),
        ("pruning", "of trials below the median, after the ramp" if pruned else "none"),
        ("seed", str(definition.seed)),
    ]
    details = [Details("The options that all trials share (base.toml)", text=definition.base())]
    if best:
        details.append(Details("All options of the best trial (best.toml)", text=best))
    return Section("What was run", facts=facts, details=details)


def _there(*figures: Figure | None) -> list[Figure]:
    return [figure for figure in figures if figure is not None]
