// Package dcgmtest makes NVIDIA GPUs under a DCGM host engine for tests:
// tracecore-dcgm as it is shipped, and a libdcgm.so.4 whose engine and GPUs follow
// a script (testdata/libdcgm.c).
package dcgmtest

import (
	"testing"

	"github.com/tracecoreai/tracecore/receivers/internal/gpu/gputest"
)

// Endpoint is where the engine of the stand-in listens.
const Endpoint = "unix:///run/stand-in.sock"

// Host is a machine with GPUs: the receiver's setting helper; library_folder is
// the folder of Library.
type Host = gputest.Host

// Module and Headers are where the true headers of DCGM come from.
const (
	Module  = "github.com/NVIDIA/go-dcgm"
	Headers = "pkg/dcgm"
)

// New builds helper and library.
func New(t testing.TB) *Host {
	t.Setenv("TRACECORE_DCGM_ADDRESS", Endpoint)
	return gputest.New(t, gputest.Stand{
		Helper: "receivers/dcgmreceiver/cmd/tracecore-dcgm", Library: "libdcgm.so.4", Source: "receivers/dcgmreceiver/dcgmtest",
		File: "libdcgm.c", Module: Module, Headers: Headers, Script: "TRACECORE_DCGM_SCRIPT",
	})
}
