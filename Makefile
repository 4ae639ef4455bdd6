# Kirsch: every command, for people and for CI alike. `make help` lists them.
#
#   PYTHON=python3.12   the interpreter to build for (default: CPython 3.13, or
#                       the newest one >= 3.10)
#   VENV=.venv          where the build and the tools are installed
#   PROFILE=release     cargo's profile for the engine; `profiling` adds line
#                       tables
#   TEST_PROFILE=testing the one that `make serve` and `make test` build with:
#                       quick to compile, with assertions
#   BIND=127.0.0.1:8000 where `make serve` listens
#   PYTEST_ARGS=...     e.g. PYTEST_ARGS='-k chunked -x'; PYTEST_SLOW_ARGS for
#                       the slow tests
#   PYTEST_RERUNS=...   how often pytest runs a failed test again (never, but in
#                       CI)
#   RERUN=.ci/rerun     before the commands that test without pytest: runs each
#                       once more if it fails (empty, but in CI)
#   FUZZ_SECONDS=60     for each target; FUZZ_RUNS=10000000 bounds cases
#                       instead; FUZZ_TARGETS='a b' chooses
#   FUZZ_ARGS=          further arguments of libFuzzer, as -help=1 lists them
#   SLOW_SEEDS=1000     how many simulated worlds of each kind the slow tests
#                       run
#   PEERS=.venvs/peers  a virtual environment that holds the servers to compare
#                       with; SCENARIO=ka,chrome,... RIVALS=...
#   SURVEY_ARGS=        further arguments of kirsch survey
#   FOUNDING=           which of survey/founding (all)
#   SHARED=../shared    where the shared corpus is looked for

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --no-print-directory

