# Every target makes what it needs: a virtual environment in .venv from $(PYTHON), with the tested pins of constraints.txt.
PYTHON ?= python3
WORKERS ?= 2
DEMO_ARGS ?=
PYTEST_ARGS ?=
BENCH_ARGS ?=
EXAMPLES ?= 1000
SETS ?=
CLIENTS ?=
GPU_ARGS ?=

VENV := .venv
RUN := $(VENV)/bin/python
PIP := $(RUN) -m pip install -qq --disable-pip-version-check
INSTALLED := $(VENV)/.installed-
MLINTER_RULES := $(VENV)/mlinter-rules.toml
# Rules of transformers-mlinter that cannot hold outside the transformers tree.
# TRF057 wants @auto_docstring, which takes the model's name from its path under src/transformers/models: here it would
# write "The bare None Model", link to pages of transformers' documentation and print [ERROR] on import.
# TRF028 wants the licence in eleven lines; the files name it by SPDX.
MLINTER_OFF := TRF057 TRF028

# What a process imports is compiled once, not again by each of the many that the tests start.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo test campaign lint format docs compat clients bench gpu clean
.DELETE_ON_ERROR:
.NOTPARALLEL:

help:
	@echo "make demo    the paper in a few minutes: pre-train, fine-tune, compare (examples/quickstart.py); DEMO_ARGS for its flags"
	@echo "make test    all tests, $(WORKERS) at a time (WORKERS=n); PYTEST_ARGS='-k name' to choose"
	@echo "make campaign  $(EXAMPLES) random cases of each property (EXAMPLES=n), which make test tries with 30"
	@echo "make lint    ruff (rules and format), the contracts of import-linter, transformers-mlinter, mypy"
	@echo "make format  let ruff mend what it can"
	@echo "make docs    the pages of docs/ as a site in site/, each warning an error (Python 3.11.5 or newer)"
	@echo "make compat  the tests with the oldest and the newest transformers and torch, and other Pythons; SETS=oldest-core for one"
	@echo "make clients other programs on our models, each in its own environment; CLIENTS='minicons captum' to choose"
	@echo "make bench   every speed and memory benchmark beside its peers: hours; BENCH_ARGS=--quick checks the scripts"
	@echo "make gpu     what one GPU is needed for, in 25 minutes, with the packages of $(PYTHON); GPU_ARGS=--quick on a CPU"
	@echo "make clean   remove .venv and everything built"
	@echo "PYTHON=python3.12 chooses the interpreter of a new .venv (now $(PYTHON))."

demo: $(INSTALLED)plot
	$(RUN) examples/quickstart.py $(DEMO_ARGS)

test: $(INSTALLED)test
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false \
		$(RUN) -m pytest -n $(WORKERS) --dist worksteal $(PYTEST_ARGS)

campaign: $(INSTALLED)test
	HYPOTHESIS_PROFILE=campaign EXAMPLES=$(EXAMPLES) HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false \
		$(RUN) -m pytest -m hypothesis -n $(WORKERS) $(PYTEST_ARGS)

lint: $(INSTALLED)lint $(MLINTER_RULES)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(VENV)/bin/lint-imports --no-cache
	$(RUN) -m mlinter --no-progress --no-cache --rules-toml $(MLINTER_RULES) modeling_gpt1 tokenization
	$(RUN) -m mypy --cache-dir $(VENV)/mypy --follow-imports silent --warn-unused-ignores tests/typing/user_program.py

format: $(INSTALLED)lint
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

# The variable silences Material's notice that MkDocs 2 will not run it.
docs: $(INSTALLED)docs
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict

compat: $(INSTALLED)test
	$(RUN) tests/compat.py --workers $(WORKERS) $(SETS)

# Each client has an environment of its own, so the runner needs nothing but Python.
clients:
	$(PYTHON) tests/clients/run.py $(CLIENTS)

bench: $(INSTALLED)test
	$(RUN) benchmarks/run.py $(BENCH_ARGS)

# A machine with a GPU has a torch of its own, and may have no network: nothing is installed.
gpu:
	$(PYTHON) benchmarks/gpu.py $(GPU_ARGS)

clean:
	rm -rf $(VENV) build dist site *.egg-info .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The last step of a recipe makes its stamp, so that an interrupted one starts again.
$(VENV)/.created:
	$(PYTHON) -m venv --clear $(VENV)
	-$(PIP) --upgrade pip  # installs twice as fast as the one that Python brings
	touch $@

# Without bytecode: pip would compile thousands of modules that nothing here imports.
$(INSTALLED)%: $(VENV)/.created setup.py pyproject.toml constraints.txt
	$(PIP) --no-compile -c constraints.txt -e ".[$*]"
	touch $@

$(MLINTER_RULES): $(INSTALLED)lint Makefile
	sed $(foreach rule,$(MLINTER_OFF),-e '/^\[rules\.$(rule)\]$$/,/^default_enabled/s/true$$/false/') \
		"$$($(RUN) -c 'import importlib.resources as r; print(r.files("mlinter") / "rules.toml")')" > $@
