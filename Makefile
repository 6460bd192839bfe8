# Everything from nothing: needs Python 3.11 or newer and make.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test check format lint types clean

# One thread: on images this small, more threads mostly wait for each other, and the result would depend on their number.
demo: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/autonovel demo --out runs/demo

# One thread in each worker: torch would otherwise use every core in each of them.
test: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --maxprocesses 8

check: lint types test

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(READY)
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Again only when the lock or the project file changed. PIP is pip with its talk switched off.
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "autonovel needs Python 3.11 or newer; set PYTHON=...")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) --requirement requirements.lock
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis
