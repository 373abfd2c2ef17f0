//go:build !linux

package procfs

import (
	"errors"
	"os"
)

func open(name string) (*os.File, error) { return os.Open(name) }

func (*FS) openMapped(uint32, *Mapping) (*os.File, error) { return nil, errors.ErrUnsupported }

// IsDevice knows no device here.
func IsDevice(string, uint32, uint32) bool { return false }
