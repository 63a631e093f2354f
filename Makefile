# Everything runs with the python that is active; nothing is installed here.
PYTHON ?= python
PYTEST ?=
# Processes that share the default set; 0 runs it in one.
WORKERS ?= 2
SECONDS ?= 600
CODE   := meshlang strategies models tests benchmarks docs
# What a change has to pass, the cheap first.
PARTS  := format-check lint types test

.DEFAULT_GOAL := help
.PHONY: help check parts format-check lint types test docs walks format parity parity-more bench mutation fuzz schema schedules

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

check: $(PARTS)  ## all that a change has to pass

parts:
	@echo $(PARTS)

format-check:  ## is every file formatted
	$(PYTHON) -m ruff format --check $(CODE)

lint:  ## ruff's rules
	$(PYTHON) -m ruff check $(CODE)

types:  ## pyright
	$(PYTHON) -m pyright --pythonpath "$$($(PYTHON) -c 'import sys; print(sys.executable)')"

test:  ## pytest, the default set
	$(PYTHON) -m pytest -n $(WORKERS) $(PYTEST)

docs:  ## the pages of docs/ as html, warnings are errors: build/docs
	$(PYTHON) -m sphinx -W --keep-going -q -b html docs build/docs

walks:  ## the tutorial in a fresh environment, and every launch of docs/ (minutes)
	MESHLANG_WALKS=1 $(PYTHON) -m pytest tests/docs/test_docs_walks.py

format:  ## format every file, and mend what ruff can mend
	$(PYTHON) -m ruff format $(CODE)
	$(PYTHON) -m ruff check --fix $(CODE)

parity:  ## every step that is held against one rank, and the table of them: PARITY.md
	rm -f PARITY.md.rows
	$(MAKE) parity-more

parity-more:  ## go on with `make parity` where it was broken off
	MESHLANG_PARITY=PARITY.md $(PYTHON) -m pytest tests/gloo tests/lowering -m parity

mutation:  ## specs and cards damaged at random: findings, never an exception, and each within 2 s and 500 MB
	MESHLANG_MUTATIONS=100000 MESHLANG_CARD_MUTATIONS=10000 $(PYTHON) -m pytest tests/damaged tests/language/test_mutation.py

fuzz:  ## texts that are shaped at random, then texts of bytes guided by what they reach: SECONDS in all, 600 unless said
	MESHLANG_FUZZ=$$(($(SECONDS) / 6)) $(PYTHON) -m pytest tests/fuzz
	$(PYTHON) tests/fuzz/guided.py spec $$(($(SECONDS) / 6))
	$(PYTHON) tests/fuzz/guided.py card $$(($(SECONDS) / 6))
	$(PYTHON) tests/fuzz/guided.py order $$(($(SECONDS) / 6))

schema:  ## the JSON Schemas that the examples name: schema/
	$(PYTHON) -m meshlang schema spec -o schema/spec.json
	$(PYTHON) -m meshlang schema card -o schema/card.json

schedules:  ## closed forms of BSIPipe for every even p <= 32 (minutes), and schedules beside each other
	$(PYTHON) benchmarks/closed_forms.py
	$(PYTHON) benchmarks/schedules.py

bench:  ## how long checking and planning take, as whole processes
	$(PYTHON) benchmarks/plan.py
