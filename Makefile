# SluiceMQ: every target sets up what it needs from nothing but Python >= 3.11.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help run demo pipeline-demo test test-spark test-wheel dist release coverage bench-spark java setup-spark test-long fuzz audit soak bench bench-quick whole format lint types check-deploy docs setup setup-dev lock clean

help:
	@echo "make run         set up and start the broker (MQTT 1883, AMQP 5672, data under ./data)"
	@echo "make demo        the main job end to end, with a kill -9 in the middle"
	@echo "make pipeline-demo  devices, Spark, workers; the Spark driver is killed, and every alert accounted for"
	@echo "make test        set up and run all tests (5 to 6 minutes on 2 free cores)"
	@echo "make test-spark  the Spark bridge with a real local Spark; then make test runs them, too"
	@echo "make test-wheel  build the wheel, install it, and run tests with it"
	@echo "make dist        wheels and source archives, as they are released"
	@echo "make release     give what is unreleased in CHANGELOG.md a version (VERSION=) and today's date"
	@echo "make coverage    which lines the unit and end-to-end tests run; ends with an error if too few"
	@echo "make test-long   the same with the long modes of model and crash tests"
	@echo "make soak        half an hour of mixed load: does anything grow, does anything get lost?"
	@echo "make whole       random sequences over all protocols against an oracle, fresh seeds (MINUTES=, SEED=, PROCESSES=)"
	@echo "make fuzz        hammer the decoders with random input for a while"
	@echo "make audit       known weaknesses of what it depends on (asks public databases; fails where they do not answer)"
	@echo "make bench       beside brokers that run (PEERS='--peer rabbitmq,amqp=5672,mqtt=1883')"
	@echo "make bench-spark writing from Spark and reading"
	@echo "make bench-quick a short version of it"
	@echo "make check-deploy  the files in deploy/, with the tools that are installed"
	@echo "make docs        the documentation as a site, into build/site"
	@echo "make format lint types   what their names say"
	@echo "make lock        resolve the dependencies anew into the lock files (needs uv)"

# the stamps hold what is installed: a changed lock file installs again
$(VENV)/run.stamp: requirements.lock
	@test -x $(BIN)/python || $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "SluiceMQ needs Python 3.11 or later; set PYTHON=/path/to/python3.11"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@touch $@

$(VENV)/dev.stamp: requirements-dev.lock $(VENV)/run.stamp
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@touch $@

$(VENV)/spark.stamp: requirements-spark.lock $(VENV)/dev.stamp
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-spark.lock
	@touch $@

# what is in C, where there is a compiler; says why not and goes on without it otherwise. Named is the last that it makes
NATIVE := broker/mqtt/native/_each.abi3.so
$(NATIVE): storage/native/fill.c broker/mqtt/native/lone.c broker/mqtt/native/each.c storage/native/compiling.py $(VENV)/run.stamp
	@$(BIN)/python storage/native/compiling.py

setup: $(VENV)/run.stamp $(NATIVE)
setup-dev: $(VENV)/dev.stamp $(NATIVE)
setup-spark: java $(VENV)/spark.stamp $(NATIVE)

# Spark needs a Java runtime of version 17 or later: one that is there, else Debian's
JAVA_IS_THERE := PATH="$(JAVA_HOME)/bin:$$PATH" java -version 2>&1 | grep -qE 'version "(1[7-9]|[2-9][0-9])'
JAVA_INSTALL := apt-get install -y --no-install-recommends openjdk-17-jre-headless
java:
	@$(JAVA_IS_THERE) \
		|| { [ "$$(id -u)" = 0 ] && echo "no Java 17: $(JAVA_INSTALL)" && apt-get update -q >/dev/null \
			&& DEBIAN_FRONTEND=noninteractive $(JAVA_INSTALL) >/dev/null && $(JAVA_IS_THERE); } \
		|| { echo "Spark needs Java 17 or later: sudo $(JAVA_INSTALL), or set JAVA_HOME"; exit 1; }

run: setup
	$(BIN)/python -m sluicemq serve

demo: setup-dev
	$(BIN)/python -m sluicemq.examples.demo

pipeline-demo: setup-spark
	$(BIN)/python -m sluicemq.examples.pipeline_demo

test: setup-dev lint types
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -m "not long" -n 4 --dist loadfile --no-loadscope-reorder

test-spark: setup-spark
	$(BIN)/python -m pytest tests/spark tests/unit/spark_bridge

# the tests run here; what they test is the wheel, installed elsewhere with what it says that it depends on. `make test` has
# tried the rest on the same modules: what can differ is which files are there, what is installed, and how a process starts
WHEEL := build/wheel
WHEEL_TESTS := tests/wheel $(patsubst %,tests/e2e/test_%.py,backups commands config cross_protocol documented_commands \
	documented_examples mqtt_websocket pages programs restart shutdown tls traces)
