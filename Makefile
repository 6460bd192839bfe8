# Everything from nothing: needs Python 3.11 or newer and make.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test check format lint types docs screenshots clean

# One thread: on images this small, more threads mostly wait for each other, and the result would depend on their number.
demo: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/autonovel demo --out runs/demo

# One process more than cores: some tests wait for a browser or for other processes (two more take longer on two cores).
test: $(READY)
	$(BIN)/pytest -n $$($(BIN)/python -c 'import os; print(min(8, (os.cpu_count() or 1) + 1))') --dist worksteal

check: lint types test

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(READY)
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The documentation as a site, in site/; a link that leads nowhere is an error. Its tools need no torch and have a place of their own.
docs: .venv-docs/.ready
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict

.venv-docs/.ready: requirements-docs.lock
	test -x .venv-docs/bin/python || $(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip --disable-pip-version-check install --quiet --requirement requirements-docs.lock
	@touch $@

# The pictures of the documentation, taken by the browser tests of a run on the example folder.
screenshots: $(READY)
	AUTONOVEL_SCREENSHOTS=docs/pictures $(BIN)/pytest tests/report/test_pictures.py

# Again only when the lock or the project file changed. PIP is pip with its talk switched off.
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "autonovel needs Python 3.11 or newer; set PYTHON=...")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) --requirement requirements.lock
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

# Ray, and a store on loopback, for tests/ray. What they need asks for older versions of other packages, so it lies before them in
# a place of its own.
.venv-ray/.ready: $(READY) requirements-ray.lock
	test -x .venv-ray/bin/python || $(BIN)/python -m venv .venv-ray
	echo "import site; site.addsitedir('$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')')" \
	  > "$$(.venv-ray/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/environment.pth"
	.venv-ray/bin/python -m pip --disable-pip-version-check install --quiet --no-deps --requirement requirements-ray.lock
	@touch $@

clean:
	rm -rf .venv .venv-docs .venv-ray site .mypy_cache .pytest_cache .ruff_cache .hypothesis
