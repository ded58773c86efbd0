# Everything here works on a fresh clone with Python 3.11 or later, pip and make. An interpreter that is named has an
# environment of its own: `make test PYTHON=python3.13` makes .venv-3.13 and leaves .venv alone. Where torch has no wheel
# for it, `make test PYTHON=python3.14 EXTRAS=dev` runs all tests that need none.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
EXTRAS ?= torch,dev
VENV   := .venv$(if $(filter file,$(origin PYTHON)),,-$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])'))
BIN    := $(VENV)/bin

.PHONY: help demo test test-lowest test-all test-web fuzz check docs audit bench figures page fresh clean
help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

$(VENV)/.created:
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.core: $(VENV)/.created pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.core
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS)]'
	@touch $@

$(VENV)/.docs: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@

demo: $(VENV)/.core ## answer the example study and write its report to demo/
	$(BIN)/learncast plan examples/two_integration_tasks.toml --out demo

# Two workers on two cores: more threads inside each would only get in each other's way. Compiled modules are kept, for
# tests start many processes. A file stays with one worker, so that what its tests share is made once, and files go out in
# their order: sorted by their number of tests, those with a few long ones would come last and be waited for.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=
TWO_WORKERS := -n 2 --dist loadfile --no-loadscope-reorder

test: $(VENV)/.dev ## run the fast suite
	$(ONE_THREAD) $(BIN)/python -m pytest -q $(TWO_WORKERS)

# The lowest versions that pyproject.toml states, in an environment of their own. The plugin of an older anyio does not
# load in the pinned pytest, and older packages use what newer ones deprecate.
LOWEST := .venv-lowest
$(LOWEST)/.created: pyproject.toml constraints.txt tests/packaging/lowest.py
	$(PYTHON) -m venv --clear $(LOWEST)
	$(LOWEST)/bin/python tests/packaging/lowest.py > $(LOWEST)/lowest.txt
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check -c $(LOWEST)/lowest.txt -e '.[$(subst dev,test,$(EXTRAS))]'
	@touch $@

test-lowest: $(LOWEST)/.created ## run the fast suite with the lowest versions of pyproject.toml
	$(ONE_THREAD) $(LOWEST)/bin/python -m pytest -q -p no:anyio -W ignore::DeprecationWarning $(TWO_WORKERS) $(TESTS)

# Some slow tests take minutes each: a worker that has nothing left takes over what the other has not begun.
test-all: $(VENV)/.dev ## run the slow tests too
	$(ONE_THREAD) $(BIN)/python -m pytest -q -n 2 --dist worksteal -m 'not web'

# PROBLEMS, SEED, MINUTES and KINDS choose what is drawn: make fuzz PROBLEMS=2000 SEED=500 MINUTES=30 KINDS="plans relu".
PROBLEMS ?= 200
SEED ?= 0
fuzz: $(VENV)/.dev ## compare drawn problems with plain training on raw trials
	$(ONE_THREAD) $(BIN)/python -m tests.differential --problems $(PROBLEMS) --seed $(SEED) \
		$(if $(MINUTES),--minutes $(MINUTES)) $(if $(KINDS),--kinds $(KINDS))

# Chromium comes from Debian's packages. Where it cannot be had, or does not start, that is said and nothing else fails.
# axe-core, which looks for what keeps people out, comes from the npm registry where npm is; its tests are skipped elsewhere.
CHROMIUM_STARTS := timeout 60 chromium --headless --no-sandbox --disable-dev-shm-usage --dump-dom about:blank >/dev/null 2>&1
test-web: $(VENV)/.dev ## drive the explorer in a real browser
	@if ! command -v chromium >/dev/null && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "test-web: installing Chromium"; \
		timeout 600 sh -c 'apt-get -o Acquire::http::Timeout=20 update -qq && DEBIAN_FRONTEND=noninteractive \
			apt-get -o Acquire::http::Timeout=20 install -y -qq --no-install-recommends chromium' >/dev/null 2>&1 || true; \
	fi; \
	if [ ! -e .axe/node_modules/axe-core/axe.min.js ] && command -v npm >/dev/null; then \
		timeout 120 npm install --silent --no-save --no-audit --no-fund --prefix .axe axe-core@4.10.3 >/dev/null 2>&1 || true; \
	fi; \
	if $(CHROMIUM_STARTS); then $(ONE_THREAD) $(BIN)/python -m pytest -q -m web tests/web; \
	else echo "test-web: Chromium could not be had or does not start: THE BROWSER TESTS WERE NOT RUN."; fi

check: $(VENV)/.dev ## ruff, mypy and the layer rules
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/architecture

docs: $(VENV)/.docs ## build the documentation into docs/_build/html, without any network
	$(ONE_THREAD) $(BIN)/python -m sphinx -W --keep-going -q -j 2 -b html -d docs/_build/doctrees docs docs/_build/html
	$(BIN)/python docs/_ext/check_site.py docs/_build/html
	$(BIN)/codespell --config docs/_ext/spelling.cfg docs src README.md CONTRIBUTING.md SECURITY.md CHANGELOG.md

audit: $(VENV)/.dev ## ask the advisory databases about every pinned package (needs the network)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check pip-audit
	$(BIN)/python -m pip_audit --skip-editable

bench: $(VENV)/.dev ## print the speed ratios
	$(ONE_THREAD) $(BIN)/python -m benchmarks

figures: $(VENV)/.dev ## make the pictures of README and front page, and every figure of the papers
	$(BIN)/python docs/make_images.py
	$(BIN)/python docs/make_race.py --train
	$(BIN)/learncast reproduce curriculum --out reproduced/curriculum
	$(BIN)/learncast reproduce prior-knowledge --out reproduced/prior-knowledge
	$(BIN)/learncast reproduce linear-rnn --out reproduced/linear-rnn
	$(BIN)/learncast reproduce learnability --stored --out reproduced/learnability

# Heat maps and contours are in plotly's cartesian bundle. Without it the page uses the complete one of the plotly package.
PLOTLY = $(shell $(BIN)/python -c "import plotly.offline as o; print(o.get_plotlyjs_version())")
page: $(VENV)/.dev ## put plotly's smaller bundle into the package, before a wheel is built (needs npm)
	npm pack --silent --pack-destination build plotly.js-cartesian-dist-min@$(PLOTLY)
	tar -xzOf build/plotly.js-cartesian-dist-min-$(PLOTLY).tgz package/plotly-cartesian.min.js > src/learncast/web/page/plotly.min.js

fresh: ## clone HEAD into a temporary folder; run the demo and the tests there
	@set -e; folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; \
	git clone --quiet . "$$folder/learncast"; \
	$(MAKE) -C "$$folder/learncast" demo; \
	$(MAKE) -C "$$folder/learncast" test

clean: ## remove the environment and what was made
	rm -rf $(VENV) $(LOWEST) demo reproduced reproduced-runs docs/_build docs/generated
