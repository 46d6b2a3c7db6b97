# `make run` and `make test` do all set-up themselves; `make install` is that set-up alone.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.installed
# Triton (1 GB) in a folder of its own, which make test-kernels alone sees: everything else runs without it.
TRITON := .venv-triton

# An S3 server and the driver, in a folder of their own: they need an older python-dateutil than the rest.
S3     := .venv-s3

.PHONY: install run test test-kernels test-remote site mutants faults lint clean

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

# Stores in a bucket of a server on this machine.
test-remote: install $(S3)/.installed
	PYTHONPATH=$(CURDIR)/$(S3) $(BIN)/pytest -rs tests/lab/test_remote_s3.py

$(S3)/.installed: constraints.txt $(READY)
	rm -rf $(S3)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --target $(S3) s3fs==2026.9.0 'moto[s3]==5.2.5' flask==3.1.3 flask-cors==6.0.5
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
	rm -rf $(VENV) $(TRITON) $(S3) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .cache build
