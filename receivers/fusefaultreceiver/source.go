//go:build linux && (amd64 || arm64)

package fusefaultreceiver

import (
	"github.com/tracecoreai/tracecore/bpf/fusefault"
	"github.com/tracecoreai/tracecore/receivers/fusefaultreceiver/internal/node"
)

// openSource opens the probe at the best rung of this kernel. It lists
// what is older than the threshold alone: the rest need not be looked at.
func openSource(config *Config) (source, machine, error) {
	opened, err := fusefault.Open(fusefault.Options{MinAge: config.Threshold})
	if err != nil {
		return nil, nil, err // and no nil *Probe inside a source that is not nil
	}
	return opened, node.Open(config.ProcRoot, ""), nil
}
