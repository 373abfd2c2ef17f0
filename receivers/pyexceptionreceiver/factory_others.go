//go:build !linux || !(amd64 || arm64)

package pyexceptionreceiver

import "github.com/tracecoreai/tracecore/receivers/internal/probereceiver"

func openSource(*Config, func(uint32) bool) (source, error) {
	return nil, probereceiver.NotHere("Python exception probe")
}
