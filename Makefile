# Docstore. `make` or `make help` lists the targets.

GO      ?= go
# Debian's, for which scripts/setup installs gRPC.
PYTHON  ?= /usr/bin/python3
TOOLS   := $(CURDIR)/.tools
LINT    := $(TOOLS)/golangci-lint-v2.15.0

.DEFAULT_GOAL := help
.PHONY: help demo build packages image release test test-all check lint fuzz soak bench bench-report proto setup clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## run updater, daemon and client in one process, with generated job postings
	$(GO) run ./cmd/docstore demo

build: ## build the commands into bin/
	$(GO) build -o bin/ ./cmd/...
	cp deploy/docstore-sync bin/

# The limit of one package, for a loaded machine.
TEST_TIMEOUT ?= 25m

# A line for each package, the output of failures, and the totals.
REPORT := $(TOOLS)/testreport
# The same with temporary files in memory. The tests of the whole system, and those with invariants,
# write to the disk.
IN_MEMORY := TMPDIR=$$(scripts/memory-dir) $(REPORT)

# Vet runs in check. It and symbol tables cost a fifth of the time of the first run.
LEAN := -vet=off -ldflags='-s -w'

# The fleet in one process, in virtual time; see internal/simulate. Its linker flag lets it change a
# table of the runtime. These targets run the same seeds each time, in as many processes as there are
# processors; make soak tries new ones. SEEDS is the number of those of test-all.
SEEDS ?= 200
SIMULATION := -tags simulation -ldflags='-s -w -checklinkname=0' -timeout $(TEST_TIMEOUT) ./internal/simulate -divided

# Packages of the module whose tests need only Go; test/ has those of the whole system.
PACKAGES := $$($(GO) list ./... | grep -v '^docstore/test/')
# Those that have no second goroutine for the race detector to watch.
SEQUENTIAL := ./boxcarrpc/core ./boxcarrpc/subset ./ingest/parquet
# Those whose tests take minutes with it: it runs the short ones.
LONG := ./boxcarrpc ./cmd/internal/docserviced ./cmd/internal/updater ./docservice/collection ./docservice/follow ./lsm ./queue ./queue/maintain ./queue/publish

# The commands of tests, packages and images are built with the same flags, as are the packages whose
# types vet and linters read, so that the build cache has each package once. The race detector needs cgo.
test test-all check lint fuzz: export CGO_ENABLED = 0
test test-all check lint fuzz: export GOFLAGS := $(shell $(GO) env GOFLAGS) -trimpath

# Four packages at a time, because tests wait.
test: $(REPORT) ## test with random seeds; needs only Go; three minutes, the first time eight
	$(GO) build -o bin/ ./cmd/...
	$(IN_MEMORY) -count 1 -short $(LEAN) -p 4 -timeout $(TEST_TIMEOUT) $(PACKAGES) ./test/commands ./test/architecture
	$(REPORT) -count 1 -short -vet=off $(SIMULATION) -seed 1 -seeds 20

