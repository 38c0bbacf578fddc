"""Verdicts as JSON and as Markdown."""

import json
from collections.abc import Mapping, Sequence

from rvsm.markdown import cell, pipe_table
from rvsm.paper.results.claims import Judged, Open, Untold
from rvsm.paper.theory.verdict import Verdict
from rvsm.report.statistics import NOTHING


def as_json(judged: Mapping[str, Sequence[Judged]]) -> str:
    """Return the verdicts of all collections; a margin that is not finite is null."""
    listed = [{"collection": name, **_finite(one.as_json())} for name, of in judged.items() for one in of]
    return json.dumps(listed, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def table(judged: Sequence[Judged]) -> str:
    """Return a row for each claim and, below the table, its text and the numbers behind the verdict."""
    rows = [[cell(one.statement), cell(one.where), one.verdict, _margin(one)] for one in judged]
    details = [f"- **{cell(v.statement)}**: {cell(v.claim)} *{_upper(v.verdict)}*: {_why(v)}" for v in judged]
    listed = pipe_table(("claim", "where", "verdict", "margin"), rows, texts=("where", "verdict"))
    return "\n".join([listed, *details]) + "\n"


def _margin(one: Judged) -> str:
    """Return the margin, rounded to six digits: the rest is the tolerance of `more_than`."""
    return NOTHING if isinstance(one, Open) else f"{round(one.margin, 6) + 0.0:.3g}".replace("-", "−")


def _why(one: Judged) -> str:
    if isinstance(one, Open):
        return f"{cell(one.reason)}."
    if isinstance(one, Untold):
        return cell(one.evidence)
    instead = "" if one.correction is None else f" *Instead*: {cell(one.correction)}{_checked(one)}"
    return f"{cell(one.evidence)}{instead}"


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def _checked(verdict: Verdict) -> str:
    return "" if verdict.correction_holds else " (not confirmed by these runs)"


def _finite(table: dict[str, object]) -> dict[str, object]:
    """Return a table in which −∞, the margin of NaN, is null."""
    return {k: None if isinstance(v, float) and not abs(v) < float("inf") else v for k, v in table.items()}
