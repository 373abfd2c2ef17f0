# One set of flags for build, run and test: another set compiles everything again.
export CGO_ENABLED := 0
export GOFLAGS := -trimpath -buildvcs=false

.PHONY: build
build: ## Build bin/tracecore
	go build -ldflags '-s -w' -o bin/tracecore ./distro/cmd/tracecore
