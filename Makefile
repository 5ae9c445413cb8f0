# One verb a habit. Everything lives in .venv and NEREUS_HOME (.nereus/ unless set).
# The first that is new enough; Ubuntu 22.04's python3 is not, its package python3.11 is.
PYTHON ?= $(shell for one in python3 python3.13 python3.12 python3.11; do \
	$$one -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$one && break; done)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --quiet --disable-pip-version-check

# The roles that this machine has packages for, and whether models run on a GPU (ROLES=gateway, RUNTIME=cpu).
ROLES ?= control gateway node simulate
RUNTIME ?= $(if $(wildcard /dev/nvidiactl),gpu,cpu)
LOCKS := $(ROLES:%=requirements/%.lock) $(if $(filter control node,$(ROLES)),requirements/$(RUNTIME).lock)

# Packages of locks: by uv, which needs a tenth of pip's time, with pip's index; by pip where uv cannot. Hashes say what
# is installed, so that any index will do. $(call packages,FILES,uv's further options,pip's)
packages = { $(PIP) install uv && $(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes $(2) \
	$$($(PIP) config list | sed -n "s/^.*[.]index-url='\(.*\)'$$/--default-index \1/p" | tail -n 1) \
	$(1:%=-r %); } || $(PIP) install --require-hashes $(3) $(1:%=-r %)

.PHONY: install demo run test test-long bench cluster evaluation lock protocol scanner newer sbom release bundle lint clean

install: $(VENV)/.installed

$(VENV)/.installed: $(LOCKS)
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed (Debian: python3 python3-venv;" \
		"Ubuntu 22.04: python3.11 python3.11-venv)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@$(call packages,$(LOCKS),--compile-bytecode)
	touch $@

# Not compiled at once: much of it is never imported.
# The scanner of TLS has an environment of its own, as it holds cryptography back; the fuzzer is in a lock of its own.
$(VENV)/.installed-dev: requirements/dev.lock requirements/fuzz.lock requirements/scan.lock $(VENV)/.installed
	@$(call packages,requirements/dev.lock requirements/fuzz.lock,,--no-compile)
	@$(BIN)/python -m venv $(VENV)/scan && $(MAKE) --no-print-directory VENV=$(VENV)/scan scanner
	touch $@

scanner:
	@$(call packages,requirements/scan.lock,,--no-compile)

# What a sample of the tests runs on, too; none where this machine has no Python 3.13.
$(VENV)/3.13/.installed: $(VENV)/.installed-dev
	@for one in python3.13 $$HOME/.pyenv/versions/3.13*/bin/python "$$($(BIN)/uv python find 3.13 2>/dev/null)"; do \
		"$$one" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 13))' 2>/dev/null || continue; \
		"$$one" -m venv $(VENV)/3.13 && $(MAKE) --no-print-directory VENV=$(VENV)/3.13 newer && touch $@; exit; \
	done; echo "no Python 3.13 here"; exit 1

newer:
	@$(call packages,$(LOCKS) requirements/dev.lock,,--no-compile)

# uv.lock after a change of pyproject.toml (LOCK="--upgrade": newer versions of all), and what it says for each role.
lock: $(VENV)/.installed-dev
	$(BIN)/uv lock $(LOCK)
	$(BIN)/python -m tools.locks

# Messages of V2 over gRPC, after a change of workers/v2/inference.proto.
protocol: $(VENV)/.installed-dev
	$(BIN)/uv run --no-project --with grpcio-tools==1.74.0 python -m grpc_tools.protoc -I. --descriptor_set_out=workers/v2/inference.binpb workers/v2/inference.proto

demo: install
	@exec $(BIN)/python manage.py up --demo

# ROLE=node, ROLE=control,gateway ...: some of the appliance's roles.
run: install
	@exec $(BIN)/python manage.py up $(if $(ROLE),--only $(ROLE))

# Tests start thousands of processes: each would compile all modules again if their bytecode were not kept.
test test-long: export PYTHONDONTWRITEBYTECODE :=

# The gate, the wide step and a sample on Python 3.13; what fails is run again alone (tests/__main__.py).
test: $(VENV)/.installed-dev
	@tests/debian-packages
	$(BIN)/ruff check --quiet .
	-@$(MAKE) --no-print-directory $(VENV)/3.13/.installed
	$(BIN)/python -m tests $(VENV)/3.13

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

# dist/sbom.cdx.json (CycloneDX) and dist/versions.txt (for pip-audit), of the lock: all roles, without development.
sbom: $(VENV)/.installed-dev
	mkdir -p dist
	$(BIN)/uv export --quiet --locked --no-dev --all-extras --format cyclonedx1.5 -o dist/sbom.cdx.json
	$(BIN)/uv export --quiet --locked --no-dev --all-extras --no-emit-project --no-hashes --no-annotate -o dist/versions.txt

# dist/nereus-VERSION.tar.gz: what is committed, and both lists. Ansible installs it (nereus_archive).
release: sbom
	git archive --format=tar.gz --add-file=dist/sbom.cdx.json --add-file=dist/versions.txt \
		-o dist/nereus-$$($(BIN)/python -c 'import workers; print(workers.__version__)').tar.gz HEAD

# dist/nereus-bundle-VERSION.tar: the release, the Ansible collection, wheels and Debian's packages, for boxes without a
# network. BUNDLE="--machines x86_64 --pythons 3.11 --suites bookworm" makes a smaller one.
bundle: $(VENV)/.installed-dev release
	$(BIN)/python -m tools.bundle dist $(BUNDLE)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	cd ansible && PATH="$(CURDIR)/$(BIN):$$PATH" ansible-lint --offline --strict --profile production .

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis
