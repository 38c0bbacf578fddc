"""From results files to the tables, pictures and verdicts about the paper's experiments."""
