//go:build linux && (amd64 || arm64)

package kerneleventsreceiver

import "github.com/tracecoreai/tracecore/bpf/kmsg"

// openSource opens the kernel-log probe at the best rung of this kernel.
func openSource() (source, error) { return kmsg.Open(kmsg.Options{}) }
