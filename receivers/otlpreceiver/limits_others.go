//go:build !unix

package otlpreceiver

// maxOpenFiles is how many files the process may open: no limit is known.
func maxOpenFiles() int { return 1 << 20 }
