# Each target sets itself up: the virtual environment is built when missing or stale.
#   make demo    the quickstart: SGD against AdaDecay on real digits
#   make test    lint, types and every test
#   make lint    ruff and mypy alone
#   make docs    the documentation site, in site/
#   make bench   the cost of a step
#   make gpu     the tests of the GPU engine on a GPU, a self-test, the cost of a step
#   make soak    the attack on library and lab in a shortened form, from seeds
#   make dist    a wheel with the kernel, and an sdist, in dist/
#   make lock    renew the lock files from pyproject.toml (maintainers)
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet
# The kernel is compiled at install time, so its sources make the install stale too.
BUILD_INPUTS := pyproject.toml $(wildcard setup.py src/adadecay/csrc/*.cpp src/adadecay/csrc/*.hpp)
# One thread each for torch and its like; some tests only wait, so that two cores keep
# four workers busy. Bytecode is kept, whatever the shell says: tests start hundreds of
# processes, and each would compile the package again.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest

.PHONY: demo test pytest lint docs bench gpu soak dist lock clean

demo: $(VENV)/.demo
	$(BIN)/adadecay demo

# mypy takes a minute of one core, so it runs beside the tests.
test: $(VENV)/.test
	@if [ "$$CI" = true ]; then sh tools/chromium.sh; fi
	@$(MAKE) --no-print-directory -j2 lint pytest

pytest: $(VENV)/.test
	$(PYTEST) -n 4 --dist worksteal tests

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: .venv-docs/.docs $(VENV)/.demo
	@echo "Writing the report page of each study in evidence/ …"
	rm -rf build/reports
	$(BIN)/python tools/docs.py --reports build/reports
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict

bench: $(VENV)/.test
	$(BIN)/adadecay bench step
	$(BIN)/adadecay bench batches
	$(BIN)/adadecay bench train

gpu: $(VENV)/.test
	$(PYTEST) tests/gpu/test_on_a_gpu.py
	$(BIN)/adadecay selftest --device cuda
	$(BIN)/adadecay bench step --device cuda --no-compiled

soak: $(VENV)/.test
	$(PYTEST) -m soak --timeout 14400 tests

dist: $(VENV)/.test
	$(BIN)/python -m build --outdir dist

$(BIN)/python:
	@echo "Making a virtual environment in $(VENV) …"
	$(PYTHON) -m venv $(VENV)

# The test lock holds the demo lock, so an environment set up for the tests also
# serves the demo; the other way round pip only adds what is missing.
$(VENV)/.demo: requirements-demo.lock $(BUILD_INPUTS) | $(BIN)/python
	@echo "Installing torch, the lab and the kernel into $(VENV): a few minutes the first time …"
	test $(VENV)/.test -nt requirements-demo.lock || $(PIP) install -r requirements-demo.lock
	$(PIP) install --no-deps -e .
	touch $@

$(VENV)/.test: requirements-test.lock $(BUILD_INPUTS) | $(BIN)/python
	@echo "Installing what the tests need into $(VENV): some minutes the first time …"
	$(PIP) install -r requirements-test.lock
	$(PIP) install --no-deps -e .
	touch $@ $(VENV)/.demo

.venv-docs/.docs: requirements-docs.lock
	@echo "Installing mkdocs into .venv-docs …"
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip --disable-pip-version-check --quiet install -r $<
	touch $@

lock:
	$(PYTHON) tools/lock.py

clean:
	rm -rf $(VENV) .venv-docs site build dist src/*.egg-info
