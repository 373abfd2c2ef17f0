//go:build linux && (amd64 || arm64)

package oomkillreceiver

import "github.com/tracecoreai/tracecore/bpf/oomkill"

// openSource opens the OOM-kill probe at the best rung of this kernel.
func openSource() (source, error) { return oomkill.Open(oomkill.Options{}) }
