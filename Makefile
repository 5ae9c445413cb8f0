# One verb a habit. Everything lives in .venv and NEREUS_HOME (.nereus/ unless set).
# The first that is new enough; Ubuntu 22.04's python3 is not, its package python3.11 is.
PYTHON ?= $(shell for one in python3 python3.13 python3.12 python3.11; do \
	$$one -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$one && break; done)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --quiet --disable-pip-version-check

# Packages of a file: by uv, which needs a tenth of pip's time, with pip's index; by pip where uv cannot.
# $(call packages,FILE,uv's further options,pip's)
packages = { $(PIP) install uv && $(BIN)/uv pip install --quiet --python $(BIN)/python $(2) \
	$$($(PIP) config list | sed -n "s/^.*[.]index-url='\(.*\)'$$/--default-index \1/p" | tail -n 1) \
	-r $(1); } || $(PIP) install $(3) -r $(1)

.PHONY: install demo run test test-long bench cluster evaluation sbom release bundle lint clean

install: $(VENV)/.installed

$(VENV)/.installed: requirements.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed (Debian: python3 python3-venv;" \
		"Ubuntu 22.04: python3.11 python3.11-venv)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@$(call packages,requirements.txt,--compile-bytecode)
	touch $@

# Not compiled at once: much of it is never imported.
$(VENV)/.installed-dev: requirements.txt requirements-dev.txt $(VENV)/.installed
	@$(call packages,requirements-dev.txt,,--no-compile)
	touch $@

demo: install
	@exec $(BIN)/python manage.py up --demo

# ROLE=node, ROLE=control,gateway ...: some of the appliance's roles.
run: install
	@exec $(BIN)/python manage.py up $(if $(ROLE),--only $(ROLE))

# Tests start thousands of processes: each would compile all modules again if their bytecode were not kept.
test test-long: export PYTHONDONTWRITEBYTECODE :=

# The gate, then the wide step; what fails in either is run again alone (tests/__main__.py).
test: $(VENV)/.installed-dev
	@tests/debian-packages
	$(BIN)/python -m tests

# Long forms: hours rather than minutes. Properties get more examples than "make test" has time for.
test-long: $(VENV)/.installed-dev
	@tests/debian-packages
	$(BIN)/python -m pytest -m long --timeout 0
	$(BIN)/python -m pytest --hypothesis-profile "many examples" --timeout 0 $$(grep -rlE "^@given|TestCase.settings" tests --include "test_*.py")

# A cluster of boxes in network namespaces, until Ctrl-C; needs root. Its faults: python -m benchmarks cluster.
cluster: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks cluster --open

bench: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks

evaluation: install
	$(BIN)/python -m benchmarks evaluation

# dist/sbom.cdx.json (CycloneDX) and dist/versions.txt, of what requirements.txt installed here.
sbom: install
	$(BIN)/python -m appliance.sbom dist

# dist/nereus-VERSION.tar.gz: what is committed, and both lists. Ansible installs it (nereus_archive).
release: sbom
	git archive --format=tar.gz --add-file=dist/sbom.cdx.json --add-file=dist/versions.txt \
		-o dist/nereus-$$($(BIN)/python -c 'import workers; print(workers.__version__)').tar.gz HEAD

# dist/nereus-bundle-VERSION.tar: the release, the Ansible collection, wheels and Debian's packages, for boxes without a
# network. BUNDLE="--machines x86_64 --pythons 3.11 --suites bookworm" makes a smaller one.
bundle: $(VENV)/.installed-dev release
	$(BIN)/python -m appliance.bundle dist $(BUNDLE)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	cd ansible && PATH="$(CURDIR)/$(BIN):$$PATH" ansible-lint --offline --strict --profile production .

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis
