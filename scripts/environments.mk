# The virtual environments that the commands of Makefile need, and the wheels in them: a stamp for each part.

QUERY_VENV ?= .venvs/query
WEB_VENV ?= .venvs/web
WEB_CHERRYPY_VENV ?= .venvs/web-cherrypy
SUITES_VENV ?= .venvs/asgi-suites
DOCS_VENV ?= .venvs/docs

# Searched once, and only by the commands that need it.
export PYTHON_GIVEN := $(PYTHON)
override PYTHON = $(eval override PYTHON := $(shell .ci/pythons --find $(PYTHON_GIVEN)))$(PYTHON)

BIN := $(VENV)/bin
STAMPS := $(VENV)/.stamps
WHEELS := $(VENV)/.wheel/$(PROFILE)
QUERY := packages/kirsch-query
WEB := packages/kirsch-web
WEB_CHERRYPY := packages/kirsch-cherrypy
# $(call install,ENVIRONMENT,ARGUMENTS OF PIP,INTERPRETER): make the environment if it is not there, and install into it.
install = scripts/environment.sh $(1) "$(if $(wildcard $(1)/bin/python),,$(or $(3),$(PYTHON)))" $(2)
# PyO3 asks this interpreter for its version; left to itself it would take the first python3 on PATH, and every change
# between the two would compile PyO3 again.
export PYO3_PYTHON = $(abspath $(BIN)/python)

# Distributions with a native part are built as wheels, because what is tested is then what is shipped. The others are
# pure Python and installed in place, so that a change of theirs builds nothing.
NATIVE := kirsch kirsch-bench
PURE := $(filter-out $(NATIVE),$(patsubst packages/%/pyproject.toml,%,$(wildcard packages/*/pyproject.toml)))

# An environment keeps the interpreter that it was made with; a different one asked for must not be ignored in silence.
same-python: $(STAMPS)/venv
ifneq ($(PYTHON_GIVEN),)
	@version='import sys; print(sys.version)'; \
	if [ -z "$(PYTHON)" ] || [ "$$("$(PYTHON)" -c "$$version")" != "$$($(BIN)/python -c "$$version")" ]; then \
		echo "$(VENV) holds another Python than $(PYTHON_GIVEN): choose another place with VENV=, or 'make clean' first."; \
		exit 1; \
	fi
endif

$(STAMPS)/venv:
	@command -v cargo >/dev/null || { echo "No cargo found: install Rust, e.g. from https://rustup.rs."; exit 1; }
	$(call install,$(VENV))
	@touch $@

$(STAMPS)/build $(STAMPS)/check $(STAMPS)/test: $(STAMPS)/%: pyproject.toml $(STAMPS)/venv
	$(call install,$(VENV),--group $*)
	@touch $@

# Behind maturin, because to compile takes longer than to install these.
$(STAMPS)/test: | $(STAMPS)/build

$(STAMPS)/test-slow: tests/requirements.txt $(STAMPS)/venv
	$(call install,$(VENV),-r $<)
	@touch $@

$(SUITES_VENV)/.stamps/test: tests/asgi_suites/requirements.txt
	$(call install,$(SUITES_VENV),-r $<,$(BIN)/python)
	@touch $@

$(DOCS_VENV)/.stamps/docs: pyproject.toml
	$(call install,$(DOCS_VENV),--group docs)
	@touch $@

$(QUERY_VENV)/.stamps/test: $(QUERY)/pyproject.toml
$(WEB_VENV)/.stamps/test: $(WEB)/pyproject.toml $(WEB_CHERRYPY)/pyproject.toml
$(WEB_CHERRYPY_VENV)/.stamps/cherrypy: $(WEB_CHERRYPY)/pyproject.toml $(WEB)/pyproject.toml
$(QUERY_VENV)/.stamps/test $(WEB_VENV)/.stamps/test $(WEB_CHERRYPY_VENV)/.stamps/cherrypy:
	$(call install,$(@D:%/.stamps=%),--group $<:$(@F) $(patsubst %/pyproject.toml,--editable %,$^))
	@touch $@

# What each wheel is made of. Directories are listed too, because a file that vanished shows only there.
sources = Cargo.toml $(wildcard Cargo.lock) LICENSE $(shell find $(1) -name __pycache__ -prune -o \
	\( -type d -o -name '*.rs' -o -name '*.toml' -o -name '*.py' -o -name '*.pyi' -o -name '*.html' -o -name '*.1' \
	-o -name README.md -o -path '*/guides/*.md' -o -name py.typed \) -print)

# $(call build-wheel,FOLDER): build the distribution of that folder, whose wheel stays beside the stamp of this rule.
define build-wheel
@rm -rf $(@D)
cd $(1) && "$(abspath $(BIN))/maturin" build --quiet --profile $(PROFILE) --interpreter "$(abspath $(BIN))/python" \
	--compatibility linux --out "$(abspath $(@D))"
@touch $@
endef

$(WHEELS)/kirsch/.built: $(call sources,$(filter-out crates/load% crates/sim,$(wildcard crates/*)) packages/kirsch) $(STAMPS)/build
	$(call build-wheel,packages/kirsch)

# Behind the other, which has compiled most of it.
$(WHEELS)/kirsch-bench/.built: $(call sources,$(filter-out crates/gateway crates/sim,$(wildcard crates/*)) \
		packages/kirsch-bench/pyproject.toml packages/kirsch-bench/README.md packages/kirsch-bench/src) $(STAMPS)/build \
		| $(WHEELS)/kirsch/.built
	$(call build-wheel,packages/kirsch-bench)

# The stamp has the name of the profile, because an environment holds the wheel of one. What a wheel depends on is either
# built here or needed by nothing that `make` runs, so no index is asked.
$(NATIVE:%=$(STAMPS)/%.$(PROFILE)): $(STAMPS)/%.$(PROFILE): $(WHEELS)/%/.built
	$(call install,$(VENV),--force-reinstall --no-deps $(<D)/*.whl)
	@rm -f $(STAMPS)/$*.* && touch $@

# It needs the other, and no index is asked.
$(STAMPS)/kirsch-cherrypy: $(STAMPS)/kirsch-web

$(PURE:%=$(STAMPS)/%): $(STAMPS)/%: packages/%/pyproject.toml | $(STAMPS)/build
	$(call install,$(VENV),--editable packages/$*)
	@touch $@
