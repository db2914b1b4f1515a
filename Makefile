# SluiceMQ: every target sets up what it needs from nothing but Python >= 3.11.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help run demo pipeline-demo test test-spark test-wheel coverage bench-spark java setup-spark test-long fuzz audit soak bench bench-quick whole format lint types check-deploy docs setup setup-dev lock clean

help:
	@echo "make run         set up and start the broker (MQTT 1883, AMQP 5672, data under ./data)"
	@echo "make demo        the main job end to end, with a kill -9 in the middle"
	@echo "make pipeline-demo  devices, Spark, workers; the Spark driver is killed, and every alert accounted for"
	@echo "make test        set up and run all tests (4 to 5 minutes on 2 cores)"
	@echo "make test-spark  the Spark bridge with a real local Spark; then make test runs them, too"
	@echo "make test-wheel  build the wheel, install it, and run the end-to-end tests with it"
	@echo "make coverage    which lines the unit and end-to-end tests run"
	@echo "make test-long   the same with the long modes of model and crash tests"
	@echo "make soak        half an hour of mixed load: does anything grow, does anything get lost?"
	@echo "make whole       random sequences over all protocols against an oracle, fresh seeds (MINUTES=, SEED=, PROCESSES=)"
	@echo "make fuzz        hammer the decoders with random input for a while"
	@echo "make audit       known weaknesses of what it depends on (asks public databases; fails where they do not answer)"
	@echo "make bench       side by side with RabbitMQ and mosquitto where they are installed"
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

setup: $(VENV)/run.stamp
setup-dev: $(VENV)/dev.stamp
setup-spark: java $(VENV)/spark.stamp

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

# the tests run here; what they test is the wheel, installed elsewhere with what it says that it depends on
WHEEL := build/wheel
test-wheel: setup-dev
	rm -rf $(WHEEL)
	$(BIN)/python -m hatchling build --target wheel --directory $(WHEEL)
	$(BIN)/python -m venv $(WHEEL)/venv
	sed -n 's/^\([a-z].*\) \\$$/\1/p' requirements-dev.lock > $(WHEEL)/constraints.txt
	$(WHEEL)/venv/bin/python -m pip install --quiet --disable-pip-version-check --constraint $(WHEEL)/constraints.txt \
		"$$(echo $(WHEEL)/*.whl)[examples,otel]" pytest pytest-asyncio aiomqtt
	PYTHONDONTWRITEBYTECODE= INSTALLED_PYTHON=$(CURDIR)/$(WHEEL)/venv/bin/python \
		$(BIN)/python -m pytest tests/wheel tests/e2e -m "long or not long" -n 4 --dist loadfile --no-loadscope-reorder

# the tracer makes brokers slow: a test that fails only here says nothing
coverage: setup-dev
	rm -rf build/coverage
	$(BIN)/python -m pytest tests/unit tests/e2e examples -m "not long" -n 4 --dist loadfile --no-loadscope-reorder \
		-q --cov --cov-report= || echo "some tests failed under the tracer"
	$(BIN)/coverage report --sort=cover --skip-covered
	@echo "lines run by the unit and end-to-end tests: $$($(BIN)/coverage report --format=total) %"

bench-spark: setup-spark
	$(BIN)/python -m benchmarks.spark_write
	$(BIN)/python -m benchmarks.spark_read

test-long: setup-dev
	HYPOTHESIS_PROFILE=explore $(BIN)/python -m pytest -m "long or not long"

soak: setup-dev
	$(BIN)/python -m benchmarks.soak --minutes $(or $(MINUTES),30)

whole: setup-dev
	$(BIN)/python -m tests.whole.run --minutes $(or $(MINUTES),60) --processes $(or $(PROCESSES),2) $(if $(SEED),--seed $(SEED))

fuzz: setup-dev
	HYPOTHESIS_PROFILE=fuzz $(BIN)/python -m pytest tests/unit/protocols -k "fuzz or random or split or truncat" -q

bench: setup-dev
	$(BIN)/python -m benchmarks.compare

bench-quick: setup-dev
	$(BIN)/python -m benchmarks.compare --quick

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
audit:
	test -x build/audit/bin/pip-audit || { $(PYTHON) -m venv build/audit && build/audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit; }
	build/audit/bin/python .ci/audit.py requirements.lock requirements-spark.lock

lock:
	uv pip compile pyproject.toml --group dev --universal --python-version 3.11 --generate-hashes --no-emit-index-url -o requirements-dev.lock
	uv pip compile pyproject.toml --extra spark --group spark-demo --universal --python-version 3.11 --generate-hashes --no-emit-index-url -c requirements-dev.lock -o requirements-spark.lock
	uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --no-emit-index-url -c requirements-dev.lock -o requirements.lock
	uv pip compile --only-group docs --universal --python-version 3.11 --generate-hashes --no-emit-index-url -c requirements-dev.lock -o requirements-docs.lock

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
