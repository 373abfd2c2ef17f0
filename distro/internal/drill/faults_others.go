//go:build !linux

package drill

// All returns no drill: a real kernel fault needs Linux.
func All() []Drill { return nil }
