# The commands of the house. Each sets up what it needs; `make test` and `make demo` are enough.
#
#   PYTHON    the interpreter the environment is made from; PYTHON_JAX, that of `make test-jax`
#   PIP_ARGS  extra arguments for pip, where your machine needs them: an index that holds torch
#             for the CPU (`--extra-index-url <address>`), a folder of wheels (`--find-links <dir>`)
#   JOBS      test processes
#   DATE      what the benchmarks' results say of when they were made

PYTHON ?= python3
PYTHON_JAX ?= python3.12
PIP_ARGS ?=
JOBS ?= 2
DATE ?= $(shell date +%Y-%m-%d)

VENV := .venv
VENV_AOT := .venv-aot
BIN := $(VENV)/bin
READY := $(VENV)/.ready
READY_AOT := $(VENV_AOT)/.ready
VENV_JAX := .venv-jax
READY_JAX := $(VENV_JAX)/.ready
INSTALL := python -m pip install --quiet --disable-pip-version-check --no-compile $(PIP_ARGS)
PIP := $(BIN)/$(INSTALL)
# A file stays in one process: a page of the guide builds on itself, and fixtures are made once.
PYTEST := $(BIN)/pytest -n $(JOBS) --dist loadfile

SANITIZE := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer

# With --no-compile, bytecode is written on first use; so it must be allowed to be.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := test
.PHONY: test test-all test-aot test-jax lint types unit demo bench bench-quick bench-without bench-compare gpu sanitize format clean

test: lint types unit

test-all: lint types
	$(PYTEST) -m "not gpu"

# What H100 and TPU v5e would run, compiled here without them, and Triton's kernel interpreted. In an
# environment of its own: the compilers are 580 MB to fetch.
test-aot: $(READY_AOT)
	$(VENV_AOT)/bin/pytest tests/shard/test_aot.py tests/gpu/test_pallas.py tests/triton
	TRITON_INTERPRET=1 $(VENV_AOT)/bin/pytest tests/triton

# The other end of what is supported: a newer Python, the next JAX, and no torch. The tree is tested
# where it stands, with the copy kernel that is there: an install would compile it anew.
test-jax: $(READY_JAX)
	PYTHONPATH=.:backends $(VENV_JAX)/bin/pytest -n $(JOBS) --dist loadfile \
		-m "not slow and not gpu and not distributed" \
		tests/algebra tests/bridge tests/house/test_imports.py tests/native tests/ops tests/shard

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

# Seventy minutes on two processors, for a quiet machine. `python -m bench grid --resume` goes
# on where it was stopped.
bench: $(READY)
	$(BIN)/python -m bench grid --date $(DATE)

bench-quick: $(READY)
	$(BIN)/python -m bench grid --quick --date $(DATE)

# One thread, and less and less of the copy kernel, down to none of it: seven minutes.
ONE_THREAD := $(BIN)/python -m bench grid --quick --threads 1 --date $(DATE) --out bench/results/one-thread
bench-without: $(READY)
	$(ONE_THREAD).json
	XLAYOUT_ISA=avx2 $(ONE_THREAD)-avx2.json
	XLAYOUT_ISA=ssse3 $(ONE_THREAD)-ssse3.json
	XLAYOUT_ISA=plain $(ONE_THREAD)-plain.json
	XLAYOUT_NATIVE=off $(ONE_THREAD)-no-kernel.json

# make bench-compare OLD=before.json NEW=after.json
OLD ?= bench/results/grid.json
bench-compare: $(READY)
	$(BIN)/python -m bench compare $(OLD) $(NEW)

# Runs with the python at hand, where the accelerator's torch and JAX are: nothing is installed, and
# it takes ten minutes at most. Without an accelerator it says so and ends with 3; what else it may
# end with is told in bench/gpu.py.
gpu:
	PYTHONPATH=.:backends$${PYTHONPATH:+:$$PYTHONPATH} $(PYTHON) -m bench.gpu

# The copy kernel under AddressSanitizer and UBSan, then as it was. gcc's own copy of libasan, and
# libstdc++ beside it, because XLA throws.
sanitize: $(READY)
	CFLAGS="$(SANITIZE)" XLAYOUT_NATIVE=require $(BIN)/python hatch_build.py
	LD_PRELOAD="$$(cc -print-file-name=libasan.so) $$(cc -print-file-name=libstdc++.so)" \
		ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc \
		$(BIN)/pytest tests/native/test_arrays.py tests/native/test_blocks.py tests/native/test_bounds.py \
		tests/native/test_copy.py tests/native/test_deal.py tests/native/test_dense.py tests/native/test_keys.py tests/native/test_narrow.py \
		tests/native/test_place.py tests/native/test_threads.py tests/native/test_turn_bytes.py \
		tests/native/test_windows.py tests/native/test_jax_call.py; \
		result=$$?; $(BIN)/python hatch_build.py; exit $$result

format: $(READY)
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format

clean:
	rm -rf $(VENV) $(VENV_AOT) $(VENV_JAX) .mypy_cache .ruff_cache .pytest_cache .hypothesis

# torch goes first: installed with the rest, a machine without a GPU may be given the large build.
# jaxlib too: the copy kernel is compiled with its headers, before what is installed with it is there.
$(READY): pyproject.toml requirements/pins.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) -c requirements/pins.txt torch jaxlib
	$(PIP) -c requirements/pins.txt -e ".[test]"
	touch $@

$(READY_AOT): pyproject.toml requirements/pins.txt requirements/aot.txt
	$(PYTHON) -m venv $(VENV_AOT)
	$(VENV_AOT)/bin/$(INSTALL) -c requirements/pins.txt torch
	$(VENV_AOT)/bin/$(INSTALL) -c requirements/pins.txt -e ".[jax,torch]" hypothesis pytest
	$(VENV_AOT)/bin/$(INSTALL) --no-deps -r requirements/aot.txt
	touch $@

$(READY_JAX): requirements/jax-next.txt
	$(PYTHON_JAX) -m venv $(VENV_JAX)
	$(VENV_JAX)/bin/$(INSTALL) -r requirements/jax-next.txt
	touch $@
