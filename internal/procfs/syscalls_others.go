//go:build !amd64 && !arm64

package procfs

// syscalls has no names for this architecture: the probes are built for two others.
var syscalls map[int64]call
