# `make help` lists the targets. CI calls `make test` and nothing else.
SHELL := bash

# Not empty: what passed before with the same files runs too, on the host and in the machines.
FRESH ?=

# One set of flags for build, run and test: another set compiles everything again.
# The tag leaves the clouds' service discoveries out of the prometheus receiver;
# without it all works too, and is 26 MB larger.
# The linter vets (govet); go vet and go test would each vet every dependency once more.
# Without DWARF, which only a debugger reads, compiling takes a sixth less.
# A compiler that collects no garbage below 2 GiB takes a quarter less: 104 s of CPU for 138
# (net/http, go/types and the compiler's ssa, cold; 2 virtual CPUs, Linux 6.18, 2026-11-22).
# What it makes is the same to the build cache.
export CGO_ENABLED := 0
export CGO_CFLAGS := -O2 -Wno-deprecated-declarations
export GOFLAGS := -trimpath -buildvcs=false -tags=remove_all_sd -vet=off -gcflags=all=-dwarf=false '-toolexec=env GOGC=off GOMEMLIMIT=2GiB' $(if $(FRESH),-count=1)

# What is in C, and what compiles it.
C := ./receivers/gpureceiver/internal/dcgm/dcgmcgo
WITH_C := CGO_ENABLED=1

PACKAGES ?= ./...
KERNEL ?=
FUZZTIME ?= 5s
SOAK ?= 10m
TRUTH ?= 15m
# A file of earlier runs, to which make truth adds its own: the page is about all of them.
TRUTH_SUM ?=
SEEDS ?= 1,2,3
ARCHITECTURES ?= amd64 arm64
KUBERNETES := 1.35.4
PROMETHEUS_OPERATOR := 0.90.1

BIN := .cache/bin
RESULTS := .cache/results
LINT := go tool -modfile=$(CURDIR)/tools/lint/go.mod golangci-lint
# Each runs a command, shows what its tests say and records it for the summary: of one
# that prints what go test -json prints, and of one that is a test itself.
JSON = @mkdir -p $(RESULTS) && $(BIN)/gotestsum --format pkgname-and-test-fails --format-hide-empty-pkg --hide-summary skipped --jsonfile $(RESULTS)/$@.json --raw-command --
CHECK = $(JSON) tools/as-test.sh $@
# What passed in machines, or in the stage host, with the same kernel, binaries and files.
KEPT = $(if $(FRESH),,-kept .cache/vmtests/passed)
# Nobody runs a tool that another make is just writing.
LOCKED := flock $(BIN)

# What a change can break, quick things first: what makes faults on this machine, or starts
# agents that see them, one after the other; what only takes CPU, which comes to what the
# others leave idle; and the machines, whose emulation keeps little more than one CPU busy.
STAGES := format race host chart cluster
STILL := lint tools unit fuzz check-generated
MACHINES := vmtest
# What a release needs beyond that.
RELEASE := attack stacks stacks-arm pages loki jaeger soak truth bench

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' Makefile | awk -F ':.*## ' '{ printf "  %-16s %s\n", $$1, $$2 }'

.PHONY: build
build: ## Build bin/tracecore and, where a C compiler is, bin/tracecore-gpu, which reads NVIDIA GPUs
	go build -ldflags '-s -w' -o bin/tracecore ./distro/cmd/tracecore
	@if command -v cc >/dev/null; then $(WITH_C) go build -ldflags '-s -w' -o bin/tracecore-gpu ./receivers/gpureceiver/cmd/tracecore-gpu; \
	else rm -f bin/tracecore-gpu; echo "no C compiler (cc): without bin/tracecore-gpu, the gpu receiver reads no GPUs"; fi

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
	@packages="$(CHECKED)"; [ -z "$$packages" ] || { set -x; $(LINT) run --allow-serial-runners $$packages && go test -short $$packages; }

.PHONY: test
test: ## Everything that a change can break, once: what CI runs, virtual machines included; installs what is missing (FRESH=true repeats what has not changed since it passed)
	@$(MAKE) --no-print-directory prepare
	@nice -n 19 $(MAKE) --no-print-directory ahead > $(RESULTS)/ahead.log 2>&1 & \
	CI=true KERNEL=quick tools/stages.sh $(STAGES) -- $(MACHINES) --idle $(STILL); status=$$?; wait; exit $$status

.PHONY: verify
verify: ## The gate before a release: make test with every kernel, 30 s for each fuzz target, attacks, soak, truth and benchmarks; writes vmtests/RESULTS.md, docs/truth.md and BENCHMARKS.md
	@$(MAKE) --no-print-directory prepare
	@CI=true FUZZTIME=30s tools/stages.sh $(STAGES) $(STILL) $(MACHINES) $(RELEASE)

.PHONY: prepare
prepare:
	@rm -rf $(RESULTS) && mkdir -p $(RESULTS)
	@$(MAKE) --no-print-directory -j2 deps modules
	@$(MAKE) --no-print-directory gotestsum build

.PHONY: deps
deps: ## Install the Debian packages that tests and generators need
	@tools/deps.sh

