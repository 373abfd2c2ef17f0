//go:build linux && (amd64 || arm64)

package cudaoomreceiver

import "github.com/tracecoreai/tracecore/bpf/cudaoom"

// openSource opens the CUDA memory probe.
func openSource(maxLibraries int) (source, error) {
	opened, err := cudaoom.Open(cudaoom.Options{MaxLibraries: maxLibraries})
	if err != nil {
		return nil, err // and no nil *Probe inside a source that is not nil
	}
	return opened, nil
}
