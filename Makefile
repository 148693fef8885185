# Glasslab. `make help` lists the verbs.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

LAB_ID ?= glasslab
export LAB_ID

# Ansible refuses LC_ALL=C, and an ansible.cfg in a world-writable directory unless it is named.
export LC_ALL := C.UTF-8
export ANSIBLE_CONFIG := $(CURDIR)/ansible.cfg
export PATH := $(CURDIR)/.venv/bin:$(PATH):/usr/sbin:/sbin
PYTHON := .venv/bin/python

# A real model: make demo MODEL_BASE_URL=http://127.0.0.1:11434/v1 MODEL=... ; the key from the environment, ~/lab/.env or MODEL_API_KEY_FILE.
GIVEN := QUESTION PROMPT RESOURCES ID WHY SESSION INDEX HOURS MODEL_BASE_URL MODEL MODEL_CA MODEL_API_KEY MODEL_API_KEY_FILE OPENAI_API_KEY
GIVEN += INVENTORY HOSTS SNAPSHOT REPLACE REMOVE REVERT CONFIRM CHECK JSON RESULT WEB_PORT SPLUNK_WEB_PORT
# For verify-splunk alone, and not exported: an empty HEC_TOKEN would be a setting to every other verb.
LIVE := SPLUNK_URL SPLUNK_APP SPLUNK_TOKEN SPLUNK_TOKEN_FILE HEC_URL HEC_CA HEC_INDEX HEC_TOKEN HEC_TOKEN_FILE
LIVE += HEC_TOKEN_ACK HEC_TOKEN_ACK_FILE HEC_TOKEN_DISABLED HEC_TOKEN_DISABLED_FILE
# As it was typed: of a value given on its command line, make would expand what follows a dollar sign, and run $$(shell ...).
$(foreach name,$(GIVEN) $(LIVE),$(if $(filter command,$(origin $(name))),$(eval override $(name) := $$(value $(name)))$(eval export $(name))))
export $(GIVEN)

# The lab is root's. Of the user's environment stay HOME, for ~/lab/.env is the user's, and what says where packages come from.
comma := ,
empty :=
OF_MIRRORS := PIP_% UV_% npm_config_% NPM_CONFIG_% NODE_EXTRA_CA_CERTS SSL_CERT_% %_proxy %_PROXY
MIRRORS := $(filter $(OF_MIRRORS),$(.VARIABLES))
KEEP := $(subst $(empty) ,$(comma),$(strip HOME PATH LC_ALL LAB_ID CI COLUMNS TERM ANSIBLE_CONFIG $(GIVEN) $(MIRRORS)))
# What root's programs cache belongs into no user's checkout or home, where only root could remove it.
ROOTS := ANSIBLE_HOME=/root/.ansible XDG_CACHE_HOME=/root/.cache PYTHONPYCACHEPREFIX=/root/.cache/glasslab MYPY_CACHE_DIR=/dev/null
# Another inventory than the embedded lab's needs root nowhere but on its own hosts.
AS_ROOT := $(if $(INVENTORY)$(filter 0,$(shell id -u)),,sudo --preserve-env=$(KEEP) env PATH="$$PATH" $(ROOTS))

# A slip in a name would leave a verb with its default: LABID would remove another lab than the one that is meant.
KNOWN := $(GIVEN) $(LIVE) LAB_ID FORCE CACHE FRESH TEMPLATE SOURCE ARGS MODULE PYTHON SHELL CI HOME PATH TERM COLUMNS NO_COLOR LANG LC_%
KNOWN += PROXMOX_% GLASSLAB_% ANSIBLE_% MOLECULE_% PYTEST_% COVERAGE_% $(OF_MIRRORS)
$(foreach name,$(.VARIABLES),$(if $(filter command,$(firstword $(origin $(name)))),$(if $(filter-out $(KNOWN),$(name)),$(error \
  $(name)=... is no setting of these verbs: see `make help` and README.md for their names))))

# 1 is yes, 0 and nothing are no. Any other word could mean either, and is said before anything is done.
switch = $(if $(filter-out 0 1,$($1)),$(error $1=$($1): give 1, or leave it away))$(filter 1,$($1))

LAB := roles/machine/files/nspawn/lab.py

##@ Using the lab
demo: root setup-lab ## Build the lab, ask the sample question, show the frames and what the agent could not reach
	@$(AS_ROOT) $(PYTHON) scripts/demo.py

ask: root setup ## Ask the lab's agent: make ask QUESTION="..." [SESSION=... PROMPT="NAME KEY=VALUE" INVENTORY=...]
	@$(AS_ROOT) $(PYTHON) scripts/ask.py

approvals: root setup ## The tool calls that wait for a person (docs/approvals.md)
	@$(AS_ROOT) $(PYTHON) scripts/approvals.py approvals

approve: root setup ## Let one that waits be made, as it is shown: make approve ID=...
	@$(AS_ROOT) $(PYTHON) scripts/approvals.py approve

deny: root setup ## Deny one that waits: make deny ID=... [WHY="..."]
	@$(AS_ROOT) $(PYTHON) scripts/approvals.py deny

trace: root setup ## Show a session frame by frame: make trace [SESSION=...]
	@$(AS_ROOT) $(PYTHON) scripts/trace.py trace

verify: root setup ## Check a session's chains and signatures: make verify [SESSION=...] [INDEX=1: into the log]
	@$(AS_ROOT) $(PYTHON) scripts/trace.py verify

web: root setup ## The log's page at https://127.0.0.1:8000, through SSH: sessions, receipts, detections (WEB_PORT=...)
	@$(AS_ROOT) $(PYTHON) scripts/web.py

