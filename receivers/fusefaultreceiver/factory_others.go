//go:build !linux || !(amd64 || arm64)

package fusefaultreceiver

import "github.com/tracecoreai/tracecore/receivers/internal/probereceiver"

func openSource(*Config) (source, error) { return nil, probereceiver.NotHere("FUSE probe") }

func openMachine(*Config) machine { return nowhere{} }

// nowhere is the machine of a probe that never opens.
type nowhere struct{ machine }

func (nowhere) StuckReads() uint64 { return 0 }
