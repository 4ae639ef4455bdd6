# Kirsch: every command, for people and for CI alike. `make help` lists the usual ones, `make help-all` all of them.
#
#   PYTHON=python3.12   the interpreter to build for (else CPython 3.13, or the newest one >= 3.10)
#   VENV=.venv          where the build and the tools are installed
#   PROFILE=release     cargo's profile for the engine; `profiling` adds line tables
#   TEST_PROFILE=testing the one of `make serve` and `make test`: quick to compile, with assertions
#   BIND=127.0.0.1:8000 where `make serve` listens
#   PYTEST_ARGS=...     e.g. PYTEST_ARGS='-k chunked -x'; PYTEST_SLOW_ARGS for the slow tests
#   PYTEST_SHARE=1/3    which share of the tests runs, by a hash of the functions' names: 0/3, 1/3 or 2/3, for example
#   PYTEST_RERUNS=...   how often pytest runs a failed test again (never, except in CI)
#   RERUN=.ci/rerun     before commands that test without pytest: runs each once more if it fails (empty, except in CI)
#   FUZZ_SECONDS=60     for each target; FUZZ_RUNS=10000000 bounds cases instead; FUZZ_TARGETS='a b' chooses
#   FUZZ_ARGS=          further arguments of libFuzzer, as -help=1 lists them
#   SLOW_SEEDS=1000     how many simulated worlds of each kind the slow tests run
#   PEERS=.venvs/peers  a virtual environment with the servers to compare with; SCENARIO=ka,chrome,... RIVALS=...
#   SURVEY_ARGS=        further arguments of kirsch survey; FOUNDING= chooses among survey/founding
#   PLATFORMS=          which wheels `make wheels` builds, e.g. 'musllinux-aarch64'; WHEEL_PYTHONS='3.13 3.14t'
#   ROOTS=trixie-amd64  in which Debian roots `make test-wheels` installs; TESTS='tests/test_http.py' runs these there
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
FUZZ_TARGETS ?= $(basename $(notdir $(wildcard fuzz/fuzz_targets/*.rs)))
RIVALS ?= bjoern,fastpysgi,granian
PEERS ?= $(if $(wildcard .venvs/peers/bin/python),.venvs/peers)
FOUNDING ?= $(sort $(basename $(notdir $(wildcard survey/founding/*.toml))))
SCENARIO ?= ka,chrome,mixed,pipe16,close,post8k,large,stream
NIGHTLY ?= +nightly
# Most tests wait for a socket or a process. The slow ones watch the clock, so fewer of them run at a time.
PYTEST_ARGS ?= -n 4
PYTEST_TESTS ?= tests
QUICK ?= not slow and not costly
PYTEST_SLOW_ARGS ?= -n 2
export PYTEST_SHARE
SLOW_SEEDS ?= 1000
SECONDS ?= 60
include scripts/environments.mk
pytest = "$(abspath $(1))/bin/python" -m pytest $(PYTEST_RERUNS)
cargo-test = $(RERUN) cargo test --profile $(TEST_PROFILE) --no-fail-fast

# No target with such a name is a file.
.PHONY: $(shell sed -n 's/^\([a-z][a-z-]*\):.*/\1/p' $(MAKEFILE_LIST))
help: ## List the usual commands (this is also what a bare `make` does)
	@scripts/help.sh help serve build test test-rust test-python test-slow check fix docs
	@echo "  'make help-all' lists all commands and their variables."
help-all: ## List all commands and variables
	@scripts/help.sh

##@ Build and serve
serve: same-python ## Build the server alone, then serve examples/hello.py on http://127.0.0.1:8000
	@$(MAKE) $(STAMPS)/kirsch.$(TEST_PROFILE) PROFILE=$(TEST_PROFILE)
	@echo "Serving examples/hello.py: open http://$(BIND)/, press Ctrl-C to stop."
	@exec $(BIN)/kirsch --chdir examples --bind $(BIND) hello:app
build: same-python $(NATIVE:%=$(STAMPS)/%.$(PROFILE)) $(PURE:%=$(STAMPS)/%) ## Install a release build of all distributions into VENV (quick when nothing changed)
clean: ## Remove everything that these commands made
	rm -rf target fuzz/target prototypes/http3/target dist .venvs .mypy_cache .ruff_cache .pytest_cache
	@# Only an environment that was made here: VENV may name anything.
	@if [ -d $(STAMPS) ]; then rm -rf $(VENV); fi
	find crates packages tests examples -name __pycache__ -prune -exec rm -rf {} +

##@ Check
check: check-rust check-pythons check-python check-module check-docs ## Check formats, lints, types, the stub against the module, generated docs, comments, and the structure
check-rust: $(STAMPS)/venv
	cargo fmt --all --check
	for other in fuzz prototypes/http3; do (cd $$other && cargo fmt --check && cargo tree --locked >/dev/null); done
	cargo clippy --workspace --all-targets --locked -- -D warnings

# PyO3 reads what such an interpreter would say from a file, so none is needed. Everything is built anew for it, in a
# place of its own, once; for PyPy what is not about Python is taken from another's place. With ring, because the other
# commands compile AWS-LC, whose C takes a minute.
check-pythons: check-python-pypy3.11 check-python-3.10 check-python-3.14t ## Lint the native modules as for PyPy, the oldest CPython and a free-threaded one
check-python-pypy3.%: CHECKED = target/check-3.10
CHECKED = target/$(@:check-python-%=check-%)
check-python-3.% check-python-pypy3.%:
	PYO3_CONFIG_FILE="$(abspath .ci)/$(@:check-%=%).pyo3" CARGO_TARGET_DIR=$(CHECKED) \
		cargo clippy -p gateway -p load-py --no-default-features --features gateway/ring,load-py/ring --locked -- -D warnings

check-python: $(STAMPS)/check
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	@for tests in $(PURE:%=packages/%/tests); do MYPYPATH=$$tests $(BIN)/mypy $$tests/*.py; done
	$(BIN)/shellcheck $(shell git ls-files '*.sh') .ci/pythons .ci/rerun .ci/run .ci/test-path
check-module: build $(STAMPS)/check
	$(BIN)/python -m mypy.stubtest kirsch._native kirsch_bench._native
check-docs: $(STAMPS)/venv
	$(BIN)/python scripts/settings_page.py --check
	$(BIN)/python scripts/links.py
	$(BIN)/python scripts/prose.py
	$(BIN)/python scripts/structure.py
fix: $(STAMPS)/check ## Apply the formatters and the lints' safe fixes
	cargo fmt --all && (cd fuzz && cargo fmt) && cd prototypes/http3 && cargo fmt
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .
docs: $(STAMPS)/venv ## Write the generated parts of the docs anew
	$(BIN)/python scripts/settings_page.py
	WRITE_TRANSITIONS=1 cargo test --quiet --profile $(TEST_PROFILE) -p scheduler table_of_transitions
docs-site: $(DOCS_VENV)/.stamps/docs ## Build the documentation site, which needs no network, into target/docs-site/html
	PYTHONPATH=scripts $(DOCS_VENV)/bin/python -m docs_site target/docs-site
test-docs: docs-site ## Look at the documentation site in a browser: every page at two widths, its search, its form
	tests/system_packages.sh chromium:chromium
	PYTHONPATH=packages/kirsch/src $(DOCS_VENV)/bin/python -m pytest --confcutdir=tests/docs_site tests/docs_site

##@ Test
test: same-python ## Build, and run the server's tests except the slow ones, and the quick ones of kirsch-query
	@scripts/test.sh
test-all: test test-slow test-turns ## Run every test, on this Python, a free-threaded one, and OTHER_PYTHONS

# These take long and rarely fail alone. They run with the profile that ships. CI runs the first ones for each commit,
# and one third of the others, chosen by its hash, with a third of the slow Python tests (PYTEST_SHARE).
SLOW_ALWAYS := sim-slow worst-case
SLOW_THIRDS := test-bench test-web+survey-smoke test-rust-slow
SLOW_PARTS := test-slow-python $(SLOW_ALWAYS) $(subst +, ,$(SLOW_THIRDS))
# These take long and hardly ever fail: CI runs one group for each commit, chosen by its hash. The members of a group are
# joined by a plus sign; the groups take about as long as each other. OTHER_PYTHONS are those on which nothing else runs
# the tests.
OTHER_PYTHONS := 3.10 3.14 3.15 pypy3.11
TURNS := test-asan test-free test-query-slow fuzz-briefly+test-query-oldest+test-acme+test-tls loom+test-path+test-web-cherrypy test-cherrypy-world+test-docs test-wheels+check-macos+h2spec \
	$(OTHER_PYTHONS:%=test-on-%)

test-slow: ## Run the slow tests: those marked so, Rust's, the other distributions', the worst clients known, a survey
	@for part in $(SLOW_PARTS); do $(MAKE) $$part; done
test-turns: ## Run the groups of tests of which CI runs one for each commit: sanitizer, free threads, databases, fuzzing, ...
	@for part in $(subst +, ,$(TURNS)); do $(MAKE) $$part; done
slow-always:
	@echo $(SLOW_ALWAYS)
slow-thirds:
	@echo $(SLOW_THIRDS)
turns:
	@echo $(TURNS)

# Nothing of the system is installed for these, and few packages: tests/real, which is slow, imports many more.
test-python: ## Run the server's Python tests alone, except the slow ones
	@$(MAKE) --jobs=4 ready-to-test PROFILE=$(TEST_PROFILE)
	$(call pytest,$(VENV)) -m '$(QUICK)' --ignore=tests/real $(PYTEST_ARGS) $(PYTEST_TESTS)
ready-to-test: build $(STAMPS)/test
test-system: ## Install the programs that some tests drive (git, litmus, ...), if that is possible
	tests/system_packages.sh
	@[ -x target/nginx/bin/nginx ] || scripts/newer_nginx.sh target/nginx || \
		echo "nginx 1.29.4 cannot be had. Tests with HTTP/2 from nginx to Kirsch will skip."
test-slow-python: build $(STAMPS)/test $(STAMPS)/test-slow test-system ## Run the server's slow Python tests alone
	tests/system_packages.sh chromium:chromium  # 290 MB, which only these need
	SHARED="$(abspath $(SHARED))" $(call pytest,$(VENV)) -m 'slow or costly' $(PYTEST_SLOW_ARGS) tests
	@[ -f $(SHARED)/corpus/run_corpus.py ] || echo "Not run: the shared corpus, which is not at $(SHARED)/corpus."
test-rust: ## Run the quick tests of the Rust crates of the server alone, some simulated worlds among them
	cargo test --profile $(TEST_PROFILE) -p wire -p transitions -p scheduler -p engine -p sim -p tls -p gateway --no-fail-fast
test-rust-slow: ## Run the other Rust tests: of the gateway, ACME, the simulator itself, the load generator
	$(cargo-test) -p load -p acme
	$(cargo-test) -p sim --lib
	@$(MAKE) test-gateway
sim-slow: ## Simulate SLOW_SEEDS worlds of each kind
	$(MAKE) sim SEEDS=$(SLOW_SEEDS)

test-gateway: $(STAMPS)/venv ## Run the Rust tests of the gateway, with the interpreter in VENV
	@scripts/test_gateway.sh $(BIN)/python $(cargo-test)

# Everything is built anew for it, in a place of its own: otherwise each would throw away what the other has built.
loom: ## Try the orders in which threads can share the engine; LOOM_MAX_PREEMPTIONS=3 tries more
	RUSTFLAGS='--cfg loom' CARGO_TARGET_DIR=target/loom CARGO_PROFILE_TEST_DEBUG=0 $(RERUN) cargo test -p scheduler --lib model::
sim: ## Simulate the engine's world: SEEDS=5000 of them, or SEED=7 alone and traced; SOCKETS=1 over real sockets, LOOP=1 in an event loop alone, HTTP2=1 with clients of HTTP/2 alone
	@cargo run --quiet --profile $(TEST_PROFILE) --package sim -- $(if $(SOCKETS),--sockets) $(if $(LOOP),--loop) $(if $(HTTP2),--http2) $(if $(SEED),$(SEED),1..$(or $(SEEDS),200))
test-path: build $(STAMPS)/test ## Run the tests that look at paths in a clone with a space, an é and "kirsch" in its path
	$(RERUN) .ci/test-path $(VENV)
test-matrix: build $(STAMPS)/test ## Have applications misbehave in every way, and fork 100 times, under all drivers; the slow tests try less
	MATRIX_DRIVER=all $(call pytest,$(VENV)) $(PYTEST_SLOW_ARGS) tests/test_matrix.py tests/test_forks.py

# The tests of Starlette and FastAPI, from their source distributions, with a server and a socket between TestClient and
# the application. asgi_suites/expected.txt has the tests that cannot pass over a wire. SUITE=fastapi runs one of them.
test-asgi-suites: build $(SUITES_VENV)/.stamps/test ## Run the tests of Starlette and FastAPI against Kirsch over a socket; SUITE=fastapi runs one
	$(call install,$(SUITES_VENV),--force-reinstall --no-deps $(WHEELS)/kirsch/*.whl,$(BIN)/python)
	$(SUITES_VENV)/bin/python tests/asgi_suites/run.py $(SUITE) $(SUITE_ARGS)

# AUTOBAHN_CASES=quick leaves out those that take long; or patterns, such as '12.1.*'.
AUTOBAHN = $(PYTHON) scripts/autobahn.py --venv .venvs/autobahn --cases $(or $(AUTOBAHN_CASES),all) $(AUTOBAHN_ARGS)
autobahn: same-python $(STAMPS)/kirsch.$(PROFILE) ## Run the Autobahn test suite (517 cases, Python 2.7) against the server with an ASGI application
	$(AUTOBAHN) --server $(BIN)/kirsch
autobahn-wire: ## The same against the WebSocket of crates/wire alone, which echoes
	cargo build --release -p wire --example websocket_echo
	$(AUTOBAHN) --echo target/release/examples/websocket_echo

# The wheels have AWS-LC; ring is for platforms where that does not build.
test-tls: build $(STAMPS)/test ## Scan the server with testssl.sh and sslyze, and run the Rust tests of TLS with ring
	@tests/system_packages.sh testssl:testssl.sh
	@$(call install,.venvs/scanners,'sslyze>=6.3') || echo "sslyze cannot be installed. The test that needs it will skip."
	$(call pytest,$(VENV)) $(PYTEST_SLOW_ARGS) -rs tests/test_tls_scanners.py
	$(cargo-test) -p tls --no-default-features --features ring
	$(cargo-test) -p acme --no-default-features --features ring
	PYO3_PYTHON="$(abspath $(BIN)/python)" cargo check --profile $(TEST_PROFILE) -p gateway --no-default-features --features ring
# DIR is a copy of tlsfuzzer; tests/tls/tlsfuzzer.json has what differs from its expectations, and why.
tlsfuzzer: build ## Run the scripts of the copy of tlsfuzzer in DIR against the server; SCRIPTS=... some of them
	$(call install,.venvs/tlsfuzzer,'tlslite-ng>=0.9.0b2')
	.venvs/tlsfuzzer/bin/python scripts/tlsfuzzer.py --server $(abspath $(BIN))/kirsch $(DIR) $(SCRIPTS)

# Without DIR, a copy of h2spec 2.6.0, the version of Go's module proxy is built, which has one case less.
h2spec: build ## Run h2spec's cases of HTTP/2 against the server, strict ones too, in clear and with TLS; DIR= a copy of it
	$(BIN)/python scripts/h2spec.py --server $(BIN)/kirsch $(if $(DIR),--source $(DIR))
http2-errors: build tls-peers ## Compare the error codes of HTTP/2 of Kirsch, granian and hypercorn with those that the RFCs name
	$(BIN)/python scripts/http2_errors.py --server $(BIN)/kirsch --peers .venvs/tls-peers
# DIR is a copy of github.com/http2jp/hpack-test-case.
hpack-stories: ## Decode and encode the field lists of the copy of hpack-test-case in DIR
	HPACK_STORIES="$(abspath $(DIR))" cargo test --profile $(TEST_PROFILE) -p wire --test wire http2::stories -- --ignored
# Let's Encrypt's authority for tests, by the Go module proxy.
PEBBLE := github.com/letsencrypt/pebble/v2
pebble: target/pebble/bin/pebble ## Install Pebble, an ACME authority for tests (Go), into target/pebble
target/pebble/bin/pebble:
	@command -v go >/dev/null || { echo "Pebble needs Go: apt install golang, or https://go.dev/dl"; exit 1; }
	GOBIN="$(abspath $(@D))" go install $(PEBBLE)/cmd/pebble@v2.10.3
	GOBIN="$(abspath $(@D))" go install $(PEBBLE)/cmd/pebble-challtestsrv@v2.10.3
test-acme: build $(STAMPS)/test ## Obtain certificates from Pebble, which refuses nonces and is slow; skips where Go is not installed
	@if command -v go >/dev/null; then $(MAKE) pebble; else echo "Not run against Pebble: Go is not installed."; fi
	$(call pytest,$(VENV)) $(PYTEST_SLOW_ARGS) -rs tests/test_acme_pebble.py
otel-collector: target/otel-collector/collector ## Build the OpenTelemetry Collector (Go) in target/otel-collector, for a slow test of --otel
target/otel-collector/collector: tests/otel_collector/builder.yaml
	@command -v go >/dev/null || { echo "The collector needs Go: apt install golang, or https://go.dev/dl"; exit 1; }
	cd $(<D) && go run go.opentelemetry.io/collector/cmd/builder@v0.165.0 --config $(<F)

##@ Test with other interpreters and tools
test-everywhere: ## Run the quick tests of all distributions on CPython 3.10 to 3.15, 3.14t, 3.15t and PyPy, and print one table
	@$(PYTHON) scripts/everywhere.py
# On one Python, and in CI: of the server's tests those of `make test`, without the costly ones.
test-on-%:
	@QUICK='$(QUICK)' $(PYTHON) scripts/everywhere.py $*
test-pythons: ## Run the Python tests, slow ones too, on every CPython >= 3.10 that is found, each in .venvs/X.Y
	@QUICK='not slow' TEST_PROFILE=$(PROFILE) scripts/each_python.sh cpython -- test-python test-slow-python test-bench test-query test-web
test-query-pythons: ## Run kirsch-query's tests on every CPython >= 3.10 and PyPy >= 3.10 that is found
	@scripts/each_python.sh cpython pypy -- test-query
test-web-pypy: ## Run kirsch-web's tests on a PyPy >= 3.10, in .venvs/web-pypy
	@scripts/each_python.sh pypy -- test-web
test-free: ## Run the Python tests, costly ones too, on a free-threaded CPython, in .venvs/X.Yt; without one, build it in target/python-free
	@QUICK='not slow' scripts/each_python.sh free -- test-python
test-asan: same-python ## Run quick tests against a server that is built with AddressSanitizer, in .venvs/asan
	scripts/test_asan.sh $(BIN)/python
miri: ## Run wire's tests under Miri, which sees undefined behaviour
	@cargo $(NIGHTLY) miri --version >/dev/null 2>&1 || { \
		echo "Miri is missing. To install it: rustup component add miri --toolchain nightly"; exit 1; }
	MIRIFLAGS=-Zmiri-disable-isolation cargo $(NIGHTLY) miri test -p wire

##@ Fuzz
fuzz: ## Fuzz each target for FUZZ_SECONDS, from the seeds in tests/corpus; what breaks one stays in fuzz/artifacts
	@tests/system_packages.sh c++:g++
	@scripts/fuzz.sh $(FUZZ_REPEATABLE) '$(FUZZ_TARGETS)' $(FUZZ_ARGS) \
		$(if $(FUZZ_RUNS),-runs=$(FUZZ_RUNS),-max_total_time=$(FUZZ_SECONDS))

fuzz-briefly:
	@$(MAKE) fuzz FUZZ_REPEATABLE=--repeatable FUZZ_RUNS=10000 FUZZ_ARGS='-verbosity=0 -seed=1'
worst-case: ## Hold the ceilings of SECURITY.md against the worst clients known, and search for worse ones for SECONDS
	@folder=$$(fuzz/build.sh steps worst_case); "$$folder/worst_case" $(SECONDS) $(SEED)
worst-case-times: ## Print the nanoseconds of processor time that the worst clients known take, which depend on the machine
	@folder=$$(fuzz/build.sh nanoseconds worst_case); "$$folder/worst_case" 0

##@ Other distributions
test-bench: build $(STAMPS)/test test-system ## Run kirsch-bench's tests
	$(call pytest,$(VENV)) $(PYTEST_SLOW_ARGS) packages/kirsch-bench/tests

# kirsch-query needs databases and no engine. The servers are Debian's, started and ended by the tests.
test-query: $(QUERY_VENV)/.stamps/test databases ## Run kirsch-query's tests on SQLite, PostgreSQL and MariaDB; QUERY_CASES=20000 tries more
	cd $(QUERY) && $(call pytest,$(QUERY_VENV)) $(QUERY_ARGS)
# SQLite alone: what a database does is the same with each SQLAlchemy.
test-query-oldest: ## Run kirsch-query's tests with the oldest SQLAlchemy that it supports, on SQLite
	$(call install,.venvs/query-oldest,--group $(QUERY)/pyproject.toml:test -e $(QUERY))
	$(call install,.venvs/query-oldest,SQLAlchemy==$(shell sed -n 's/.*"SQLAlchemy>=\([0-9.]*\),.*/\1/p' $(QUERY)/pyproject.toml))
	cd $(QUERY) && $(call pytest,.venvs/query-oldest) -k 'not postgresql and not mariadb and not sharded' --ignore tests/test_agreement.py

databases: ## Install PostgreSQL and MariaDB, if that is possible
	tests/system_packages.sh '/usr/lib/postgresql/*/bin/initdb:postgresql' /usr/sbin/mariadbd:mariadb-server
test-query-quick: ## Compare 1,000 random queries of kirsch-query with Python on each database
	QUERY_CASES=1000 $(MAKE) test-query QUERY_ARGS=tests/test_agreement.py
# Each commit tries other queries. `make test-query-all` tries more than a turn of CI has time for.
test-query-slow:
	QUERY_SEED=$$((16#$$(git rev-parse --short=6 HEAD))) QUERY_CASES=20000 QUERY_HISTORIES=500 QUERY_GROUPINGS=500 $(MAKE) test-query
test-query-all: ## Run kirsch-query's tests with 100,000 random queries and 10,000 histories on each database, in ten minutes
	QUERY_CASES=100000 QUERY_HISTORIES=10000 QUERY_GROUPINGS=5000 $(MAKE) test-query QUERY_ARGS="$(QUERY_ARGS)"

bench-query: ## Measure kirsch-query beside SQLAlchemy, Pony, Peewee and Django's ORM
	$(call install,.venvs/query-bench,-r $(QUERY)/bench/rivals.txt -e $(QUERY))
	.venvs/query-bench/bin/python $(QUERY)/bench/compare.py
bench-query-plans: $(QUERY_VENV)/.stamps/test databases ## Measure queries of kirsch-query on large tables beside SQL by hand
	$(QUERY_VENV)/bin/python $(QUERY)/bench/plans.py
test-web: $(WEB_VENV)/.stamps/test ## Run the tests of kirsch-web and kirsch-cherrypy; WEB_TREES=N compares N random trees, 1,000 else
	@tests/system_packages.sh redis-server:redis-server '/usr/lib/postgresql/*/bin/postgres:postgresql'
	cd $(WEB) && $(call pytest,$(WEB_VENV)) $(WEB_ARGS)
	cd $(WEB_CHERRYPY) && $(call pytest,$(WEB_VENV))
test-web-trees: $(WEB_VENV)/.stamps/test ## Compare 100,000 random trees of kirsch-web with the rules, in ten minutes; WEB_SEED=N repeats a run
	cd $(WEB) && WEB_TREES=100000 $(call pytest,$(WEB_VENV)) tests/test_tree_rules.py
test-web-requests: $(WEB_VENV)/.stamps/test ## Send 200,000 random hostile requests to kirsch-web, by WSGI and by ASGI, in three minutes; WEB_SEED=N
	cd $(WEB) && WEB_REQUESTS=100000 $(call pytest,$(WEB_VENV)) tests/test_random_requests.py

# CherryPy's own tests, from its distribution, against the layer that runs its programs; cherrypy_expected.txt beside the
# script has the outcome of each. CHERRYPY_ARGS='core tools' runs some modules.
test-web-cherrypy: $(WEB_CHERRYPY_VENV)/.stamps/cherrypy ## Run CherryPy's own tests against kirsch-cherrypy
	$(RERUN) $(WEB_CHERRYPY_VENV)/bin/python $(WEB_CHERRYPY)/tests/cherrypy_suite.py $(CHERRYPY_ARGS)

# Programs for CherryPy, unmodified. Without DIR= those of PyPI alone.
test-cherrypy-world: same-python ## Record programs on CherryPy, replay them on kirsch-cherrypy over Kirsch; DIR= has clones of Tautulli, sabnzbd, LazyLibrarian
	@tests/system_packages.sh rdiff-backup:rdiff-backup
	@$(MAKE) $(STAMPS)/kirsch.$(TEST_PROFILE) PROFILE=$(TEST_PROFILE)
	$(BIN)/python $(WEB_CHERRYPY)/tests/world/replay.py --environments .venvs/world $(if $(DIR),--sources "$(DIR)") $(WORLD_ARGS)

##@ Release
# maturin and zig build for every platform on one machine, which needs rustup (or the standard libraries of the targets).
RELEASE = PYTHONPATH=scripts .venvs/release/bin/python -m release
MATRIX = --profile $(PROFILE) $(if $(PLATFORMS),--platforms '$(PLATFORMS)') $(if $(WHEEL_PYTHONS),--pythons '$(WHEEL_PYTHONS)')
.venvs/release/.stamps/release: pyproject.toml
	$(call install,.venvs/release,--group release)
	@touch $@
version: ## Print the version of all distributions; VERSION=0.2.0 sets it in every file
	@PYTHONPATH=scripts $(PYTHON) -m release.version $(VERSION)
cut: ## Date the newest section of CHANGELOG.md, the last commit before a release
	@PYTHONPATH=scripts $(PYTHON) -m release.version --cut
wheels: .venvs/release/.stamps/release ## Build wheels for every platform and Python into dist, and check them; PLATFORMS= and WHEEL_PYTHONS= choose
	@$(RELEASE).wheels $(MATRIX)
release: .venvs/release/.stamps/release ## Make all files of a release in dist: wheels, source distributions, SBOMs, checksums; REHEARSAL=1 allows changes
	@$(RELEASE).distributions $(if $(REHEARSAL),--rehearsal) $(MATRIX)
ROOTS ?= trixie-amd64
TWICE = first the-second-clone
# Without a release in dist, a rehearsal makes one that compiles fast.
test-wheels: .venvs/release/.stamps/release ## Install a release from dist in Debian roots without a compiler, and serve with it; ROOTS=, TESTS=
	@[ -d dist/simple ] || $(MAKE) release REHEARSAL=1 PROFILE=$(TEST_PROFILE) PLATFORMS=manylinux-x86_64 WHEEL_PYTHONS=3.13
	@tests/system_packages.sh /usr/sbin/debootstrap:debootstrap
	@TESTS='$(TESTS)' scripts/release/roots.sh dist $(ROOTS)
image: .venvs/release/.stamps/release ## Build the root of the small container image from dist without Docker, serve from it, and print its size
	@[ -d dist/simple ] || $(MAKE) release REHEARSAL=1 PROFILE=$(TEST_PROFILE) PLATFORMS=manylinux-x86_64 WHEEL_PYTHONS=3.13
	@tests/system_packages.sh /usr/sbin/debootstrap:debootstrap
	@scripts/release/image.sh dist
release-twice: .venvs/release/.stamps/release ## Make a release in two clones at different paths, and compare every byte; PLATFORMS=, WHEEL_PYTHONS=
	@rm -rf target/twice
	@for clone in $(TWICE); do git clone --quiet . target/twice/$$clone && (cd target/twice/$$clone && \
		PYTHONPATH=scripts $(abspath .venvs/release)/bin/python -m release.distributions --rehearsal $(MATRIX)); done
	@cd target/twice && diff $(TWICE:%=%/dist/SHA256SUMS) && echo "Equal: $$(wc -l <first/dist/SHA256SUMS) files."
check-macos: ## Compile for macOS what does not depend on Linux yet: wire, transitions, scheduler
	@! command -v rustup >/dev/null || rustup --quiet target add aarch64-apple-darwin
	cargo check --locked -p wire -p transitions -p scheduler --target aarch64-apple-darwin

##@ Measure
bench: build ## Measure processor time per request against the bare loop, and against the servers in PEERS
	@tests/system_packages.sh wrk:wrk
	@[ -n "$(PEERS)" ] || echo "No peers: 'make bench-peers' installs them, or PEERS= names an environment that has them."
	$(BIN)/python scripts/yardstick/yardstick.py --scenario $(SCENARIO) \
		--server 'kirsch=$(abspath $(BIN))/kirsch {app} --bind 127.0.0.1:{port}' \
		--server 'kirsch-1=$(abspath $(BIN))/kirsch {app} --bind 127.0.0.1:{port} --threads 1' \
		$(if $(PEERS),--peers $(abspath $(PEERS)) --only $(RIVALS)) $(BENCH_ARGS)
bench-peers: $(STAMPS)/venv ## Install the servers to compare with into .venvs/peers (bjoern needs libev-dev, uwsgi a C compiler)
	@$(call install,.venvs/peers,--each scripts/yardstick/peers.txt,$(BIN)/python)
tls-peers: $(STAMPS)/venv
	@$(call install,.venvs/tls-peers,granian hypercorn,$(BIN)/python)
tls-speed: build tls-peers ## Measure what encryption costs beside nginx, Caddy, granian and hypercorn, 10 minutes; TLS_SPEED_ARGS=
	@tests/system_packages.sh wrk:wrk nginx:nginx-light caddy:caddy
	cargo build --release --quiet --locked -p tls --example client
	$(BIN)/python scripts/tls_speed.py $(TLS_SPEED_ARGS)
http2-speed: build tls-peers ## Measure HTTP/2 beside granian, hypercorn and nginx, 5 minutes; HTTP2_SPEED_ARGS=
	@tests/system_packages.sh h2load:nghttp2-client nginx:nginx-light
	$(BIN)/python scripts/http2_speed.py $(HTTP2_SPEED_ARGS)
instructions: build ## Count the instructions of a request under callgrind, which noise does not change
	$(BIN)/python scripts/instructions.py
http3-prototype: build ## Build the prototype of docs/design/http3.md, test its QPACK, and measure it beside the server
	@tests/system_packages.sh h2load:nghttp2-client openssl:openssl
	cd prototypes/http3 && cargo test --release --locked && cargo build --release --locked
	$(BIN)/python prototypes/http3/measure.py
robustness: build $(STAMPS)/test ## Measure misbehaving applications under Kirsch and others, for docs/robustness.md; results stay in target/robustness
	$(call install,.venvs/matrix-peers,gunicorn packaging gevent uvicorn httptools uvloop granian,$(BIN)/python)
	$(BIN)/python scripts/robustness.py --out target/robustness
	$(BIN)/python scripts/robustness.py --out target/robustness --table docs/robustness.md
survey-smoke: build ## Survey three servers for a few seconds, so that the whole of `kirsch survey` has run once
	@rm -rf target/survey-smoke
	$(RERUN) timeout 170 $(BIN)/kirsch survey survey/smoke.toml --out target/survey-smoke $(SURVEY_ARGS)

# On a machine that has nothing else to do. SURVEY_ARGS='--rounds 1 --seconds 0.3' shows that each row works.
survey-founding: build ## Measure the founding documents' tables again, with servers of today, 40 minutes, into docs/survey
	@scripts/survey.sh $(BIN)/kirsch '$(FOUNDING:%=survey/founding/%.toml)' $(SURVEY_ARGS)
survey-gateways: build ## Measure web servers in front of application servers, an hour, into docs/survey
	@scripts/survey.sh $(BIN)/kirsch '$(wildcard survey/gateways/*.toml)' $(SURVEY_ARGS)
survey-frameworks: build databases ## Measure whole frameworks beside the bare server, with databases, into docs/survey/frameworks
	@survey/frameworks/run.sh $(BIN)/python $(WHEELS) $(SURVEY_ARGS)
