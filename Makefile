# All the set-up that a fresh machine with Python 3.11+, venv and make needs. A second run starts at once.
PYTHON ?= python3
VENV := .venv
PIP = PYTHONWARNINGS=ignore $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
# Without a GPU a search replays recorded spaces, which needs neither torch nor triton.
EXTRAS := $(if $(shell nvidia-smi -L 2>/dev/null),all,"search,serve")

.PHONY: tune test check clusters browser

tune: $(VENV)/.tune  ## search the best config of a 4096 x 4096 x 4096 gemm
	$(VENV)/bin/tuner search gemm --M 4096

test: $(VENV)/.test  ## all tests that need no GPU
	$(VENV)/bin/python -P -m pytest -n auto --dist worksteal

clusters: $(VENV)/.test  ## schedulers on real clusters of Ray and SLURM, those that are installed
	$(VENV)/bin/python -P -m pytest -m cluster -rs

browser: $(VENV)/.check  ## the pages of the service in Chromium
	$(VENV)/bin/python -P -m pytest -m browser

check: $(VENV)/.check  ## format, lint, language, types, imports, images and tests
	scripts/check

$(VENV)/.pip: constraints.txt
	@echo "setting up $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) pip
	@touch $@

$(VENV)/.tune: $(VENV)/.pip pyproject.toml
	@$(PIP) --editable .[$(EXTRAS)]
	@touch $@

$(VENV)/.test: $(VENV)/.pip pyproject.toml
	@$(PIP) --editable .[all] --group test
	@touch $@

$(VENV)/.check: $(VENV)/.test
	@$(PIP) --group check --group browser
	@touch $@
