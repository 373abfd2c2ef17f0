//go:build linux && (amd64 || arm64)

package ncclsockreceiver

import "github.com/tracecoreai/tracecore/bpf/ncclsock"

// openSource opens the socket probe at the best rung of this kernel.
func openSource(config *Config) (source, error) {
	return ncclsock.Open(ncclsock.Options{MaxSockets: config.MaxSockets, MaxOwners: config.MaxProcesses})
}
