//go:build !cgo

package dcgmcgo

import "github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/dcgm"

const built = false

// New returns nil: this build has no cgo.
func New() dcgm.Engine { return nil }
