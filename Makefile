# The commands of this repository. Each sets up what it needs; `make test` and `make demo` are enough.
#
#   PYTHON    the interpreter to make the environment from; PYTHON_JAX, that of `make test-jax` and
#             `make test-maxtext`
#   PIP_ARGS  extra arguments for pip, where your machine needs them: an index that holds torch
#             for the CPU (`--extra-index-url <address>`), a folder of wheels (`--find-links <dir>`)
#   JOBS      number of test processes
#   DATE      the date written into the benchmarks' results

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
VENV_TORCH := .venv-torch
READY_TORCH := $(VENV_TORCH)/.ready
VENV_MAXTEXT := .venv-maxtext
READY_MAXTEXT := $(VENV_MAXTEXT)/.ready
INSTALL := python -m pip install --quiet --disable-pip-version-check --no-compile $(PIP_ARGS)
PIP := $(BIN)/$(INSTALL)
# Each file stays in one process: the examples of a page build on one another, and fixtures are made once.
# Files are handed out in collection order, which ends with short ones. By default files with the most tests go
# first, which leaves slow tests in small files for the end, when the other processes have nothing to do.
# There are as many processes as processors, and each has threads of OpenMP's: while these wait they must not take the
# time of others.
PYTEST := OMP_WAIT_POLICY=PASSIVE $(BIN)/pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

SANITIZE := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer

# pip installs without bytecode (--no-compile), so Python must be allowed to write it on first use.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := test
.PHONY: test test-all test-aot test-jax test-torch test-maxtext lint types unit demo bench bench-quick bench-without bench-compare gpu sanitize format clean

test: lint types unit

test-all: lint types
	$(PYTEST) -m "not gpu"

# Compiles what an H100 and a TPU v5e would run, without either of them, and interprets the Triton kernel. It
# has an environment of its own, because the compilers are a download of 580 MB.
test-aot: $(READY_AOT)
	$(VENV_AOT)/bin/pytest tests/shard/test_aot.py tests/gpu/test_pallas.py \
		tests/gpu/test_launches.py tests/triton
	TRITON_INTERPRET=1 $(VENV_AOT)/bin/pytest tests/triton

# The other end of the supported range: a newer Python, the next JAX, and no torch. The tests run on the
# source tree, with the copy kernel that the usual environment built in it.
test-jax: $(READY) $(READY_JAX)
	PYTHONPATH=.:backends $(VENV_JAX)/bin/pytest -n $(JOBS) --dist loadfile \
		-m "not slow and not gpu and not distributed" \
		tests/algebra tests/bridge tests/house/test_imports.py tests/native tests/ops tests/shard \
		tests/tp

# The same for torch: the newest one that is known to work.
test-torch: $(READY) $(READY_TORCH)
	PYTHONPATH=.:backends $(VENV_TORCH)/bin/pytest -n $(JOBS) --dist loadfile \
		-m "not slow and not gpu" --ignore=tests/port/test_megatron.py \
		tests/algebra tests/bridge tests/layers tests/native tests/ops tests/port tests/shard tests/tp \
		tests/triton

# MaxText loads, computes and saves in an environment of its own, because it needs a newer Python and JAX;
# torch and the ports use the usual one.
test-maxtext: $(READY) $(READY_MAXTEXT)
	$(BIN)/pytest tests/port/test_maxtext_itself.py

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

# Takes ninety minutes on two processors of an idle machine. `python -m bench grid --resume` continues a
# run that was stopped.
bench: $(READY)
	$(BIN)/python -m bench grid --date $(DATE)

bench-quick: $(READY)
	$(BIN)/python -m bench grid --quick --date $(DATE)

# One thread, with ever narrower versions of the copy kernel, and finally without it: seven minutes.
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

# Runs with the current python, which must have the accelerator's torch and JAX: nothing is installed,
# and it takes ten minutes at most. Without an accelerator it says so and exits with 3; bench/gpu/__main__.py
# lists the other exit codes.
gpu:
	PYTHONPATH=.:backends$${PYTHONPATH:+:$$PYTHONPATH} $(PYTHON) -m bench.gpu

# Builds the copy kernel with AddressSanitizer and UBSan, tests it, and builds it again as it was.
# libasan is gcc's own; libstdc++ is preloaded with it because XLA throws C++ exceptions.
sanitize: $(READY)
	CFLAGS="$(SANITIZE)" XLAYOUT_NATIVE=require $(BIN)/python hatch_build.py
	LD_PRELOAD="$$(cc -print-file-name=libasan.so) $$(cc -print-file-name=libstdc++.so)" \
		ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc \
		$(BIN)/pytest tests/native/test_alternate.py tests/native/test_arrays.py tests/native/test_blocks.py \
		tests/native/test_bounds.py tests/native/test_compound.py tests/native/test_copy.py tests/native/test_deal.py \
		tests/native/test_dense.py tests/native/test_gaps.py tests/native/test_keys.py tests/native/test_narrow.py \
		tests/native/test_pieces.py tests/native/test_place.py tests/native/test_threads.py tests/native/test_turn_bytes.py \
		tests/native/test_places.py tests/native/test_wide.py tests/native/test_windows.py \
		tests/native/test_jax_call.py; \
		result=$$?; $(BIN)/python hatch_build.py; exit $$result

format: $(READY)
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format

clean:
	rm -rf $(VENV) $(VENV_AOT) $(VENV_JAX) $(VENV_TORCH) $(VENV_MAXTEXT) .mypy_cache .ruff_cache .pytest_cache .hypothesis

# torch goes first: if it came with the rest, pip might choose the large GPU build on a machine without
# a GPU.
# jaxlib as well: the kernel is built against its headers, and the build runs before pip installs the
# package's own dependencies.
# If the kernel's source is newer, everything is installed again: no test may run with an old kernel.
$(READY): pyproject.toml requirements/pins.txt hatch_build.py $(wildcard backends/xlayout_native/*.[ch])
	$(PYTHON) -m venv $(VENV)
	$(PIP) -c requirements/pins.txt torch jaxlib
	$(PIP) -c requirements/pins.txt -e ".[test]"
	touch $@

$(READY_AOT): pyproject.toml requirements/pins.txt requirements/aot.txt
	$(PYTHON) -m venv $(VENV_AOT)
	$(VENV_AOT)/bin/$(INSTALL) -c requirements/pins.txt torch jaxlib
	$(VENV_AOT)/bin/$(INSTALL) -c requirements/pins.txt -e ".[jax,torch]" hypothesis pytest
	$(VENV_AOT)/bin/$(INSTALL) --no-deps -r requirements/aot.txt
	touch $@

$(READY_JAX): requirements/jax-next.txt
	$(PYTHON_JAX) -m venv $(VENV_JAX)
	$(VENV_JAX)/bin/$(INSTALL) -r requirements/jax-next.txt
	touch $@

$(READY_TORCH): requirements/torch-next.txt
	$(PYTHON) -m venv $(VENV_TORCH)
	$(VENV_TORCH)/bin/$(INSTALL) -r requirements/torch-next.txt
	touch $@

$(READY_MAXTEXT): requirements/maxtext.txt
	$(PYTHON_JAX) -m venv $(VENV_MAXTEXT)
	$(VENV_MAXTEXT)/bin/$(INSTALL) -r requirements/maxtext.txt
	touch $@
