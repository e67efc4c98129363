# make help lists the targets. You need Go, git, make, and a C compiler (only for -race).
# The control plane, the linter, kustomize, helm and Argo CD are built once into ${XDG_CACHE_HOME:-~/.cache}/kedge, outside the work tree.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# A tagged build reports its tag. Any other build reports "dev" and the commit, which Go records.
VERSION ?= $(shell git describe --tags --match 'v[0-9]*' --dirty 2>/dev/null)
LDFLAGS := -s -w $(if $(VERSION),-X github.com/kedge-dev/kedge/internal/version.release=$(VERSION))

CACHE := $(if $(XDG_CACHE_HOME),$(XDG_CACHE_HOME),$(HOME)/.cache)/kedge
LINT_VERSION := $(shell awk '$$1 == "github.com/golangci/golangci-lint/v2" { print $$2 }' tools/lint/go.mod)
LINT := $(CACHE)/tools/golangci-lint-$(LINT_VERSION)
BUF := go tool -modfile=tools/go.mod buf

# make check builds the demo as on a fresh machine: Go stamps the programs with the commit, and git accepts the work tree
# even if another user owns its files.
DEMO_ENV := GOFLAGS="$$(go env GOFLAGS) -buildvcs=$(if $(wildcard .git),true,auto)" \
	GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='$(CURDIR)'

# Packages to test and flags to test them with: make test PKG=./server/... TESTFLAGS=-v
PKG ?= ./...
TESTFLAGS ?=
# Number of new seeds of each test of make soak.
SEEDS ?= 3
# Run time of each target of make fuzz.
FUZZTIME ?= 10s
# Arguments of the demo and of the benchmarks: make demo ARGS=--once
ARGS ?=

.PHONY: help
help: ## list the targets
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## build the three programs into bin/
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

.PHONY: kube
kube: ## build the Kubernetes control plane for tests and the demo (once, about 10 minutes) and print its folder
	@hack/kube/build.sh

.PHONY: argocd
argocd: ## build the Argo CD for tests (once, about 7 minutes) and print its folder
	@hack/argocd/build.sh

.PHONY: demo
demo: build ## start clusters, a server, agents and a Git repository, and deploy to them (ARGS=--once to check and exit)
	@kube=$$(hack/kube/build.sh) && bin/kedge demo --kube-bin="$$kube" $(ARGS)

.PHONY: test
test: ## run all tests, with the race detector, on a real control plane and a real PostgreSQL
	@hack/test.sh $(TESTFLAGS) $(PKG)
	@go -C tools/console test ./...

.PHONY: test-short
test-short: ## run the tests that need only Go and git
	go test -short -timeout 5m $(TESTFLAGS) $(PKG)

.PHONY: soak
soak: ## run the tests with random steps and faults with SEEDS new seeds
	@KEDGE_NEW_SEEDS=$(SEEDS) hack/test.sh $(TESTFLAGS) -timeout 4h ./test/chaos ./test/faults

.PHONY: fuzz
fuzz: ## run every fuzz target of PKG, one after another, each for FUZZTIME
	@hack/fuzz.sh $(FUZZTIME) $(PKG)

.PHONY: bench
bench: build ## run the quick benchmarks (results in bench/out/results.jsonl; ARGS=--only=B1 for one)
	CGO_ENABLED=0 go build -trimpath -o bin/ ./bench/...
	@kube=$$(hack/kube/build.sh) && bin/bench --kube-bin="$$kube" --commit="$$(git describe --always --dirty)" $(ARGS)

.PHONY: bench-full
bench-full: ## run the benchmarks with the large sizes
	@$(MAKE) bench ARGS='--full $(ARGS)'

.PHONY: generate
generate: ## regenerate the protocol messages and the bundle of the console
	$(BUF) generate
	go tool -modfile=tools/go.mod controller-gen object paths=./api/v1alpha1/... crd output:crd:dir=deploy/crds
	go generate ./...

.PHONY: generate-check
generate-check: ## fail if generated code is stale
	@hack/generate-check.sh

.PHONY: lint
lint: $(LINT) ## run the linters of .golangci.yml and of buf.yaml
	$(LINT) run
	$(BUF) lint

$(LINT): tools/lint/go.mod tools/lint/go.sum
	@echo "building golangci-lint $(LINT_VERSION): once, about 2 minutes on two cores" >&2
	@mkdir -p $(@D)
	@GOWORK=off CGO_ENABLED=0 go -C tools/lint build -trimpath -o $@.$$$$ github.com/golangci/golangci-lint/v2/cmd/golangci-lint && mv $@.$$$$ $@ && touch $@

.PHONY: check
check: ## run what CI runs: generate-check, lint, test and the demo
	@$(MAKE) generate-check
	@$(MAKE) lint
	@$(MAKE) test
	@$(DEMO_ENV) KUBECONFIG= $(MAKE) demo ARGS=--once
	@$(DEMO_ENV) KUBECONFIG= $(MAKE) demo ARGS="--once --crs"

.PHONY: clean
clean: ## remove build results from the work tree (the cache stays)
	rm -rf bin bench/out .demo
