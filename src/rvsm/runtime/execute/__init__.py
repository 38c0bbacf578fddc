"""Running a schedule: machine code, threads, the program that is called, and what it says of itself."""
