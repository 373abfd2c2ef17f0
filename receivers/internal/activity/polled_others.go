//go:build !linux

package activity

// polled is for Linux: other systems have no process_vm_readv.
func (s *search) polled(uint32, uint64, int) []polledFile { return nil }
