# `make run` and `make test` do all set-up themselves; `make install` is that set-up alone.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.installed
# Triton (1 GB) in a folder of its own, which make test-kernels alone sees: everything else runs without it.
TRITON := .venv-triton

.PHONY: install run test test-kernels site mutants faults lint clean

install: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "vcl needs Python 3.11 or newer; set PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[lab,dev]'
	touch $(READY)

run: install
	$(BIN)/vcl run permuted-mnist --preset quick --method mle,ewc,vcl,vcl-random --fallback permuted-digits

test: install lint
	$(BIN)/pytest

# The kernels of the GPU on this CPU, by Triton's interpreter; -rs says what it cannot show.
test-kernels: install $(TRITON)/.installed
	TRITON_INTERPRET=1 PYTHONPATH=$(CURDIR)/$(TRITON) $(BIN)/pytest -rs tests/ops/test_kernels.py

$(TRITON)/.installed: constraints.txt $(READY)
	rm -rf $(TRITON)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(TRITON) triton==3.9.0
	touch $@

# The documentation as build/site/index.html, built strictly; the tests build it too.
site: install
	$(BIN)/python tools/documents/build_site.py

# Single changes of a copy of the source, each of which some test should notice; at most 20 minutes.
mutants: install
	$(BIN)/python tools/mutants

# Processes killed, disks full, files damaged, hostile input: counted in results/faults/; fails if anything is lost.
faults: install
	$(BIN)/python tools/faults

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

clean:
	rm -rf $(VENV) $(TRITON) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .cache build
