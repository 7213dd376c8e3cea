# Every target sets itself up from a fresh clone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Real data for tests and studies, where somebody put them; an empty value counts as not set.
export TACIT_DATA ?= $(wildcard ../shared/data)
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

KERNELS := OPENBLAS_CORETYPE=Haswell OPENBLAS_CORETYPE=Zen OPENBLAS_CORETYPE=SkylakeX \
  OPENBLAS_CORETYPE=Prescott OMP_NUM_THREADS=2 ATEN_CPU_CAPABILITY=default \
  ATEN_CPU_CAPABILITY=avx2,OPENBLAS_CORETYPE=Haswell

.PHONY: help install demo test test-quick test-full refute check lint bench docs notebooks dist clean

help:
	@echo "make demo       run the main job on data that comes with an installed library"
	@echo "make test       the tests"
	@echo "make test-quick most tests, in under three minutes: no browsers, processes, papers, long audits"
	@echo "make check      format, lint, types, layers, documentation that runs"
	@echo "make test-full  the tests and the slow rest"
	@echo "make refute     every release path on hostile neighbours, and under other kernels"
	@echo "make docs       the site, into site/"
	@echo "make notebooks  run docs/notebooks and store their outputs"
	@echo "make dist       wheel and source archive, into dist/, made twice and compared"
	@echo "make bench      ratios against peers, measured side by side"
	@echo "make install    .venv with every extra"

# One stamp a set of extras; a changed pyproject or constraints file installs again.
$(VENV)/.demo: pyproject.toml papers/pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) -e '.[demo]'
	@touch $@

# torch first and exactly pinned: asked for in any other way it brings gigabytes of GPU libraries.
$(VENV)/.dev: pyproject.toml papers/pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) $$(grep '^torch==' constraints.txt)
	@$(PIP) -e '.[dev]' -e papers
	@touch $@ $(VENV)/.demo

$(VENV)/.all: pyproject.toml papers/pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) $$(grep '^torch==' constraints.txt)
	@$(PIP) -e '.[all,models,dev]' -e papers
	@touch $@ $(VENV)/.dev $(VENV)/.demo $(VENV)/.docs $(VENV)/.ray

$(VENV)/.docs: $(VENV)/.dev
	@$(PIP) -e '.[docs]'
	@touch $@

$(VENV)/.ray: $(VENV)/.dev
	@$(PIP) -e '.[ray,models]'
	@touch $@

install: $(VENV)/.all

demo: $(VENV)/.demo
	@$(BIN)/tacit demo --out demo-output

# One thread a worker: more would wait for each other. Generated examples repeat here and are new
# in test-full.
test: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m "not slow" --hypothesis-profile=ci

# Left out: what starts browsers or deployments, long audits and most cases of long tests (markers
# heavy and quick in pyproject.toml), papers and pages.
test-quick: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow and not heavy" \
	  --hypothesis-profile=ci --ignore=tests/papers --ignore=tests/test_docs.py

test-full: $(VENV)/.ray
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

# All neighbours with the kernels at hand, a few with others: kernels are chosen when libraries load.
refute: $(VENV)/.dev
	OMP_NUM_THREADS=1 PYTHONPATH=tests $(BIN)/python -m refute
	for kernels in $(KERNELS); do \
	  env OMP_NUM_THREADS=1 PYTHONPATH=tests $$(echo $$kernels | tr , ' ') $(BIN)/python -m refute --quick || exit 1; \
	done

check: lint
	$(BIN)/python -m pytest tests/test_docs.py

lint: $(VENV)/.dev
	$(BIN)/ruff format --check src papers/src tests benchmarks deploy/prove
	$(BIN)/ruff check src papers/src tests benchmarks deploy/prove
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/sampling.py
	$(BIN)/python benchmarks/privatize.py
	$(BIN)/python benchmarks/private_step.py

docs: $(VENV)/.docs
	$(BIN)/python -m tacit_papers.pages.site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

notebooks: $(VENV)/.dev
	$(BIN)/python -m tacit_papers.pages.notebooks

$(VENV)/.dist: $(VENV)/.dev
	@$(PIP) build twine hatchling
	@touch $@

# The same bytes twice: times in the archives are those of the last commit.
dist: $(VENV)/.dist
	rm -rf dist
	for folder in dist dist/again; do \
	  SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/python -m build --no-isolation --outdir $$folder . >/dev/null || exit 1; \
	done
	for archive in dist/again/*; do cmp $$archive dist/$$(basename $$archive) || exit 1; done
	rm -r dist/again
	$(BIN)/twine check --strict dist/*

clean:
	rm -rf $(VENV) .bench demo-output dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
