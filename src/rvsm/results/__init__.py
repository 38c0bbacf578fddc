"""From the folders of runs to small text files, and from those to tables, pictures and verdicts."""

from rvsm.results.reading import Summary
from rvsm.results.store import collect, read
from rvsm.results.summary import summarize

__all__ = ["Summary", "collect", "read", "summarize"]
