//go:build !cgo

package gonvml

import "github.com/tracecoreai/tracecore/receivers/internal/gpu/nvml"

const built = false

// New returns nil: this build has no cgo.
func New(string) nvml.Library { return nil }
