# Everything a user needs: `make demo` and `make test`. Each sets up what it needs first.

PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
LOCK := requirements/cpu.lock
WORLD ?= search
OVERLAY = $(if $(filter search,$(WORLD)),,$(firstword $(wildcard experiments/$(WORLD).yaml experiments/worlds/$(WORLD).yaml) experiments/$(WORLD).yaml))

# Without bytecode every process compiles all that it imports again: vLLM then takes three times as long to import.
unexport PYTHONDONTWRITEBYTECODE

.DELETE_ON_ERROR:
.PHONY: demo repro test ui lint bench lock setup clean

demo: $(VENV)/ready ## compare credit rules; `make demo WORLD=frozen_lake` does it on a second world
	$(BIN)/turnwise ablation $(OVERLAY) --processes 2

repro: $(VENV)/ready ## the same by DVC, which versions data, policies, metrics and plots
	$(BIN)/dvc repro

# Three processes on two cores: one of them mostly waits for a server, a browser or the disk.
test: $(VENV)/ready ## every test
	$(BIN)/pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder --durations 20

ui: $(VENV)/ready ## MLflow's pages on what was run
	$(BIN)/turnwise ui

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/ready ## side-by-side measurements; nothing is asserted
	$(BIN)/python -m benchmarks

setup: $(VENV)/ready

$(VENV)/ready: $(LOCK) pyproject.toml requirements/install.sh
	PYTHON=$(PYTHON) sh requirements/install.sh $(VENV) $(LOCK)
	@touch $@

lock: ## resolve pyproject.toml again
	sh requirements/lock.sh $(LOCK)

clean: ## forget everything that was computed (the environment stays)
	rm -rf .turnwise
