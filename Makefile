# `make help` lists the targets. CI calls `make test` and nothing else.
SHELL := bash

# One set of flags for build, run and test: another set compiles everything again.
# The tag leaves the clouds' service discoveries out of the prometheus receiver;
# without it all works too, and is 26 MB larger.
# The linter vets (govet); go vet and go test would each vet every dependency once more.
# Without DWARF, which only a debugger reads, compiling takes a sixth less.
export CGO_ENABLED := 0
export GOFLAGS := -trimpath -buildvcs=false -tags=remove_all_sd -vet=off -gcflags=all=-dwarf=false

# What is in C, and what compiles it: the race detector, too.
C := ./receivers/dcgmreceiver/internal/godcgm
WITH_C := CGO_ENABLED=1 CGO_CFLAGS='-O2 -Wno-deprecated-declarations'

PACKAGES ?= ./...
KERNEL ?=
FUZZTIME ?= 30s
FUZZREST ?= 5s
ARCHITECTURES ?= amd64 arm64
KUBERNETES := 1.35.4
PROMETHEUS_OPERATOR := 0.90.1

BIN := .cache/bin
RESULTS := .cache/results
STEP := $(BIN)/step -dir $(RESULTS)
TOOL := go tool -modfile=$(CURDIR)/tools/go.mod
LINT := go tool -modfile=$(CURDIR)/tools/lint/go.mod golangci-lint
# Nobody runs a tool that another make is just writing.
LOCKED := flock $(BIN)

# What CI runs, quick things first. Each is a target that records its results.
STAGES := format lint unit tools builder host chart cluster race fuzz vmtest check-generated
# What has goroutines. Patterns have none, and a probe needs its kernel. Two tests of
# sizes are left out: they are slow under the detector, and others run their code.
RACE := ./processors/... ./exporters/... ./extensions/... ./receivers/...
NORACE := ^(TestAMillionKeysInFlatMemory|TestAJobThatDiesDoesNotFillTheScreen)$$

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' Makefile | awk -F ':.*## ' '{ printf "  %-16s %s\n", $$1, $$2 }'

.PHONY: build
build: ## Build bin/tracecore and, where a C compiler is, bin/tracecore-nvml and bin/tracecore-dcgm, which read NVIDIA GPUs
	go build -ldflags '-s -w' -o bin/tracecore ./distro/cmd/tracecore
	@for library in nvml dcgm; do if command -v cc >/dev/null; then \
		$(WITH_C) go build -ldflags '-s -w' -o bin/tracecore-$$library ./receivers/$${library}receiver/cmd/tracecore-$$library || exit 1; \
	else rm -f bin/tracecore-$$library; echo "no C compiler (cc): without bin/tracecore-$$library, the $$library receiver reads no GPUs"; fi; done

.PHONY: image
image: ## The container images, bin/image/tracecore.tar and, with what reads GPUs, tracecore-gpu.tar (OCI image layouts), and their bills of materials (ARCHITECTURES=amd64 for one)
	@tools/image.sh $(ARCHITECTURES)

.PHONY: run
run: build ## Build and run tracecore with its embedded configuration (as root, for the probes)
	bin/tracecore

# What `make check` looks at: PACKAGES if it is given, else what changed.
CHECKED = $(if $(filter-out file,$(origin PACKAGES)),$(PACKAGES),$$(tools/changed.sh))

.PHONY: check
check: format ## The loop of one change: format, lint and short tests of changed packages and their importers (or PACKAGES=…); no root, no faults, no machines
	@packages="$(CHECKED)"; [ -z "$$packages" ] || { set -x; $(LINT) run $$packages && go test -short $$packages; }

.PHONY: test
test: ## Everything that CI runs, virtual machines included; installs what is missing
	@rm -rf $(RESULTS) && mkdir -p $(RESULTS)
	@$(MAKE) --no-print-directory -j2 deps modules
	@$(MAKE) --no-print-directory step build
	@export CI=true KERNEL=quick PACKAGES="$$(go list ./... | grep -vxFf <(go run ./vmtests -list; go list ./charts/...) | tr '\n' ' ')"; \
	nice -n 19 $(MAKE) --no-print-directory ahead > $(RESULTS)/ahead.log 2>&1 & \
	for stage in $(STAGES); do \
		start=$$SECONDS; $(MAKE) --no-print-directory $$stage; \
		echo "$$stage $$? $$((SECONDS - start))" >> $(RESULTS)/stages; \
	done; wait
	@$(STEP) -summary

.PHONY: deps
deps: ## Install the Debian packages that tests and generators need
	@tools/deps.sh

# Fetches the modules, and compiles the standard library meanwhile, while Debian's packages
# come; without a network the kept ones will do.
.PHONY: modules
modules: ; -@go build std & go list -deps -test ./... >/dev/null; wait

.PHONY: step
step: ; @go -C tools build -o ../$(BIN)/step ./step

# Compiles what later stages need while earlier ones wait for kernels: without
# caches that is minutes. A stage makes again what could not be made here, and says why.
.PHONY: ahead
ahead: cluster-tools chart-tools
	$(WITH_C) go build -race $(RACE)
	tools/fuzz.sh build

