// Package dcgmreceiver reads NVIDIA GPUs from a host engine of NVIDIA's Data
// Center GPU Manager: telemetry and profiling as metrics, faults, health and
// violated policies as records. The library runs in a process of its own,
// cmd/tracecore-dcgm, since it can hang and crash.
package dcgmreceiver

//go:generate go tool -modfile=../../tools/go.mod mdatagen metadata.yaml
//go:generate go tool -modfile=../../tools/go.mod goimports -w internal/metadata
