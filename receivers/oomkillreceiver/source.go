//go:build linux && (amd64 || arm64)

package oomkillreceiver

import (
	"github.com/tracecoreai/tracecore/bpf/oomkill"
	"github.com/tracecoreai/tracecore/bpf/pin"
)

// openSource opens the OOM-kill probe at the best rung of this kernel.
func openSource(folder string) (source, error) {
	if folder == "" {
		_, _ = pin.Forget(pin.Root, oomkill.Name) // it does no harm; tracecore unpin says why it stays
	}
	return oomkill.Open(oomkill.Options{Pin: folder})
}
