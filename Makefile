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
.PHONY: help env demo test check docs front-end format slow gpu bridges flower compat cluster-demo faults bench bench-advisor bench-choice bench-compress bench-data bench-exchanges bench-federated bench-flower bench-scripts bench-frameworks bench-importance bench-search bench-serve bench-tiers clean

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

gpu:  ## Run the tests that need a GPU, in the environment of PYTHON; Ray is not needed.
	$(PYTHON) -m pytest --override-ini addopts= -m gpu $$(grep -rl --include='test_*.py' 'mark\.gpu' tests)

bridges: env  ## Install the frameworks that have a bridge, peft, OpenVINO and Ray Serve, and test these.
	$(BIN)/python -m pip install --quiet --constraint constraints.txt \
		--editable '.[development,bridges,lora,openvino,serve-on-ray]'
	$(BIN)/python -m pytest -rs tests/bridges tests/training/test_low_rank.py
	$(BIN)/python -m pytest -rs -m "slow or not slow" tests/deploy/test_formats.py tests/deploy/serving/test_on_ray.py

flower: .flower env  ## Run an exported federation in Flower, which is installed in an environment of its own, .flower.
	WORKBENCH_FLOWER=.flower/bin $(BIN)/python -m pytest -rs -m slow tests/deploy/test_flower_application.py

.flower:
	$(PYTHON) -m venv .flower
	.flower/bin/python -m pip install --quiet 'flwr[simulation]>=1.42,<2' "$$(grep '^torch==' constraints.txt)"

compat: env  ## Install the lowest and the newest versions that are allowed, and run the core of the suite with them.
	$(BIN)/python -m tests.compat low $(COMPAT)
	$(BIN)/python -m tests.compat high $(COMPAT)
	$(BIN)/python -m tests.compat light $(COMPAT)

cluster-demo: env  ## Run the digits on two nodes and PostgreSQL, lose a node halfway, write a report.
	$(BIN)/python -m tests.faults.cluster_demo

faults: env  ## Use thousands of wrong inputs, kill every process during sweeps, lose machines and the store (three hours).
	$(BIN)/python -m tests.faults input
	$(BIN)/python -m tests.faults damage
	$(BIN)/python -m tests.faults leases
	$(BIN)/python -m tests.faults trials
	$(BIN)/python -m tests.faults storm
	$(BIN)/python -m tests.faults machine
	$(BIN)/python -m tests.faults cluster
	$(BIN)/python -m tests.faults clock
	$(BIN)/python -m tests.faults storage
	$(BIN)/python -m tests.faults tiers
	$(BIN)/python -m tests.faults code
	$(BIN)/python -m tests.faults exports
	$(BIN)/python -m tests.faults connections
	$(BIN)/python -m tests.faults head_folder
	$(BIN)/python -m tests.faults stopped
	$(BIN)/python -m tests.faults busy
	$(BIN)/python -m tests.faults endurance

bench: env  ## Measure the workbench and its rivals side by side; results go to tests/benchmarks/results.
	$(BIN)/python -m tests.benchmarks

bench-advisor: env  ## Predict and choose from public measurements, compared with rivals (two minutes).
	$(BIN)/python -m tests.benchmarks advisor_step_time advisor_plans advisor_batch advisor_budget

bench-compress: env  ## Compress models beside the quantisation of ONNX Runtime and of Olive, installed in .olive (ten minutes).
	@[ -x .olive/bin/olive ] || { $(PYTHON) -m venv .olive && .olive/bin/python -m pip install --quiet --constraint constraints.txt \
		olive-ai onnxruntime requests; } || echo "Olive cannot be installed here, so it is left out"
	$(BIN)/python -m tests.benchmarks compression

bench-exchanges: env  ## Make steps with every exchange on slow links, beside torch's own (five minutes, as root).
	$(BIN)/python -m tests.benchmarks exchanges

bench-federated: env  ## Count rounds of federated learning to a target, published settings beside a sweep (an hour, most for MNIST).
	$(BIN)/python -m tests.benchmarks federated_rounds
	$(BIN)/python -m tests.benchmarks.federated_rounds --data mnist --trials 12 --seeds 3
	$(BIN)/python -m tests.benchmarks.federated_rounds --data mnist --trials 16 --targets 0.9

bench-flower: .flower env  ## The same federation here and in Flower's simulation, with 10,000 images of MNIST (minutes).
	$(BIN)/python -m tests.benchmarks.federated_rounds --data mnist --seeds 2 --flower .flower/bin

bench-importance: env  ## Say how much each parameter decides in 20 known spaces, beside fANOVA and PED-ANOVA (five minutes).
	$(BIN)/python -m tests.benchmarks importance

bench-search: env  ## Search public trainings and functions beside Optuna, Ray Tune, SMAC3 and DEHB (hours, most with slow rivals).
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[development,rivals]'
	$(BIN)/python -m tests.benchmarks search pruning fronts fidelity

bench-frameworks: env  ## Train the zoo's resnet and transformer beside plain torch, Lightning, Accelerate and Keras (half an hour).
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[development,bridges]'
	$(BIN)/python -m tests.benchmarks frameworks

bench-data: env  ## Load 50,000 small JPEGs beside torch by hand and, where they can be installed, WebDataset and Streaming (an hour).
	$(BIN)/python -m pip install --quiet --constraint constraints.txt webdataset mosaicml-streaming || echo "Compared without them"
	$(BIN)/python -m tests.benchmarks image_loading

bench-scripts: env  ## Start a script as a trial, compared with a plain agent, Ray Tune and our function.
	$(BIN)/python -m tests.benchmarks script_start

bench-serve: env  ## Answer requests with our server, FastAPI and Ray Serve, side by side (five minutes).
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[development,rivals]'
	$(BIN)/python -m tests.benchmarks serving

bench-tiers: env  ## Measure tiers and cascades beside what is predicted of them, and the simulator beside closed forms (five minutes).
	$(BIN)/python -m tests.benchmarks tiers

bench-choice: env  ## Advise on small tasks, compared with brute force, Ray Tune and Lightning (an hour, on an idle machine).
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[development,rivals]'
	$(BIN)/python -m tests.benchmarks advisor_choice advisor_on_off

clean:  ## Remove the environment and caches.
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis .import_linter_cache