VENV ?= .venv
PROFILE ?= release
TEST_PROFILE ?= testing
BIND ?= 127.0.0.1:8000
SHARED ?= ../shared
FUZZ_SECONDS ?= 60
RIVALS ?= bjoern,fastpysgi,granian
PEERS ?= $(if $(wildcard .venvs/peers/bin/python),.venvs/peers)
FOUNDING ?= $(sort $(basename $(notdir $(wildcard survey/founding/*.toml))))
SCENARIO ?= ka,chrome,mixed,pipe16,close,post8k,large,stream
NIGHTLY ?= +nightly
# Most tests wait for a socket or a process. The slow ones watch the clock, so fewer of them run at a time.
PYTEST_ARGS ?= -n 4
PYTEST_TESTS ?= tests
PYTEST_SLOW_ARGS ?= -n 2
SLOW_SEEDS ?= 1000

# Looked for once, and only by the commands that need it.
PYTHON_GIVEN := $(PYTHON)
override PYTHON = $(eval override PYTHON := $(shell .ci/pythons --find $(PYTHON_GIVEN)))$(PYTHON)

BIN := $(VENV)/bin
STAMPS := $(VENV)/.stamps
WHEELS := $(VENV)/.wheel/$(PROFILE)
# One at a time, because `make test` prepares several things at once.
PIP = flock $(STAMPS) $(BIN)/python -m pip --quiet --disable-pip-version-check
# PyO3 asks this interpreter for its version; left to itself it would take the first python3 on PATH, and every change
# between the two would compile PyO3 again.
export PYO3_PYTHON = $(abspath $(BIN)/python)

# Distributions with a native part are built as wheels, because what is tested is then what is shipped. The others are
# pure Python and installed in place, so that a change of theirs builds nothing.
NATIVE := kirsch kirsch-bench
PURE := $(filter-out $(NATIVE),$(patsubst packages/%/pyproject.toml,%,$(wildcard packages/*/pyproject.toml)))

# What each wheel is made of. Directories are listed too, because a file that vanished shows only there.
sources = Cargo.toml $(wildcard Cargo.lock) LICENSE $(shell find $(1) -name __pycache__ -prune -o \
	\( -type d -o -name '*.rs' -o -name '*.toml' -o -name '*.py' -o -name '*.pyi' -o -name '*.html' -o -name '*.1' \
	-o -name README.md -o -name py.typed \) -print)

.PHONY: help
help: ## List the commands (this is also what a bare `make` does)
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { line = sprintf("  make %-12s", $$1); n = split($$2, words, " "); \
		for (i = 1; i <= n; i++) { if (length(line words[i]) > 79) { print line; line = sprintf("%19s", "") } \
		line = line " " words[i] } print line }' $(firstword $(MAKEFILE_LIST))
	@sed -n 's/^#   /  /p' $(firstword $(MAKEFILE_LIST))

.PHONY: serve
serve: same-python ## Build the server alone, then serve examples/hello.py on http://127.0.0.1:8000
	@$(MAKE) $(STAMPS)/kirsch.$(TEST_PROFILE) PROFILE=$(TEST_PROFILE)
	@echo "Serving examples/hello.py: open http://$(BIND)/, press Ctrl-C to stop."
	@exec $(BIN)/kirsch --chdir examples --bind $(BIND) hello:app

.PHONY: build
build: same-python $(NATIVE:%=$(STAMPS)/%.$(PROFILE)) $(PURE:%=$(STAMPS)/%) ## Install a release build of all distributions into VENV (quick when nothing changed)

# Everything at once: the Rust tests and kirsch-query's have what the build and the Python tests leave of the processors.
# What they print is shown when they have ended.
.PHONY: test
test: same-python ## Build, and run the server's tests but the slow ones, and the quick ones of kirsch-query
	@mkdir -p target; echo "The tests of Rust and of kirsch-query run beside the others: target/test-rust.log, target/test-query.log"
	@nice -n 10 $(MAKE) test-rust >target/test-rust.log 2>&1 & rust=$$!; \
	nice -n 5 $(MAKE) test-query-quick >target/test-query.log 2>&1 & query=$$!; \
	trap 'kill $$rust $$query 2>/dev/null || true' INT TERM; \
	failed=""; $(MAKE) test-python || failed=" test-python"; \
	echo "Waiting for the tests of Rust and of kirsch-query."; \
	if wait $$query; then grep -E '^RERUN| passed' target/test-query.log; else cat target/test-query.log; failed="$$failed test-query-quick"; fi; \
	if wait $$rust; then grep -E '^(test result|test .* FAILED$$|FAILED AT FIRST)' target/test-rust.log; else cat target/test-rust.log; failed="$$failed test-rust"; fi; \
	if [ -n "$$failed" ]; then echo "Failed:$$failed"; exit 1; fi

.PHONY: test-all
test-all: test test-slow test-asan test-free ## Run every test, on this Python and on a free-threaded one

# What takes long and rarely fails alone, with the profile that ships.
SLOW_PARTS := test-slow-python loom test-rust-slow worst-case fuzz-briefly test-bench test-path test-query-slow test-web \
	test-web-cherrypy survey-smoke

.PHONY: test-slow
test-slow: ## Run the slow tests: those marked so, Rust's, loom's models, paths, fuzzing, the other distributions, a survey
	@for part in $(SLOW_PARTS); do $(MAKE) $$part; done

.PHONY: slow-parts
slow-parts:
	@echo $(SLOW_PARTS)

.PHONY: fuzz-briefly
fuzz-briefly:
	@$(MAKE) fuzz FUZZ_REPEATABLE=--repeatable FUZZ_RUNS=10000 FUZZ_ARGS='-verbosity=0 -seed=1'

.PHONY: test-query-slow
test-query-slow:
	QUERY_CASES=100000 QUERY_HISTORIES=1000 timeout 1200 $(MAKE) test-query

.PHONY: test-rust
test-rust: ## Run the quick tests of the Rust crates of the server alone, 200 simulated worlds among them
	cargo test --profile $(TEST_PROFILE) -p wire -p transitions -p scheduler -p engine -p sim --no-fail-fast

.PHONY: test-rust-slow
test-rust-slow: ## Run the other Rust tests: of the gateway, of the load generator, and SLOW_SEEDS simulated worlds
	$(RERUN) cargo test --profile $(TEST_PROFILE) -p load --no-fail-fast
	@$(MAKE) test-gateway
	$(RERUN) $(MAKE) sim SEEDS=$(SLOW_SEEDS)
	$(RERUN) $(MAKE) sim SEEDS=$(SLOW_SEEDS) LOOP=1

# The gateway's tests link the interpreter's libpython. Where there is none, those of files that know no Python run alone.
.PHONY: test-gateway
test-gateway: $(STAMPS)/venv ## Run the Rust tests of the gateway, with the interpreter in VENV
	@if $(BIN)/python .ci/libpython >/dev/null; then \
		$(RERUN) cargo test --profile $(TEST_PROFILE) -p gateway --no-fail-fast; \
	else \
		echo "Not run: the gateway's tests with an interpreter. The others follow."; \
		export PYO3_BUILD_EXTENSION_MODULE=1 CARGO_TARGET_DIR=target/no-libpython; \
		$(RERUN) cargo test --profile $(TEST_PROFILE) -p gateway --test without_python --no-fail-fast; \
	fi

# Everything is built anew for it, in a place of its own: otherwise each would throw away what the other has built.
.PHONY: loom
loom: ## Try the orders in which threads can share the engine; LOOM_MAX_PREEMPTIONS=3 tries more
	RUSTFLAGS='--cfg loom' CARGO_TARGET_DIR=target/loom CARGO_PROFILE_TEST_DEBUG=0 $(RERUN) cargo test -p scheduler --lib model::

.PHONY: sim
sim: ## Simulate the engine's world: SEEDS=5000 of them, or SEED=7 alone and traced; SOCKETS=1 over real sockets, LOOP=1 in an event loop
	@cargo run --quiet --profile $(TEST_PROFILE) --package sim -- $(if $(SOCKETS),--sockets) $(if $(LOOP),--loop) $(if $(SEED),$(SEED),1..$(or $(SEEDS),200))

# Nothing of the system is installed for these, and few packages: tests/real, which is slow, imports many more.
.PHONY: test-python
test-python: ## Run the server's Python tests alone, but the slow ones
	@$(MAKE) --jobs=4 ready-to-test PROFILE=$(TEST_PROFILE)
	$(BIN)/python -m pytest -m 'not slow' --ignore=tests/real $(PYTEST_ARGS) $(PYTEST_RERUNS) $(PYTEST_TESTS)

.PHONY: ready-to-test
ready-to-test: build $(STAMPS)/test

.PHONY: test-slow-python
test-slow-python: build $(STAMPS)/test $(STAMPS)/test-slow test-system ## Run the server's slow Python tests alone
	bash tests/system_packages.sh chromium:chromium  # 290 MB, which only these need
	SHARED="$(abspath $(SHARED))" $(BIN)/python -m pytest -m slow $(PYTEST_SLOW_ARGS) $(PYTEST_RERUNS) tests
	@[ -f $(SHARED)/corpus/run_corpus.py ] || echo "Not run: the shared corpus, which is not at $(SHARED)/corpus."

# About 1,700 misbehaviours under the four drivers; the slow tests try one driver a day.
.PHONY: test-matrix
test-matrix: build $(STAMPS)/test ## Have applications misbehave in every way under every driver
	MATRIX_DRIVER=all $(BIN)/python -m pytest $(PYTEST_SLOW_ARGS) $(PYTEST_RERUNS) tests/test_matrix.py

# The servers are installed into an environment of their own. Results are kept in target/robustness; remove it to begin anew.
.PHONY: robustness
robustness: build $(STAMPS)/test ## Measure misbehaving applications under Kirsch and other servers, for docs/robustness.md
	[ -x .venvs/matrix-peers/bin/python ] || $(BIN)/python -m venv .venvs/matrix-peers
	.venvs/matrix-peers/bin/python -m pip --quiet --disable-pip-version-check install gunicorn packaging gevent uvicorn httptools uvloop granian
	$(BIN)/python scripts/robustness.py --out target/robustness
	$(BIN)/python scripts/robustness.py --out target/robustness --table docs/robustness.md

.PHONY: test-bench
test-bench: build $(STAMPS)/test test-system ## Run kirsch-bench's tests
	$(BIN)/python -m pytest $(PYTEST_SLOW_ARGS) $(PYTEST_RERUNS) packages/kirsch-bench/tests

.PHONY: test-path
test-path: build $(STAMPS)/test ## Run the tests that look at paths in a clone with a space, an é and "kirsch" in its path
	$(RERUN) .ci/test-path $(VENV)

# kirsch-query is pure Python and has an environment of its own: it needs databases and no engine. QUERY_CASES random
# queries are tried on each of them. The servers are Debian's, started and ended by the tests.
QUERY := packages/kirsch-query
QUERY_VENV ?= .venvs/query

.PHONY: test-query-quick
test-query-quick: ## Compare 2,000 random queries of kirsch-query with Python on each database
	$(MAKE) test-query QUERY_ARGS=tests/test_agreement.py

# What takes minutes: the same with 100,000 random queries and 10,000 random histories on each database.
.PHONY: test-query-all
# About ten minutes on two cores at rest.
test-query-all: ## Run kirsch-query's tests with 100,000 random queries and 10,000 histories on each database
	QUERY_CASES=100000 QUERY_HISTORIES=10000 $(MAKE) test-query QUERY_ARGS="$(QUERY_ARGS)"

.PHONY: test-query
test-query: $(QUERY_VENV)/.stamps/test ## Run kirsch-query's tests on SQLite, PostgreSQL and MariaDB; QUERY_CASES=20000 tries more
	bash $(QUERY)/tests/install_databases.sh
	cd $(QUERY) && "$(abspath $(QUERY_VENV))/bin/python" -m pytest $(QUERY_ARGS) $(PYTEST_RERUNS)

$(QUERY_VENV)/.stamps/test: $(QUERY)/pyproject.toml
	@[ -n "$(PYTHON)" ] || { echo "No CPython >= 3.10 with the module venv found: install one, or choose with PYTHON=."; exit 1; }
	[ -x $(QUERY_VENV)/bin/python ] || $(PYTHON) -m venv $(QUERY_VENV)
	$(QUERY_VENV)/bin/python -m pip --quiet --disable-pip-version-check install 'pip>=25.1'
	cd $(QUERY) && "$(abspath $(QUERY_VENV))/bin/python" -m pip --quiet --disable-pip-version-check install --group test --editable .
	@mkdir -p $(@D) && touch $@

.PHONY: test-query-pythons
test-query-pythons: ## Run kirsch-query's tests on every CPython >= 3.10 and PyPy >= 3.10 that is found
	@failed=""; found="$$(.ci/pythons)"; \
	pypy="$$(command -v pypy3 || true)"; \
	if [ -n "$$pypy" ] && "$$pypy" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then \
		found="$$found"$$'\n'"pypy $$pypy"; \
	else \
		echo "Not tested: PyPy 3.10 or newer is not on PATH$${pypy:+ ($$("$$pypy" -c 'import platform; print("PyPy", platform.python_version())') is)}."; \
	fi; \
	while read -r version python; do \
		echo "== Python $$version ($$python)"; \
		$(MAKE) test-query QUERY_VENV=.venvs/query-$$version PYTHON="$$python" </dev/null || failed="$$failed $$version"; \
	done <<<"$$found"; \
	for version in 3.10 3.11 3.12 3.13 3.14 3.15; do \
		grep -q "^$$version " <<<"$$found" || echo "Not tested: CPython $$version is not on PATH and not in pyenv."; \
	done; \
	if [ -n "$$failed" ]; then echo "Failed on:$$failed"; exit 1; fi

# Pony, Peewee and Django in an environment of their own.
.PHONY: bench-query
bench-query: ## Measure kirsch-query beside SQLAlchemy, Pony, Peewee and Django's ORM
	@[ -x .venvs/query-bench/bin/python ] || $(PYTHON) -m venv .venvs/query-bench
	.venvs/query-bench/bin/python -m pip --quiet --disable-pip-version-check install -r $(QUERY)/bench/rivals.txt -e $(QUERY)
	.venvs/query-bench/bin/python $(QUERY)/bench/compare.py

.PHONY: bench-query-plans
bench-query-plans: $(QUERY_VENV)/.stamps/test ## Measure queries of kirsch-query on large tables beside SQL by hand
	bash $(QUERY)/tests/install_databases.sh
	"$(abspath $(QUERY_VENV))/bin/python" $(QUERY)/bench/plans.py

# kirsch-web and kirsch-cherrypy are pure Python too, with an environment of their own. WEB_TREES random trees are
# compared with the rules.
WEB := packages/kirsch-web
WEB_CHERRYPY := packages/kirsch-cherrypy
WEB_VENV ?= .venvs/web

.PHONY: test-web
test-web: $(WEB_VENV)/.stamps/test ## Run the tests of kirsch-web and kirsch-cherrypy; WEB_TREES=N compares N random trees, 1,000 else
	cd $(WEB) && "$(abspath $(WEB_VENV))/bin/python" -m pytest $(WEB_ARGS) $(PYTEST_RERUNS)
	cd $(WEB_CHERRYPY) && "$(abspath $(WEB_VENV))/bin/python" -m pytest $(PYTEST_RERUNS)

# About ten minutes of one processor; WEB_SEED=N repeats a run.
.PHONY: test-web-trees
test-web-trees: $(WEB_VENV)/.stamps/test ## Compare 100,000 random trees of kirsch-web with the rules
	cd $(WEB) && WEB_TREES=100000 "$(abspath $(WEB_VENV))/bin/python" -m pytest tests/test_tree_rules.py

# About three minutes of one processor; WEB_SEED=N repeats a run.
.PHONY: test-web-requests
test-web-requests: $(WEB_VENV)/.stamps/test ## Send 200,000 random hostile requests to kirsch-web, by WSGI and by ASGI
	cd $(WEB) && WEB_REQUESTS=100000 "$(abspath $(WEB_VENV))/bin/python" -m pytest tests/test_random_requests.py

.PHONY: test-web-pypy
test-web-pypy: ## Run kirsch-web's tests on a PyPy >= 3.10, in .venvs/web-pypy
	@for python in pypy3.11 pypy3.10 pypy3; do \
		python="$$(command -v $$python)" || continue; \
		if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then \
			[ -x .venvs/web-pypy/bin/python ] || "$$python" -m venv .venvs/web-pypy; \
			exec $(MAKE) test-web WEB_VENV=.venvs/web-pypy; \
		fi; \
		echo "$$python is $$("$$python" -c 'import platform; print(platform.python_version())'), and 3.10 is the oldest."; \
	done; \
	echo "Not tested: no PyPy >= 3.10 is on PATH. To get one: pyenv install pypy3.11"; exit 1

$(WEB_VENV)/.stamps/test: $(WEB)/pyproject.toml $(WEB_CHERRYPY)/pyproject.toml
	@[ -n "$(PYTHON)" ] || { echo "No CPython >= 3.10 with the module venv found: install one, or choose with PYTHON=."; exit 1; }
	[ -x $(WEB_VENV)/bin/python ] || $(PYTHON) -m venv $(WEB_VENV)
	$(WEB_VENV)/bin/python -m pip --quiet --disable-pip-version-check install 'pip>=25.1'
	cd $(WEB) && "$(abspath $(WEB_VENV))/bin/python" -m pip --quiet --disable-pip-version-check install --group test --editable . --editable ../kirsch-cherrypy
	@mkdir -p $(@D) && touch $@

# CherryPy's own tests, from its distribution, against the layer that runs its programs; cherrypy_expected.txt beside the
# script has the outcome of each. CHERRYPY_ARGS='core tools' runs some modules.
WEB_CHERRYPY_VENV ?= .venvs/web-cherrypy

.PHONY: test-web-cherrypy
test-web-cherrypy: $(WEB_CHERRYPY_VENV)/.stamps/test ## Run CherryPy's own tests against kirsch-cherrypy
	$(RERUN) $(WEB_CHERRYPY_VENV)/bin/python $(WEB_CHERRYPY)/tests/cherrypy_suite.py $(CHERRYPY_ARGS)

$(WEB_CHERRYPY_VENV)/.stamps/test: $(WEB)/pyproject.toml $(WEB_CHERRYPY)/pyproject.toml
	@[ -n "$(PYTHON)" ] || { echo "No CPython >= 3.10 with the module venv found: install one, or choose with PYTHON=."; exit 1; }
	[ -x $(WEB_CHERRYPY_VENV)/bin/python ] || $(PYTHON) -m venv $(WEB_CHERRYPY_VENV)
	$(WEB_CHERRYPY_VENV)/bin/python -m pip --quiet --disable-pip-version-check install 'pip>=25.1'
	cd $(WEB_CHERRYPY) && "$(abspath $(WEB_CHERRYPY_VENV))/bin/python" -m pip --quiet --disable-pip-version-check install --group cherrypy --editable ../kirsch-web --editable .
	@mkdir -p $(@D) && touch $@

# The tests of Starlette and FastAPI, from their source distributions, with a server and a socket between TestClient and
# the application. asgi_suites/expected.txt has the tests that cannot pass over a wire. SUITE=fastapi runs one of them.
SUITES_VENV ?= .venvs/asgi-suites
SUITE ?=

.PHONY: test-asgi-suites
test-asgi-suites: build $(SUITES_VENV)/.stamps/test ## Run the tests of Starlette and FastAPI against Kirsch over a socket; SUITE=fastapi runs one
	$(SUITES_VENV)/bin/python -m pip --quiet --disable-pip-version-check install --force-reinstall --no-deps $(WHEELS)/kirsch/*.whl
	$(SUITES_VENV)/bin/python tests/asgi_suites/run.py $(SUITE) $(SUITE_ARGS)

$(SUITES_VENV)/.stamps/test: tests/asgi_suites/requirements.txt
	[ -x $(SUITES_VENV)/bin/python ] || $(BIN)/python -m venv $(SUITES_VENV)
	$(SUITES_VENV)/bin/python -m pip --quiet --disable-pip-version-check install 'pip>=25.1' -r $<
	@mkdir -p $(@D) && touch $@

# The programs that some tests drive (git, litmus, ...); says what it could not install.
.PHONY: test-system
test-system:
	bash tests/system_packages.sh

.PHONY: test-pythons
test-pythons: ## Run the Python tests, slow ones too, on every CPython >= 3.10 that is found, each in .venvs/X.Y
	@failed=""; found="$$(.ci/pythons)"; \
	while read -r version python; do \
		echo "== CPython $$version ($$python)"; \
		$(MAKE) test-python TEST_PROFILE=$(PROFILE) VENV=.venvs/$$version PYTHON="$$python" </dev/null || failed="$$failed $$version"; \
		$(MAKE) test-slow-python VENV=.venvs/$$version PYTHON="$$python" </dev/null || failed="$$failed $$version"; \
		$(MAKE) test-bench VENV=.venvs/$$version PYTHON="$$python" </dev/null || failed="$$failed $$version"; \
		$(MAKE) test-query QUERY_VENV=.venvs/query-$$version PYTHON="$$python" </dev/null || failed="$$failed $$version"; \
		$(MAKE) test-web WEB_VENV=.venvs/web-$$version PYTHON="$$python" </dev/null || failed="$$failed $$version"; \
	done <<<"$$found"; \
	for version in 3.10 3.11 3.12 3.13 3.14 3.14t 3.15 3.15t; do \
		grep -q "^$$version " <<<"$$found" || echo "Not tested: CPython $$version is not on PATH and not in pyenv."; \
	done; \
	if [ -n "$$failed" ]; then echo "Failed on:$$failed"; exit 1; fi

# The newest free-threaded CPython that is found, or else one that is built from source (seven minutes of processor time).
.PHONY: test-free
test-free: ## Run the Python tests on a free-threaded CPython, in .venvs/X.Yt; without one, build it in target/python-free
	@PATH="$$PWD/target/python-free/bin:$$PATH"; \
	if ! .ci/pythons | grep -q 't '; then VERSIONS=3.14 scripts/free_threaded_python.sh target/python-free; fi; \
	read -r version python <<<"$$(.ci/pythons | grep 't ' | tail -n 1)"; \
	echo "== CPython $$version ($$python)"; \
	$(MAKE) test-python VENV=.venvs/$$version PYTHON="$$python"

.PHONY: test-asan
test-asan: same-python ## Run quick tests against a server that is built with AddressSanitizer, in .venvs/asan
	scripts/test_asan.sh $(abspath $(BIN))/python

.PHONY: check
check: check-rust check-pythons check-python check-module check-docs ## Check formats, lints, types, the stub against the module, generated docs, phrases in comments, and the structure

.PHONY: check-rust
check-rust: $(STAMPS)/venv
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings

# PyO3 is told what such an interpreter would say, so none is needed. Everything is built anew for it, in a place of its
# own, once.
.PHONY: check-pythons
check-pythons: ## Lint the native modules as for the oldest CPython and a free-threaded one, which need not be there
	@for python in 3.10 3.14t; do \
		echo "== the native modules for CPython $$python"; \
		PYO3_CONFIG_FILE="$(abspath .ci)/python-$$python.pyo3" CARGO_TARGET_DIR=target/check-$$python \
			cargo clippy -p gateway -p load-py --locked -- -D warnings; \
	done

.PHONY: check-python
check-python: $(STAMPS)/check
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	MYPYPATH=packages/kirsch-query/tests $(BIN)/mypy packages/kirsch-query/tests/*.py
	MYPYPATH=packages/kirsch-web/tests $(BIN)/mypy packages/kirsch-web/tests/*.py
	MYPYPATH=packages/kirsch-cherrypy/tests $(BIN)/mypy packages/kirsch-cherrypy/tests/*.py

.PHONY: check-module
check-module: build $(STAMPS)/check
	$(BIN)/python -m mypy.stubtest kirsch._native kirsch_bench._native

.PHONY: check-docs
check-docs: $(STAMPS)/venv
	$(BIN)/python scripts/settings_page.py --check
	$(BIN)/python scripts/links.py
	$(BIN)/python scripts/prose.py
	$(BIN)/python scripts/structure.py

.PHONY: fix
fix: $(STAMPS)/check ## Apply the formatters and the lints' safe fixes
	cargo fmt --all
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

.PHONY: docs
docs: $(STAMPS)/venv ## Write the generated parts of the docs anew
	$(BIN)/python scripts/settings_page.py

# All that the README's figures take is here, but for wrk and the other servers.
.PHONY: bench
bench: build ## Measure processor time per request against the bare loop, and against the servers in PEERS
	@bash tests/system_packages.sh wrk:wrk
	@[ -n "$(PEERS)" ] || echo "No peers: 'make bench-peers' installs them, or PEERS= names an environment that has them."
	$(BIN)/python scripts/yardstick/yardstick.py --scenario $(SCENARIO) \
		--server 'kirsch=$(abspath $(BIN))/kirsch {app} --bind 127.0.0.1:{port}' \
		--server 'kirsch-1=$(abspath $(BIN))/kirsch {app} --bind 127.0.0.1:{port} --threads 1' \
		$(if $(PEERS),--peers $(abspath $(PEERS)) --only $(RIVALS)) $(BENCH_ARGS)

# One by one: a server that does not build must not keep the others away.
.PHONY: bench-peers
bench-peers: $(STAMPS)/venv ## Install the servers to compare with into .venvs/peers (bjoern needs libev-dev, uwsgi a C compiler)
	@[ -d .venvs/peers ] || $(PYTHON) -m venv .venvs/peers
	@missing=""; while read -r package; do \
		case "$$package" in ''|'#'*) continue;; esac; \
		echo "== $$package"; \
		.venvs/peers/bin/python -m pip --quiet --disable-pip-version-check install "$$package" || missing="$$missing $$package"; \
	done <scripts/yardstick/peers.txt; \
	if [ -n "$$missing" ]; then echo "Not installed:$$missing. RIVALS= chooses among the others."; exit 1; fi

# Three servers, installed from the package index into a cache of their own: SURVEY_ARGS='--venvs DIR' puts it elsewhere.
.PHONY: survey-smoke
survey-smoke: build ## Survey three servers for a few seconds, so that the whole of `kirsch survey` has run once
	@rm -rf target/survey-smoke
	$(RERUN) timeout 170 $(BIN)/kirsch survey survey/smoke.toml --out target/survey-smoke $(SURVEY_ARGS)

# About 40 minutes, on a machine that has nothing else to do, and 15 more at first, to install the servers. What was
# measured is not measured again; FOUNDING=picows chooses. The raw data stay in target/survey; docs/survey gets the
# reports that people read.
.PHONY: survey-founding
survey-founding: build ## Measure the founding documents' tables again, with servers of today, into docs/survey
	@bash survey/founding/packages.sh
	@failed=""; for name in $(FOUNDING); do \
		echo "== $$name"; \
		$(BIN)/kirsch survey survey/founding/$$name.toml --out target/survey/$$name $(SURVEY_ARGS) || failed="$$failed $$name"; \
		mkdir -p docs/survey/$$name; \
		cp target/survey/$$name/survey.txt target/survey/$$name/survey.html docs/survey/$$name || failed="$$failed $$name"; \
	done; \
	if [ -n "$$failed" ]; then echo "Not all went well in:$$failed"; exit 1; fi

# SURVEY_ARGS='--rounds 1 --seconds 0.3' shows that each row works.
.PHONY: survey-gateways
survey-gateways: build ## Measure web servers in front of application servers, an hour, into docs/survey
	@bash survey/founding/packages.sh apache2 apache2-dev nginx-light lighttpd caddy haproxy php-fpm libapache2-mod-php \
		python3-dev python3-venv build-essential
	@failed=""; for name in gateways-fronts gateways-children; do \
		echo "== $$name"; \
		$(BIN)/kirsch survey survey/gateways/$$name.toml --out target/survey/$$name $(SURVEY_ARGS) || failed="$$failed $$name"; \
		mkdir -p docs/survey/$$name; \
		cp target/survey/$$name/survey.txt target/survey/$$name/survey.html docs/survey/$$name || failed="$$failed $$name"; \
	done; \
	if [ -n "$$failed" ]; then echo "Not all went well in:$$failed"; exit 1; fi

# Twelve frameworks, 12 pages, SQLite and a PostgreSQL of its own: about an hour. One environment has Kirsch and the WSGI
# frameworks; those on uvicorn get theirs from the survey. SURVEY_ARGS='--rounds 1 --seconds 0.5' shows that it works.
.PHONY: survey-frameworks
survey-frameworks: build ## Measure whole frameworks beside the bare server, with databases, into docs/survey/frameworks
	@bash packages/kirsch-query/tests/install_databases.sh
	@[ -x .venvs/frameworks/bin/python ] || $(BIN)/python -m venv .venvs/frameworks
	.venvs/frameworks/bin/python -m pip --quiet --disable-pip-version-check install --force-reinstall --no-deps \
		$(WHEELS)/kirsch/*.whl $(WHEELS)/kirsch-bench/*.whl --editable packages/kirsch-web \
		--editable packages/kirsch-cherrypy
	.venvs/frameworks/bin/python -m pip --quiet --disable-pip-version-check install -r survey/frameworks/packages.txt
	.venvs/frameworks/bin/python survey/frameworks/run.py --check
	.venvs/frameworks/bin/python survey/frameworks/run.py --out target/survey/frameworks $(SURVEY_ARGS)
	@mkdir -p docs/survey/frameworks
	cp target/survey/frameworks/survey.txt target/survey/frameworks/survey.html docs/survey/frameworks

.PHONY: instructions
instructions: build ## Count the instructions of a request under callgrind, which noise does not change
	$(BIN)/python scripts/instructions.py

# libFuzzer, which the crate libfuzzer-sys brings, with the instrumentation that rustc has in LLVM: any stable compiler
# will do, and a C++ compiler. There is no sanitizer: it would be many times slower, and what is fuzzed has no unsafe code.
FUZZ_FLAGS := --cfg fuzzing -Ccodegen-units=1 -Cpasses=sancov-module $(addprefix -Cllvm-args=-sanitizer-coverage-,\
	level=4 inline-8bit-counters pc-table trace-compares)
FUZZ_HOST = $(shell rustc -vV | sed -n 's/^host: //p')
FUZZ_TARGETS ?= $(basename $(notdir $(wildcard fuzz/fuzz_targets/*.rs)))

.PHONY: fuzz
fuzz: ## Fuzz each target for FUZZ_SECONDS, from the seeds in tests/corpus; what breaks one stays in fuzz/artifacts
	@bash tests/system_packages.sh c++:g++
	cd fuzz && RUSTFLAGS="$(FUZZ_FLAGS)" cargo build --release --target $(FUZZ_HOST) $(addprefix --bin ,$(FUZZ_TARGETS))
	@scripts/fuzz.sh $(FUZZ_REPEATABLE) target/$(FUZZ_HOST)/release '$(FUZZ_TARGETS)' $(FUZZ_ARGS) \
		$(if $(FUZZ_RUNS),-runs=$(FUZZ_RUNS),-max_total_time=$(FUZZ_SECONDS))

# A program that counts its basic blocks holds the ceilings, with the same kind of compiler flags as above. Built without
# them it prints nanoseconds, which depend on the machine.
STEPS_FLAGS := --cfg steps -Ccodegen-units=1 -Cpasses=sancov-module $(addprefix -Cllvm-args=-sanitizer-coverage-,\
	level=3 trace-pc-guard)
SECONDS ?= 60

.PHONY: worst-case
worst-case: ## Hold the ceilings of SECURITY.md against the worst clients known, and search for worse ones for SECONDS
	cd fuzz && RUSTFLAGS="$(STEPS_FLAGS)" cargo build --release --target $(FUZZ_HOST) --target-dir target/steps --bin worst_case
	fuzz/target/steps/$(FUZZ_HOST)/release/worst_case $(SECONDS) $(SEED)

.PHONY: worst-case-times
worst-case-times: ## Print the nanoseconds of processor time that the worst clients known take
	cd fuzz && cargo build --release --target $(FUZZ_HOST) --target-dir target/nanoseconds --bin worst_case
	fuzz/target/nanoseconds/$(FUZZ_HOST)/release/worst_case 0

# Echoes by crates/wire alone. AUTOBAHN_CASES=quick leaves out those that take long; or patterns, such as '12.1.*'.
.PHONY: autobahn
autobahn: same-python $(STAMPS)/kirsch.$(PROFILE) ## Run the Autobahn test suite (517 cases, Python 2.7) against the server with an ASGI application
	$(PYTHON) scripts/autobahn.py --server $(BIN)/kirsch \
		--venv .venvs/autobahn --cases $(or $(AUTOBAHN_CASES),all) $(AUTOBAHN_ARGS)

.PHONY: autobahn-wire
autobahn-wire: ## The same against the WebSocket of crates/wire alone
	cargo build --release -p wire --example websocket_echo
	$(PYTHON) scripts/autobahn.py --echo target/release/examples/websocket_echo \
		--venv .venvs/autobahn --cases $(or $(AUTOBAHN_CASES),all) $(AUTOBAHN_ARGS)

.PHONY: miri
miri: ## Run wire's tests under Miri, which sees undefined behaviour
	@cargo $(NIGHTLY) miri --version >/dev/null 2>&1 || { \
		echo "Miri is missing. To install it: rustup component add miri --toolchain nightly"; exit 1; }
	MIRIFLAGS=-Zmiri-disable-isolation cargo $(NIGHTLY) miri test -p wire

.PHONY: clean
clean: ## Remove everything that these commands made
	rm -rf target fuzz/target dist .venvs .mypy_cache .ruff_cache .pytest_cache
	@# Only an environment that was made here: VENV may name anything.
	@if [ -d $(STAMPS) ]; then rm -rf $(VENV); fi
	find crates packages tests examples -name __pycache__ -prune -exec rm -rf {} +

# An environment keeps the interpreter that it was made with; a different one asked for must not be ignored in silence.
.PHONY: same-python
same-python: $(STAMPS)/venv
ifneq ($(PYTHON_GIVEN),)
	@version='import sys; print(sys.version)'; \
	if [ -z "$(PYTHON)" ] || [ "$$("$(PYTHON)" -c "$$version")" != "$$($(BIN)/python -c "$$version")" ]; then \
		echo "$(VENV) holds another Python than $(PYTHON_GIVEN): choose another place with VENV=, or 'make clean' first."; \
		exit 1; \
	fi
endif

$(STAMPS)/venv:
	@[ -n "$(PYTHON)" ] || { echo "No CPython >= 3.10 with the module venv found$(PYTHON_GIVEN:%= as %): install one, or choose with PYTHON=."; exit 1; }
	@command -v cargo >/dev/null || { echo "No cargo found: install Rust, e.g. from https://rustup.rs."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@mkdir -p $(@D)
	$(PIP) install 'pip>=25.1'
	@touch $@

$(STAMPS)/build $(STAMPS)/check $(STAMPS)/test: $(STAMPS)/%: pyproject.toml $(STAMPS)/venv
	$(PIP) install --group $*
	@touch $@

# Behind maturin, because to compile takes longer than to install these.
$(STAMPS)/test: | $(STAMPS)/build

$(STAMPS)/test-slow: tests/requirements.txt $(STAMPS)/venv
	$(PIP) install -r tests/requirements.txt
	@touch $@

# $(call build-wheel,FOLDER): build the distribution of that folder, whose wheel stays beside the stamp of this rule.
define build-wheel
@rm -rf $(@D)
cd $(1) && "$(abspath $(BIN))/maturin" build --quiet --profile $(PROFILE) --interpreter "$(abspath $(BIN))/python" \
	--compatibility linux --out "$(abspath $(@D))"
@touch $@
endef

$(WHEELS)/kirsch/.built: $(call sources,crates/wire crates/engine crates/scheduler crates/gateway packages/kirsch) $(STAMPS)/build
	$(call build-wheel,packages/kirsch)

# Behind the other, which has compiled most of it.
$(WHEELS)/kirsch-bench/.built: $(call sources,crates/wire crates/engine crates/load crates/load-py \
		packages/kirsch-bench/pyproject.toml packages/kirsch-bench/README.md packages/kirsch-bench/src) $(STAMPS)/build \
		| $(WHEELS)/kirsch/.built
	$(call build-wheel,packages/kirsch-bench)

# The stamp has the name of the profile, because an environment holds the wheel of one. What a wheel depends on is either
# built here or needed by nothing that `make` runs, so no index is asked.
$(NATIVE:%=$(STAMPS)/%.$(PROFILE)): $(STAMPS)/%.$(PROFILE): $(WHEELS)/%/.built
	$(PIP) install --force-reinstall --no-deps $(<D)/*.whl
	@rm -f $(STAMPS)/$*.* && touch $@

# It needs the other, and no index is asked.
$(STAMPS)/kirsch-cherrypy: $(STAMPS)/kirsch-web

$(PURE:%=$(STAMPS)/%): $(STAMPS)/%: packages/%/pyproject.toml | $(STAMPS)/build
	$(PIP) install --editable packages/$*
	@touch $@
