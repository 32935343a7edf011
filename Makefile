# `make` alone lists what there is. Every target does its own set-up.

.DEFAULT_GOAL := help
.PHONY: help setup demo cluster test fast soak check lint types layers format bench docs protocol clean

RUN := .venv/bin
# More workers than two cores can keep busy: many tests wait for servers, clients and clocks.
# A file at a time: tests of one file may share a server. In the order of collection, which
# tests/conftest.py decides; xdist would start with the files that have the most tests.
PYTEST := $(RUN)/pytest -n 4 --dist loadfile --no-loadscope-reorder
# What Spark's JVMs load, for those that tests start.
SPARK_ARCHIVE := .tools/spark.jsa
# Tests start hundreds of processes. Without compiled files each would compile all of Neve first.
unexport PYTHONDONTWRITEBYTECODE

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

setup:  ## make .venv with the pinned packages (does nothing when it is current)
	@PYTHON='$(PYTHON)' sh tools/setup.sh

demo: setup  ## show the whole of Neve, in less than two minutes
	@$(RUN)/neve demo

cluster: setup  ## start three brokers on this machine, kill one, drain one, balance, stop
	@$(RUN)/neve cluster demo

test: setup  ## all checks and all tests except the long runs
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target $(SPARK_ARCHIVE) lint types layers
	$(PYTEST)

fast: setup  ## the quick tests alone, for every save
	$(PYTEST) -m 'not slow and not soak'

soak: setup  ## the long runs: thousands of seeds, kill loops, bad stores, a million frames, Spark, real Kafka
	$(RUN)/pytest -n 2 --dist worksteal -m soak

check: setup  ## lint, format, types and layers
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target lint types layers

$(SPARK_ARCHIVE): constraints.txt tools/spark_archive.py | setup
	@$(RUN)/python tools/spark_archive.py

lint: setup  ## lint and format alone
	$(RUN)/ruff check
	$(RUN)/ruff format --check

types: setup  ## types alone
	$(RUN)/mypy

layers: setup  ## layers alone
	$(RUN)/lint-imports

format: setup  ## put the code into its format
	$(RUN)/ruff format
	$(RUN)/ruff check --fix

bench: setup  ## measure everything, storage to tables (on a quiet machine, some 30 minutes)
	$(RUN)/neve bench storage
	$(RUN)/neve bench records
	$(RUN)/neve bench broker
	$(RUN)/neve bench backlog
	$(RUN)/neve bench cluster
	$(RUN)/neve bench scale
	$(RUN)/neve bench spark
	$(RUN)/neve bench lake

docs: setup  ## regenerate the tables of settings and metrics in docs/operators
	$(RUN)/python tools/settings_table.py
	$(RUN)/python tools/metrics_table.py

protocol: setup  ## write the type stubs of Kafka's messages from their descriptions
	$(RUN)/python tools/message_stubs.py

clean:  ## remove what make, tests and tools leave behind
	rm -rf .venv .tools build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -rf src/*.egg-info
