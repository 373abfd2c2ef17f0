//go:build linux

package command

import "github.com/tracecoreai/tracecore/bpf/pin"

// forgetPins returns how many sets of pins it has removed.
func forgetPins(folder string) (int, error) { return pin.Forget(folder, "") }
