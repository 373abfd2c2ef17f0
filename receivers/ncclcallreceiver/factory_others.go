//go:build !linux || !(amd64 || arm64)

package ncclcallreceiver

import "github.com/tracecoreai/tracecore/receivers/internal/probereceiver"

func openSource(*Config) (source, error) { return nil, probereceiver.NotHere("NCCL call probe") }
