//go:build !linux || !(amd64 || arm64)

package stacksreceiver

import "github.com/tracecoreai/tracecore/receivers/internal/probereceiver"

func openSource() (source, error) { return nil, probereceiver.NotHere("stack reader") }