# Fetches the modules, and compiles the standard library meanwhile, while Debian's packages
# come; without a network the kept ones will do.
.PHONY: modules
modules: ; -@go build std & go list -deps -test ./... >/dev/null; wait

.PHONY: gotestsum
gotestsum: ; @go -C tools build -o ../$(BIN)/ gotest.tools/gotestsum

# Compiles what later stages need while earlier ones wait for kernels: without
# caches that is minutes. A stage makes again what could not be made here, and says why.
.PHONY: ahead
ahead: cluster-tools chart-tools

# A symbolic link does not survive every way that files are handed on: patches, archives, some checkouts.
.PHONY: format
format: gotestsum ## Go files are formatted; no file is a symbolic link
	$(CHECK) bash -c 'files=$$(gofmt -l $$(git ls-files -co --exclude-standard "*.go")); [ -z "$$files" ] || { echo "run gofmt -w on:"; echo "$$files"; exit 1; }; links=$$(git ls-files -s | grep ^120000); [ -z "$$links" ] || { echo "use files in place of symbolic links:"; echo "$$links"; exit 1; }'

# What cgo makes names the folder of its source. With -trimpath the build cache hands it to
# another checkout, and vet reads the source where the first one was.
.PHONY: lint
lint: gotestsum ## golangci-lint, with go vet and the walls between the rooms; go vet of the package in C, which the linter does not see
	$(CHECK) bash -c '$(LINT) run --allow-serial-runners ./... && $(WITH_C) go vet -trimpath=false $(C)'

.PHONY: race
race: gotestsum ## Unit tests of what has goroutines, under the race detector (PACKAGES=./receivers/... for some)
	$(JSON) tools/unit.sh race $(PACKAGES)

.PHONY: unit
unit: gotestsum ## The other unit tests, which take nothing but CPU (PACKAGES=./patterns/... for some)
	$(JSON) tools/unit.sh calm $(PACKAGES)

.PHONY: tools
tools: gotestsum ## Tests of the tools themselves
	$(JSON) bash -c 'for module in tools tools/image; do go -C $$module vet ./... && go -C $$module test -json ./... || exit 1; done'

.PHONY: host
host: build gotestsum ## The probes and the whole agent on the kernel of this machine (as root)
	@go run ./vmtests -kernel host -binary bin/tracecore -pkg "$$(tools/unit.sh host | paste -sd,)" -json $(RESULTS)/host.json $(KEPT)

.PHONY: vmtest
vmtest: deps build gotestsum ## Probes, receivers and agent on every kernel of vmtests/kernels.txt, and its tables (KERNEL=5.10 for one, quick for what make test runs)
	@go run ./vmtests -kernel '$(KERNEL)' -binary bin/tracecore -json $(RESULTS)/vmtest.json $(if $(KERNEL),$(KEPT),-results vmtests)

.PHONY: fuzz
fuzz: gotestsum ## Every fuzz target for FUZZTIME
	$(JSON) tools/fuzz.sh $(FUZZTIME)

.PHONY: attack
attack: gotestsum ## The state of an agent: damaged 1,000 times, killed 500 times, started 200 times on a full disk; 100,000 verdicts under kill -9; a restart, a save and a stranger's word at each record of each story; what 50 killed agents leave in the kernel (as root)
	$(JSON) bash -c 'go test -json -timeout 2h -run TestState ./distro/internal/command -state-rounds 1000; state=$$?; go test -json -timeout 2h -run Attack ./extensions/historyextension/internal/store -history-verdicts 100000 -history-rounds 1000 || state=$$?; go test -json -timeout 2h -run 'Restart|Saved|Weaker' ./patterns/story -every || state=$$?; go test -json -timeout 2h -run KilledAgent ./distro/internal/acceptance -kills 50 && exit $$state'

.PHONY: jitter
jitter: ## Tests while statements of the code wait now and then, as on a busy machine: a hasty test fails (SEEDS=4,5, PACKAGES=./receivers/... for some)
	@go -C tools run ./jitter -seeds $(SEEDS) $(PACKAGES)

.PHONY: stacks
stacks: deps gotestsum ## Stacks of Python beside those of faulthandler, and its native ones beside backtrace(3), with the interpreters of Debian's suites; 30,000 of a program that never holds still, for each (as root; fetches packages)
	$(JSON) bash -c 'go test -json -timeout 2h -run "Interpreter|Wrong" ./internal/pystack -interpreters -churn 30000; state=$$?; go test -json -timeout 1h -run OfDebian ./internal/unwind -interpreters && exit $$state'

.PHONY: stacks-arm
stacks-arm: deps gotestsum ## The same with those of arm64, in machines that are emulated, with pages of 4 and of 16 KiB; 30 of a program that never holds still
	@go run ./vmtests -kernel 6.12-arm64,6.12-arm64-16k -interpreters -pkg ./internal/pystack,./internal/unwind -run OfDebian -json $(RESULTS)/stacks-arm.json

.PHONY: pages
pages: gotestsum ## Report, comparison and list in headless Chromium: how fast they open, what they ask for, how wide they are, how they print; pictures in .cache/shots (installs Debian's chromium)
	@command -v chromium >/dev/null || DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends chromium
	@mkdir -p .cache/shots
	$(JSON) env TRACECORE_SHOTS=$(CURDIR)/.cache/shots go test -json -tags=remove_all_sd,browser -run InABrowser ./internal/incidentview

