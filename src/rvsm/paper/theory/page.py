"""The laboratory's page: the statements of the paper with their verdicts."""

from collections.abc import Mapping, Sequence
from typing import Any

from rvsm.pages import Card, Cell, Figure, Page, Section
from rvsm.paper.theory.verdict import Verdict

_TONES = {"holds": "good", "holds with correction": "warn", "fails": "bad"}
_CHANGED = "These verdicts differ from the recorded ones, so something in the code or the theory has changed: "


def page(
    parts: Mapping[str, Sequence[Verdict]],
    pictures: Mapping[str, Sequence[Figure]],
    *,
    surprises: Sequence[str],
    footer: str,
) -> Page:
    """Return the page of verdicts by part of the paper, each part followed by its pictures."""
    verdicts = [verdict for part in parts.values() for verdict in part]
    count = {outcome: sum(v.verdict == outcome and not v.ours for v in verdicts) for outcome in _TONES}
    lead = (
        "Dinh & Xin's convergence theorem for the Relaxed Variable Splitting Method, statement by statement, as the"
        f" shipped code behaves on the one-layer network: {count['holds']} hold, {count['holds with correction']}"
        f" hold with a correction, {count['fails']} fail as printed."
    )
    overview = Section(
        title="Verdicts",
        paragraphs=[
            *([_CHANGED + "; ".join(surprises)] if surprises else []),
            "“Holds” means that none of the cases that were run violates the statement. It is not a proof;"
            " docs/theory.md has proofs of some statements. “Read as” marks a claim in words that are not the paper's."
            " Statements marked “Ours” are not in the paper and are not counted above.",
            "The margin is the smallest slack of the statement as printed, over all cases that were run. A negative"
            " margin is a violation. If a statement fails, its card says what is true, as checked by these runs.",
        ],
        head=("statement", "where", "verdict", "margin"),
        rows=[
            (
                Cell(v.statement, anchor=v.statement),
                Cell(v.where),
                Cell(v.verdict, tone=_TONES[v.verdict]),
                Cell(f"{v.margin:.2g}"),
            )
            for v in verdicts
        ],
    )
    sections = [overview]
    for title in [*parts, *(t for t in pictures if t not in parts)]:
        cards = [_card(verdict) for verdict in parts.get(title, ())]
        sections.append(Section(title=title, cards=cards, figures=pictures.get(title, ())))
    return Page(title="The theorem, run", lead=lead, sections=sections, footer=footer)


def _card(verdict: Verdict) -> Card:
    rows = [(verdict.label, verdict.claim), ("evidence", verdict.evidence)]
    if verdict.correction is not None:
        checked = {True: "checked by the same runs", False: "NOT confirmed by these runs", None: "not checked"}
        rows.append(("instead", f"{verdict.correction} ({checked[verdict.correction_holds]})"))
    if verdict.counterexample is not None:
        label = "an example" if verdict.verdict == "holds" else "counter-example"
        rows.append((label, "; ".join(f"{k} = {_short(v)}" for k, v in verdict.counterexample.items())))
    return Card(
        title=f"{verdict.where}: {verdict.statement}",
        badge=verdict.verdict,
        tone=_TONES[verdict.verdict],
        rows=rows,
        anchor=verdict.statement,
    )


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return "(" + ", ".join(map(_short, value)) + ")"
    return str(value)
