//go:build !linux || !(amd64 || arm64)

package kerneleventsreceiver

import "github.com/tracecoreai/tracecore/receivers/internal/probereceiver"

func openSource() (source, error) { return nil, probereceiver.NotHere("kernel-log probe") }
