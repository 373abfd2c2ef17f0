//go:build !linux || !(amd64 || arm64)

package ncclsockreceiver

import "github.com/tracecoreai/tracecore/receivers/internal/probereceiver"

func openSource(*Config) (source, error) { return nil, probereceiver.NotHere("socket probe") }
