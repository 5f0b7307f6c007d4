# The commands of the house. Each sets up what it needs; `make test` and `make demo` are enough.
#
#   PYTHON    the interpreter the environment is made from
#   PIP_ARGS  extra arguments for pip, where your machine needs them: an index that holds torch
#             for the CPU (`--extra-index-url <address>`), a folder of wheels (`--find-links <dir>`)
#   JOBS      test processes

PYTHON ?= python3
PIP_ARGS ?=
JOBS ?= 2

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile $(PIP_ARGS)
# A file stays in one process: a page of the guide builds on itself, and fixtures are made once.
PYTEST := $(BIN)/pytest -n $(JOBS) --dist loadfile

# With --no-compile, bytecode is written on first use; so it must be allowed to be.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := test
.PHONY: test test-all lint types unit demo bench gpu format clean

test: lint types unit

test-all: lint types
	$(PYTEST) -m "not gpu"

lint: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports --no-cache

types: $(READY)
	$(BIN)/mypy

unit: $(READY)
	$(PYTEST) -m "not slow and not gpu"

demo: $(READY)
	$(BIN)/xlayout demo

bench: $(READY)
	$(BIN)/python -m bench

# Runs with the python at hand, where the accelerator's torch and JAX are: nothing is installed.
gpu:
	PYTHONPATH=.:backends python bench/gpu.py

format: $(READY)
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis

# torch goes first: installed with the rest, a machine without a GPU may be given the large build.
$(READY): pyproject.toml requirements/pins.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) -c requirements/pins.txt torch
	$(PIP) -c requirements/pins.txt -e ".[test]"
	touch $@
