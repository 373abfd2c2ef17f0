// Package nvmlreceiver reads NVIDIA GPUs through NVIDIA's Management Library:
// telemetry as metrics, faults as records. The library runs in a process of its
// own, cmd/tracecore-nvml, since it can hang and crash.
package nvmlreceiver

//go:generate go tool -modfile=../../tools/go.mod mdatagen metadata.yaml
//go:generate go tool -modfile=../../tools/go.mod goimports -w internal/metadata
