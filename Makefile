# Everything a user needs: `make demo` and `make test`. Each sets up what it needs first.

# Empty: the first of 3.11, 3.12 and 3.13 that there is; requirements/python.sh looks for it.
PYTHON ?=
VENV := .venv
BIN := $(VENV)/bin
DOCS_VENV := .venv-docs
LOCK := requirements/cpu.lock
WORLD ?= search
# The overlay of a language model, by its name in experiments/; empty: the small policy.
LM ?=
OVERLAY = $(if $(LM),experiments/$(LM)/$(WORLD).yaml,$(if $(filter search,$(WORLD)),,$(firstword $(wildcard experiments/$(WORLD).yaml experiments/worlds/$(WORLD).yaml) experiments/$(WORLD).yaml)))

# Without bytecode every process compiles all that it imports again: vLLM then takes three times as long to import.
unexport PYTHONDONTWRITEBYTECODE

.DELETE_ON_ERROR:
.PHONY: demo repro test ui lint bench docs pictures lock lock-docs setup ray clean

demo: $(VENV)/ready ## compare credit rules; `make demo WORLD=frozen_lake` does it on a second world, `make demo LM=smollm2` with a real language model
	$(BIN)/turnwise ablation $(OVERLAY) --processes 2

repro: $(VENV)/ready ## the same by DVC, which versions data, policies, metrics and plots
	$(BIN)/dvc repro

# As many processes as tests/conftest.py finds right for this machine: three on two cores. Files, and the tests of a file,
# come in random order; the last line says which, and `make test ORDER=...` repeats it. A test whose process dies fails once:
# with more processes allowed it would be run again and again.
test: $(VENV)/ready ## every test
	$(BIN)/pytest --numprocesses auto --dist loadfile --no-loadscope-reorder --max-worker-restart 0 --durations 20 $(if $(ORDER),--randomly-seed=$(ORDER))

ui: $(VENV)/ready ## MLflow's pages on what was run
	$(BIN)/turnwise ui

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/ready ## side-by-side measurements; nothing is asserted
	$(BIN)/python -m benchmarks

docs: $(VENV)/ready $(DOCS_VENV)/ready ## the documentation as a site, every link checked
	NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build --strict --quiet
	@echo "The documentation is .site/index.html. With search: python3 -m http.server --bind 127.0.0.1 --directory .site 8000"

pictures: $(VENV)/ready ## take the pictures of README and docs that show pages, after `make demo`
	$(BIN)/python docs/pictures.py

setup: $(VENV)/ready

ray: $(VENV)/ready ## what compute.runner.kind: ray needs besides
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements/ray.lock

$(VENV)/ready: $(LOCK) pyproject.toml requirements/install.sh requirements/python.sh
	PYTHON='$(PYTHON)' sh requirements/install.sh $(VENV) $(LOCK)
	@touch $@

$(DOCS_VENV)/ready: requirements/docs.lock
	[ -x $(DOCS_VENV)/bin/python ] || $(VENV)/bin/python -m venv $(DOCS_VENV)
	$(DOCS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements/docs.lock
	@touch $@

lock: ## resolve pyproject.toml again
	sh requirements/lock.sh $(LOCK)

lock-docs: ## resolve what the documentation site is built with again
	uv pip compile --group docs --no-header --no-annotate --no-emit-find-links --python-version 3.11 -o requirements/docs.lock

clean: ## forget everything that was computed (the environment stays)
	rm -rf .turnwise
