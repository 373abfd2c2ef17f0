//go:build linux && (amd64 || arm64)

package ncclsockreceiver

import "github.com/tracecoreai/tracecore/bpf/ncclsock"

// openSource opens the socket probe at the best rung of this kernel.
func openSource(maxSockets, maxOwners uint32) (source, error) {
	opened, err := ncclsock.Open(ncclsock.Options{MaxSockets: maxSockets, MaxOwners: maxOwners})
	if err != nil {
		return nil, err // and no nil *Probe inside a source that is not nil
	}
	return opened, nil
}
