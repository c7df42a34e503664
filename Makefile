# Docstore. `make` or `make help` lists what there is.

GO      ?= go
TOOLS   := $(CURDIR)/.tools
LINT    := $(TOOLS)/golangci-lint-v2.15.0

.DEFAULT_GOAL := help
.PHONY: help demo build packages test test-ui check lint fuzz soak bench bench-report proto setup clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## run the whole of it in one process, on made-up job postings
	$(GO) run ./cmd/docserviced demo

build: ## build the commands into bin/
	$(GO) build -o bin/ ./cmd/...

# A package has so long on a machine of two cores that others use as well; the longest take
# three minutes on a quiet one.
TEST_TIMEOUT ?= 25m
test: setup check ## install what the tests need, check, and run all of them under the race detector
	$(GO) test -race -timeout $(TEST_TIMEOUT) ./...
	$(GO) test -timeout $(TEST_TIMEOUT) -tags invariants,nolzo ./bloom ./lsm ./queue ./wal ./docservice ./boxcarrpc/core ./cmd/docstore-updater
	cd bench && $(GO) test -timeout $(TEST_TIMEOUT) ./...
	cd examples/frontend && $(GO) test -race -timeout $(TEST_TIMEOUT) ./...

check: ## gofmt, go vet (also without lzo, with invariants, for darwin and windows), go mod tidy
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$unformatted" || { echo "gofmt would change: $$unformatted"; exit 1; }
	$(GO) mod tidy -diff
	$(GO) vet ./...
	$(GO) vet -tags nolzo ./...
	$(GO) vet -tags invariants ./...
	GOOS=darwin $(GO) build ./...
	GOOS=windows $(GO) build ./...
	cd bench && $(GO) mod tidy -diff && $(GO) vet ./...
	cd test/ui && $(GO) mod tidy -diff && $(GO) vet ./...
	cd examples/frontend && $(GO) mod tidy -diff && $(GO) vet ./...

lint: setup $(LINT) ## golangci-lint with .golangci.yml, shellcheck
	shellcheck .ci/run deploy/docstore-sync deploy/package/p* scripts/*
	$(LINT) run ./...
	cd bench && $(LINT) run --config ../.golangci.yml ./...
	cd test/ui && $(LINT) run --config ../../.golangci.yml ./...
	cd examples/frontend && $(LINT) run --config ../../.golangci.yml ./...

test-ui: ## look at the live page with Chromium, which this installs
	@scripts/setup chromium
	cd test/ui && $(GO) test .

FUZZ_TIME ?= 5s
fuzz: ## fuzz each decoder for FUZZ_TIME, 5s if not said
	scripts/fuzz $(FUZZ_TIME)

soak: setup ## the long runs: every seed, every kill, the fuzzers
	scripts/soak

bench: ## the benchmarks beside the code
	$(GO) test -run '^$$' -bench . -benchmem ./...

bench-report: ## all benchmarks beside their rivals, resumed: docs/benchmarks.md (20 minutes; SIZE=full takes hours)
	cd bench && $(GO) run ./report -size $(or $(SIZE),quick)

packages: ## build the Debian package into dist/
	scripts/package

proto: ## generate Go from the .proto files (needs protoc)
	$(GO) generate ./docservice/docservicepb ./examples/grpcstubs/jobspb

setup: ## install what tests and linters need, from rsync to gcc
	@scripts/setup

$(LINT):
	GOBIN=$(TOOLS) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
	mv $(TOOLS)/golangci-lint $@

clean: ## remove what the build made
	rm -rf bin dist .tools
