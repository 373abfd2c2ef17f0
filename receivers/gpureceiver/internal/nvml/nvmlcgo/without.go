//go:build !cgo

package nvmlcgo

import "github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/nvml"

const built = false

// New returns nil: this build has no cgo.
func New(string) nvml.Library { return nil }
