//go:build !linux

package procfs

import (
	"errors"
	"os"
)

func open(name string) (*os.File, error) { return os.Open(name) }

func openRegular(string, uint64) (*os.File, error) { return nil, errors.ErrUnsupported }
