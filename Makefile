# Everything from nothing: needs Python 3.11 or newer and make.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test check format lint types docs screenshots lowest audit clean

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

# A part of the tests with the lowest versions that pyproject.toml admits, in an environment of their own; torch is that of the lock,
# since only a few of its versions suit a version of Python.
lowest: .venv-lowest/.ready
	OMP_NUM_THREADS=1 .venv-lowest/bin/python -m pytest -n 2 -p no:cacheprovider \
	  tests/runs tests/report/test_server.py tests/faults/test_numbers.py tests/data/reading/test_store.py

.venv-lowest/.ready: pyproject.toml requirements.lock
	test -x .venv-lowest/bin/python || $(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python -c 'import tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
	  needed = p["dependencies"] + p["optional-dependencies"]["tables"]; \
	  print(*(n.replace(">=", "==") for n in needed if not n.startswith("torch")), sep="\n")' > .venv-lowest/lowest.txt
	grep '^torch==' requirements.lock >> .venv-lowest/lowest.txt
	.venv-lowest/bin/python -m pip --disable-pip-version-check install --quiet -r .venv-lowest/lowest.txt pytest pytest-xdist hypothesis psutil
	echo $(CURDIR)/src > $$(.venv-lowest/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/autonovel.pth
	@touch $@

# Whether a pinned version has a known weakness. It asks the advisory service of PyPI, so it is not part of the other checks.
audit: $(READY)
	test -x .venv-audit/bin/pip-audit || ($(PYTHON) -m venv .venv-audit && .venv-audit/bin/python -m pip install --quiet pip-audit)
	.venv-audit/bin/pip-audit --no-deps --disable-pip --requirement requirements.lock

clean:
	rm -rf .venv .venv-docs .venv-ray .venv-lowest .venv-audit site .mypy_cache .pytest_cache .ruff_cache .hypothesis
