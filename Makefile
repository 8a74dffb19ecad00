# Everything sets itself up: a fresh clone, Python 3.11 or newer and make are enough.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help setup run serve test test-again slow slow-again browser browser-again pages pages-again coverage engines engines-again systems systems-again test-systems ledger \
  test-all check types lint format bench services faults faults-ci faults-ci-again lock docs pictures clean proto vendor

help: ## what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-18s %s\n", $$1, $$2}'

$(READY): requirements.lock pyproject.toml hatch_build.py src/deadletter/stores/sqlite/ofd_locks.c
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; name one with: make PYTHON=/path/to/python3 $(MAKECMDGOALS)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "setting up $(VENV) (once) ..."
	@# A lock names everything, so nothing is left to resolve: a release of tomorrow changes nothing.
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

setup: $(READY) ## the virtual environment, pinned and hashed
	@echo "ready: $(BIN)/dlq --help"

run: $(READY) ## a living demo: a small shop whose orders fail in instructive ways, with the console beside it
	@$(BIN)/python examples/shop/demo.py

serve: $(READY) ## a server on the store of the demo, with access on
	@mkdir -p .demo
	@$(BIN)/dlq --url sqlite:///.demo/shop.db serve

# The five systems, each with the servers it needs.
example-relayer: NEEDS = sqs ## transactions over SQS: classified, retried, and dead ones taken care of
example-pipeline: NEEDS = kafka ## documents through a graph of gRPC modules, over Kafka
example-leasequeue: NEEDS = postgresql ## the queue server: leases, dead queues, crashes
example-agents: NEEDS = redis ## mailboxes and loops of agents
example-courier: NEEDS = redis mongodb ## courier events, signed, over queues that BullMQ shares
EXAMPLES = example-relayer example-pipeline example-leasequeue example-agents example-courier
.PHONY: $(EXAMPLES)
$(EXAMPLES): example-%: $(READY)
	@$(BIN)/python tests/services.py $(NEEDS)
	@PYTHONPATH=examples:tests $(BIN)/python -m $*.demo

PYTEST = $(BIN)/python -m pytest -q -n 2 --dist loadgroup $(REPORT)
AGAIN = $(BIN)/python -m pytest -q --last-failed --last-failed-no-failures=none $(REPORT)
REPORT = --junitxml=.reports/$@.xml
# A retry report belongs to one run: tests that it holds count as passed only when retried.
FORGET_RETRY = rm -f .reports/$@-again.xml
REPORTS = $(wildcard $(foreach one,test test-again slow slow-again browser browser-again faults-ci faults-ci-again engines engines-again systems systems-again,.reports/$(one).xml))
COVERED = --cov --cov-report=term --cov-fail-under=90
ENGINES = --hypothesis-profile=quick -m engines tests/engines tests/intake tests/integrations tests/interop tests/observe tests/server tests/queue_server tests/cli/test_cli_drain.py
SYSTEMS_NEED = sqs kafka redis mongodb postgresql consul promtool node go
CHECK_LEDGER = $(BIN)/python docs/systems/check.py

# The default run takes less than five minutes on two cores; what takes longer is marked slow.
TEST = --hypothesis-profile=quick -m "not slow and not engines and not systems and not faults and not browser"
PAGES = tests/browser/test_pages.py tests/browser/test_hostile.py
BROWSER = -m browser tests/browser $(PAGES:%=--ignore=%)
SLOW = --hypothesis-profile=quick -m "slow and not engines and not systems and not faults and not browser"

# Their files are in memory, where that is possible: SQLite has every transaction written to the disk.
test test-again slow slow-again browser browser-again pages pages-again: export PYTEST_DEBUG_TEMPROOT ?= $(shell test -w /dev/shm && echo /dev/shm)

test: $(READY) ## what needs no server and little time: the default run
	@$(FORGET_RETRY)
	@$(PYTEST) $(TEST)
	@echo "Not run: make slow (pages, machines, whole processes), make browser (the console), make faults-ci (kills), and on real servers make engines and make systems."
	@$(BIN)/python tests/services.py --look
	@echo "make services gets what is missing."

test-again: $(READY) ## those of the default run that failed, once more and one by one
	@$(AGAIN) $(TEST)

slow: $(READY) ## the slow suites that need no server: every page, state machines, whole processes
	@$(FORGET_RETRY)
	@$(PYTEST) $(SLOW)

slow-again: $(READY) ## those of the slow suites that failed, once more and one by one
	@$(AGAIN) $(SLOW)

