# Everything on a fresh machine with only Python (3.10 to 3.13) and make:
#
#   make demo    own virtual environment, install, convert the bundled photographs, read them back
#   make test    the test suite
#
# and for those who work on it: make lint, make format, make docs, make package, make bench,
# make torture, make clean.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test lint format docs package bench torture clean

demo: $(VENV)/installed
	$(BIN)/python samples/demo.py demo

test: $(VENV)/installed-dev
	$(BIN)/python -m pytest

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/installed-docs
	$(BIN)/python scripts/cli_reference.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "site/index.html"

package: $(VENV)/installed-dev
	$(BIN)/python scripts/smoke.py

bench: $(VENV)/installed-dev
	$(BIN)/python benchmarks/run.py

torture: $(VENV)/installed-dev
	PYTHONPATH=tests $(BIN)/python -m torture.run

$(VENV)/installed: setup.py tfrecorder/version.py
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $@

$(VENV)/installed-docs: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --editable ".[docs]"
	touch $@

clean:
	rm -rf $(VENV) demo site build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