flows: root setup ## What the hypervisor saw against what the sessions say: make flows [HOURS=24]
	@$(AS_ROOT) $(PYTHON) scripts/flows.py

snapshot: root setup ## Keep the guests as they are: make snapshot [SNAPSHOT=clean] [HOSTS=agents] [REPLACE=1|REMOVE=1]
	@$(AS_ROOT) $(PYTHON) scripts/lifecycle.py snapshot

reset: root setup ## Put the agent back to a snapshot and prove that it works: make reset [SNAPSHOT=clean]
	@$(AS_ROOT) $(PYTHON) scripts/lifecycle.py reset

rebuild: root setup ## Make the agent anew, with new keys; the old machine goes when the new one is verified (REVERT=1: go back)
	@$(AS_ROOT) $(PYTHON) scripts/lifecycle.py rebuild

resize: root setup ## Give the guests the sizes of the inventory: make resize INVENTORY=inventories/proxmox
	@$(AS_ROOT) $(PYTHON) scripts/lifecycle.py resize

status: root setup ## What stands: state, age, version, snapshots (JSON=1: as JSON)
	@$(AS_ROOT) $(PYTHON) scripts/lifecycle.py status

destroy: root ## Remove the lab, all of it (FORCE=1: also a living one of another checkout; CACHE=1: the cached image and wheels too; CHECK=1: only say so)
	@[ -n "$$INVENTORY" ] || $(AS_ROOT) python3 $(LAB) destroy --text --lab-id="$${LAB_ID:-glasslab}" $(if $(call switch,FORCE),--force) $(if $(call switch,CACHE),--cache) $(if $(call switch,CHECK),--check)
	@[ -z "$$INVENTORY" ] || $(AS_ROOT) env CONFIRM=1 FORCE=$(call switch,FORCE) CACHE=$(call switch,CACHE) $(PYTHON) scripts/lifecycle.py destroy

##@ Working on it
setup: ## Make .venv, with glasslab in .venv/bin
	@scripts/setup.sh

setup-lab: root
	@scripts/setup.sh --with-lab

TEMPLATE ?= agent
SOURCE ?= proxmox-clone
template: setup ## A template for Proxmox VE, by Packer: make template TEMPLATE=agent SOURCE=qemu ARGS="..." (docs/packer.md)
	@$(PYTHON) packer/template.py $(TEMPLATE) --source $(SOURCE) $(ARGS)

setup-tests: root
	@scripts/setup.sh --with-tests

test: root setup-tests ## Every test: lint, units, a lab of its own, each Molecule scenario
	@$(AS_ROOT) $(PYTHON) scripts/test.py

setup-emulation: root
	@scripts/setup.sh --with-emulation

test-emulated: root setup-emulation ## A real machine behind the Proxmox double: Packer's build, clone, answer, reset, rebuild, destroy (FRESH=1)
	@$(AS_ROOT) $(PYTHON) scripts/test_emulated.py $(if $(call switch,FRESH),--fresh)

verify-proxmox: setup ## The Proxmox scenario on a live host, asked first: make verify-proxmox PROXMOX_HOST=... PROXMOX_TOKEN_SECRET_FILE=...
	@$(PYTHON) scripts/verify_proxmox.py

verify-splunk: setup ## What only a real Splunk can show, asked first: make verify-splunk SPLUNK_URL=https://splunk.example:8089
	@$(PYTHON) scripts/verify_splunk.py

soak: root setup-lab ## The long forms of the same tests: every failure of the log at every commit, the demo killed at many moments, mutants
	@$(AS_ROOT) $(PYTHON) scripts/test.py --soak

bench: root setup ## What a question costs on the standing lab; writes bench/results.json
	@$(AS_ROOT) $(PYTHON) bench/run.py

lint: setup ## ansible-lint, yamllint, ruff, mypy; the Splunk app, also by splunk-appinspect and ksconf
	@$(PYTHON) scripts/test.py lint

unit: setup ## Unit tests: the Python package, scripts and roles, the nspawn backend, MCP's conformance suites (npm's registry)
	@$(PYTHON) scripts/test.py unit

coverage: setup ## How much of agent_src its tests run, their programs included; at least 95 %
	@COVERAGE_FILE=$$(mktemp -d)/coverage .venv/bin/pytest -q -p no:cacheprovider -n 2 --dist loadfile --cov \
		--cov-config=agent_src/pyproject.toml --cov-report=term --cov-fail-under=95 agent_src/tests

mutants: setup ## Small changes of what must not fail, each of which a test has to notice: make mutants [MODULE=glasslab.policy]
	@$(PYTHON) tests/mutants.py $(MODULE)

lock: setup ## Renew the hash-locked requirements
	@scripts/lock.sh

root:
	@[ -n "$$INVENTORY" ] || [ "$$(id -u)" = 0 ] || command -v sudo >/dev/null || { echo "make: the lab needs root, and sudo is not installed; run this as root" >&2; exit 2; }
	@[ -n "$$INVENTORY" ] || [ "$$(id -u)" = 0 ] || sudo -n true 2>/dev/null || { [ -t 0 ] && sudo -v; } || { echo "make: the lab needs root: $$(id -un) may not use sudo here, or sudo wants a password and there is no terminal; run this as root" >&2; exit 2; }

help: ## This list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

.PHONY: demo ask approvals approve deny trace verify flows snapshot reset rebuild resize status destroy setup setup-lab setup-tests setup-emulation template test test-emulated verify-proxmox soak bench lint unit coverage mutants lock root help verify-splunk web