test-wheel: setup-dev
	rm -rf $(WHEEL)
	$(BIN)/python -m hatchling build --target wheel --directory $(WHEEL)
	$(BIN)/python -m venv $(WHEEL)/venv
	sed -n 's/\[.*\]==/==/; s/^\([a-z].*\) \\$$/\1/p' requirements-dev.lock > $(WHEEL)/constraints.txt
	$(WHEEL)/venv/bin/python -m pip install --quiet --disable-pip-version-check --constraint $(WHEEL)/constraints.txt \
		"$$(echo $(WHEEL)/*.whl)[examples,ldap,otel]" pytest pytest-asyncio aiomqtt
	PYTHONDONTWRITEBYTECODE= INSTALLED_PYTHON=$(CURDIR)/$(WHEEL)/venv/bin/python \
		$(BIN)/python -m pytest $(WHEEL_TESTS) -m "long or not long" -n 4 --dist loadfile --no-loadscope-reorder

# what is released: wheels for every platform and source archives, of the broker and of the Spark bridge
dist: setup-dev
	rm -rf dist
	SLUICEMQ_BUILD=pure $(BIN)/python -m hatchling build --directory dist
	cd spark_bridge && $(CURDIR)/$(BIN)/python -m hatchling build --directory ../dist

# writes the version and the changelog; commit it, then tag that commit vVERSION: .github/workflows/release.yml does the rest
release:
	$(PYTHON) .ci/release.py cut $(VERSION) $$(date -u +%F)
	@echo "look at the changes and commit them; when they are on main: git tag -a v$(VERSION) -m v$(VERSION) && git push origin v$(VERSION)"

# the tracer makes brokers slow: a test that fails only here says nothing; fewer lines than fail_under do
coverage: setup-dev
	rm -rf build/coverage
	$(BIN)/python -m pytest tests/unit tests/e2e examples -m "not long" -n 4 --dist loadfile --no-loadscope-reorder \
		-q --timeout 300 --cov --cov-report= || echo "some tests failed under the tracer"
	$(BIN)/coverage report --sort=cover --skip-covered

bench-spark: setup-spark
	$(BIN)/python -m benchmarks.spark

test-long: setup-dev
	HYPOTHESIS_PROFILE=explore $(BIN)/python -m pytest -m "long or not long"

soak: setup-dev
	$(BIN)/python -m benchmarks.soak --minutes $(or $(MINUTES),30)

whole: setup-dev
	$(BIN)/python -m tests.whole.run --minutes $(or $(MINUTES),60) --processes $(or $(PROCESSES),2) $(if $(SEED),--seed $(SEED)) $(if $(WORKERS),--workers $(WORKERS))

fuzz: setup-dev
	HYPOTHESIS_PROFILE=fuzz $(BIN)/python -m pytest tests/unit/protocols -k "fuzz or random or split or truncat" -q --timeout 900

bench: setup-dev
	$(BIN)/python -m benchmarks.compare $(PEERS)

bench-quick: setup-dev
	$(BIN)/python -m benchmarks.compare --quick $(PEERS)

format: setup-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: setup-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-cache

types: setup-dev
	$(BIN)/mypy

check-deploy:
	deploy/check

DOCS_ENV := build/docs-env
docs:
	test -x $(DOCS_ENV)/bin/python || $(PYTHON) -m venv $(DOCS_ENV)
	$(DOCS_ENV)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-docs.lock
	$(DOCS_ENV)/bin/mkdocs build --strict
	@echo "file://$(CURDIR)/build/site/index.html"

# a tool of its own, beside what it looks at; ends with an error, too, where the databases cannot be asked
PIP_AUDIT := build/audit/bin/pip-audit
$(PIP_AUDIT):
	$(PYTHON) -m venv build/audit
	build/audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit

audit: $(PIP_AUDIT)
	build/audit/bin/python .ci/audit.py

# extras are kept: pip takes a pin of "coverage" for none of "coverage[toml]", and installs nothing once a newer one is out
lock:
	uv pip compile pyproject.toml --group dev --universal --python-version 3.11 --generate-hashes --no-strip-extras --no-emit-index-url -o requirements-dev.lock
	uv pip compile pyproject.toml --extra spark --group spark-demo --universal --python-version 3.11 --generate-hashes --no-strip-extras --no-emit-index-url -c requirements-dev.lock -o requirements-spark.lock
	uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --no-strip-extras --no-emit-index-url -c requirements-dev.lock -o requirements.lock
	uv pip compile --group docs --universal --python-version 3.11 --generate-hashes --no-strip-extras --no-emit-index-url -c requirements-dev.lock -o requirements-docs.lock

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
