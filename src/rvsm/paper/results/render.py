"""Write tables, verdicts and pictures of collections into a folder, and into a document."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from rvsm.files import write_text
from rvsm.markdown import cell, pipe_table
from rvsm.pages import Figure
from rvsm.paper.results.claims import Judged, Open, Undecided, judged
from rvsm.paper.results.collections import collections, comparable, sources
from rvsm.paper.results.documents import marked, named_in, refresh
from rvsm.paper.results.pictures import pictures
from rvsm.paper.results.printed import TABLES, is_of_the_paper
from rvsm.paper.results.tables import costs, headline, networks, paper_table
from rvsm.report.statistics import NOTHING


@dataclass(frozen=True)
class Rendering:
    """What is generated from results files."""

    parts: Mapping[str, str]  # in Markdown, by collection and name, such as "cpu/table-1"
    verdicts: str  # of the collections that repeat the paper's tables, as JSON
    figures: tuple[Figure, ...]

    @property
    def files(self) -> dict[str, str]:
        """The text files by name."""
        of_claims = {key: text for key, text in self.parts.items() if key.endswith("/verdicts")}
        others = {key: text for key, text in self.parts.items() if key not in of_claims}
        return {
            "tables.md": "\n".join(marked(key, text) for key, text in others.items()),
            "verdicts.md": "\n".join(marked(key, text) for key, text in of_claims.items()),
            "verdicts.json": self.verdicts,
        }


def rendering(files: Sequence[Path], *, experiments: Path, folder: str) -> Rendering:
    """Return what is generated from results files, without writing it.

    Args:
        files: results files; each is a collection.
        experiments: the folder of the experiment files.
        folder: the name of the results folder; the documents are in a folder beside it.

    Raises:
        ValueError: a results file or the folder of experiments cannot be read.

    """
    read = collections(files)
    if not experiments.is_dir():
        raise ValueError(
            f"there is no folder {experiments}; give the folder of the experiment files with --experiments"
        )
    parts: dict[str, str | None] = {}
    claims, figures = {}, []
    for c in read:
        run_from, drawn = sources(c, experiments), pictures(c)
        figures += drawn
        if is_of_the_paper(c.experiments):
            comparable(c)
            claims[c.name] = list(judged(c.experiments))
            parts |= {f"{c.name}/{table.key}": paper_table(table, c, run_from) for table in TABLES}
            parts[f"{c.name}/verdicts"] = verdict_table(claims[c.name])
        else:
            parts[f"{c.name}/networks"] = networks(c, run_from)
            parts[f"{c.name}/headline"] = headline(c)
        parts[f"{c.name}/costs"] = costs(c)
        parts[f"{c.name}/pictures"] = "\n\n".join(
            f"![{figure.name}](../{folder}/pictures/{figure.name}.png)\n\n{figure.caption}" for figure in drawn
        )
    there = {key: text for key, text in parts.items() if text}
    return Rendering(there, verdicts_json(claims), tuple(figures))


def render(files: Sequence[Path], out: Path, *, docs: Sequence[Path] = (), experiments: Path) -> list[Path]:
    """Write ``tables.md``, ``verdicts.md``, ``verdicts.json`` and ``pictures/`` into a folder; return the files.

    The parts of the ``docs`` between comments are also rewritten. The other arguments are those of `rendering`.

    Raises:
        ValueError: a file cannot be read or compared, or the folder has tables of a collection that was not given.

    """
    made = rendering(files, experiments=experiments, folder=out.resolve().name)
    _loses_none(out / "tables.md", {file.stem for file in files})
    refresh(docs, made.parts)  # first, because one may be refused
    written = [file for figure in made.figures for file in figure.save(out / "pictures", ["png"])]
    for name, text in made.files.items():
        write_text(text, out / name)
        written.append(out / name)
    return [*written, *docs]


def _loses_none(tables: Path, given: set[str]) -> None:
    """Raise an error if the existing tables have a collection that was not given, and would be lost."""
    if tables.exists() and (others := sorted(named_in(tables.read_text(encoding="utf-8", errors="replace")) - given)):
        missing = ", ".join(f"{other}.jsonl" for other in others)
        raise ValueError(f"{tables} was also made from {missing}; give all files, or another folder with --out")


def verdicts_json(judged: Mapping[str, Sequence[Judged]]) -> str:
    """Return the verdicts of all collections; a margin that is not finite is null."""
    plain = [{"collection": name, **one.as_json()} for name, of in judged.items() for one in of]
    listed = [{k: None if isinstance(v, float) and not isfinite(v) else v for k, v in one.items()} for one in plain]
    return json.dumps(listed, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def verdict_table(judged: Sequence[Judged]) -> str:
    """Return a row for each claim and, below the table, its text and the numbers behind the verdict."""
    rows = [[cell(one.statement), cell(one.where), one.verdict, _margin(one)] for one in judged]
    details = [f"- **{cell(v.statement)}**: {cell(v.claim)} *{v.verdict.capitalize()}*: {_why(v)}" for v in judged]
    listed = pipe_table(("claim", "where", "verdict", "margin"), rows, texts=("where", "verdict"))
    return "\n".join([listed, *details]) + "\n"


def _margin(one: Judged) -> str:
    """Return the margin, rounded to six digits: the rest is the tolerance of `more_than`."""
    return NOTHING if isinstance(one, Open) else f"{round(one.margin, 6) + 0.0:.3g}".replace("-", "−")


def _why(one: Judged) -> str:
    if isinstance(one, Open):
        return f"{cell(one.reason)}."
    if isinstance(one, Undecided) or one.correction is None:
        return cell(one.evidence)
    checked = "" if one.correction_holds else " (not confirmed by these runs)"
    return f"{cell(one.evidence)} *Instead*: {cell(one.correction)}{checked}"
