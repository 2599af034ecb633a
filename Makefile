# Everything that development needs, on a machine that has Python 3.11 or newer and nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

export OMP_NUM_THREADS ?= 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: setup lint test fuzz versions test-full runtimes test-runtimes demo bench format clean

setup: $(STAMP)

# Rebuilt only when what it was made from changes; the stamp is written last, so a half-made one is made again.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[torch,runtimes,dev]'
	touch $@

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest -n 2 --dist worksteal

# An hour of new inputs; `make fuzz MINUTES=5 START=1000000` for another time from another seed on.
MINUTES ?= 60
START ?= 100000
fuzz: setup
	$(BIN)/python -m tests.fuzz --corpus
	$(BIN)/python -m tests.fuzz --minutes $(MINUTES) --start $(START) --save fuzz-finds

# The oldest and newest libraries that pyproject.toml allows, on the Pythons of this machine; TORCH=--torch adds torch.
versions: setup
	$(BIN)/python -m tests.versions $(TORCH)

test-full: setup
	$(BIN)/python -m pytest -n 2 --dist worksteal -m full

# Two versions of onnxruntime cannot live in one environment.
runtimes: setup .venv-ort115/.installed

.venv-ort115/.installed:
	$(PYTHON) -m venv --clear .venv-ort115
	.venv-ort115/bin/python -m pip install --quiet onnxruntime==1.15.1 'numpy<2'
	touch $@

test-runtimes: runtimes
	$(BIN)/python -m pytest -m runtimes tests/runtimes

demo: setup
	$(BIN)/python examples/demo.py

bench: setup
	set -e; for script in benchmarks/[!_]*.py; do $(BIN)/python $$script; done

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .venv-ort115 build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis demo-output fuzz-finds .venv-versions
