// Package nvmltest makes NVIDIA GPUs for tests: tracecore-nvml as it is shipped,
// and a libnvidia-ml.so.1 whose GPUs follow a script (testdata/libnvidia-ml.c).
package nvmltest

import (
	"testing"

	"github.com/tracecoreai/tracecore/receivers/internal/gpu/gputest"
)

// Host is a machine with GPUs: the receiver's settings helper and library.
type Host = gputest.Host

// New builds helper and library.
func New(t testing.TB) *Host {
	return gputest.New(t, gputest.Stand{
		Helper: "receivers/nvmlreceiver/cmd/tracecore-nvml", Library: "libnvidia-ml.so.1", Source: "receivers/nvmlreceiver/nvmltest",
		File: "libnvidia-ml.c", Module: "github.com/NVIDIA/go-nvml", Headers: "pkg/nvml", Script: "TRACECORE_NVML_SCRIPT",
	})
}