# test/ runs the commands as processes, built without the race detector: it would slow down
# the tests and find nothing. The other packages run with it, with a third of the crashes, faults
# and damages (see internal/crashtest). The longest run only their short tests with it, with a
# ninth, and all tests without it afterwards.
test-all: setup check $(REPORT) ## install tools and run every test: races, real servers, guides, browser, clients, images; 40 minutes
	@scripts/setup chromium
	CGO_ENABLED=1 $(IN_MEMORY) -slowest 10 $(LEAN) -race -p 4 -timeout $(TEST_TIMEOUT) $$($(GO) list $(PACKAGES) | grep -vxF "$$($(GO) list $(SEQUENTIAL) $(LONG))")
	CGO_ENABLED=1 $(IN_MEMORY) -slowest 10 $(LEAN) -race -short -p 4 -timeout $(TEST_TIMEOUT) $(LONG)
	$(REPORT) -slowest 10 $(LEAN) -timeout $(TEST_TIMEOUT) ./test/...
	$(REPORT) -slowest 10 $(LEAN) -p 4 -timeout $(TEST_TIMEOUT) -tags invariants,nolzo $(SEQUENTIAL) $(LONG) ./internal/vfs ./internal/residency ./bloom ./lsm/internal/... ./queue/internal/... ./queue/codec ./queue/stored ./queue/bucket ./wal ./ingest ./docservice/column ./docservice/placement/...
	$(REPORT) -vet=off $(SIMULATION) -seed 1000 -seeds $(SEEDS)
	cd bench && $(REPORT) $(LEAN) -timeout $(TEST_TIMEOUT) ./...
	cd examples/frontend && $(REPORT) $(LEAN) -timeout $(TEST_TIMEOUT) ./...
	cd examples/embed && $(REPORT) $(LEAN) -timeout $(TEST_TIMEOUT) ./...
	cd test/kubernetes && $(REPORT) $(LEAN) -timeout $(TEST_TIMEOUT) ./...
	cd test/openapi && $(REPORT) $(LEAN) -timeout $(TEST_TIMEOUT) .
	cd test/ui && $(REPORT) $(LEAN) -timeout $(TEST_TIMEOUT) .
	cd clients/node && npm test --silent
	cd clients/java && javac --release 17 -Xlint:all -Werror -d build/tests src/docstore/client/*.java tests/docstore/client/*.java && java -cp build/tests docstore.client.Tests
	cd clients/python && mypy && $(PYTHON) -m tests

check: ## gofmt, go vet (also with invariants and without lzo), types for darwin and windows, go mod tidy
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$unformatted" || { echo "gofmt would change: $$unformatted"; exit 1; }
	$(GO) mod tidy -diff
	$(GO) vet ./...
	$(GO) vet -tags invariants,nolzo,simulation ./...
	$(GO) run ./internal/crosscheck
	cd bench && $(GO) mod tidy -diff && $(GO) vet ./...
	cd test/ui && $(GO) mod tidy -diff && $(GO) vet ./...
	cd test/openapi && $(GO) mod tidy -diff && $(GO) vet ./...
	cd examples/frontend && $(GO) mod tidy -diff && $(GO) vet ./...
	cd examples/embed && $(GO) mod tidy -diff && $(GO) vet ./...
	cd test/kubernetes && $(GO) mod tidy -diff && $(GO) vet ./...

lint: setup $(LINT) ## golangci-lint with .golangci.yml, shellcheck
	shellcheck .ci/run deploy/docstore-sync deploy/package/p* scripts/*
	$(LINT) run ./...
	cd bench && $(LINT) run --config ../.golangci.yml ./...
	cd test/ui && $(LINT) run --config ../../.golangci.yml ./...
	cd test/openapi && $(LINT) run --config ../../.golangci.yml ./...
	cd examples/frontend && $(LINT) run --config ../../.golangci.yml ./...
	cd examples/embed && $(LINT) run --config ../../.golangci.yml ./...
	cd test/kubernetes && $(LINT) run --config ../../.golangci.yml ./...

FUZZ_TIME ?= 5s
fuzz: ## fuzz each decoder for FUZZ_TIME (default 5s)
	scripts/fuzz $(FUZZ_TIME)

soak: setup ## run for hours: all seeds, crashes, kills, mutations, fuzzers; PART=cluster: a cluster under faults for a day; PART=alerts: their alerts, 90 minutes
	scripts/soak $(PART)

bench: ## run the Go benchmarks of all packages
	$(GO) test -run '^$$' -bench . -benchmem ./...

bench-report: ## run the comparisons, resume after an interruption, write bench/README.md (20 minutes; SIZE=full takes hours)
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
	protoc --proto_path=docservice/docservicepb --python_out=clients/python/src/docstore_client --pyi_out=clients/python/src/docstore_client docservice.proto

setup: ## install the tools of tests and linters (rsync, gcc, ...)
	@scripts/setup

$(REPORT): $(wildcard internal/testreport/*.go)
	$(GO) build -o $@ ./internal/testreport

$(LINT):
	GOBIN=$(TOOLS) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
	mv $(TOOLS)/golangci-lint $@

clean: ## remove build output
	rm -rf bin dist .tools clients/java/build
