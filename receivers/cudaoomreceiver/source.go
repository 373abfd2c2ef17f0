//go:build linux && (amd64 || arm64)

package cudaoomreceiver

import "github.com/tracecoreai/tracecore/bpf/cudaoom"

// openSource opens the CUDA memory probe.
func openSource(config *Config) (source, error) {
	return cudaoom.Open(cudaoom.Options{MaxLibraries: config.MaxLibraries})
}
