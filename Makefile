# One verb a habit. Everything lives in .venv and NEREUS_HOME (.nereus/ unless set).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: install demo run test bench lint clean

install: $(VENV)/.installed

$(VENV)/.installed: requirements.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.txt
	touch $@

$(VENV)/.installed-dev: requirements.txt requirements-dev.txt $(VENV)/.installed
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	touch $@

demo: install
	@exec $(BIN)/python manage.py up --demo

run: install
	@exec $(BIN)/python manage.py up

test: $(VENV)/.installed-dev
	@tests/browser-packages
	$(BIN)/python -m pytest

bench: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis
