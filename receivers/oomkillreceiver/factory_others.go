//go:build !linux || !(amd64 || arm64)

package oomkillreceiver

import "github.com/tracecoreai/tracecore/receivers/internal/probereceiver"

func openSource(string) (source, error) { return nil, probereceiver.NotHere("OOM-kill probe") }
