# Everything happens in .venv, which make builds by itself. A stamp stands for each thing that is in place there, so a
# second call starts at once, and a changed lock file or native source redoes its own step and no other.

VENV   := .venv
PY     := $(VENV)/bin/python
STAMPS := $(VENV)/.stamps
PIP    := $(PY) -m pip --disable-pip-version-check
PYTHON ?=

NATIVE  := $(shell find src/echomesh/native -name '*.pyx' -o -name '*.pxd' -o -name '*.h')
CHECKED := src tests tools $(wildcard bench) $(wildcard examples)
ARGS    ?=
# So many processes share the tests, by files; most of their time is waiting. WORKERS=0: one, as a debugger wants it.
WORKERS ?= 4

.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:
.PHONY: help install test test-full demo bench lint format docs lock clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(STAMPS)/demo $(STAMPS)/native ## see it work: sets up what it needs, then runs the demonstration
	@$(PY) -m echomesh demo $(ARGS)

install: $(STAMPS)/all $(STAMPS)/native ## the whole environment in .venv, every extra and group (about 1.4 GB)
	@echo "Ready: . $(VENV)/bin/activate"

test: checks ## ruff, mypy and pytest, with small counts (ARGS="-k name" goes to pytest)
	@tools/step pytest $(PY) -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

test-full: export ECHOMESH_TEST_FULL = 1
test-full: test ## the same tests with the full counts

lint: checks ## ruff and mypy alone

.PHONY: checks
checks: $(STAMPS)/test $(STAMPS)/native $(STAMPS)/system
	@tools/step "ruff check" $(PY) -m ruff check .
	@tools/step "ruff format --check" $(PY) -m ruff format --check .
	@tools/step mypy $(PY) -m mypy $(CHECKED)

format: $(STAMPS)/test ## let ruff rewrite what it can
	@$(PY) -m ruff check --fix-only .
	@$(PY) -m ruff format .

bench: $(STAMPS)/bench $(STAMPS)/native ## measure against the peers [ONLY=part] [QUICK=1]
	@$(PY) -m bench $(if $(ONLY),--only $(ONLY)) $(if $(QUICK),--quick)

docs: $(STAMPS)/docs $(STAMPS)/native ## the documentation as HTML in build/docs; a broken link fails
	@$(PY) -m sphinx --fail-on-warning --keep-going --quiet -b html -d build/doctrees docs build/docs
	@echo "build/docs/index.html"

lock: ## write requirements/*.txt anew from pyproject.toml [UPGRADE=1: with the newest versions]
	@python=$$(tools/find-python $(PYTHON)) && tools/lock "$$python" $(if $(UPGRADE),--upgrade)

clean: ## remove the environment and everything that was built
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests tools $(wildcard bench examples) -name __pycache__ -prune -exec rm -rf {} +
	find src \( -name '*.so' -o -path '*/native/*.c' \) -delete

$(STAMPS)/venv: tools/find-python
	@python=$$(tools/find-python $(PYTHON)) && "$$python" tools/toolchain.py && \
	    { $(PY) -c '' 2>/dev/null || "$$python" -m venv --clear $(VENV); }
	@mkdir -p $(STAMPS) && touch $@

# The layers of the environment: each lock file agrees with the others on every version, and `all` contains them.
# --no-deps: the locks are complete, and a package that is not in them has no business here.
LOCKED = --require-hashes --no-deps -r

$(STAMPS)/docs: $(STAMPS)/%: requirements/%.txt | $(STAMPS)/venv
	@echo "Installing $$(grep -c == $<) pinned packages of $< into $(VENV) ..."
	@$(PIP) -qq install $(LOCKED) $<
	@touch $@

$(STAMPS)/demo $(STAMPS)/test $(STAMPS)/bench: $(STAMPS)/%: requirements/%.txt | $(STAMPS)/venv
	@echo "Installing $$(grep -c == $<) pinned packages of $< into $(VENV), Spark and a Java runtime among them: about 1 GB ..."
	@$(PIP) install --progress-bar on $(LOCKED) $<
	@touch $@

$(STAMPS)/all: requirements/all.txt | $(STAMPS)/venv
	@echo "Installing $$(grep -c == $<) pinned packages into $(VENV), Spark and a Java runtime among them: about 1.4 GB ..."
	@$(PIP) install --progress-bar on $(LOCKED) $<
	@touch $(addprefix $(STAMPS)/,demo test bench docs) $@

# The project itself, in place: Python edits need no step, and an edited native source recompiles what depends on it.
$(STAMPS)/project: setup.py pyproject.toml src/echomesh/_version.py | $(STAMPS)/venv
	@ECHOMESH_BUILD_WITHOUT_NATIVE=1 $(PIP) -qq install --no-build-isolation --no-deps -e .
	@touch $@

$(STAMPS)/native: $(NATIVE) setup.py $(STAMPS)/project
	@$(PY) tools/toolchain.py
	@echo "Compiling the core ..." && touch $@.begun
	@$(if $(filter setup.py,$?),rm -rf build/cython)
	@$(PY) setup.py -q build_ext --inplace
	@mv $@.begun $@  # what was edited meanwhile is newer, and compiled the next time

$(STAMPS)/system: tools/system-packages | $(STAMPS)/venv
	@if [ "$(SYSTEM_PACKAGES)" = 0 ] || tools/system-packages; then touch $@; fi
