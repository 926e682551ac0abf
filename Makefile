# Needs git, make and Python 3.11 or newer with venv: everything else is installed
# into .venv, again only when requirements.txt or pyproject.toml change.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
STAMP := .venv/.installed
OTHERS := .venv-ecosystem

.PHONY: bench demo test test-all test-ecosystem ops-report lint install

demo: install
	$(BIN)/tarry demo

test: install
	$(BIN)/python -m pytest -n 2

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

install: $(STAMP)

$(STAMP): requirements.txt pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $(STAMP)

bench: install
	$(BIN)/python benchmarks/run.py --out benchmarks/results.json

test-all: install
	$(BIN)/python -m pytest -n 2 --full

ops-report: install
	PYTHONPATH=tests $(BIN)/python tests/databases/opdb.py --report

# Other people's libraries, with another PyTorch, in an environment of their own.
test-ecosystem: $(OTHERS)/.installed
	$(OTHERS)/bin/python -m pytest -c ecosystem/pytest.ini ecosystem

$(OTHERS)/.installed: requirements-ecosystem.txt pyproject.toml
	$(PYTHON) -m venv $(OTHERS)
	$(OTHERS)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-ecosystem.txt
	$(OTHERS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $(OTHERS)/.installed