.PHONY: gpu
gpu: build gotestsum ## Faults of a real NVIDIA GPU, of its driver and of a job with NCCL, on a machine that has one (as root; python3 with PyTorch and CuPy)
	$(JSON) env PATH=$(CURDIR)/bin:$$PATH go test -json -timeout 1h -tags=remove_all_sd,gpu -run OnARealGPU ./distro/internal/acceptance

.PHONY: loki
loki: gotestsum ## The recipe loki.yaml with a real Loki, which takes seven minutes of CPU to build, once
	@$(LOCKED) go -C tools/loki build -o ../../$(BIN)/ github.com/grafana/loki/v3/cmd/loki
	$(JSON) go test -json -tags=remove_all_sd,loki -run Loki ./distro/recipes

.PHONY: jaeger
jaeger: gotestsum ## Traces of incidents, runs and steps with a real Jaeger, which takes minutes to build, once
	@$(LOCKED) go -C tools/jaeger build -o ../../$(BIN)/ github.com/jaegertracing/jaeger/cmd/jaeger
	$(JSON) go test -json -tags=remove_all_sd,jaeger -run Jaeger ./distro/recipes

.PHONY: soak
soak: gotestsum ## Healthy jobs of stand-in ranks for SOAK: nobody may be accused (as root)
	$(JSON) go test -json -timeout 2h -run Healthy ./distro/internal/acceptance ./receivers/ncclsockreceiver -soak $(SOAK)

.PHONY: truth
truth: build gotestsum ## Breaks real PyTorch jobs beside tracecore for TRUTH, and writes docs/truth.md (as root; the first time it makes a Debian with PyTorch in .cache/truth)
	$(CHECK) bash -c 'truth/root.sh .cache/truth/root && go build -o bin/truth ./truth && unshare -m --propagation private bin/truth -for $(TRUTH) $(if $(TRUTH_SUM),-sum $(TRUTH_SUM)) -report docs/truth.md'

.PHONY: bench
bench: gotestsum ## Benchmarks of PACKAGES, as root; of all of them also into BENCHMARKS.md
	$(subst pkgname-and-test-fails,standard-verbose,$(CHECK)) tools/bench.sh $(PACKAGES)

.PHONY: chart
chart: deps chart-tools ## Lint the Helm chart, render its scenarios, validate them, check its alerts, run the runbook
	@$(MAKE) --no-print-directory image ARCHITECTURES=amd64
	$(JSON) go test -json ./charts

.PHONY: chart-tools
chart-tools: build gotestsum
	@$(LOCKED) $(MAKE) --no-print-directory chart-tools-locked

chart-tools-locked:
	@go -C tools/kube build -o ../../$(BIN)/ helm.sh/helm/v3/cmd/helm github.com/prometheus/prometheus/cmd/promtool
	@go -C tools build -o ../$(BIN)/kubeconform github.com/yannh/kubeconform/cmd/kubeconform
	@[ -s .cache/swagger-$(KUBERNETES).json ] || cp "$$(cd / && go mod download -json k8s.io/kubernetes@v$(KUBERNETES) | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')/api/openapi-spec/swagger.json" .cache/swagger-$(KUBERNETES).json
	@[ -s .cache/crds-$(PROMETHEUS_OPERATOR)/monitoring.coreos.com_prometheusrules.yaml ] || { mkdir -p .cache/crds-$(PROMETHEUS_OPERATOR) && \
	cp "$$(cd / && go mod download -json github.com/prometheus-operator/prometheus-operator@v$(PROMETHEUS_OPERATOR) | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')"/example/prometheus-operator-crd/monitoring.coreos.com_{podmonitors,prometheusrules}.yaml .cache/crds-$(PROMETHEUS_OPERATOR)/; }

.PHONY: cluster
cluster: deps chart-tools cluster-tools ## A real API server takes the chart, tracecore works with the rights that the chart gives (builds kube-apiserver and kwok: minutes, once)
	$(JSON) go test -json -timeout 30m ./charts/cluster

.PHONY: cluster-tools
cluster-tools:
	@mkdir -p $(BIN) && $(LOCKED) go -C tools/kube build -o ../../$(BIN)/ k8s.io/kubernetes/cmd/kube-apiserver sigs.k8s.io/kwok/cmd/kwok
	@$(LOCKED) install -m 644 -Dt .cache/stages "$$(go -C tools/kube list -m -f '{{.Dir}}' sigs.k8s.io/kwok)"/kustomize/stage/{node/fast/node-initialize,node/heartbeat/node-heartbeat,node/chaos/node-not-ready,pod/fast/pod-ready,pod/fast/pod-delete}.yaml

.PHONY: generate
generate: deps ## Rebuild BPF objects (clang 16) and what mdatagen makes
	tools/generate.sh

.PHONY: check-generated
check-generated: deps gotestsum ## Generated files are what their sources make
	$(CHECK) tools/generate.sh --check
