"""Write the page, the table and the pictures of runs."""

from collections.abc import Sequence
from pathlib import Path

from rvsm.files import write_text
from rvsm.pages.figure import FORMATS
from rvsm.pages.page import write
from rvsm.records import Run
from rvsm.report.configurations import configurations
from rvsm.report.page import figures, page
from rvsm.report.pictures import NAMES
from rvsm.report.rows import as_json, markdown, row


def report(runs: Sequence[Run], out: Path) -> Path:
    """Write ``report.html``, ``table.md``, ``table.json`` and ``pictures/`` into a folder, and return the page's path.

    Pictures that an earlier report left there and that do not apply to these runs are removed.

    Args:
        runs: one run or several, finished or not; those that differ in their seed only are taken together.
        out: the folder, which is made if it is not there.

    """
    if not runs:
        raise ValueError("a report needs at least one run but got none")
    found, notes = configurations(runs)
    listed = [row(c) for c in found]
    shown = page(found, listed, notes)
    drawn = {file for figure in figures(shown) for file in figure.save(out / "pictures")}
    for name in NAMES:
        for ending in FORMATS:  # what an earlier report drew there, and this one does not
            if (file := out / "pictures" / f"{name}.{ending}") not in drawn:
                file.unlink(missing_ok=True)
    write_text(markdown(listed), out / "table.md")
    write_text(as_json(listed), out / "table.json")
    target = out / "report.html"
    write(shown, target)
    return target
