"""Tables, pictures and a page about runs, made from their records alone."""

from rvsm.report.report import report
from rvsm.report.rows import Row, markdown, rows, table

__all__ = ["Row", "markdown", "report", "rows", "table"]
