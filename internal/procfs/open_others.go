//go:build !linux

package procfs

import (
	"errors"
	"os"
)

func openRegular(string, uint64) (*os.File, error) { return nil, errors.ErrUnsupported }
