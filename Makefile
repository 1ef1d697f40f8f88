# All tasks of this repository. `make demo` and `make test` need only Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MADE := $(VENV)/.made
NODE_MODULES := extensions/node_modules/typescript/package.json
PIP_PROGRESS := '/^Collecting / { if (++found % 25 == 0) print "  " found " packages found"; fflush() } \
	/^Installing collected packages/ { print "  installing " NF - 3 (NF == 4 ? " package" : " packages"); fflush() }'
NPM := PATH="$(CURDIR)/$(BIN):$$PATH" npm --prefix extensions

export RAY_USAGE_STATS_ENABLED := 0
export PIP_DISABLE_PIP_VERSION_CHECK := 1
unexport PYTHONDONTWRITEBYTECODE # runs and tests start hundreds of processes that import the package

.DEFAULT_GOAL := help
.PHONY: help env demo test check docs front-end format slow gpu bridges compat faults bench clean

help:  ## List the targets.
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

env: $(MADE)  ## Create .venv from the pinned versions.

$(MADE): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=python3.12 env"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing the workbench, and what its development needs, into $(VENV): this takes a few minutes."
	@{ $(BIN)/python -m pip install --progress-bar off --constraint constraints.txt --editable '.[development]' \
		|| touch $(VENV)/.failed; } | awk $(PIP_PROGRESS)
	@! rm $(VENV)/.failed 2> /dev/null
	@touch $@

demo: env  ## Tune a small network on real data and write a report.
	$(BIN)/workbench sweep search_spaces/digits.yaml
	$(BIN)/workbench report last --to digits-report.html

test: env  ## Check the code and run the whole suite.
	$(MAKE) --jobs 2 --output-sync=target check front-end
	$(BIN)/python -m pytest --numprocesses 3 --dist loadgroup

check: env docs  ## Lint, formatting, types, layers, documentation.
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright
	$(BIN)/lint-imports

docs: env  ## Build the documentation into docs/_build/html; a broken link is an error.
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going docs docs/_build/html \
		|| { rm -rf docs/_build/html; exit 1; }  # a page that was read once is not warned of again

front-end: env $(NODE_MODULES)  ## Check, test and build the front end.
	$(BIN)/python -m workbench.views.typescript > extensions/src/types.ts
	$(NPM) run check
	$(NPM) test
	$(NPM) run build

$(NODE_MODULES): extensions/package-lock.json | $(MADE)
	$(NPM) ci
	@touch $@

format: env $(NODE_MODULES)  ## Format the code.
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(NPM) run format

slow: env  ## Run the tests that the suite leaves out because of their time (an hour and a half).
	$(BIN)/python -m pytest -m slow --numprocesses 3 --dist loadgroup
	$(BIN)/python -m pytest -m "hypothesis and not slow and not gpu" --hypothesis-profile thorough --numprocesses 3 --dist loadgroup

gpu:  ## Run the tests that need a GPU, in the environment of PYTHON; Ray is not needed.
	$(PYTHON) -m pytest --override-ini addopts= -m gpu $$(grep -rl --include='test_*.py' 'mark\.gpu' tests)

bridges: env .flower  ## Install the frameworks that have a bridge, peft, OpenVINO, ExecuTorch, Ray Serve, Flower and the libraries for tables, and test these.
	$(BIN)/python -m pip install --quiet --constraint constraints.txt \
		--editable '.[development,bridges,executorch,foundation,lora,openvino,serve-on-ray,tables]'
	$(BIN)/python -m pytest -rs -m "slow or not slow" tests/bridges tests/training/test_low_rank.py tests/training/test_lm_eval_tasks.py
	$(BIN)/python -m pytest -rs tests/models/test_library_trees.py tests/models/test_growth.py tests/models/test_foundation_models.py
	$(BIN)/python -m pytest -rs -m "slow or not slow" tests/deploy/test_formats.py tests/deploy/serving/test_on_ray.py
	WORKBENCH_FLOWER=.flower/bin $(BIN)/python -m pytest -rs -m slow tests/deploy/test_flower_application.py

.flower:
	$(PYTHON) -m venv .flower
	.flower/bin/python -m pip install --quiet 'flwr[simulation]>=1.42,<2' "$$(grep '^torch==' constraints.txt)"

compat: env  ## Install the lowest and the newest versions that are allowed, and run the core of the suite with them.
	$(BIN)/python -m tests.compat low $(COMPAT)
	$(BIN)/python -m tests.compat high $(COMPAT)
	$(BIN)/python -m tests.compat light $(COMPAT)

faults: env  ## Run all fault campaigns (three hours), or those in WHAT, such as WHAT="cluster tiers".
	$(BIN)/python -m tests.faults $(WHAT)

bench: env  ## Measure the workbench and its rivals side by side; WHAT=search names a subject, WHAT=--help lists them.
	$(BIN)/python -m tests.benchmarks $(WHAT)

clean:  ## Remove the environment and caches.
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis .import_linter_cache
