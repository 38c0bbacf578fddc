# Each target makes the virtual environment and installs what it needs; a second run installs nothing.
PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable

.PHONY: install demo theory test check bench bench-runtime bench-training clean

install: .venv/installed-train

demo: .venv/installed-train
	$(BIN)/rvsm demo

theory: .venv/installed-train
	$(BIN)/rvsm theory

# The tests start many processes: without bytecode on disk, each of them would compile the sources and the tests anew.
test: .venv/installed-dev
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist worksteal

check: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/installed-dev
	$(BIN)/python benchmarks/core.py

bench-runtime: .venv/installed-bench
	$(BIN)/python benchmarks/runtime.py

bench-training: .venv/installed-dev
	$(BIN)/python benchmarks/training.py

clean:
	rm -rf .venv build .mypy_cache .pytest_cache .ruff_cache .hypothesis

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "rvsm needs Python 3.11 or newer but $(PYTHON) is older; try: make $(MAKECMDGOALS) PYTHON=python3.11")'
	$(PYTHON) -m venv .venv

.venv/installed-train: pyproject.toml constraints.txt | .venv/bin/python
	@echo "Installing rvsm and PyTorch into .venv (once; a few minutes at most) …"
	$(INSTALL) '.[train]'
	@touch $@

.venv/installed-dev: pyproject.toml constraints.txt | .venv/bin/python
	@echo "Installing rvsm, PyTorch and the development tools into .venv (once; a few minutes at most) …"
	$(INSTALL) '.[dev]'
	@touch $@ .venv/installed-train

.venv/installed-bench: .venv/installed-dev
	$(INSTALL) '.[dev,bench]'
	@touch $@
