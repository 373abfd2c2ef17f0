//go:build linux && (amd64 || arm64)

package fusefaultreceiver

import "github.com/tracecoreai/tracecore/bpf/fusefault"

// openSource opens the probe at the best rung of this kernel. It lists what is older
// than the threshold alone: the rest need not be looked at.
func openSource(config *Config) (source, error) {
	return fusefault.Open(fusefault.Options{MinAge: config.Threshold, ProcRoot: config.ProcRoot})
}