.PHONY: format
format: step ## Go files are formatted
	@$(STEP) -name format -- bash -c 'files=$$(gofmt -l $$(git ls-files -co --exclude-standard "*.go")); [ -z "$$files" ] || { echo "run gofmt -w on:"; echo "$$files"; exit 1; }'

.PHONY: lint
lint: step ## golangci-lint, with go vet and the walls between the rooms
	@$(STEP) -name lint -- $(LINT) run ./...

.PHONY: unit
unit: step ## Unit tests (PACKAGES=./patterns/... for some)
	@$(STEP) -name unit -json -- go test -json $(PACKAGES)

.PHONY: tools
tools: step ## Tests of the tools themselves
	@$(STEP) -name tools -json -- bash -c 'for module in tools tools/image; do go -C $$module vet ./... && go -C $$module test -json ./... || exit 1; done'

.PHONY: host
host: build step ## The tests that need a kernel, on this machine (as root)
	@go run ./vmtests -kernel host -binary bin/tracecore -json $(RESULTS)/host.json

.PHONY: vmtest
vmtest: deps build ## The same test binaries on every kernel of vmtests/kernels.txt, and its tables (KERNEL=5.10 for one, quick for what CI runs)
	@mkdir -p $(RESULTS)
	@go run ./vmtests -kernel '$(KERNEL)' -binary bin/tracecore -json $(RESULTS)/vmtest.json $(if $(KERNEL),,-results vmtests)

.PHONY: race
race: step ## Unit tests under the race detector, and go vet of the package in C, which the linter does not see
	@$(WITH_C) $(STEP) -name race -json -- bash -c 'go vet $(C) && go test -json -race -skip "$(NORACE)" $(RACE)'

.PHONY: fuzz
fuzz: step ## Every fuzz target: parsers and decoders for FUZZTIME, the rest for FUZZREST
	@$(STEP) -name fuzz -json -- tools/fuzz.sh $(FUZZTIME) $(FUZZREST)

.PHONY: bench
bench: ## Benchmarks
	go test -run '^$$' -bench . -benchmem $(PACKAGES)

.PHONY: chart
chart: deps chart-tools ## Lint the Helm chart, render its scenarios, validate them, check its alerts, run the runbook
	@$(MAKE) --no-print-directory image ARCHITECTURES=amd64
	@$(STEP) -name chart -json -- go test -json ./charts

.PHONY: chart-tools
chart-tools: build step
	@$(LOCKED) $(MAKE) --no-print-directory chart-tools-locked

chart-tools-locked:
	@go -C tools/kube build -o ../../$(BIN)/ helm.sh/helm/v3/cmd/helm github.com/prometheus/prometheus/cmd/promtool
	@go -C tools build -o ../$(BIN)/kubeconform github.com/yannh/kubeconform/cmd/kubeconform
	@[ -s .cache/swagger-$(KUBERNETES).json ] || cp "$$(cd / && go mod download -json k8s.io/kubernetes@v$(KUBERNETES) | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')/api/openapi-spec/swagger.json" .cache/swagger-$(KUBERNETES).json
	@[ -s .cache/crds-$(PROMETHEUS_OPERATOR)/monitoring.coreos.com_prometheusrules.yaml ] || { mkdir -p .cache/crds-$(PROMETHEUS_OPERATOR) && \
	cp "$$(cd / && go mod download -json github.com/prometheus-operator/prometheus-operator@v$(PROMETHEUS_OPERATOR) | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')"/example/prometheus-operator-crd/monitoring.coreos.com_{podmonitors,prometheusrules}.yaml .cache/crds-$(PROMETHEUS_OPERATOR)/; }

.PHONY: cluster
cluster: deps chart-tools cluster-tools ## A real API server takes the chart, tracecore works with the rights that the chart gives (builds kube-apiserver and kwok: minutes, once)
	@$(STEP) -name cluster -json -- go test -json -timeout 30m ./charts/cluster

.PHONY: cluster-tools
cluster-tools:
	@mkdir -p $(BIN) && $(LOCKED) go -C tools/kube build -o ../../$(BIN)/ k8s.io/kubernetes/cmd/kube-apiserver sigs.k8s.io/kwok/cmd/kwok
	@$(LOCKED) install -m 644 -Dt .cache/stages "$$(go -C tools/kube list -m -f '{{.Dir}}' sigs.k8s.io/kwok)"/kustomize/stage/{node/fast/node-initialize,node/heartbeat/node-heartbeat,node/chaos/node-not-ready,pod/fast/pod-ready,pod/fast/pod-delete}.yaml

.PHONY: builder
builder: step ## The collector builder accepts distro/builder-config.yaml
	@$(STEP) -name builder -- $(TOOL) builder --config distro/builder-config.yaml

.PHONY: generate
generate: deps ## Rebuild BPF objects (clang 16) and what mdatagen makes
	tools/generate.sh

.PHONY: check-generated
check-generated: deps step ## Generated files are what their sources make
	@$(STEP) -name check-generated -- tools/generate.sh --check
