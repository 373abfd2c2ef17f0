//go:build linux && (amd64 || arm64)

package pyexceptionreceiver

import "github.com/tracecoreai/tracecore/bpf/pyexception"

// openSource opens the Python exception probe.
func openSource(config *Config, wanted func(pid uint32) bool) (source, error) {
	return pyexception.Open(pyexception.Options{MaxInterpreters: config.MaxInterpreters, NoMessages: !config.Messages, Wanted: wanted})
}
