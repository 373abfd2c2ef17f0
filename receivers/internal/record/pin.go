package record

import (
	"fmt"
	"path/filepath"
)

// CheckPin reports a folder for pins that cannot be one. Empty is right: nothing is pinned.
func CheckPin(folder string) error {
	if folder != "" && !filepath.IsAbs(folder) {
		return fmt.Errorf("pin: %q is relative: give the whole path, such as /sys/fs/bpf/tracecore", folder)
	}
	return nil
}
