//go:build linux && (amd64 || arm64)

package kerneleventsreceiver

import "github.com/tracecoreai/tracecore/bpf/kmsg"

// openSource opens the kernel-log probe at the best rung of this kernel.
func openSource() (source, error) {
	opened, err := kmsg.Open(kmsg.Options{})
	if err != nil {
		return nil, err // and no nil *Probe inside a source that is not nil
	}
	return opened, nil
}