browser: $(READY) ## journeys through the console in Chromium, on real servers with real workers
	@$(FORGET_RETRY)
	@$(PYTEST) $(BROWSER)

pages: $(READY) ## every page of the console in every state, light and dark, wide and narrow: axe, policy, hostile text
	@$(FORGET_RETRY)
	@$(PYTEST) -m browser $(PAGES)

pages-again: $(READY) ## those of the pages' tests that failed, once more and one by one
	@$(AGAIN) -m browser $(PAGES)

browser-again: $(READY) ## those of the browser tests that failed, once more and one by one
	@$(AGAIN) $(BROWSER)

coverage: $(READY) ## the same with every example and coverage; takes three times as long
	@$(PYTEST) -m "not engines and not systems and not browser" $(COVERED) --cov-config=tests/embedded.coveragerc

engines: $(READY) ## the engines on the servers that are here; the others are skipped and say why
	@$(FORGET_RETRY)
	@$(PYTEST) $(ENGINES)

engines-again: $(READY) ## those of the engines' tests that failed, once more and one by one
	@$(AGAIN) $(ENGINES)

systems: $(READY) ## the tests of the five systems, on the servers that are here
	@$(FORGET_RETRY)
	@$(PYTEST) tests/systems

systems-again: $(READY) ## those of the systems' tests that failed, once more and one by one
	@$(AGAIN) tests/systems

ledger: $(READY) ## proven, differing and open lines of the five systems, by the reports of this commit in .reports
	@$(CHECK_LEDGER) $(REPORTS)

test-systems: $(READY) ## the five systems: get their servers, run every test that their ledgers name, then make ledger
	@$(BIN)/python tests/services.py $(SYSTEMS_NEED)
	@mkdir -p .reports
	@$(CHECK_LEDGER) --elsewhere > .reports/elsewhere.txt
	@CI=true $(PYTEST) --hypothesis-profile=quick tests/systems @.reports/elsewhere.txt; \
	  ended=$$?; $(CHECK_LEDGER) .reports/$@.xml && exit $$ended

test-all: ## the servers first, then everything; nothing is skipped
	@CI=true $(MAKE) --no-print-directory services
	@CI=true $(PYTEST) $(COVERED)
	@$(CHECK_LEDGER) .reports/$@.xml

check: $(READY) lint types test ## lint, format, types, rings, the default run

lint: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports

types: $(READY)
	@$(BIN)/mypy

format: $(READY) ## put the code in shape
	@$(BIN)/ruff check --fix -q . || true
	@$(BIN)/ruff format .

bench: $(READY) ## every claim as a ratio, in one run beside the raw engine and the peers
	@$(BIN)/python bench/run.py

services: $(READY) ## get the servers that tests can use, and say which are here
	@$(BIN)/python tests/services.py

faults-ci: $(READY) ## the short form of the fault tests, under three minutes: part of CI
	@$(FORGET_RETRY)
	@$(PYTEST) -m faults tests/faults

faults-ci-again: $(READY) ## those of the short fault tests that failed, once more and one by one
	@$(AGAIN) -m faults tests/faults

faults: $(READY) ## the long form of the fault tests, printing counts: processes killed for real, many times
	@$(BIN)/python -m pytest -q -s -m faults tests/faults --long

proto: $(READY) ## the messages of the queue server, from querator.proto
	@cd src/deadletter/queue_server && $(CURDIR)/$(BIN)/python -m grpc_tools.protoc -I. --python_out=. querator.proto

docs: $(READY) ## pages that are generated from the code
	@$(BIN)/python docs/generate.py

pictures: $(READY) ## screenshots of every screen into .pictures, and those of the docs into docs/pictures
	@PYTHONPATH=src:tests $(BIN)/python -m browser.pictures

vendor: $(READY) ## fetch htmx and the icons of the console anew (needs npm)
	@$(BIN)/python tests/vendor.py

COMPILE = uv pip compile -q --universal --generate-hashes --no-header --no-emit-index-url --python-version 3.11
# What is in the image and what we are compared with have the versions that the tests have.
lock: $(READY) ## pin the dependencies anew (needs uv)
	@$(COMPILE) --group dev pyproject.toml -o requirements.lock
	@$(COMPILE) --group servers pyproject.toml -o requirements-servers.lock
	@$(COMPILE) --extra all -c requirements.lock pyproject.toml -o requirements-image.lock
	@$(COMPILE) --group bench -c requirements.lock -o requirements-bench.lock
	@! grep -nE 'https?://' requirements*.lock

clean:
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage* htmlcov .demo .servers .reports .pictures
