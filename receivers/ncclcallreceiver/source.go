//go:build linux && (amd64 || arm64)

package ncclcallreceiver

import "github.com/tracecoreai/tracecore/bpf/ncclcall"

// openSource opens the NCCL call probe.
func openSource(config *Config) (source, error) {
	return ncclcall.Open(ncclcall.Options{MaxLibraries: config.MaxLibraries, MaxStepped: config.MaxSteppedCalls})
}
