//go:build linux && (amd64 || arm64)

package oomkillreceiver

import "github.com/tracecoreai/tracecore/bpf/oomkill"

// openSource opens the OOM-kill probe at the best rung of this kernel.
func openSource() (source, error) {
	opened, err := oomkill.Open(oomkill.Options{})
	if err != nil {
		return nil, err // and no nil *Probe inside a source that is not nil
	}
	return opened, nil
}
