//go:build !linux

package process

import "runtime/debug"

// confine bounds the memory that the garbage collector aims at; the limits of Linux
// are not there.
func confine() error {
	debug.SetMemoryLimit(224 << 20)
	return nil
}
