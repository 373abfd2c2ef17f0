// Package gpureceiver reads NVIDIA GPUs: telemetry as metrics, faults as records,
// under the same names whichever source tells them. The source is NVML, the
// driver's own library, or a host engine of DCGM. The library of either runs in a
// process of its own, cmd/tracecore-gpu, since it can hang and crash.
package gpureceiver

//go:generate go run -C ../../tools ./events ../receivers/gpureceiver
