//go:build !cgo

package godcgm

import "github.com/tracecoreai/tracecore/receivers/dcgmreceiver/internal/dcgm"

const built = false

// New returns nil: this build has no cgo.
func New() dcgm.Engine { return nil }
