# Everything on a fresh machine with only Python (3.10 to 3.13) and make:
#
#   make demo         own virtual environment, install, convert the bundled photographs, read them
#   make test         the test suite, without its slow tests: 3 minutes
#
# and to work on it:
#
#   make test-slow    the tests that `make test` leaves out: some 25 minutes
#   make lint         style, types, spelling, and which file may import which
#   make format       let ruff format the code
#   make docs         the site in site/
#   make package      build the wheel twice, compare, and use it in a fresh environment
#   make requirements pin what the container installs, with hashes
#   make interop      read a dataset with DALI, the Model Garden and others (3 GB)
#   make engines      the tests marked `engines`: engines and peers of over 100 MB (8 GB)
#   make torture      the long tests: kills, full disks, damaged and hostile files
#   make bench        our benchmarks
#   make bench-peers  the same work next to other formats (8 GB)
#   make plots        write and draw what the benchmarks measured into the pages; record a terminal
#   make clean        remove the environments and everything that was made

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PEERS := $(VENV)/peers
INTEROP := $(VENV)/interop
ENGINES := $(VENV)/engines
DATUMARO := $(VENV)/datumaro

# Tests start many processes, each half a second faster if the package is compiled already.
unexport PYTHONDONTWRITEBYTECODE

# pip would compile every file that it installs, which takes most of its time; Python compiles what
# is imported.
INSTALL := -m pip install --quiet --no-compile

.PHONY: help demo test test-slow lint format docs plots package requirements bench bench-peers interop engines torture clean

help:
	@sed -n '/^PYTHON/q; s/^# \{0,1\}//p' Makefile

demo: $(VENV)/installed
	$(BIN)/python samples/demo.py demo

test: $(VENV)/installed-dev
	$(BIN)/python -m pytest -n 2 --dist loadfile --durations=25 -m "not slow"

# A third worker: these tests often wait, for processes, servers and injected stalls.
test-slow: $(VENV)/installed-dev
	$(BIN)/python -m pytest -n 3 --dist loadfile --durations=25 -m slow

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --ignore-missing-imports benchmarks
	$(BIN)/lint-imports --no-logo
	$(BIN)/codespell
	$(BIN)/python scripts/word_count.py
	$(BIN)/hadolint scripts/Dockerfile

format: $(VENV)/installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/installed-docs
	$(BIN)/python scripts/cli_reference.py
	$(BIN)/python scripts/drawings.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	$(BIN)/python scripts/site_check.py
	@echo "site/index.html"

plots: $(VENV)/installed-docs
	$(BIN)/python benchmarks/figures.py
	$(BIN)/python benchmarks/plots.py
	$(BIN)/python scripts/recording.py

package: $(VENV)/installed-dev
	$(BIN)/python scripts/smoke.py

requirements: $(VENV)/installed-dev
	$(BIN)/python $(INSTALL) uv
	echo "setuptools>=77" > build.in
	$(BIN)/uv pip compile --quiet --universal --python-version 3.12 --generate-hashes \
	  --no-header --no-annotate --no-emit-index-url pyproject.toml build.in --output-file pinned.txt
	{ head -1 scripts/requirements.txt; cat pinned.txt; } > requirements.new
	mv requirements.new scripts/requirements.txt
	rm build.in pinned.txt

bench: $(VENV)/installed-dev
	$(BIN)/python benchmarks/run.py

bench-peers: $(PEERS)/installed
	$(PEERS)/bin/python benchmarks/run.py peers_writing peers_reading landscape choosing

interop: $(INTEROP)/installed
	INTEROP=1 $(INTEROP)/bin/python -m pytest tests/docs/test_docs.py tests/*/test_model_garden*.py \
	  -k "interop or garden"

engines: $(ENGINES)/installed $(DATUMARO)/installed
	$(ENGINES)/bin/python -m pytest --durations=25 -m engines tests
	$(DATUMARO)/bin/python -m pytest -m engines tests/services/test_datumaro.py

torture: $(VENV)/installed-dev
	PYTHONPATH=tests $(BIN)/python -m torture.run
	WHOLE_SWEEPS=1 $(BIN)/python -m pytest -n 3 --dist loadfile -m slow

$(VENV)/installed: pyproject.toml tfrecorder/version.py
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(INSTALL) --upgrade pip
	$(BIN)/python $(INSTALL) --editable ".[all]"
	touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(BIN)/python $(INSTALL) --editable ".[all]" --group dev
	touch $@

# Apart: PyTorch and what else others need is large, and decides on versions that we share.
# mosaicml-streaming asks for older ones than we have, and runs with ours.
$(PEERS)/installed: pyproject.toml tfrecorder/version.py benchmarks/requirements.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python $(INSTALL) --upgrade pip
	$(PEERS)/bin/python $(INSTALL) --editable ".[all]" --group dev -r benchmarks/requirements.txt
	$(PEERS)/bin/python $(INSTALL) --no-deps mosaicml-streaming
	touch $@

# Apart: what .ci/run does not install, because an engine or a peer alone is over 100 MB.
# Spark also needs Java 17 or later: apt-get install default-jre-headless.
$(ENGINES)/installed: pyproject.toml tfrecorder/version.py
	$(PYTHON) -m venv $(ENGINES)
	$(ENGINES)/bin/python $(INSTALL) --upgrade pip
	$(ENGINES)/bin/python $(INSTALL) --editable ".[all]" --group dev "ray>=2.40" "pyspark>=4" torch torchvision ultralytics
	touch $@

# Apart: Datumaro asks for pandas 2, and for another Arrow than Beam.
$(DATUMARO)/installed: pyproject.toml tfrecorder/version.py
	$(PYTHON) -m venv $(DATUMARO)
	$(DATUMARO)/bin/python $(INSTALL) --upgrade pip
	$(DATUMARO)/bin/python $(INSTALL) --editable ".[coco,datumaro]" hypothesis psutil pytest
	touch $@

# Apart: the Model Garden asks for an earlier TensorFlow.
$(INTEROP)/installed: pyproject.toml tfrecorder/version.py
	$(PYTHON) -m venv $(INTEROP)
	$(INTEROP)/bin/python $(INSTALL) --upgrade pip
	$(INTEROP)/bin/python $(INSTALL) --editable ".[beam,tensorflow]" tensorflow-datasets grain \
	  datasets tfrecord nvidia-dali-cuda120 tf-models-official \
	  hypothesis psutil pytest pytest-xdist pyyaml
	touch $@

$(VENV)/installed-docs: $(VENV)/installed
	$(BIN)/python $(INSTALL) --group docs
	touch $@

clean:
	rm -rf $(VENV) demo site build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
