//go:build linux

package kerninfo

import (
	"fmt"
	"io/fs"
	"strings"
)

// Capabilities is the effective capability set of this process; root is "/". It has all
// bits where /proc does not say it, so that no hint blames a capability without knowing.
func Capabilities(root fs.FS) (uint64, error) {
	status, err := fs.ReadFile(root, "proc/self/status")
	if err != nil {
		return ^uint64(0), err
	}
	for line := range strings.Lines(string(status)) {
		var caps uint64
		if n, _ := fmt.Sscanf(line, "CapEff: %x", &caps); n == 1 {
			return caps, nil
		}
	}
	return ^uint64(0), nil
}
