"""Running a schedule: machine code, threads, the program that is called, and the table that explains it."""
