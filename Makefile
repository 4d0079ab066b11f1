# `make` lists what there is. `make test` is what CI runs, on a machine with Rust and Python 3; nothing else is needed.

CARGO ?= cargo
PYTHON ?= python3
SEEDS ?= 20
SEED ?= 1
BUILT = $(or $(CARGO_TARGET_DIR),target)
FERMATA ?= $(BUILT)/release/fermata

# The crates with changes since the last commit, as arguments of cargo.
CHANGED = $(shell { git diff --name-only HEAD -- crates; git ls-files -o --exclude-standard crates; } \
	| sed -n 's#^crates/\([^/]*\)/.*#-p fermata-\1#p' | sort -u)

.PHONY: help setup setup-gpu test check fmt lint unit loom clients sims benches deny demo demo-sim bench bench-scheduler bench-planner bench-serving bench-variable bench-gpu bench-mixes bench-latency sim
.DEFAULT_GOAL := help

help: ## List these recipes
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */\1\t/' | expand -t 10

setup: ## Fetch ONNX Runtime and the models of the tests into .fermata, once
	@$(PYTHON) scripts/setup.py

setup-gpu: ## Fetch ONNX Runtime for GPUs into .fermata/lib-cuda (250 MB); CUDA 13 and cuDNN 9 must be there
	@$(PYTHON) scripts/setup.py --gpu

test: fmt lint unit loom clients sims benches deny ## Everything that must pass before a merge

check: fmt lint ## What takes a minute: format, clippy, unit tests of the crates that changed
	@if [ -n "$(CHANGED)" ]; then $(CARGO) test --locked --lib $(CHANGED); \
	else echo "no crate has changed since the last commit"; fi

fmt: ## Is everything formatted?
	$(CARGO) fmt --all --check

lint: ## Clippy, without a warning
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

unit: setup ## Unit tests, text scenarios, properties, the reference, doc tests
	$(CARGO) test --locked --workspace

# In a folder of its own: everything is built with other flags.
loom: ## Where the scheduler's threads meet, under every order
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=$(BUILT)/loom $(CARGO) test --locked --release -p fermata-scheduler --test loom

# Against the development build, unless FERMATA names another binary.
clients: setup ## tritonclient's HTTP and gRPC clients, sync and asyncio, drive a server
	@$(PYTHON) scripts/clients.py
ifeq ($(origin FERMATA),file)
	$(CARGO) build --locked -p fermata-cli
	FERMATA=$(abspath $(BUILT)/debug/fermata) .fermata/venv/bin/python -m unittest discover -s tests/clients
else
	FERMATA=$(abspath $(FERMATA)) .fermata/venv/bin/python -m unittest discover -s tests/clients
endif

sims: ## Simulations of SEEDS random options, optimised, with all assertions
	FERMATA_SEEDS=$(SEEDS) $(CARGO) test --locked --profile sim -p fermata-sim --test seeds --test load

benches: ## Each bench once, for compilation
	$(CARGO) test --locked --profile sim -p fermata-sim --bench dispatch
	$(CARGO) test --locked --profile sim -p fermata-dispatch --bench hull

deny: ## Licences, sources and bans of dependencies, where cargo-deny is installed
	@if $(CARGO) deny --version >/dev/null 2>&1; then $(CARGO) deny check licenses sources bans; \
	else echo "cargo-deny is not installed: licences are not checked"; fi

sim: ## One seed, with its options: make sim SEED=7
	FERMATA_SEED=$(SEED) $(CARGO) test --locked --profile sim -p fermata-sim --test seeds -- --nocapture --test-threads 1

bench: ## What a request costs, by number of models and executors, and Orloj's queue, by how many wait
	$(CARGO) bench --locked -p fermata-sim --bench dispatch
	$(CARGO) bench --locked -p fermata-dispatch --bench hull

bench-scheduler: ## How many requests a second the scheduler takes: docs/results/scheduler.md (15 minutes)
	$(CARGO) build --locked --release -p fermata-cli
	$(FERMATA) bench scheduler --all

bench-planner: ## The planner on the problems of Nexus and gpulet: docs/results/planner.md (an hour)
	$(CARGO) build --locked --release -p fermata-cli
	$(FERMATA) bench nexus
	$(FERMATA) bench gpulet

bench-serving: setup ## The server against the simulator and against Triton: docs/results/serving.md (20 minutes)
	$(CARGO) build --locked --release -p fermata-cli
	$(PYTHON) bench/serving/serving.py --fermata $(abspath $(FERMATA))

bench-variable: setup ## A real encoder whose requests differ in length: a section of docs/results/orloj.md (half an hour)
	$(CARGO) build --locked --release -p fermata-cli
	$(PYTHON) bench/variable/variable.py --fermata $(abspath $(FERMATA))

bench-gpu: setup-gpu ## docs/results/h200.md and profiles/h200, on a machine with a GPU (ten minutes)
	$(CARGO) build --locked --release -p fermata-cli
	$(FERMATA) bench gpu

bench-mixes: ## Mixed objectives on few executors: docs/results/mixes.md (half an hour on two cores)
	$(CARGO) build --locked --release -p fermata-cli
	$(FERMATA) bench mixes

bench-latency: ## Latency below the goodput: docs/results/latency.md (a minute)
	$(CARGO) build --locked --release -p fermata-cli
	$(FERMATA) bench latency

demo: setup ## Two real models and 64 emulated A100s: ask, load, look on (DEMO_SECONDS=15)
	$(CARGO) build --locked --release -p fermata-cli
	@FERMATA=$(FERMATA) $(PYTHON) scripts/demo.py

demo-sim: ## The example simulation, and its picture
	$(CARGO) build --locked --release -p fermata-cli
	mkdir -p out
	$(FERMATA) sim examples/resnet50.toml --plot out/resnet50.svg
	@echo "the picture of the run is in $(CURDIR)/out/resnet50.svg"
