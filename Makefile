# Two commands are meant for newcomers:
#   make        environment, install (without torch), check kb/, build the site into site/, diagnose a sample
#   make test   everything the tests need (torch, a browser), then all tests and all reproductions on CPU
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
export NO_MKDOCS_2_WARNING = 1

.PHONY: all install install-test check site demo test coverage bench clean

all: check site demo

install: $(VENV)/.installed
install-test: $(VENV)/.installed-test

$(VENV)/.installed: pyproject.toml constraints.txt package-lock.json
	@echo "== environment"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -e '.[fast,compressed,schema,site]'
	@# Python for the browser (the paste box). Without npm the site says that its engine was not included.
	if command -v npm >/dev/null; then npm ci --silent --no-audit --no-fund --ignore-scripts; else echo "no npm: the site is built without the in-browser engine"; fi
	touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	@echo "== what the tests need"
	$(PIP) torch numpy
	$(PIP) -e '.[dev,repro,repro-hf]'
	@# A real browser for the site's tests; they are skipped, and say so, where there is none.
	command -v chromium >/dev/null || ./.ci/browser
	touch $@

check: install
	@echo "== check kb/"
	$(BIN)/faultbook check

site: install
	@echo "== site"
	$(BIN)/mkdocs build --strict --quiet

demo: install
	@echo "== faultbook diagnose samples/fsdp-hang-4-ranks"
	@# Exit code 1 means: diagnosed. Anything else is a failure of this demo.
	$(BIN)/faultbook diagnose samples/fsdp-hang-4-ranks; test $$? -eq 1

test: install-test
	$(BIN)/python .ci/tests

# What the quick tests (no reproduction, no browser) reach; timings under coverage mean nothing.
coverage: install-test
	$(BIN)/python -m pytest -q --cov --cov-report=term tests/sdk tests/schema tests/conformance

bench: install-test
	$(BIN)/python -m pytest -q -s -m benchmark tests/benchmarks

clean:
	rm -rf site build dist sdk/faultbook/_catalogue
