"""Tables, pictures and a page about runs, made from their records alone."""

from rvsm.report.configurations import Configuration
from rvsm.report.page import report
from rvsm.report.table import markdown, rows, table

__all__ = ["Configuration", "markdown", "report", "rows", "table"]
