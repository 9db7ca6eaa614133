# make report   sets everything up in .venv and writes a report on a real BERT, offline
# make test     sets everything up in .venv and runs all tests
# make format   formats and lints

PYTHON ?= python3
VENV ?= .venv
# Parity with PyTorch is tested where PyTorch is, and pages where Playwright finds a Chromium: leave
# "bench" or "browser" out to do without.
TEST_EXTRAS ?= quickstart,test,bench,browser
WORKDIR ?= results/quickstart
BIN := $(VENV)/bin

.PHONY: report test format clean
.DELETE_ON_ERROR:

report: $(VENV)/.report
	$(BIN)/python -m experiments.reproduce --config=configs/quickstart.py --workdir=$(WORKDIR)

test: $(VENV)/.test
	$(BIN)/python -m pytest

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) build *.egg-info

$(VENV)/.report: EXTRAS = quickstart
$(VENV)/.test: EXTRAS = $(TEST_EXTRAS)
$(VENV)/.dev: EXTRAS = dev
$(VENV)/.report $(VENV)/.test $(VENV)/.dev: setup.py constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'Python 3.11 or later is needed: make PYTHON=python3.12 ...' >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  --constraint constraints.txt --editable '.[$(EXTRAS)]'
	touch $@
