# Everything the project does, by name. `make demo` and `make test` set up .venv themselves.
PYTHON ?= python3
BIN := .venv/bin
# A demo needs only what a user needs; tests and checks need the tools of the dev extra as well.
CONSTRAINED := $(BIN)/pip install --disable-pip-version-check --quiet -c constraints.txt
# Two test processes on two cores: one computing thread each, and none that spins while it waits.
PYTEST := OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive $(BIN)/pytest -n 2

.PHONY: demo test check lint types layers quick bench clean

demo: .venv/.user-ready  ## the whole road: text, tokenizer, shards, pre-training, held-out loss, report (under ten minutes)
	$(BIN)/unmask demo $(ARGS)

test: check  ## lint, types, layers and all tests: what CI runs

check: .venv/.dev-ready lint types layers
	$(PYTEST) --cov --cov-report=term:skip-covered

quick: .venv/.dev-ready  ## the tests that take under five seconds each
	$(PYTEST) -m "not slow"

bench: .venv/.dev-ready  ## unmask and today's tools in turns, into docs/benchmarks.md (about 25 minutes)
	$(BIN)/python -m benchmarks.all $(ARGS)

lint: .venv/.dev-ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/.dev-ready
	$(BIN)/mypy

layers: .venv/.dev-ready
	$(BIN)/lint-imports

.venv/.user-ready: pyproject.toml constraints.txt
	@echo "Setting up .venv (a few minutes the first time) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(CONSTRAINED) torch && $(CONSTRAINED) -e .
	@touch $@

.venv/.dev-ready: .venv/.user-ready
	@$(CONSTRAINED) -e '.[dev]'
	@touch $@

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache .coverage
