//go:build !linux

package command

// shedAfterStart has nothing to do: the agent runs on Linux.
func shedAfterStart() (stop func() bool) { return func() bool { return false } }
