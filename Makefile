# Docstore. `make` or `make help` lists the targets.

GO      ?= go
TOOLS   := $(CURDIR)/.tools
LINT    := $(TOOLS)/golangci-lint-v2.15.0

.DEFAULT_GOAL := help
.PHONY: help demo build packages image release test test-ui check lint fuzz soak bench bench-report proto setup clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## run updater, daemon and client in one process, with generated job postings
	$(GO) run ./cmd/docserviced demo

build: ## build the commands into bin/
	$(GO) build -o bin/ ./cmd/...

# The limit of one package, for a loaded machine. On an idle one the slowest takes two minutes.
TEST_TIMEOUT ?= 25m

# test/ runs the commands as processes, built without the race detector: the race detector would
# slow down the tests and find nothing. All other packages run with it.
test: setup check ## install what the tests need, check, and run all tests (of the mutations a sample, see soak)
	$(GO) test -race -timeout $(TEST_TIMEOUT) $$($(GO) list ./... | grep -v '^docstore/test/')
	$(GO) test -timeout $(TEST_TIMEOUT) ./test/...
	$(GO) test -timeout $(TEST_TIMEOUT) -tags invariants,nolzo ./internal/vfs ./bloom ./lsm ./queue ./wal ./docservice ./boxcarrpc/core ./cmd/docstore-updater
	cd bench && $(GO) test -timeout $(TEST_TIMEOUT) ./...
	cd examples/frontend && $(GO) test -timeout $(TEST_TIMEOUT) ./...
	cd test/kubernetes && $(GO) test -timeout $(TEST_TIMEOUT) ./...
	cd test/openapi && $(GO) test -timeout $(TEST_TIMEOUT) .
	cd clients/node && npm test --silent

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
	cd test/openapi && $(GO) mod tidy -diff && $(GO) vet ./...
	cd examples/frontend && $(GO) mod tidy -diff && $(GO) vet ./...
	cd test/kubernetes && $(GO) mod tidy -diff && $(GO) vet ./...

lint: setup $(LINT) ## golangci-lint with .golangci.yml, shellcheck
	shellcheck .ci/run deploy/docstore-sync deploy/package/p* scripts/*
	$(LINT) run ./...
	cd bench && $(LINT) run --config ../.golangci.yml ./...
	cd test/ui && $(LINT) run --config ../../.golangci.yml ./...
	cd test/openapi && $(LINT) run --config ../../.golangci.yml ./...
	cd examples/frontend && $(LINT) run --config ../../.golangci.yml ./...
	cd test/kubernetes && $(LINT) run --config ../../.golangci.yml ./...

test-ui: ## install Chromium and test the live page
	@scripts/setup chromium
	cd test/ui && $(GO) test .

FUZZ_TIME ?= 5s
fuzz: ## fuzz each decoder for FUZZ_TIME (default 5s)
	scripts/fuzz $(FUZZ_TIME)

soak: setup ## run for hours: all seeds, crashes, kills, mutations, fuzzers; PART=cluster: a cluster under faults for a day
	scripts/soak $(PART)

bench: ## run the Go benchmarks of all packages
	$(GO) test -run '^$$' -bench . -benchmem ./...

bench-report: ## run the comparisons, resume after an interruption, write docs/benchmarks.md (20 minutes; SIZE=full takes hours)
	cd bench && $(GO) run ./report -size $(or $(SIZE),quick)

image: ## build the container image into dist/, with buildah
	@scripts/setup buildah jq
	scripts/image

release: ## build the release VERSION=v0.1.0 into dist/: archives, image, bill of materials, checksums
	@scripts/setup buildah jq
	scripts/release $(VERSION)

packages: ## build the Debian package into dist/
	scripts/package

proto: ## generate code from the .proto files (needs protoc)
	$(GO) generate ./docservice/docservicepb ./examples/grpcstubs/jobspb
	cd clients/node && npm run --silent generate

setup: ## install the tools of tests and linters (rsync, gcc, ...)
	@scripts/setup

$(LINT):
	GOBIN=$(TOOLS) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
	mv $(TOOLS)/golangci-lint $@

clean: ## remove build output
	rm -rf bin dist .tools
